"""Canonical arithmetic: gas of one step, how far torch's layers are from it, and how far cheats.

Distances are those of a layer's output, given the same input: the largest difference of one number over the root mean
square of its row, at the position where it is largest. Honest ones are the largest of all layers, cheats' the smallest
of some, so that a tolerance between them convicts no honest machine and lets none of these cheats pass. The weight that
is wrong is one of median size, doubled. A segment is all layers, each side going on from its own states.

Options: --gas, --layers, --segment, --functions take only some parts (--functions takes half an hour, and is left out
unless it is asked for); --positions N; --stride N for honest layers, of which every Nth is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from conftest import anvil_process
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer
from web3 import Web3

from benchmarks import boundaries
from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.layers import LayerRows, layer_rows
from troth.protocol.arithmetic.operations import Operation, StepKind
from troth.protocol.arithmetic.shapes import layer_shape
from troth.protocol.exact_numbers import NumberFormat

ROOT = Path(__file__).resolve().parents[2]
HARNESS = "contracts/test/ArithmeticHarness.sol"
FORMATS = {NumberFormat.FLOAT32: torch.float32, NumberFormat.BFLOAT16: torch.bfloat16}
CHEATED = (0, 1, 10, 20, 28, 29)
"""Layers in which cheats are tried."""
MATRICES = ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
PARTS = ("gas", "layers", "segment")
TEXT = """The town of Aldmere lies where two rivers meet. Its mills have turned since before anyone wrote down who built
them, and on market days the bridge is so full of carts that children cross the water in barrels instead. """
Numbers = NDArray[np.float32]
Weights = Mapping[str, Numbers]


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """The parts that options name, or all but functions."""
    parser = argparse.ArgumentParser(prog="scripts/bench arithmetic", description=__doc__)
    for part in (*PARTS, "functions"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--positions", type=int, default=32)
    parser.add_argument("--stride", type=int, default=1)
    chosen = parser.parse_args(list(options))
    wanted = [part for part in (*PARTS, "functions") if getattr(chosen, part)] or list(PARTS)
    figures = _gas() if "gas" in wanted else []
    for number_format in FORMATS:
        if "layers" in wanted:
            figures += _layers(number_format, chosen.positions, chosen.stride)
        if "segment" in wanted:
            figures += _segment(number_format, chosen.positions)
    return figures + (boundaries.measure() if "functions" in wanted else [])


# ------------------------------------------------------------------------------------------------------------------ gas


def _gas() -> list[Figure]:
    script = ROOT / "tests" / "contracts" / "compile_library_harness.mjs"
    made = subprocess.run(["node", script, ROOT, HARNESS], capture_output=True, text=True, check=True)
    compiled = json.loads(made.stdout)
    with anvil_process() as anvil:
        web3 = Web3(Web3.HTTPProvider(anvil.url))
        factory = web3.eth.contract(abi=compiled["abi"], bytecode=compiled["bytecode"])
        address = _mined(web3, factory.constructor())["contractAddress"]
        harness = web3.eth.contract(address=address, abi=compiled["abi"])
        return [_step_gas(web3, harness, step) for step in _measured_steps()]


class _Step(NamedTuple):
    name: str
    kind: StepKind
    operands: list[list[int]]
    constants: list[int]
    reach: int | None = None


def _measured_steps() -> Iterator[_Step]:
    source = np.random.default_rng(1)

    def row(count: int, size: float = 1.0) -> list[int]:
        return [int(bits) for bits in (source.normal(size=count) * size).astype(np.float32).view(np.uint32)]

    for columns in (64, 576, 1_536):
        reach = 400_000 if columns == 576 else None
        yield _Step(f"product of {columns}", StepKind.PRODUCT, [row(columns), row(columns, 0.02)], [], reach)
    yield _Step("factor of 576", StepKind.FACTOR, [row(576)], [0x3727C5AC])
    yield _Step("score of 64", StepKind.SCORE, [row(64), row(64)], [0x3E000000])
    yield _Step("maximum of 256", StepKind.MAXIMUM, [row(256)], [])
    yield _Step("sum of 256", StepKind.SUM, [row(256)], [])
    for name, kind, count, constants in (
        ("norm", StepKind.NORM, 3, [0]), ("norm by 1 + w", StepKind.NORM, 3, [1]),
        ("cosine", StepKind.COSINE, 0, [777, 0x3F3FFFFF]), ("rotation", StepKind.ROTATION, 4, [0]),
        ("cap", StepKind.CAP, 1, [0x42480000]), ("exponential", StepKind.EXPONENTIAL, 2, []),
        ("quotient", StepKind.QUOTIENT, 2, []), ("addition", StepKind.ADDITION, 2, []),
        ("gating, silu", StepKind.GATING, 2, [0]), ("gating, gelu", StepKind.GATING, 2, [1]),
    ):  # fmt: skip
        yield _Step(name, kind, [row(1) for _ in range(count)], constants)


def _step_gas(web3: Web3, harness: Any, step: _Step) -> Figure:
    element = steps.evaluate(step.kind, step.operands, step.constants, NumberFormat.FLOAT32)
    given = [(0, False, np.array(operand, "<u4").tobytes()) for operand in step.operands]
    receipt = _mined(web3, harness.functions.check((int(step.kind), given, step.constants, 0), element))
    note = "a transaction of its own"
    return Figure(f"one step, {step.name}", receipt["gasUsed"], "gas", reach=step.reach, note=note)


def _mined(web3: Web3, call: Any) -> Any:
    return web3.eth.wait_for_transaction_receipt(call.transact({"from": web3.eth.accounts[0]}))


# --------------------------------------------------------------------------------------------------------------- layers


class _Model:
    """The real model in one dtype: its weights, and what each of its layers reads and gives."""

    def __init__(self, number_format: NumberFormat, attention: str, positions: int) -> None:
        folder = weights()
        self.config, self.format = folder.config, number_format
        made = AutoModelForCausalLM.from_pretrained(
            folder.path, dtype=FORMATS[number_format], attn_implementation=attention
        ).eval()
        self.tensors = {name: tensor.float().numpy() for name, tensor in made.state_dict().items()}
        tokens = AutoTokenizer.from_pretrained(folder.path)(TEXT * 20)["input_ids"][:positions]
        self.states: list[Numbers] = []
        for layer in made.model.layers:
            layer.register_forward_pre_hook(self._keep)
        made.model.norm.register_forward_pre_hook(self._keep)
        with torch.inference_mode():
            made(torch.tensor([tokens]), use_cache=False)

    def _keep(self, module: Any, arguments: tuple[Any, ...]) -> None:
        self.states.append(arguments[0][0].float().numpy())

    @property
    def layers(self) -> int:
        return len(self.states) - 1

    def weights_of(self, layer: int) -> dict[str, Numbers]:
        prefix = f"model.layers.{layer}."
        return {name: tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}

    def computed(self, layer: int, states: Numbers, tensors: Weights | None = None) -> Numbers:
        """The canonical output of a layer."""
        shape = layer_shape(self.config, layer, self.format)
        rows: LayerRows = layer_rows(shape, self.weights_of(layer) if tensors is None else tensors, states)
        return rows.numbers[Operation.OUTPUT]


def distance(found: Numbers, canonical: Numbers) -> float:
    """The largest difference of one number over the root mean square of its row."""
    wide = canonical.astype(np.float64)
    sizes = np.sqrt((wide**2).mean(axis=1, keepdims=True))
    return float((np.abs(found - wide) / sizes).max())


def _layers(number_format: NumberFormat, positions: int, stride: int) -> list[Figure]:
    name, unit = number_format.name.lower(), "of the row's RMS"
    figures = []
    for attention in ("sdpa", "eager"):
        model = _Model(number_format, attention, positions)
        off = [
            distance(model.states[layer + 1], model.computed(layer, model.states[layer]))
            for layer in range(0, model.layers, stride)
        ]
        note = f"{positions} positions of {len(off)} layers, median of layers {np.median(off):.1e}"
        figures.append(Figure(f"honest layer, {name}, {attention}: furthest", max(off), unit, note=note))
    cheats: dict[str, list[float]] = {}
    for layer in CHEATED:
        states = model.states[layer]
        canonical, mine = model.computed(layer, states), model.weights_of(layer)
        cheats.setdefault("int8 weights", []).append(distance(model.computed(layer, states, _int8(mine)), canonical))
        cheats.setdefault("layer skipped", []).append(distance(states, canonical))
        for matrix in MATRICES:
            wrong = _one_wrong(mine, f"model.layers.{layer}.{matrix}.weight")
            found = distance(model.computed(layer, states, wrong), canonical)
            cheats.setdefault(f"one wrong weight of {matrix}", []).append(found)
    note = f"layers {', '.join(map(str, CHEATED))}"
    return figures + [
        Figure(f"{cheat}, {name}: nearest", min(found), unit, note=note) for cheat, found in cheats.items()
    ]


def _int8(tensors: Weights) -> dict[str, Numbers]:
    """Each row of a matrix in 255 steps of its largest weight."""

    def rounded(tensor: Numbers) -> Numbers:
        if tensor.ndim == 1:
            return tensor
        step = np.abs(tensor).max(axis=1, keepdims=True) / 127
        return np.asarray(np.round(tensor / step) * step, np.float32)

    return {name: rounded(tensor) for name, tensor in tensors.items()}


def _one_wrong(tensors: Weights, name: str) -> dict[str, Numbers]:
    changed = tensors[name].copy()
    sizes = np.abs(changed).ravel()
    changed.ravel()[np.argsort(sizes)[len(sizes) // 2]] *= 2
    return {**tensors, name: changed}


def _segment(number_format: NumberFormat, positions: int) -> list[Figure]:
    model = _Model(number_format, "sdpa", positions)
    honest = int8 = model.states[0]
    for layer in range(model.layers):
        honest = model.computed(layer, honest)
        int8 = model.computed(layer, int8, _int8(model.weights_of(layer)))
    name, unit, note = number_format.name.lower(), "of the row's RMS", f"{model.layers} layers, {positions} positions"
    return [
        Figure(f"honest segment, {name}: furthest", distance(model.states[-1], honest), unit, note=note),
        Figure(f"int8 segment, {name}: furthest", distance(int8, honest), unit, note=note),
    ]
