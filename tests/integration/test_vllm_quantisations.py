"""Which quantised weights import takes, beside what vLLM itself says of their settings, and what it serves."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)

from support.quantised_checkpoints import write_quantised
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
from vllm.model_executor.layers.quantization.utils.marlin_utils import MARLIN_SUPPORTED_GROUP_SIZES

from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.errors import ModelError
from troth.node.models.folder import open_folder
from troth.node.models.quantised_layouts import awq, gptq

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

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
    """Every mixture of bits, symmetry, order and groups, and of one rule of `dynamic` for another layer."""
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


@pytest.mark.parametrize("form", ["gptq", "awq"])
async def test_what_is_said_to_run_on_a_cpu_runs_there(form: str, tmp_path: Path) -> None:
    folder = open_folder(write_quantised(form, tmp_path / "tiny", **SIZES))
    engine = VllmEngine(folder, EngineSettings(folder.path, 1, positions=64, cache_bytes=1 << 27, threads=1))
    try:
        assert (await engine.prefill([*range(20)])).rows.any()
    finally:
        await engine.close()
