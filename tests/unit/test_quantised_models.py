"""Quantised checkpoints at import: real layouts are taken, what contradicts config.json is refused."""

from __future__ import annotations

import copy
import json
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from support.quantised_checkpoints import BLOCK, FORMS, WEIGHTS, write_quantised  # noqa: E402
from support.tiny_decoders import SIZES  # noqa: E402

from troth.node.errors import ModelError  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.importing import import_model  # noqa: E402
from troth.node.models.quantised import unpacked  # noqa: E402
from troth.node.models.quantised_layouts import gptq  # noqa: E402
from troth.node.models.report import describe_with_progress  # noqa: E402
from troth.node.models.roots.weights_root import weights_root  # noqa: E402
from troth.node.models.sources import require_sound  # noqa: E402
from troth.node.models.tensor_files import RawTensor, raw_tensors  # noqa: E402

pytestmark = pytest.mark.torch

Q = "model.layers.0.self_attn.q_proj"
EXPERTS = "model.layers.1.mlp.experts.gate_up_proj"
Tensors = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    room, known = tmp_path_factory.mktemp("quantised"), dict[str, Path]()

    def folder(form: str) -> Path:
        if form not in known:
            torch.set_num_threads(1)
            known[form] = write_quantised(form, room / str(len(known)))
        return known[form]

    return folder


@pytest.fixture
def source(request: pytest.FixtureRequest, made: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made(request.param), tmp_path / "source"))


def change(source: Path, changed: Callable[[Tensors], Any]) -> None:
    tensors = load_file(source / WEIGHTS)
    changed(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, source / WEIGHTS)


def configure(source: Path, changed: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((source / "config.json").read_text())
    changed(config["quantization_config"])
    (source / "config.json").write_text(json.dumps(config))


def root_of(folder: ModelFolder) -> bytes:
    return weights_root(raw_tensors(folder.path), folder.quantisation)


@pytest.mark.slow
@pytest.mark.parametrize("source", FORMS, indirect=True)
def test_a_real_layout_is_taken_and_every_kind_of_tensor_counts(source: Path, tmp_path: Path) -> None:
    folder = import_model(str(source), tmp_path / "home", "tiny", lambda _line: None)
    before, seen = root_of(folder), set[str]()
    raw = (source / WEIGHTS).read_bytes()
    for tensor in raw_tensors(source):
        kind = tensor.name.rpartition(".")[2] + tensor.dtype
        if kind in seen or not tensor.length:
            continue
        seen.add(kind)
        bent = bytearray(raw)
        bent[tensor.start + tensor.length // 2] ^= 1
        (source / WEIGHTS).write_bytes(bent)
        assert root_of(ModelFolder(source)) != before, tensor.name
    (source / WEIGHTS).write_bytes(raw)
    assert root_of(ModelFolder(source)) == before


def without(name: str) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.pop(name)


def with_dtype(name: str, dtype: Any) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: tensors[name].to(dtype)})


def with_shape(name: str, *shape: int) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: torch.zeros(shape, dtype=tensors[name].dtype)})


def set_word(name: str, value: int) -> Callable[[Tensors], Any]:
    def changed(tensors: Tensors) -> None:
        tensors[name].view(-1)[3 if tensors[name].numel() > 3 else 0] = value

    return changed


def beside(name: str, *shape: int) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: torch.zeros(shape)})


def of_whole(layer: str, *shape: int) -> Callable[[Tensors], Any]:
    """The layer as a float weight in the place of its quantised tensors."""

    def changed(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith(f"{layer}.")]:
            del tensors[name]
        tensors[f"{layer}.weight"] = torch.zeros(shape)

    return changed


def as_one(experts: str) -> Callable[[Tensors], Any]:
    """All experts of a layer as one tensor with one of scales, as transformers' `FP8Experts` holds them."""

    def changed(tensors: Tensors) -> None:
        tensors[f"{experts}.gate_up_proj"] = torch.zeros(4, 128, 32).to(torch.float8_e4m3fn)
        tensors[f"{experts}.gate_up_proj_scale_inv"] = torch.ones(4, 4, 1)

    return changed


