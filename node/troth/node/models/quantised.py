"""Quantised weights looked at before they are taken: whole, of the shapes that config.json says, none twice.

Each group of tensors that makes a quantised weight is replaced by that weight's name and shape, so that a quantised
model is then compared with the model that transformers builds as any other is. Numbers that engines take as places in
memory (orders of inputs, shapes written into a file) are read and compared as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from troth.node.errors import ModelError
from troth.node.models.dequantising import Shape
from troth.node.models.patterns import fitting
from troth.node.models.quantised_layouts import (
    FLOAT8,
    PackedLayout,
    PackedPart,
    awq,
    compressed,
    fp8,
    gptq,
    mxfp4,
    refuse,
    word,
)
from troth.node.models.tensor_files import RawTensor, read_rows
from troth.node.models.weights import FLOATS

METHODS = {"awq": awq, "gptq": gptq, "fp8": fp8, "mxfp4": mxfp4}
SUPPORTED = (*METHODS, "compressed-tensors")
OTHER_SOURCE = "Fetch the model again from its source."
OTHER_COPIES = {
    "modelopt": "Use a copy in the format of compressed-tensors (nvfp4-pack-quantized or float-quantized).",
    "modelopt_fp4": "Use a copy in the format of compressed-tensors (nvfp4-pack-quantized).",
    "nvfp4": "Use a copy in the format of compressed-tensors (nvfp4-pack-quantized).",
}
"""What to do instead, of methods that are met often."""
FLOAT32 = frozenset({"compressed-tensors"})
"""Methods that vLLM computes with in float32 too; the others in half precision alone."""
MOST_EXCEPTIONS, MOST_GROUPS = 1 << 16, 64
EXPERTS = re.compile(r"(?:^|\.)experts\.")
ROUTERS = re.compile(r"(?:^|\.)(?:gate|router|shared_expert_gate)(?:\.|$)")
"""Small layers of mixtures that engines take whole, whatever config.json says."""
JOINED = re.compile(r"\.(?:[qkv]_proj|gate_proj|up_proj|w1|w3)(?=\.)")
"""Layers that engines compute as one with others beside them."""
TOGETHER = {
    ".q_proj": ".qkv_proj", ".k_proj": ".qkv_proj", ".v_proj": ".qkv_proj", ".gate_proj": ".gate_up_proj",
    ".up_proj": ".gate_up_proj",
}  # fmt: skip
EXCEPTIONS = ("modules_to_not_convert", "ignored_layers", "ignore", "llm_int8_skip_modules")


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight of `shape`; `tensors`: names of those that make it, by how they end."""

    layout: PackedLayout
    shape: Shape
    tensors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """`shapes`: of all weights, by names as of whole ones, of which `made` are quantised in `layers`; `on_cards`: what
    of them vLLM does not read on a CPU, and `in_torch` what it reads nowhere."""

    shapes: Mapping[str, Shape]
    made: Mapping[str, PackedWeight]
    layers: frozenset[str]
    settings: Mapping[str, Any]
    on_cards: frozenset[str]
    in_torch: frozenset[str]

    @property
    def words_of_experts(self) -> frozenset[str]:
        """Layers of experts that are integers packed into words."""
        words = {".qweight", ".weight_packed"}
        named = (name for name, one in self.made.items() if one.layout.packed in words and EXPERTS.search(name))
        return frozenset(named)


