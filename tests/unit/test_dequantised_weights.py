"""What packed tensors stand for: by what was packed, by transformers, and as a model that is computed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from support.quantised_checkpoints import (  # noqa: E402
    AWQ_ORDER,
    FORMS,
    WEIGHTS,
    pack,
    write_quantised,
)

from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.layers import LayerSlice, Needs  # noqa: E402
from troth.node.engine.streamed import StreamedReference, reference_bytes  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import ModelError  # noqa: E402
from troth.node.models import quantised_layouts as layouts  # noqa: E402
from troth.node.models.broken_numbers import require_numbers  # noqa: E402
from troth.node.models.dequantised import FolderWeights  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.tensor_files import raw_tensors  # noqa: E402
from troth.node.models.weights import read_tensors  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch

CPU, BFLOAT16 = torch.device("cpu"), torch.bfloat16
Q = "model.layers.0.self_attn.q_proj"
SETTINGS: dict[str, Any] = {
    "awq": {"bits": 4, "zero_point": True}, "gptq": {"sym": True, "desc_act": False},
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    room, known = tmp_path_factory.mktemp("quantised"), dict[str, Path]()

    def folder(form: str) -> Path:
        if form not in known:
            torch.set_num_threads(1)
            known[form] = write_quantised(form, room / str(len(known)))
        return known[form]

    return folder


def whole(folder: ModelFolder, dtype: Any = BFLOAT16) -> dict[str, Any]:
    """All weights of a folder, by their names."""
    return dict(FolderWeights.of(folder).whole(dict(read_tensors(folder, lambda name: True)), dtype, CPU))


def number(draw: Any, high: int, *shape: int) -> Any:
    """Numbers from 0 to `high`."""
    return torch.from_numpy(np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, high + 1, shape))


def scales(draw: Any, *shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(draw(st.integers(0, 2**32))).uniform(1e-3, 2, shape)).half()


def product(levels: Any, zeros: Any, held: Any, size: int, dtype: Any) -> Any:
    """One number at a time."""
    made = torch.empty(levels.shape, dtype=dtype)
    for row, column in np.ndindex(*levels.shape):
        group = column // size
        scale = float(held[row, group].to(dtype))
        made[row, column] = (int(levels[row, column]) - int(zeros[row, group])) * scale
    return made


@settings(max_examples=15, deadline=None)
@given(st.data(), st.sampled_from([BFLOAT16, torch.float32]), st.sampled_from([8, 16, -1]))
def test_words_of_awq_hold_what_was_packed(data: Any, dtype: Any, size: int) -> None:
    outputs, inputs = 16, 32
    count = 1 if size == -1 else inputs // size
    levels, zeros = number(data.draw, 15, outputs, inputs), number(data.draw, 15, outputs, count)
    held = scales(data.draw, outputs, count)
    parts = {
        ".qweight": pack(levels.T, 4, AWQ_ORDER), ".qzeros": pack(zeros.T, 4, AWQ_ORDER), ".scales": held.T,
    }  # fmt: skip
    layout = layouts.awq({**SETTINGS["awq"], "group_size": size})
    found = layout.numbers(parts, (outputs, inputs), dtype)
    assert torch.equal(found, product(levels, zeros, held, inputs // count, dtype))


@settings(max_examples=15, deadline=None)
@given(st.data(), st.sampled_from([4, 8]), st.sampled_from([32, -1]))
def test_words_of_gptq_hold_what_was_packed(data: Any, bits: int, size: int) -> None:
    outputs, inputs = 16, 64
    count = 1 if size == -1 else inputs // size
    levels, held = number(data.draw, 2**bits - 1, outputs, inputs), scales(data.draw, outputs, count)
    layout = layouts.gptq({**SETTINGS["gptq"], "bits": bits, "group_size": size})
    found = layout.numbers({".qweight": pack(levels, bits).T, ".scales": held.T}, (outputs, inputs), BFLOAT16)
    middle = torch.full((outputs, count), 2 ** (bits - 1))
    assert torch.equal(found, product(levels, middle, held, inputs // count, BFLOAT16))


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from([2, 4, 8]), st.booleans(), st.sampled_from(["group", "channel"]), st.booleans())
def test_packed_words_hold_what_was_packed(data: Any, bits: int, symmetric: bool, strategy: str, ordered: bool) -> None:
    """Words that are not full, zero points or none, inputs of a group anywhere or side by side."""
    outputs, inputs, ordered = 20, 40, ordered and strategy == "group"
    count, factor = (5 if strategy == "group" else 1), 32 // bits
    levels, held = number(data.draw, 2**bits - 1, outputs, inputs), scales(data.draw, outputs, count)
    zeros = number(data.draw, 2**bits - 1, outputs, count)
    order = number(data.draw, count - 1, inputs) if ordered else torch.arange(inputs) // (inputs // count)
    more, higher = -inputs % factor, -outputs % factor
    parts = {
        ".weight_packed": pack(torch.nn.functional.pad(levels, (0, more)), bits),
        ".weight_scale": held,
        **({} if symmetric else {".weight_zero_point": pack(torch.nn.functional.pad(zeros.T, (0, higher)), bits).T}),
        **({".weight_g_idx": order.int()} if ordered else {}),
    }
    told = {"num_bits": bits, "strategy": strategy, "group_size": 8 if strategy == "group" else None}
    layout = layouts.compressed({"weights": {**told, "symmetric": symmetric}}, "pack-quantized")
    found = layout.numbers(parts, (outputs, inputs), BFLOAT16)
    middle = torch.full((outputs, count), 2 ** (bits - 1)) if symmetric else zeros
    wanted = product(levels, middle[:, order], held[:, order], 1, BFLOAT16)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("strategy", ["tensor", "channel", "group", "block"])
@pytest.mark.parametrize(
    ("kind", "symmetric", "ordered"),
    [("float", True, False), ("int", True, False), ("int", False, False), ("int", False, True), ("float", True, True)],
)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_numbers_of_eight_bits_are_scaled_where_they_lie(
    data: Any, kind: str, strategy: str, symmetric: bool, ordered: bool
) -> None:
    """Blocks do not have to divide the outputs; whole numbers may have zero points, and inputs a group of their own."""
    outputs, inputs = 20, 32
    ordered = ordered and strategy == "group"
    rows, size = {"tensor": (outputs, inputs), "channel": (1, inputs), "group": (1, 8), "block": (8, 16)}[strategy]
    levels = number(data.draw, 255, outputs, inputs) - 128
    held = scales(data.draw, -(-outputs // rows), inputs // size)
    zeros = torch.zeros(held.shape, dtype=torch.int64) if symmetric else number(data.draw, 255, *held.shape) - 128
    order = number(data.draw, inputs // size - 1, inputs) if ordered else torch.arange(inputs) // size
    weight = levels.to(torch.int8) if kind == "int" else levels.to(torch.float8_e4m3fn)
    told = {
        "num_bits": 8, "type": kind, "strategy": strategy, "group_size": 8 if strategy == "group" else None,
        "block_structure": [8, 16], "symmetric": symmetric, "actorder": "group" if ordered else None,
    }  # fmt: skip
    layout = layouts.compressed({"weights": told}, "naive-quantized")
    single = () if strategy == "tensor" else held.shape
    parts = {
        ".weight": weight,
        ".weight_scale": held.reshape(single),
        **({} if symmetric else {".weight_zero_point": zeros.to(torch.int8).reshape(single)}),
        **({".weight_g_idx": order.int()} if ordered else {}),
    }
    found = layout.numbers(parts, (outputs, inputs), BFLOAT16)
    for row, column in np.ndindex(outputs, inputs):
        at = row // rows, order[column]
        centred = weight[row, column].float() - zeros[at]
        assert found[row, column] == (centred * held[at].to(BFLOAT16).float()).to(BFLOAT16)


@settings(max_examples=15, deadline=None)
@given(st.data(), st.sampled_from(["one", "float32", "powers"]))
def test_fp8_is_multiplied_by_scales_in_float32(data: Any, kind: str) -> None:
    outputs, inputs = 20, 32
    weight = (number(data.draw, 255, outputs, inputs) - 128).to(torch.float8_e4m3fn)
    count = (1, 1) if kind == "one" else (3, 2)
    held = (
        scales(data.draw, *count).float() if kind != "powers" else number(data.draw, 20, *count).to(torch.uint8) + 117
    )
    wide = held.double() if kind != "powers" else 2.0 ** (held.double() - 127)
    layout = layouts.fp8({} if kind == "one" else {"weight_block_size": [8, 16]})
    name = ".weight_scale" if kind == "one" else ".weight_scale_inv"
    found = layout.numbers({".weight": weight, name: held.reshape(()) if kind == "one" else held}, (20, 32), BFLOAT16)
    for row, column in np.ndindex(outputs, inputs):
        scale = wide[0, 0] if kind == "one" else wide[row // 8, column // 16]
        assert found[row, column] == (weight[row, column].double() * scale).float().to(BFLOAT16)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_halves_of_bytes_are_numbers_of_nvfp4(data: Any) -> None:
    halves, signs = number(data.draw, 7, 4, 32), number(data.draw, 1, 4, 32)
    codes = halves + 8 * signs
    held, divisor = scales(data.draw, 4, 2).to(torch.float8_e4m3fn), torch.tensor([7.0])
    told = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    layout = layouts.compressed({"weights": told}, "nvfp4-pack-quantized")
    parts = {
        ".weight_packed": (codes[:, ::2] + 16 * codes[:, 1::2]).to(torch.uint8),
        ".weight_scale": held, ".weight_global_scale": divisor,
    }  # fmt: skip
    found = layout.numbers(parts, (4, 32), torch.float32)
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[halves] * (1 - 2 * signs)
    assert torch.equal(found, magnitudes * (held.float() / 7).repeat_interleave(16, 1))


def test_every_block_and_exponent_of_mxfp4_is_what_transformers_makes_of_it() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(3)
    blocks = torch.randint(0, 256, (2, 127, 3, 16), generator=generator, dtype=torch.uint8)
    powers = torch.arange(1, 2 * 127 * 3 + 1).remainder(251).reshape(2, 127, 3).to(torch.uint8)
    found = layouts.mxfp4({}).numbers({"_blocks": blocks, "_scales": powers}, (2, 96, 127), BFLOAT16)
    assert torch.equal(found, convert_moe_packed_tensors(blocks, powers, dtype=BFLOAT16))


@pytest.mark.slow
def test_gpt_oss_is_the_model_that_transformers_dequantises(made: Callable[[str], Path]) -> None:
    from transformers import GptOssForCausalLM, Mxfp4Config

    folder = open_folder(made("mxfp4"))
    theirs = GptOssForCausalLM.from_pretrained(
        folder.path, quantization_config=Mxfp4Config(dequantize=True), dtype=BFLOAT16
    ).state_dict()
    ours = whole(folder)
    assert {name for name in theirs if name not in ours} <= {"lm_head.weight"}
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name].to(weight.dtype)), name


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
async def test_a_quantised_model_is_that_of_its_whole_weights_in_slices_too(
    form: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    """Bit for bit: in one engine, in two that each hold a slice, and as the float32 reference."""
    folder = open_folder(made(form))
    other = Path(shutil.copytree(folder.path, tmp_path / "whole"))
    config = json.loads((other / "config.json").read_text())
    del config["quantization_config"]
    (other / "config.json").write_text(json.dumps(config))
    save_file({name: weight.contiguous() for name, weight in whole(folder).items()}, other / WEIGHTS)
    tokens, layers = np.arange(3, 23), folder.layers
    wanted = await rows_of(open_folder(other), tokens, (0, layers))
    assert np.array_equal(await rows_of(folder, tokens, (0, layers)), wanted)
    assert np.array_equal(await rows_of(folder, tokens, (0, 1), (1, layers)), wanted)
    mine = await StreamedReference(folder, BFLOAT16).rows([*tokens])
    assert np.array_equal(mine, await StreamedReference(open_folder(other), BFLOAT16).rows([*tokens]))


async def rows_of(folder: ModelFolder, tokens: Any, *pieces: tuple[int, int]) -> Any:
    found = tokens
    for first, end in pieces:
        engine = TorchEngine(folder, Segment(first, end), 1, threads=1)
        try:
            found = (await engine.forward(SessionKey(bytes(32), 0, 0), Segment(first, end), 0, found)).rows
        finally:
            await engine.close()
    return found


def test_a_slice_reads_what_it_needs_of_a_quantised_model(
    made: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import troth.node.engine.layers as module

    seen = set[str]()

    def reading(folder: ModelFolder, wanted: Callable[[str], bool]) -> Any:
        for name, tensor in read_tensors(folder, wanted):
            seen.add(name)
            yield name, tensor

    monkeypatch.setattr(module, "read_tensors", reading)
    layers = LayerSlice(open_folder(made("awq")), Segment(1, 2), BFLOAT16, CPU)
    assert layers.has == Needs(frozenset({1}), entry=False, ending=layers.total_layers == 2)
    assert f"{Q}.qweight".replace(".0.", ".1.") in seen
    assert not any(".layers.0." in name for name in seen)


def test_a_reference_of_packed_words_has_room_for_the_numbers_in_them(made: Callable[[str], Path]) -> None:
    """More than of whole weights, since each is there before it is widened; never what the words themselves take."""
    packed, raw = made("awq"), 0
    for tensor in raw_tensors(packed):
        raw = max(raw, tensor.length)
    config = open_folder(packed).text_config
    matrices = 3 * config["hidden_size"] * config["intermediate_size"]
    from troth.node.engine import streamed

    assert reference_bytes(open_folder(packed)) - streamed.WORKING > 4 * matrices


@pytest.mark.parametrize(("form", "name", "value"), [
    ("awq", f"{Q}.scales", float("inf")),
    ("gptq", f"{Q}.scales", float("nan")),
    ("pack-quantized", f"{Q}.weight_scale", float("inf")),
    ("float-quantized", f"{Q}.weight", float("nan")),
    ("nvfp4", f"{Q}.weight_scale", float("nan")),
    ("mxfp4", "model.layers.0.mlp.experts.gate_up_proj_scales", 255),
])  # fmt: skip
def test_numbers_that_are_none_are_refused_by_their_weights_name(
    form: str, name: str, value: float, made: Callable[[str], Path], tmp_path: Path
) -> None:
    source = Path(shutil.copytree(made(form), tmp_path / "source"))
    tensors = load_file(source / WEIGHTS)
    flat = tensors[name].view(-1)
    flat[1:2] = torch.tensor([value]).to(flat.dtype)
    save_file(tensors, source / WEIGHTS)
    with pytest.raises(ModelError, match=r"numbers that are none, or too large for the class' dtype: model\.layers\.0"):
        LayerSlice(ModelFolder(source), Segment(0, 1), BFLOAT16, CPU)


def test_a_product_that_bfloat16_cannot_hold_is_refused(made: Callable[[str], Path], tmp_path: Path) -> None:
    """Scales may be finite and what they scale not: none of a file's tensors says so."""
    source = Path(shutil.copytree(made("int-quantized"), tmp_path / "source"))
    tensors = load_file(source / WEIGHTS)
    tensors[f"{Q}.weight_scale"] = torch.full_like(tensors[f"{Q}.weight_scale"], 3e38)
    save_file(tensors, source / WEIGHTS)
    require_numbers(raw_tensors(source))
    with pytest.raises(ModelError, match=rf"{Q}\.weight in bfloat16"):
        LayerSlice(ModelFolder(source), Segment(0, 1), BFLOAT16, CPU)