BENT: list[tuple[str, Callable[[Tensors], Any], str]] = [
    ("awq", without(f"{Q}.scales"), "a part of a quantised weight is missing: model.layers.0.self_attn.q_proj.scales"),
    ("awq", without(f"{Q}.qzeros"), "missing: model.layers.0.self_attn.q_proj.qzeros"),
    ("awq", without(f"{Q}.qweight"), "lies there without it: model.layers.0.self_attn.q_proj"),
    ("awq", beside(f"{Q}.weight", 32, 32), "there twice, quantised and whole: model.layers.0.self_attn.q_proj.weight"),
    ("awq", with_shape(f"{Q}.scales", 2, 32), r"q_proj.scales has F16 \(2, 32\); a weight of \(32, 32\).*\(1, 32\)"),
    ("awq", with_shape(f"{Q}.qzeros", 1, 8), r"q_proj.qzeros has I32 \(1, 8\)"),
    ("awq", with_shape(f"{Q}.qweight", 32, 8), r"scales has F16 \(1, 32\); a weight of \(64, 32\)"),
    ("awq", with_dtype(f"{Q}.qweight", torch.int16), "qweight has I16 .*wants I32"),
    ("awq", with_dtype(f"{Q}.scales", torch.int32), "scales has I32 .*wants BF16 or F16 or F32"),
    ("awq", with_dtype(f"{Q}.qzeros", torch.float16), "qzeros has F16 .*wants I32"),
    ("awq", of_whole(Q, 32, 32), "is not quantised, and quantization_config does not except it: model.layers.0"),
    (
        "awq of experts",
        without("model.layers.1.block_sparse_moe.experts.2.w2.scales"),
        "missing: .*experts.2.w2.scales",
    ),
    ("gptq", without(f"{Q}.qzeros"), "missing: model.layers.0.self_attn.q_proj.qzeros"),
    ("gptq", with_shape(f"{Q}.qweight", 8, 32), r"a weight of \(32, 64\), as .*q_proj.qweight has it, wants"),
    ("gptq", with_shape(f"{Q}.g_idx", 31), r"g_idx has I32 \(31,\)"),
    ("gptq", set_word(f"{Q}.g_idx", 1), "g_idx has I32 .*go from 0 to 1, and there are 1 groups"),
    ("gptq", set_word(f"{Q}.g_idx", -1), "go from -1 to 0, and there are 1 groups"),
    ("gptq", set_word(f"{Q}.g_idx", 1 << 30), "go from 0 to 1073741824"),
    ("fp8 in blocks", without(f"{Q}.weight_scale_inv"), "missing: model.layers.0.self_attn.q_proj.weight_scale_inv"),
    ("fp8 in blocks", with_shape(f"{Q}.weight_scale_inv", 1, 2), r"weight_scale_inv has F32 \(1, 2\).*wants \(1, 1\)"),
    ("fp8 in blocks", with_dtype(f"{Q}.weight", torch.float8_e5m2), "weight has F8_E5M2 .*wants F8_E4M3"),
    ("fp8 in blocks", with_dtype(f"{Q}.weight", torch.bfloat16), "lies there without it: .*q_proj.weight_scale_inv"),
    ("fp8 in blocks", with_dtype("model.embed_tokens.weight", torch.float8_e4m3fn), "missing: model.embed_tokens"),
    ("fp8", without(f"{Q}.weight_scale"), "missing: model.layers.0.self_attn.q_proj.weight_scale"),
    ("fp8", without(f"{Q}.input_scale"), "missing: model.layers.0.self_attn.q_proj.input_scale"),
    ("fp8", with_shape(f"{Q}.weight_scale", 2), r"weight_scale has F32 \(2,\)"),
    ("mxfp4", without(f"{EXPERTS}_scales"), "missing: model.layers.1.mlp.experts.gate_up_proj_scales"),
    ("mxfp4", without(f"{EXPERTS}_blocks"), "lies there without it: .*gate_up_proj_scales"),
    ("mxfp4", with_shape(f"{EXPERTS}_scales", 4, 128, 2), r"gate_up_proj_scales has U8 \(4, 128, 2\)"),
    ("mxfp4", with_shape(f"{EXPERTS}_blocks", 4, 128, 16), "blocks of MXFP4 have four dimensions"),
    ("mxfp4", beside(EXPERTS, 4, 32, 128), "there twice, quantised and whole: .*gate_up_proj"),
    ("mxfp4", set_word(f"{EXPERTS}_scales", 255), "NaN or infinity: .*gate_up_proj_scales"),
    ("pack-quantized", without(f"{Q}.weight_zero_point"), "missing: .*q_proj.weight_zero_point"),
    ("pack-quantized", without(f"{Q}.weight_shape"), "missing: .*q_proj.weight_shape"),
    ("pack-quantized", set_word(f"{Q}.weight_shape", 64), r"it says \(64, 32\), and packed are \(32, 32\)"),
    ("pack-quantized", with_shape(f"{Q}.weight_packed", 32, 5), r"says \(32, 32\), and packed are|wants"),
    ("pack-quantized", with_dtype(f"{Q}.weight_packed", torch.int64), "weight_packed has I64"),
    ("int-quantized", without(f"{Q}.weight_scale"), "missing: .*q_proj.weight_scale"),
    ("int-quantized", with_dtype(f"{Q}.weight", torch.uint8), "weight has U8 .*wants I8"),
    ("float-quantized", with_shape(f"{Q}.weight_scale", 1, 1), r"weight_scale has BF16 \(1, 1\).*wants \(32, 1\)"),
    ("float-quantized", with_dtype(f"{Q}.weight", torch.int8), "weight has I8 .*wants F8_E4M3"),
    ("nvfp4", without(f"{Q}.weight_global_scale"), "missing: .*q_proj.weight_global_scale"),
    ("nvfp4", without(f"{Q}.weight_scale"), "missing: .*q_proj.weight_scale"),
    ("nvfp4", without(f"{Q}.weight_packed"), "lies there without it: .*q_proj"),
    ("nvfp4", with_shape(f"{Q}.weight_packed", 32, 32), r"weight_scale has F8_E4M3 \(32, 2\); a weight of \(32, 64\)"),
    ("nvfp4", with_dtype(f"{Q}.weight_packed", torch.int8), "weight_packed has I8 .*wants U8"),
    ("nvfp4", with_dtype(f"{Q}.weight_scale", torch.bfloat16), "weight_scale has BF16 .*wants F8_E4M3"),
    ("nvfp4", with_shape(f"{Q}.weight_global_scale", 2), r"weight_global_scale has F32 \(2,\)"),
    ("nvfp4", set_word(f"{Q}.weight_global_scale", 0), "scales are divided by it, and it is 0.0"),
    ("nvfp4", set_word(f"{Q}.input_global_scale", -1), "scales are divided by it, and it is -1.0"),
    ("nvfp4", beside(f"{Q}.weight", 32, 32), "there twice, quantised and whole: .*q_proj.weight"),
    (
        "fp8 of experts",
        as_one("model.layers.1.mlp.experts"),
        "one tensor of FP8, which is not served: .*gate_up",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "changed", "said"), BENT, indirect=["source"], ids=[
    f"{form}-{number}" for number, (form, _, _) in enumerate(BENT)
])  # fmt: skip
def test_tensors_that_contradict_the_settings_are_refused(
    source: Path, changed: Callable[[Tensors], Any], said: str, tmp_path: Path
) -> None:
    change(source, changed)
    with pytest.raises(ModelError, match=said):
        import_model(str(source), tmp_path / "home", "tiny", lambda _line: None)
    assert not [*(tmp_path / "home" / "models").iterdir()]