def unpacked(tensors: Sequence[RawTensor], settings: Mapping[str, Any]) -> Unpacked:
    """What quantised tensors stand for.

    Raises:
        ModelError: the quantisation is not known, or a tensor is missing, there twice, or of another shape or dtype
            than the settings say.
    """
    by_name = {one.name: one for one in tensors}
    layers_of_files = {one.name.rpartition(".")[0] for one in tensors}
    layouts = _Layouts(settings, layers_of_files | {_together(one) for one in layers_of_files})
    if layouts.method == "fp8":
        _require_single_experts(tensors)
    made: dict[str, PackedWeight] = {}
    layers, used, on_cards, in_torch = set[str](), set[str](), set[str](), set[str]()
    for tensor in tensors:
        for layout in layouts.all:
            layer = _layer(tensor, layout)
            if layer is None or layouts.of(layer) is not layout:
                continue
            if layout.for_experts and not EXPERTS.search(layer):
                raise ModelError(layout.for_experts, layer, "Use another copy of the model.")
            found = _weight(layer, tensor, layout, by_name)
            name = layer + layout.whole
            if name != tensor.name and name in by_name:
                raise ModelError("a weight is there twice, quantised and whole", name, OTHER_SOURCE)
            made[name] = found
            layers.add(layer)
            used |= {*found.tensors.values()}
            on_cards |= {layout.on_cards} - {""}
            in_torch |= {layout.in_torch} - {""}
    if not layers:
        raise ModelError("config.json says that weights are quantised, and none is", layouts.method, OTHER_SOURCE)
    _require_no_orphans(by_name.keys() - used, layouts.all)
    whole = {one.name: one.shape for one in tensors if one.name not in used}
    layouts.require_not_excepted(layers)
    _require_joined_alike(made, layouts)
    _require_one_divisor([one for one in tensors if one.name.endswith(".weight_global_scale")])
    shapes = whole | {name: one.shape for name, one in made.items()}
    return Unpacked(shapes, made, frozenset(layers), settings, frozenset(on_cards), frozenset(in_torch))


def require_computed(settings: Mapping[str, Any] | None, dtype: int) -> None:
    """Raise ModelError where no engine computes with such weights in the descriptor's dtype."""
    method = "" if settings is None else str(settings.get("quant_method", "")).lower()
    if method in METHODS and method not in FLOAT32 and dtype == 0:
        what = "vLLM computes with such quantised weights in bfloat16 alone"
        raise ModelError(what, method, "Register the model with --dtype bfloat16, and serve that class.")


def require_named(found: Unpacked, names: Iterable[str]) -> None:
    """Raise ModelError where a layer is whole and config.json does not except it from the quantisation: its quantised
    tensors are missing.

    Args:
        names: layers of the files that a quantisation takes, where nothing excepts them.
    """
    settings = found.settings
    chosen = settings.get("dynamic") or settings.get("modules_in_block_to_quantize")
    if chosen or settings.get("quant_method") == "mxfp4" or not _takes_all(settings):
        return
    excepted = _exceptions(settings)
    rest = {name for name in names if name not in found.layers and not ROUTERS.search(name)}
    rest -= {name for name in rest if any(_mentions(one, name) for one in excepted)}
    patterns = _Patterns(excepted, rest)
    rest -= frozenset[str]().union(*(patterns.layers(one) for one in excepted))
    if rest:
        what = "a layer is not quantised, and quantization_config does not except it"
        raise ModelError(what, f"{min(rest)}; {len(rest)} in all", OTHER_SOURCE)