@pytest.mark.parametrize(("word", "taken"), [
    (0x77777777, True), (0x88888888 - (1 << 32), True), (0x77777778, False), (0, False), (0x7F7F7F7F, True),
])  # fmt: skip
def test_zero_points_of_gptq_are_in_the_middle(
    word: int, taken: bool, made: Callable[[str], Path], tmp_path: Path
) -> None:
    """vLLM takes them to be there and reads none; readers of other libraries would make another model."""
    source = Path(shutil.copytree(made("gptq"), tmp_path / "source"))
    tensors = load_file(source / WEIGHTS)
    tensors[f"{Q}.qzeros"][:] = word
    save_file(tensors, source / WEIGHTS)
    if taken:
        require_numbers(raw_tensors(source), method="gptq")
        return
    with pytest.raises(ModelError, match="zero points are not in the middle"):
        require_numbers(raw_tensors(source), method="gptq")


def test_inputs_of_gptq_stand_in_their_own_order(made: Callable[[str], Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(made("gptq"), tmp_path / "source"))
    tensors = load_file(source / WEIGHTS)
    order = "model.layers.0.mlp.down_proj.g_idx"
    tensors[order] = tensors[order].flip(0)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, source / WEIGHTS)
    with pytest.raises(ModelError, match="its inputs are not in their own order"):
        FolderWeights.of(ModelFolder(source))