def setting(**changed: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda told: told.update(changed)


def without_setting(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda told: told.pop(name)


def group(**changed: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda told: told["config_groups"]["group_0"]["weights"].update(changed)


ENDLESS = "re:(.|.)*(?<!j)$"
SETTINGS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("awq", setting(quant_method="bitsandbytes"), "not served; awq, gptq, fp8, mxfp4, compressed-tensors are: bitsan"),
    ("awq", setting(quant_method=None), "this quantisation is not served"),
    ("awq", setting(bits=3), r"bits is not what it can be: \[3\]"),
    ("awq", setting(bits=True), "bits is not what it can be"),
    ("awq", setting(w_bit=8), r"bits is not what it can be: \[4, 8\]"),
    ("awq", setting(group_size=0), "group_size is not what it can be"),
    ("awq", setting(group_size=64), "groups of 64 do not divide the inputs of a layer: 32|scales has F16"),
    ("awq", setting(group_size=16), r"a weight of \(64, 32\)|a weight of \(32, 32\)|scales has"),
    ("awq", setting(version="gemv"), "only the version gemm is read by engines: gemv"),
    ("awq", setting(zero_point="yes"), "zero_point is neither true nor false"),
    ("awq", setting(modules_to_not_convert=[Q]), "is quantised, and quantization_config excepts it: model.layers.0"),
    ("awq", setting(modules_to_not_convert="q_proj"), "modules_to_not_convert is no list of names"),
    ("gptq", setting(bits=8), "has I32|a weight of"),
    ("gptq", setting(dynamic={f"+:{re.escape(Q)}": {"bits": 8}}), "q_proj"),
    ("gptq", setting(dynamic=[1]), "dynamic is no set of rules"),
    ("gptq", setting(dynamic={"+:(": {}}), "a pattern of quantization_config cannot be used"),
    ("gptq", setting(dynamic={f"-:{ENDLESS[3:]}": {}}), "does not end"),
    ("fp8 in blocks", setting(weight_block_size=[16, 16]), "weight_scale_inv has F32"),
    ("fp8 in blocks", setting(weight_block_size=[0, 1]), "a block has two sizes"),
    ("fp8 in blocks", setting(weight_block_size=None), r"missing: .*\.weight_scale$|without it|missing"),
    ("fp8 in blocks", setting(activation_scheme="magic"), "activation_scheme is neither dynamic nor static: magic"),
    ("mxfp4", setting(quant_method="awq", bits=4, group_size=32, zero_point=True), "and none is: awq"),
    ("pack-quantized", group(num_bits=8), r"it says \(.*, and packed are"),
    ("pack-quantized", group(group_size=16), "weight_scale has"),
    ("pack-quantized", group(symmetric=True), "lies there without it: .*weight_zero_point"),
    ("pack-quantized", group(actorder="group"), "missing: .*weight_g_idx"),
    ("pack-quantized", setting(format="mxfp4-pack-quantized"), "is not served; use pack-"),
    ("pack-quantized", setting(format="nvfp4-pack-quantized"), "group_size is not what it can be"),
    ("nvfp4", group(strategy="group"), "NVFP4 is of symmetric floats in a tensor_group"),
    ("nvfp4", group(num_bits=8), "num_bits is not what it can be"),
    ("nvfp4", group(group_size=32), "group_size is not what it can be"),
    ("nvfp4", setting(quant_method="modelopt"), "is not served; .*: modelopt. Use a copy in the format of compressed"),
    ("gptq", setting(bits=3), "vLLM 0.32 reads GPTQ of 4 or 8 bits alone.*: bits: 3. Use a copy of 4 bits"),
    ("gptq", setting(bits=2), "vLLM 0.32 reads GPTQ of 4 or 8 bits alone.*: bits: 2. Use a copy of 4 bits"),
    ("gptq", setting(sym=False), "GPTQ that is symmetric alone; .*: sym: False. Use a copy with sym: true, or one of"),
    ("gptq", without_setting("sym"), "GPTQ that is symmetric alone; .*: sym: None"),
    ("gptq", setting(sym="yes"), "sym is neither true nor false: yes"),
    ("gptq", setting(desc_act=True), "in their own order alone; .*: desc_act: True. Use a copy with desc_act: false"),
    ("gptq", without_setting("desc_act"), "in their own order alone; .*: desc_act: None"),
    ("gptq", setting(group_size=16), "reads groups of 32, 64, 128 or all inputs .*, not of 16: model.layers.0."),
    ("gptq", setting(dynamic={r"+:.*\.1\..*": {"sym": False}}), "GPTQ that is symmetric alone"),
    ("gptq", setting(dynamic={r"+:.*\.1\..*": {"desc_act": True}}), "in their own order alone; .*: desc_act: True"),
    ("gptq", setting(dynamic={r"+:.*\.1\.mlp.*": {"group_size": 8}}), r"not of 8: model\.layers\.1\.mlp\.down_proj"),
    ("awq", setting(zero_point=False), "AWQ has zero points, and zero_point has to be true: False"),
    ("awq", without_setting("zero_point"), "AWQ has zero points, and zero_point has to be true"),
    ("pack-quantized", setting(config_groups={}), "config_groups is no list of groups"),
    ("pack-quantized", setting(sparsity_config={"format": "sparse-bitmask"}), "sparse weights are not served"),
    ("pack-quantized", setting(ignore=[ENDLESS]), "cannot be used, or does not end"),
    ("float-quantized", group(type="int"), "float-quantized is not of 8 bits of the type: int"),
    ("float-quantized", group(strategy="token"), "this strategy of scales is not served: token"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "changed", "said"), SETTINGS, indirect=["source"], ids=[
    f"{form}-{number}" for number, (form, _, _) in enumerate(SETTINGS)
])  # fmt: skip
def test_settings_that_contradict_the_tensors_are_refused(
    source: Path, changed: Callable[[dict[str, Any]], Any], said: str, tmp_path: Path
) -> None:
    configure(source, changed)
    began = time.process_time()
    with pytest.raises(ModelError, match=said):
        import_model(str(source), tmp_path / "home", "tiny", lambda _line: None)
    assert time.process_time() - began < 20


@pytest.mark.slow
@pytest.mark.parametrize("source", ["gptq"], indirect=True)
def test_a_layer_may_stay_whole_where_the_settings_say_so(source: Path) -> None:
    change(source, of_whole(Q, 32, 32))
    configure(source, setting(modules_to_not_convert=["layers.0.self_attn.q_proj"]))
    require_sound(open_folder(source))
    configure(source, setting(modules_to_not_convert=None, dynamic={r"-:.*layers\.0\.self_attn.*": {}}))
    require_sound(open_folder(source))


@pytest.mark.slow
@pytest.mark.parametrize("source", ["gptq"], indirect=True)
def test_an_order_of_inputs_says_nothing_where_all_are_one_group(source: Path) -> None:
    """vLLM takes it so: `desc_act` of one group is none."""

    def of_one_group(tensors: Tensors) -> None:
        for name in [*tensors]:
            if name.endswith((".scales", ".qzeros")):
                tensors[name] = tensors[name][:1]
            elif name.endswith(".g_idx"):
                tensors[name] = torch.zeros_like(tensors[name])

    change(source, of_one_group)
    configure(source, setting(desc_act=True, group_size=-1))
    require_sound(open_folder(source))


def test_experts_may_have_groups_that_other_layers_may_not() -> None:
    told = {"quant_method": "gptq", "bits": 4, "group_size": 256, "sym": True, "desc_act": False}
    shapes = {"qweight": ("I32", (32, 64)), "scales": ("F16", (1, 64)), "qzeros": ("I32", (1, 8))}

    def tensors(layer: str) -> list[RawTensor]:
        return [RawTensor(f"{layer}.{name}", dtype, shape, Path(), 0, 0) for name, (dtype, shape) in shapes.items()]

    assert unpacked(tensors("model.layers.0.mlp.experts.3.up_proj"), told).layers
    for layer in ("model.layers.0.mlp.shared_experts.up_proj", "model.layers.0.self_attn.q_proj"):
        with pytest.raises(ModelError, match=r"not of 256: .*_proj"):
            unpacked(tensors(layer), told)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "told"), [
    ("gptq of 8 bits", "GPTQ of 8 bits"), ("nvfp4", "NVFP4"), ("gptq", ""), ("awq", ""), ("pack-quantized", ""),
    ("float-quantized", "float-quantized with whole activations"), ("int-quantized", ""),
], indirect=["source"])  # fmt: skip
def test_import_says_what_needs_a_card(source: Path, told: str, tmp_path: Path) -> None:
    lines: list[str] = []
    import_model(str(source), tmp_path / "home", "tiny", lines.append)
    said = [line for line in lines if "graphics card" in line]
    assert said == ([f"vLLM serves it on a graphics card alone: {told}"] if told else [])
    assert any("torch does" in line for line in lines) == ("int-quantized" in str(source_config(source)))


