"""Which quantised weights import takes, beside what vLLM itself says of their settings, and what it serves."""

from __future__ import annotations

import importlib.util
import itertools
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)

from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from support.judged_rows import WHOLE, cheated, judged
from support.ordinary_texts import TEXT, tokens_of
from support.packaged_models import packaged_model
from support.quantised_checkpoints import AWQ_ORDER, pack, write_quantised
from support.quantised_models import quantised_model
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig, _convert_awq_to_standard_format
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
from vllm.model_executor.layers.quantization.utils.marlin_utils import MARLIN_SUPPORTED_GROUP_SIZES
from vllm.model_executor.layers.quantization.utils.quant_utils import unpack_quantized_values_into_int32
from vllm.scalar_type import scalar_types

from troth.node.calibration import tampering
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.machine import require_words
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.errors import ConfigError, ModelError
from troth.node.models.execution_class import SECOND_CUT
from troth.node.models.folder import open_folder
from troth.node.models.quantised_layouts import awq, compressed, gptq
from troth.node.models.thresholds import rough_comparison
from troth.protocol.agreement import AgreementRule
from troth.protocol.tensors import Dtype, widen
from troth.protocol.trace import TileLayout
from troth.protocol.types import ZERO_HASH, Segment

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

RULES: Any = SimpleNamespace(dtype=1, second_cut=SECOND_CUT, calibration=ZERO_HASH, **rough_comparison(1))
CHEATS = (
    partial(tampering.quantise_weights, bits=8),
    partial(tampering.rounded_weights, rule=partial(tampering.rounded, bits=3, group=32)),
)
ABSENT = "absent"
SIZES: dict[str, Any] = {
    # Kernels of vLLM for CPU know some sizes of heads only.
    "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "num_hidden_layers": 2,
}  # fmt: skip


def named(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value != ABSENT}


def taken(layout: Any, told: dict[str, Any]) -> bool:
    """By import, of layers outside of experts."""
    try:
        return not layout(told).for_experts
    except ModelError:
        return False


def test_import_takes_of_gptq_what_vllm_takes() -> None:
    """Every mixture of bits, symmetry, order and groups."""
    compared = 0
    for bits, sym, order, size in itertools.product(
        (2, 3, 4, 8), (True, False, ABSENT), (True, False, ABSENT), (-1, 8, 16, 32, 64, 128, 256, ABSENT)
    ):
        told = named(quant_method="gptq", bits=bits, sym=sym, desc_act=order, group_size=size)
        try:
            theirs = AutoGPTQConfig.from_config(told).group_size in MARLIN_SUPPORTED_GROUP_SIZES
        except ValueError:
            theirs = False
        assert taken(gptq, told) == theirs, told
        compared += theirs
    assert compared == 2 * 4 + 2  # 4 and 8 bits, symmetric, without an order; and with one where all are one group


def test_import_takes_of_awq_what_vllm_takes() -> None:
    for bits, zeros, size in itertools.product((3, 4, 8), (True, ABSENT), (-1, 32, 128, ABSENT)):
        told = named(quant_method="awq", bits=bits, zero_point=zeros, group_size=size, version="gemm")
        try:
            AutoAWQConfig.from_config(told)
            theirs = True
        except ValueError:
            theirs = False
        assert taken(awq, told) == theirs, told


def agreeing(claimed: np.ndarray, own: np.ndarray) -> list[bool]:
    """Of each tile, whether the contract takes both parties' for one computation's."""
    rule = AgreementRule(Dtype.BFLOAT16, RULES.mantissa_bits, RULES.steps, RULES.theta)
    layout = TileLayout(bytes(32), bytes(32), *own.shape, Dtype.BFLOAT16)
    tiles = zip(layout.cut(claimed), layout.cut(own), strict=True)
    return [rule.agrees(first.tobytes(), second.tobytes()) for first, second in tiles]