def test_layers_that_engines_join_have_one_divisor(made: Callable[[str], Path], tmp_path: Path) -> None:
    """vLLM takes the largest of three for all three: another model than the file's."""
    source = Path(shutil.copytree(made("nvfp4"), tmp_path / "source"))
    tensors = load_file(source / WEIGHTS)
    tensors["model.layers.0.self_attn.k_proj.weight_global_scale"] *= 2
    save_file(tensors, source / WEIGHTS)
    with pytest.raises(ModelError, match="engines have one scale for both layers"):
        FolderWeights.of(ModelFolder(source))
    tensors["model.layers.0.self_attn.k_proj.weight_global_scale"] /= 2
    tensors["model.layers.0.self_attn.o_proj.weight_global_scale"] *= 2
    save_file(tensors, source / WEIGHTS)
    FolderWeights.of(ModelFolder(source))


@pytest.mark.parametrize(("targets", "symmetric", "taken"), [
    (["re:.*v_proj$"], True, False),
    (["re:.*qkv_proj$"], True, False),
    (["re:.*[qkv]_proj$"], False, True),
    (["re:.*v_proj$"], False, True),
])  # fmt: skip
def test_layers_that_engines_join_are_quantised_in_one_way(
    targets: list[str], symmetric: bool, taken: bool, made: Callable[[str], Path], tmp_path: Path
) -> None:
    """vLLM reads all three as the third, or by a name that no file has; where zero points are missing, it takes 0."""
    source = Path(shutil.copytree(made("pack-quantized"), tmp_path / "source"))
    config = json.loads((source / "config.json").read_text())
    groups = config["quantization_config"]["config_groups"]
    weights = {**groups["group_0"]["weights"], "symmetric": symmetric}
    groups["group_1"] = groups.pop("group_0")
    config["quantization_config"]["config_groups"] = {
        "group_0": {"targets": targets, "weights": weights, "input_activations": None}, **groups,
    }  # fmt: skip
    (source / "config.json").write_text(json.dumps(config))
    if symmetric and "qkv" not in targets[0]:
        tensors = load_file(source / WEIGHTS)
        save_file({n: t for n, t in tensors.items() if not n.endswith("v_proj.weight_zero_point")}, source / WEIGHTS)
    if taken:
        assert FolderWeights.of(ModelFolder(source)).packed
        return
    with pytest.raises(ModelError, match="quantised in two ways"):
        FolderWeights.of(ModelFolder(source))