def source_config(source: Path) -> Any:
    return json.loads((source / "config.json").read_text())["quantization_config"]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["gptq", "int-quantized"], indirect=True)
def test_quantised_weights_are_described_in_a_dtype_that_some_engine_computes(source: Path) -> None:
    folder = open_folder(source)
    if "gptq" in str(folder.quantisation):
        with pytest.raises(ModelError, match=r"in bfloat16 alone: gptq\. Register the model with --dtype bfloat16"):
            describe_with_progress(folder, "float32")
    else:
        assert describe_with_progress(folder, "float32").dtype == 0
    assert describe_with_progress(folder, "bfloat16").dtype == 1


@pytest.mark.slow
@pytest.mark.parametrize("source", ["awq of experts"], indirect=True)
def test_one_expert_of_another_width_is_refused(source: Path) -> None:
    """All that lies beside it agrees with it; only the experts that it is put together with do not."""
    layer = "model.layers.1.block_sparse_moe.experts.2.w1"

    def wider(tensors: Tensors) -> None:
        for ending in ("qweight", "qzeros", "scales"):
            tensors[f"{layer}.{ending}"] = torch.cat([tensors[f"{layer}.{ending}"]] * 2, 1)

    change(source, wider)
    with pytest.raises(ModelError, match=r"do not make the weight that they should: model\.layers\.1\.mlp\.experts"):
        require_sound(open_folder(source))