class _Layouts:
    """Which layout each layer has; patterns of config.json are tried with bounded time."""

    def __init__(self, settings: Mapping[str, Any], layers: set[str]) -> None:
        self.method = str(settings.get("quant_method", "")).lower()
        if self.method not in SUPPORTED:
            what = f"this quantisation is not served; {', '.join(SUPPORTED)} are"
            remedy = OTHER_COPIES.get(self.method, "Use another copy of the model.")
            raise ModelError(what, self.method or None, remedy)
        self._exceptions = _exceptions(settings)
        groups = _groups(settings) if self.method == "compressed-tensors" else []
        targets = [target for group in groups for target in group["targets"]]
        patterns = _Patterns([*self._exceptions, *_dynamic(settings), *targets], layers)
        self._named: list[tuple[PackedLayout, frozenset[str], frozenset[str]]] = []
        self._overrides: Mapping[str, PackedLayout] = {}
        for group in groups:
            layout = compressed(group, word(group, "format", word(settings, "format", "")))
            named = frozenset[str]().union(*(patterns.layers(one) for one in group["targets"]))
            self._named.append((layout, frozenset(group["targets"]), named))
        if not groups:
            self._named.append((METHODS[self.method](settings), frozenset({"Linear"}), frozenset()))
            self._overrides = _overridden(settings, patterns)
        others = {id(one): one for one in self._overrides.values()}
        self.all = [*(layout for layout, _, _ in self._named), *others.values()]

    def of(self, layer: str) -> PackedLayout:
        """The layout of a layer that is quantised."""
        if (found := self._overrides.get(layer)) is not None:
            return found
        named = [layout for layout, _, layers in self._named if layer in layers]
        usual = [layout for layout, targets, _ in self._named if "Linear" in targets]
        if not (chosen := named or usual):
            raise ModelError("a layer is quantised, and quantization_config names it nowhere", layer, OTHER_SOURCE)
        return chosen[0]

    def of_joined(self, layer: str) -> list[PackedLayout]:
        """What a pattern says of the layer that engines make of this one and others."""
        return [layout for layout, _, layers in self._named if _together(layer) in layers][:1]

    def require_not_excepted(self, layers: Iterable[str]) -> None:
        """An engine reads such a layer as a whole one: packed words, or numbers without their scales."""
        if both := sorted({*layers} & {*self._exceptions}):
            raise ModelError("a layer is quantised, and quantization_config excepts it", both[0], OTHER_SOURCE)


