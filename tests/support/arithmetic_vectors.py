"""Vectors of canonical arithmetic: steps of every kind with their elements, and small layers with hashes of their rows.

`python tests/support/arithmetic_vectors.py` writes tests/unit/data/arithmetic_vectors.json anew. Python, numpy and the
contract are held to that file. Numbers are the bits of float32 numbers, in hex; those of bfloat16 rows end in 0000.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.layers import LayerRows, layer_rows, rounded
from troth.protocol.arithmetic.operations import (
    LayerShape,
    Operation,
    StepKind,
    WeightSlice,
    has_operation,
    step,
    width,
)
from troth.protocol.arithmetic.shapes import layer_shape
from troth.protocol.exact_numbers import NumberFormat
from troth.protocol.hashing import keccak256

PATH = Path(__file__).parents[1] / "unit" / "data" / "arithmetic_vectors.json"
POSITIONS = 5
SIZES: dict[str, Any] = {
    "num_hidden_layers": 6, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 40, "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": False,
    "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
}  # fmt: skip
FRAMED: dict[str, Any] = {**SIZES, "hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 8, "sliding_window": 3}
STRETCHED = {
    "rope_theta": 500_000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**SIZES, "model_type": "llama", "rope_parameters": STRETCHED},
    "qwen2": {**SIZES, "model_type": "qwen2"},
    "qwen3": {**SIZES, "model_type": "qwen3"},
    "mistral": {**SIZES, "model_type": "mistral", "sliding_window": 2},
    "gemma": {**SIZES, "model_type": "gemma", "hidden_act": "gelu_pytorch_tanh", "num_key_value_heads": 1},
    "gemma2": {**FRAMED, "model_type": "gemma2", "attn_logit_softcapping": 5.0},
    "gemma3_text": {**FRAMED, "model_type": "gemma3_text"},
}
EDGES = (
    *(0x00000000, 0x80000000, 0x00000001, 0x80000003, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000),
    *(0x3F808000, 0x3F818000, 0xC2CFFFFF, 0x42B17218, 0x30800000, 0x39000000, 0xC17FFFFF, 0x7F800000, 0x7FC00000),
)
SINGLE = {
    StepKind.NORM: 3, StepKind.COSINE: 0, StepKind.SINE: 0, StepKind.ROTATION: 4, StepKind.CAP: 1,
    StepKind.EXPONENTIAL: 2, StepKind.QUOTIENT: 2, StepKind.ADDITION: 2, StepKind.GATING: 2,
}  # fmt: skip
"""How many operands of one number kinds have that are no sums."""
STEPS_OF_A_KIND = 16


def operations(shape: LayerShape) -> tuple[Operation, ...]:
    """The operations of a layer in order; one that is not among them has no rows."""
    return tuple(operation for operation in Operation if has_operation(shape, operation))


def vectors() -> dict[str, Any]:
    """All vectors."""
    return {"steps": [_written(*one) for one in _steps()], "layers": list(_layers())}


def number(source: Random) -> int:
    """An edge, any bits, or a number of the size that models have."""
    drawn = source.random()
    if drawn < 0.1:
        return source.choice(EDGES)
    if drawn < 0.15:
        return source.getrandbits(32)
    return source.getrandbits(1) << 31 | source.randrange(105, 131) << 23 | source.getrandbits(23)


def drawn_step(source: Random, kind: StepKind) -> tuple[list[list[int]], list[int], NumberFormat]:
    """Operands, constants and format of a step."""
    count = source.choice((1, 2, 7, 8, 9, 24))
    sizes = [1] * SINGLE.get(kind, 0)
    if kind not in SINGLE:
        sizes = [count] * (2 if kind in {StepKind.PRODUCT, StepKind.SCORE} else 1)
        sizes += [1] * (kind is StepKind.PRODUCT and source.random() < 0.5)
    operands = [[number(source) for _ in range(size)] for size in sizes]
    constants: list[int] = []
    if kind in {StepKind.NORM, StepKind.ROTATION, StepKind.GATING}:
        constants = [source.getrandbits(1)]
    elif kind in {StepKind.FACTOR, StepKind.SCORE, StepKind.CAP}:
        constants = [number(source)]
    elif kind in {StepKind.COSINE, StepKind.SINE}:
        constants = [source.choice((0, 1, (1 << 20) - 1, source.randrange(1 << 20))), source.randrange(0x3F800001)]
    return operands, constants, source.choice(list(NumberFormat))


def small_layer(family: str, number_format: NumberFormat) -> LayerRows:
    """All rows of a layer with weights and states that depend on nothing but the names."""
    shape = layer_shape(CONFIGS[family], 0, number_format)
    source = Random(f"{family} {int(number_format)}")
    weights = {name: _drawn(source, size, number_format) for name, size in tensor_sizes(shape).items()}
    return layer_rows(shape, weights, _drawn(source, (POSITIONS, shape.hidden), number_format))


def tensor_sizes(shape: LayerShape) -> dict[str, tuple[int, ...]]:
    """The sizes of a layer's tensors, which follow from what its steps read."""
    sizes: dict[str, tuple[int, int]] = {}
    for operation in operations(shape)[1:]:
        for element in range(width(shape, operation, 0)):
            for place in step(shape, operation, 0, element).slices:
                if isinstance(place, WeightSlice):
                    rows, columns = sizes.get(place.tensor, (0, 0))
                    sizes[place.tensor] = max(rows, place.row + 1), max(columns, place.stop)
    return {name: size if "proj.weight" in name else size[1:] for name, size in sizes.items()}


def _drawn(source: Random, size: tuple[int, ...], number_format: NumberFormat) -> NDArray[np.float32]:
    numbers = np.array([source.random() * 2 - 1 for _ in range(int(np.prod(size)))])
    return rounded(numbers.reshape(size), number_format)


def _steps() -> Iterator[tuple[StepKind, list[list[int]], list[int], NumberFormat]]:
    source = Random(34)
    for kind in StepKind:
        for _ in range(STEPS_OF_A_KIND):
            yield kind, *drawn_step(source, kind)


def _written(
    kind: StepKind, operands: list[list[int]], constants: list[int], number_format: NumberFormat
) -> dict[str, Any]:
    element = steps.evaluate(kind, operands, constants, number_format)
    return {
        "kind": kind.name,
        "operands": [[f"{bits:08x}" for bits in operand] for operand in operands],
        "constants": [f"{bits:08x}" for bits in constants],
        "format": number_format.name,
        "element": f"{element:08x}",
    }


def _layers() -> Iterator[dict[str, Any]]:
    for family in CONFIGS:
        for number_format in NumberFormat:
            rows = small_layer(family, number_format)
            yield {
                "family": family,
                "format": number_format.name,
                "rows": {one.name: rows_hash(rows, one) for one in operations(rows.shape)},
            }


def rows_hash(rows: LayerRows, operation: Operation) -> str:
    """keccak256 of an operation's rows, one after the other, as little-endian float32 numbers."""
    data = b"".join(rows.row(operation, position).astype("<u4").tobytes() for position in range(rows.positions))
    return keccak256(data).hex()


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1) + "\n")