@pytest.mark.slow
@pytest.mark.parametrize("source", ["fp8 in blocks"], indirect=True)
def test_blocks_of_fp8_are_those_of_transformers(source: Path) -> None:
    from transformers.integrations.finegrained_fp8 import FP8Linear

    with torch.device("meta"):
        own = FP8Linear(SIZES["hidden_size"], 64, (BLOCK, BLOCK)).state_dict()
    file = load_file(source / WEIGHTS)
    for name in ("weight", "weight_scale_inv"):
        found = file[f"model.layers.0.mlp.up_proj.{name}"]
        assert (found.shape, found.dtype) == (own[name].shape, own[name].dtype)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["mxfp4"], indirect=True)
def test_blocks_of_mxfp4_are_those_of_transformers(source: Path) -> None:
    """transformers keeps the last two axes as one, and computes numbers of them again that are near the weights."""
    from transformers import AutoConfig
    from transformers.integrations.mxfp4 import Mxfp4GptOssExperts

    config = AutoConfig.from_pretrained(source)
    with torch.device("meta"):
        own = Mxfp4GptOssExperts(config).state_dict()
    file = load_file(source / WEIGHTS)
    for name in ("gate_up_proj", "down_proj"):
        found = file[f"model.layers.1.mlp.experts.{name}_blocks"]
        assert (found.flatten(2).shape, found.dtype) == (own[name].shape, own[name].dtype)