def _groups(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of compressed-tensors, each with a list of targets."""
    told = settings.get("config_groups")
    if not isinstance(told, Mapping) or not 0 < len(told) <= MOST_GROUPS:
        refuse("config_groups is no list of groups", told)
    sparsity = settings.get("sparsity_config") or {}
    if not isinstance(sparsity, Mapping) or sparsity.get("format", "dense") != "dense":
        refuse("sparse weights are not served", sparsity)
    for group in told.values():
        targets = group.get("targets") if isinstance(group, Mapping) else None
        if not isinstance(targets, list) or not all(isinstance(one, str) for one in targets):
            refuse("a group names no targets", targets)
    return [*told.values()]


def _overridden(settings: Mapping[str, Any], patterns: _Patterns) -> Mapping[str, PackedLayout]:
    """GPTQ may pack some layers in another way, by patterns: the first that fits counts."""
    made: dict[str, PackedLayout] = {}
    seen = set[str]()
    for pattern, changed in _dynamic(settings).items():
        matched = patterns.layers(pattern) - seen
        seen |= matched
        if pattern.startswith("-:") or not matched:
            continue
        if not isinstance(changed, Mapping):
            refuse("a rule of dynamic changes nothing", pattern)
        made |= dict.fromkeys(matched, gptq({**settings, **changed}))
    return made


def _dynamic(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    told = settings.get("dynamic") or {}
    if not isinstance(told, Mapping):
        refuse("dynamic is no set of rules", told)
    return {(one if one[:2] in {"-:", "+:"} else f"+:{one}"): rule for one, rule in told.items()}


def _exceptions(settings: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name in EXCEPTIONS:
        told = settings.get(name) or []
        if not isinstance(told, list) or not all(isinstance(one, str) and one for one in told):
            refuse(f"{name} is no list of names", told)
        found += told
    if len(found) > MOST_EXCEPTIONS:
        refuse("too many layers are excepted", len(found))
    return found


def _takes_all(settings: Mapping[str, Any]) -> bool:
    told = settings.get("config_groups")
    if not isinstance(told, Mapping):
        return True
    return any("Linear" in group["targets"] for group in told.values())


def _mentions(excepted: str, layer: str) -> bool:
    """Whether engines may take a name of config.json for this layer: as its name, a part of it, or where it lies.
    Names of several layers that engines compute as one count for each."""
    return excepted in layer or layer.rpartition(".")[0] == excepted.rpartition(".")[0] != ""


def _expression(pattern: str) -> str | None:
    """The regular expression of a pattern of compressed-tensors or of a rule of GPTQ's; anything else is a name."""
    kind, colon, told = pattern.partition(":")
    return told if colon and kind in {"re", "-", "+"} else None


class _Patterns:
    """Which layers the patterns of config.json mean."""

    def __init__(self, patterns: Iterable[str], layers: Iterable[str]) -> None:
        self._layers = frozenset(layers)
        told = {expression for one in patterns if (expression := _expression(one)) is not None}
        self._found = fitting(sorted(told), self._layers)

    def layers(self, pattern: str) -> frozenset[str]:
        """Raises KeyError for a pattern that was not named before."""
        expression = _expression(pattern)
        return frozenset({pattern}) & self._layers if expression is None else self._found[expression]


def _layer(tensor: RawTensor, layout: PackedLayout) -> str | None:
    """Whose packed tensor it is, if it is one; whole weights beside quantised ones are floats of the same name."""
    if not tensor.name.endswith(layout.packed):
        return None
    if layout.packed == layout.whole and tensor.dtype in FLOATS:
        return None
    return tensor.name.removesuffix(layout.packed)


def _weight(layer: str, tensor: RawTensor, layout: PackedLayout, by_name: Mapping[str, RawTensor]) -> PackedWeight:
    """One quantised weight."""
    if tensor.dtype not in layout.dtypes:
        _refuse_tensor(tensor, f"quantization_config wants {' or '.join(sorted(layout.dtypes))}")
    told = by_name.get(f"{layer}.weight_shape") if layout.packed == ".weight_packed" else None
    shape = layout.weight(tensor.shape) if told is None else _told_shape(told, layout.weight(tensor.shape), layout)
    found = {layout.packed: tensor.name}
    for ending, part in _parts(layer, shape, layout).items():
        beside = by_name.get(layer + ending)
        if beside is None:
            if part.needed:
                raise ModelError("a part of a quantised weight is missing", layer + ending, OTHER_SOURCE)
            continue
        if beside.dtype not in part.dtypes:
            _refuse_tensor(beside, f"quantization_config wants {' or '.join(sorted(part.dtypes))}")
        if beside.shape not in part.shapes:
            wanted = " or ".join(map(str, part.shapes))
            _refuse_tensor(beside, f"a weight of {shape}, as {tensor.name} has it, wants {wanted}")
        if ending.endswith("g_idx"):
            _require_order(beside, by_name[f"{layer}{'.weight_scale' if ending[1] == 'w' else '.scales'}"])
        if ending == ".g_idx":
            _require_side_by_side(beside, by_name[f"{layer}.scales"].shape[0])
        if ending.endswith("_global_scale"):
            _require_divisor(beside)
        found[ending] = beside.name
    return PackedWeight(layout, shape, found)


def _told_shape(told: RawTensor, packed: Shape, layout: PackedLayout) -> Shape:
    """The shape that a file writes beside packed words, of which the last of a row may be filled up."""
    if told.shape != (2,) or told.dtype not in {"I64", "I32"}:
        _refuse_tensor(told, "it should be two whole numbers")
    outputs, inputs = (int(one) for one in _numbers(told))
    spare = packed[1] - inputs
    if outputs != packed[0] or not 0 <= spare < layout.weight((1, 1))[1]:
        _refuse_tensor(told, f"it says ({outputs}, {inputs}), and packed are {packed}")
    return outputs, inputs


def _parts(layer: str, shape: Shape, layout: PackedLayout) -> Mapping[str, PackedPart]:
    try:
        return layout.parts(shape)
    except ModelError as error:
        raise ModelError(f"{layer}: {error.what}", error.value, error.remedy) from error


def _require_order(order: RawTensor, scales: RawTensor) -> None:
    """Engines take these numbers as places in the scales without looking."""
    found = _numbers(order)
    count = scales.shape[0 if scales.name.endswith(".scales") else -1]
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < count:
        _refuse_tensor(order, f"its numbers go from {found.min()} to {found.max()}, and there are {count} groups")


def _require_side_by_side(order: RawTensor, count: int) -> None:
    """vLLM takes them so without looking, other readers as they are."""
    found = _numbers(order)
    if (found != np.arange(found.size) // (found.size // count)).any():
        _refuse_tensor(order, "its inputs are not in their own order, and quantization_config says that they are")


def _numbers(tensor: RawTensor) -> Any:
    return np.frombuffer(bytes(read_rows(tensor, 0, tensor.rows)), dtype="<i8" if tensor.dtype == "I64" else "<i4")


def _require_single_experts(tensors: Sequence[RawTensor]) -> None:
    """As makers publish FP8 and vLLM reads it; transformers writes all experts of a layer as one tensor."""
    if fused := min((one.name for one in tensors if one.dtype in FLOAT8 and len(one.shape) == 3), default=None):
        remedy = "Use the copy that the model's makers publish, in which each expert has tensors of its own."
        raise ModelError("all experts of a layer are one tensor of FP8, which is not served", fused, remedy)


def _require_divisor(scale: RawTensor) -> None:
    """Engines divide by it without looking."""
    (found,) = np.frombuffer(bytes(read_rows(scale, 0, scale.rows)), dtype="<f4")
    if not (0 < found < np.inf and 1 / found < np.inf):
        _refuse_tensor(scale, f"scales are divided by it, and it is {found}")


def _together(layer: str) -> str:
    """What engines call the layer that they make of this one and others."""
    for single, several in TOGETHER.items():
        layer = layer.removesuffix(single) + several if layer.endswith(single) else layer
    return layer


def _require_joined_alike(made: Mapping[str, PackedWeight], layouts: _Layouts) -> None:
    """vLLM reads such layers by what is said of one of them, or of a name that they have together."""
    known: dict[str, PackedWeight] = {}
    for name, one in made.items():
        joined = JOINED.sub(".*", name)
        if joined == name:
            continue
        others = [known.setdefault(joined, one).layout, *layouts.of_joined(name.removesuffix(one.layout.whole))]
        if not all(other is one.layout or _alike(other, one) for other in others):
            raise ModelError("layers that engines compute as one are quantised in two ways", name, OTHER_SOURCE)


def _alike(layout: PackedLayout, one: PackedWeight) -> bool:
    try:
        same = layout.parts(one.shape) == one.layout.parts(one.shape)
    except ModelError:
        return False
    own = [getattr(each.numbers, "keywords", None) for each in (layout, one.layout)]
    return same and layout.packed == one.layout.packed and own[0] == own[1]


def _require_one_divisor(scales: Sequence[RawTensor]) -> None:
    """Layers that vLLM computes as one have one divisor there: the largest of theirs, whatever the others are."""
    known: dict[str, tuple[str, Any]] = {}
    for scale in scales:
        (found,) = np.frombuffer(bytes(read_rows(scale, 0, scale.rows)), dtype="<f4")
        name, other = known.setdefault(JOINED.sub(".*", scale.name), (scale.name, found))
        if other != found:
            _refuse_tensor(scale, f"{name} has {other}, this one {found}, and engines have one scale for both layers")


def _require_no_orphans(names: Iterable[str], layouts: Sequence[PackedLayout]) -> None:
    endings = tuple({ending for layout in layouts for ending in (*layout.endings, layout.packed)} - {".weight"})
    if orphan := min((name for name in names if name.endswith(endings)), default=None):
        raise ModelError("a part of a quantised weight lies there without it", orphan, OTHER_SOURCE)


def _refuse_tensor(tensor: RawTensor, why: str) -> NoReturn:
    what = f"{tensor.name} has {tensor.dtype} {tensor.shape}; {why}"
    raise ModelError("a tensor of a quantised weight is not what it should be", what, OTHER_SOURCE)