def torch_numbers(*shape: int, high: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


def bfloat16_scales(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(9)).add(0.01).bfloat16()


def test_words_of_awq_are_what_vllm_converts_them_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("rank", 0), ("world_size", 1)):
        monkeypatch.setattr(
            f"vllm.model_executor.parameter.get_tensor_model_parallel_{name}", lambda value=value: value
        )
    outputs, inputs, size = 64, 96, 32
    words = pack(torch_numbers(inputs, outputs, high=16), 4, AWQ_ORDER)
    zeros = pack(torch_numbers(inputs // size, outputs, high=15), 4, AWQ_ORDER)
    scales = bfloat16_scales(inputs // size, outputs)
    layer = torch.nn.Module()
    for name, tensor in (("qweight", words), ("qzeros", zeros)):
        layer.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    _convert_awq_to_standard_format(layer, "qweight", "qzeros", 4)
    levels = unpack_quantized_values_into_int32(layer.qweight.data, scalar_types.uint4, 0)
    points = unpack_quantized_values_into_int32(layer.qzeros.data, scalar_types.uint4, 0).T
    theirs = (levels - points.repeat_interleave(size, 0)).float() * scales.float().repeat_interleave(size, 0)
    layout = awq({"bits": 4, "group_size": size, "zero_point": True})
    parts = {".qweight": words, ".qzeros": zeros, ".scales": scales}
    assert torch.equal(layout.numbers(parts, (outputs, inputs), torch.bfloat16), theirs.T.bfloat16())


@pytest.mark.parametrize(("bits", "kind"), [(4, scalar_types.uint4b8), (8, scalar_types.uint8b128)])
def test_words_of_gptq_are_what_vllm_takes_them_for(bits: int, kind: Any) -> None:
    outputs, inputs, size = 64, 96, 32
    words = pack(torch_numbers(outputs, inputs, high=2**bits), bits).T
    scales = bfloat16_scales(inputs // size, outputs)
    levels = unpack_quantized_values_into_int32(words, kind, 0) - kind.bias
    theirs = levels.float() * scales.float().repeat_interleave(size, 0)
    layout = gptq({"bits": bits, "group_size": size, "sym": True, "desc_act": False})
    parts = {".qweight": words, ".scales": scales}
    assert torch.equal(layout.numbers(parts, (outputs, inputs), torch.bfloat16), theirs.T.bfloat16())


def decompressed(form: str, told: dict[str, Any], weight: torch.Tensor, **beside: torch.Tensor) -> None:
    """Compressed and decompressed by compressed-tensors, and read by us."""
    args = QuantizationArgs(**told)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=form)
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress({"weight": weight, **beside}, scheme)
    theirs = compressor.decompress(packed, scheme)["weight"]
    layout = compressed({"weights": told}, form)
    parts = {f".{name}": tensor for name, tensor in packed.items()}
    found = layout.numbers(parts, tuple(weight.shape), torch.bfloat16)
    assert torch.equal(found, theirs.to(torch.bfloat16)), told


def test_packed_words_are_what_their_library_decompresses_them_to() -> None:
    """Every mixture of bits, symmetry, groups and their order, of shapes that fill words and that do not."""
    for bits, symmetric, strategy, order, inputs in itertools.product(
        (2, 4, 8), (True, False), ("group", "channel"), (None, "weight", "group"), (64, 96)
    ):
        if strategy == "channel" and order is not None:
            continue
        outputs, count, half = 40, (inputs // 32 if strategy == "group" else 1), 2 ** (bits - 1)
        told: dict[str, Any] = {
            "num_bits": bits, "type": "int", "strategy": strategy, "symmetric": symmetric,
            "group_size": 32 if strategy == "group" else None, "actorder": order,
        }  # fmt: skip
        scales = bfloat16_scales(outputs, count)
        points = torch_numbers(outputs, count, high=2 * half) - half if not symmetric else torch.zeros(outputs, count)
        groups = torch.randperm(inputs, generator=torch.Generator().manual_seed(1)) // 32
        beside = {"weight_g_idx": groups.int()} if order == "group" else {}
        weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(2)).bfloat16() * half / 4
        decompressed(
            "pack-quantized", told, weight,
            weight_scale=scales, weight_zero_point=points.to(torch.int8), **beside,
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["int", "float"])
def test_numbers_of_eight_bits_are_what_their_library_decompresses_them_to(kind: str) -> None:
    shapes = {"tensor": (1,), "channel": (48, 1), "group": (48, 2), "block": (3, 2)}
    for strategy, shape in shapes.items():
        told = {
            "num_bits": 8, "type": kind, "strategy": strategy, "symmetric": True,
            "group_size": 32 if strategy == "group" else None,
            "block_structure": [16, 32] if strategy == "block" else None,
        }  # fmt: skip
        weight = torch.randn(48, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
        scales = bfloat16_scales(*shape)
        decompressed("naive-quantized", told, weight, weight_scale=scales, weight_zero_point=torch.zeros(shape).char())


def test_nvfp4_is_what_its_library_decompresses_it_to() -> None:
    """Their product is rounded three times to ours once, so that they are a few last bits apart."""
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    divisor = (448 * 6 / weight.abs().amax().float()).reshape(1)
    scale = weight.float().reshape(32, 4, 16).abs().amax(2) / 6 * divisor
    told: dict[str, Any] = {
        "num_bits": 4, "type": "float", "strategy": "tensor_group", "symmetric": True, "group_size": 16,
        "scale_dtype": torch.float8_e4m3fn, "zp_dtype": torch.float8_e4m3fn,
    }  # fmt: skip
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**told), format="nvfp4-pack-quantized")
    compressor = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized")
    packed = compressor.compress({"weight": weight, "weight_scale": scale, "weight_global_scale": divisor}, scheme)
    theirs = compressor.decompress(packed, scheme)["weight"]
    layout = compressed({"weights": told}, "nvfp4-pack-quantized")
    parts = {f".{name}": tensor for name, tensor in packed.items()}
    found = layout.numbers(parts, (32, 64), torch.bfloat16)
    assert theirs.any()
    assert torch.allclose(found.float(), theirs.float(), rtol=2**-6, atol=0)


@pytest.mark.parametrize("form", ["gptq", "awq", "pack-quantized"])
async def test_what_is_said_to_run_on_a_cpu_runs_there_and_is_near_its_reference(form: str, tmp_path: Path) -> None:
    """A tolerant class: the reference is torch's, of the weights that words stand for."""
    folder = open_folder(write_quantised(form, tmp_path / "tiny", **SIZES))
    try:
        require_words(folder.quantisation)
    except ConfigError as error:
        pytest.skip(str(error))
    settings = EngineSettings(folder.path, 1, positions=64, cache_bytes=1 << 27, threads=1, exact=False)
    engine, torch_engine = VllmEngine(folder, settings), TorchEngine(folder, Segment(0, 2), 1, threads=1)
    tokens = np.arange(20)
    try:
        reference = await engine.reference(engine.slice, tokens)
        by_vllm = widen((await engine.prefill(tokens.tolist())).rows, Dtype.BFLOAT16)
        by_torch = await torch_engine.forward(SessionKey(b"node", 0, 0), torch_engine.slice, 0, tokens)
    finally:
        await engine.close()
        await torch_engine.close()
    apart = [np.linalg.norm(rows - reference) for rows in (by_vllm, widen(by_torch.rows, Dtype.BFLOAT16))]
    assert apart[0] < 1.25 * apart[1], "no further from the reference than torch's own rows are"


@pytest.mark.model
@pytest.mark.parametrize("form", ["whole", "gptq", "awq", "pack-quantized"])
async def test_nodes_of_both_engines_judge_each_other(form: str) -> None:
    """Real weights: each accepts what the other computes, and refuses who serves them in eight bits, or in three."""
    folder = quantised_model(form)
    try:
        require_words(folder.quantisation)
    except ConfigError as error:
        pytest.skip(str(error))
    tokens = tokens_of(packaged_model(), TEXT)[:72]
    settings = EngineSettings(folder.path, 1, positions=128, cache_bytes=1 << 28, exact=False)
    engines = TorchEngine(folder, WHOLE, 1), VllmEngine(folder, settings)
    try:
        for node, verifier in (engines, engines[::-1]):
            claimed = (await node.forward(SessionKey(b"node", 0, 0), WHOLE, 0, np.array(tokens))).rows
            found = await judged(verifier, RULES, tokens, claimed)
            assert found.verdict, (type(node), found.states)
            own = (await verifier.forward(SessionKey(b"verifier", 0, 0), WHOLE, 0, np.array(tokens))).rows
            assert set(agreeing(claimed, own)) == {True}, (
                "or clients would take an accepted answer for one of no majority"
            )
            assert set(agreeing(cheated(folder, tokens, CHEATS[-1]), own)) == {False}
            for change in CHEATS:
                found = await judged(verifier, RULES, tokens, cheated(folder, tokens, change))
                assert found.refused, (type(verifier), change)
    finally:
        for engine in engines:
            await engine.close()