@given(st.sampled_from([4, 8]), st.sampled_from([32, 64, 128, 256]), st.integers(1, 16), st.integers(1, 8))
@settings(max_examples=200)
def test_what_gptq_packs_says_the_weight_and_the_weight_says_the_rest(
    bits: int, size: int, outputs: int, count: int
) -> None:
    """Whatever the sizes: what `pack` makes of a weight is that weight's layout, and no other weight's."""
    layout, factor = gptq({"bits": bits, "group_size": size, "sym": True, "desc_act": False}), 32 // bits
    shape = (outputs * factor, count * size)
    packed = (shape[1] * bits // 32, shape[0])
    assert layout.weight(packed) == shape
    parts = layout.parts(shape)
    assert parts[".qzeros"].shapes == ((count, outputs),)
    assert parts[".scales"].shapes == ((count, shape[0]),)
    assert layout.parts((shape[0], shape[1] + size))[".scales"].shapes != parts[".scales"].shapes


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_setting_is_answered_with_anything_but_a_sentence(made: Callable[[str], Path], data: st.DataObject) -> None:
    """A stranger writes any JSON in the place of any setting."""
    form = data.draw(st.sampled_from(sorted(FORMS)))
    told = copy.deepcopy(FORMS[form][1])
    places = [told]
    if "config_groups" in told:
        places += [told["config_groups"]["group_0"], told["config_groups"]["group_0"]["weights"]]
    place = data.draw(st.sampled_from(places))
    name = data.draw(st.sampled_from(sorted({*place, "dynamic", "ignore", "sparsity_config", "scale_fmt", "actorder"})))
    words = st.none() | st.booleans() | st.integers(-9, 999) | st.text(max_size=4) | st.floats(allow_nan=False)
    names = st.text(max_size=2)
    place[name] = data.draw(
        st.recursive(
            words, lambda deep: st.lists(deep, max_size=2) | st.dictionaries(names, deep, max_size=2), max_leaves=4
        )
    )
    with suppress(ModelError):
        unpacked(raw_tensors(made(form)), told)
