"""What the tensors of a quantised weight have to be, by config.json alone: names, dtypes and shapes.

A quantised weight lies in a file as several tensors: packed words, scales, perhaps zero points and an order of the
inputs. Their shapes follow from the weight's own shape and the settings of the quantisation. Here they are read the
other way: what is packed says which shape the weight has (outputs, inputs), and everything beside it has to agree.

Layouts are those of the one engine that serves quantised weights, vLLM 0.32 (`create_weights` of `auto_awq`,
`auto_gptq`, `fp8` and the schemes of `compressed_tensors`), and of the libraries that write them: AutoAWQ's
`WQLinear_GEMM`, GPTQModel's `QuantLinear`, compressed-tensors' `pack_to_int32` and `initialize_qparams`, and for FP8
and MXFP4 transformers' own `FP8Linear` and `Mxfp4GptOssExperts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from troth.node.errors import ModelError
from troth.node.models import dequantising
from troth.node.models.dequantising import WORD, Shape

if TYPE_CHECKING:
    import torch


Numbers = Callable[[Mapping[str, "torch.Tensor"], Shape, "torch.dtype"], "torch.Tensor"]
"""The weight, by the tensors that make it, by how their names end; its shape; and a class' dtype."""
SCALES = frozenset({"F16", "BF16", "F32"})
WORDS, BYTES, SIGNED, FLOAT8, SINGLE = (frozenset({name}) for name in ("I32", "U8", "I8", "F8_E4M3", "F32"))
SCALAR: tuple[Shape, ...] = ((), (1,))
MX_GROUP, MX_BYTES = 32, 16
"""MXFP4: numbers that share a scale, and the bytes that hold them."""
NV_GROUP = 16
"""NVFP4: numbers that share a scale."""
GPTQ_BITS, GPTQ_GROUPS = frozenset({4, 8}), frozenset({-1, 32, 64, 128})
"""What vLLM's kernels take of GPTQ; experts of mixtures have others, for which groups may be of any size."""
VLLM = "0.32"
SYMMETRIC = "with sym: true, or one of AWQ or compressed-tensors, which may have zero points"
UNORDERED = "with desc_act: false, or one in which a group is all inputs (group_size: -1)"
LARGEST_SIZE = 1 << 24
OTHER = "Use another copy of the model, or correct quantization_config."


@dataclass(frozen=True, slots=True)
class PackedPart:
    """A tensor beside what is packed: one of `dtypes`, one of `shapes`."""

    dtypes: frozenset[str]
    shapes: tuple[Shape, ...]
    needed: bool = True


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """How one weight lies in a file.

    Args:
        packed: ends the name of the tensor that holds the numbers; `dtypes` are its own.
        weight: the whole weight's shape, by that of what is packed; raises ModelError where there is none.
        parts: what has to lie beside it, by how its name ends, for a weight of that shape.
        numbers: what all of them stand for (`dequantising`).
        whole: ends the name of the whole weight.
    """

    packed: str
    dtypes: frozenset[str]
    weight: Callable[[Shape], Shape]
    parts: Callable[[Shape], Mapping[str, PackedPart]]
    numbers: Numbers
    whole: str = ".weight"
    endings: frozenset[str] = field(default_factory=frozenset)
    """How names of parts end, of any weight: none lies there without its packed tensor."""
    for_experts: str = ""
    """Why nothing but experts of a mixture may be packed so; empty where any layer may."""
    on_cards: str = ""
    """Why vLLM does not read it on a CPU; empty where it does."""
    in_torch: str = ""
    """Why vLLM reads it nowhere, so that torch alone does; empty where it reads it."""


def refuse(what: str, value: Any) -> NoReturn:
    """Say what of the settings cannot be."""
    raise ModelError(f"quantization_config of config.json: {what}", value, OTHER)


def number(settings: Mapping[str, Any], *names: str, allowed: range | frozenset[int]) -> int:
    """A whole number, by any of its names; raises ModelError."""
    said = [settings[name] for name in names if settings.get(name) is not None]
    if not said or type(said[0]) is not int or said[0] not in allowed or any(one != said[0] for one in said):
        refuse(f"{names[0]} is not what it can be", said)
    return int(said[0])


def truth(settings: Mapping[str, Any], name: str, *, usual: bool) -> bool:
    """Yes or no; raises ModelError."""
    said = settings.get(name)
    if said is None:
        return usual
    if not isinstance(said, bool):
        refuse(f"{name} is neither true nor false", said)
    return said


def word(settings: Mapping[str, Any], name: str, usual: str) -> str:
    """A name; raises ModelError."""
    said = settings.get(name)
    if said is None:
        return usual
    if not isinstance(said, str):
        refuse(f"{name} is no name", said)
    return said


def groups(inputs: int, size: int) -> int:
    """In how many groups inputs are scaled; -1 is one group of all."""
    if size == -1:
        return 1
    if inputs % size:
        refuse(f"groups of {size} do not divide the inputs of a layer", inputs)
    return inputs // size


def _group_size(settings: Mapping[str, Any], *names: str) -> int:
    return number(settings, *names, allowed=frozenset({-1, *(1 << power for power in range(3, 13))}))


def _matrix(shape: Shape) -> Shape:
    if len(shape) != 2 or not 0 < min(shape) <= max(shape) <= LARGEST_SIZE:
        raise ModelError("a quantised weight is no matrix", shape, OTHER)
    return shape


def awq(settings: Mapping[str, Any]) -> PackedLayout:
    """AWQ as AutoAWQ's GEMM packs it: eight outputs in a word."""
    if (version := word(settings, "version", "gemm")).lower() != "gemm":
        refuse("of AWQ, only the version gemm is read by engines", version)
    bits = number(settings, "bits", "w_bit", allowed=frozenset({4}))
    size, factor = _group_size(settings, "group_size", "q_group_size"), WORD // bits
    if not truth(settings, "zero_point", usual=False):
        refuse("AWQ has zero points, and zero_point has to be true", settings.get("zero_point"))

    def weight(packed: Shape) -> Shape:
        inputs, words = _matrix(packed)
        return words * factor, inputs

    def parts(shape: Shape) -> Mapping[str, PackedPart]:
        outputs, inputs = shape
        count = groups(inputs, size)
        return {
            ".scales": PackedPart(SCALES, ((count, outputs),)),
            ".qzeros": PackedPart(WORDS, ((count, outputs // factor),)),
        }

    endings = frozenset({".scales", ".qzeros"})
    return PackedLayout(".qweight", WORDS, weight, parts, dequantising.awq, endings=endings)


def gptq(settings: Mapping[str, Any]) -> PackedLayout:
    """GPTQ: inputs packed into words, zero points of outputs too, and perhaps an order of the inputs.

    Raises:
        ModelError: vLLM reads no such weights, on a CPU or on a card (its `AutoGPTQConfig` and `gptq_utils`).
    """
    bits = number(settings, "bits", allowed=frozenset({2, 3, 4, 8}))
    size, factor = _group_size(settings, "group_size"), WORD // bits
    if bits not in GPTQ_BITS:
        _refuse_gptq("of 4 or 8 bits alone", f"bits: {bits}", "Use a copy of 4 bits.")
    if not truth(settings, "sym", usual=False):
        _refuse_gptq("that is symmetric alone", f"sym: {settings.get('sym')}", f"Use a copy {SYMMETRIC}.")
    if "desc_act" not in settings or (truth(settings, "desc_act", usual=True) and size != -1):
        told = f"desc_act: {settings.get('desc_act')}"
        _refuse_gptq("whose inputs stand in their own order alone", told, f"Use a copy {UNORDERED}.")
    groups_of = "" if size in GPTQ_GROUPS else f"vLLM reads groups of 32, 64, 128 or all inputs (-1), not of {size}"

    def weight(packed: Shape) -> Shape:
        words, outputs = _matrix(packed)
        return outputs, words * factor

    def parts(shape: Shape) -> Mapping[str, PackedPart]:
        outputs, inputs = shape
        if outputs % factor:
            refuse(f"{bits} bits do not pack the outputs of a layer into words", outputs)
        count = groups(inputs, size)
        return {
            ".scales": PackedPart(SCALES, ((count, outputs),)),
            ".qzeros": PackedPart(WORDS, ((count, outputs // factor),)),
            ".g_idx": PackedPart(WORDS, ((inputs,),), needed=False),
        }

    endings = frozenset({".scales", ".qzeros", ".g_idx"})
    on_cards = "" if bits == 4 else f"GPTQ of {bits} bits"
    numbers = partial(dequantising.gptq, bits=bits)
    return PackedLayout(
        ".qweight", WORDS, weight, parts, numbers, endings=endings, for_experts=groups_of, on_cards=on_cards
    )


def _refuse_gptq(read: str, said: str, remedy: str) -> NoReturn:
    raise ModelError(f"vLLM {VLLM} reads GPTQ {read}; quantization_config says", said, remedy)


def fp8(settings: Mapping[str, Any]) -> PackedLayout:
    """FP8 with a scale for each block, or one for all of a weight."""
    scheme = word(settings, "activation_scheme", "dynamic")
    if scheme not in {"dynamic", "static"}:
        refuse("activation_scheme is neither dynamic nor static", scheme)
    block = settings.get("weight_block_size")
    given = PackedPart(SCALES, SCALAR, needed=scheme == "static")
    if block is None:
        of_all = {".weight_scale": PackedPart(SCALES, SCALAR), ".input_scale": given}
        numbers = partial(dequantising.fp8, block=None)
        return PackedLayout(".weight", FLOAT8, _matrix, lambda _shape: of_all, numbers, endings=frozenset(of_all))
    rows, columns = block_of(block)
    dtypes = frozenset({"F8_E8M0", "U8"}) if settings.get("scale_fmt") == "ue8m0" else SCALES
    dtypes |= SCALES

    def parts(shape: Shape) -> Mapping[str, PackedPart]:
        blocks = (-(-shape[0] // rows), -(-shape[1] // columns))
        return {".weight_scale_inv": PackedPart(dtypes, (blocks,)), ".input_scale": given}

    endings, numbers = (
        frozenset({".weight_scale_inv", ".input_scale"}),
        partial(dequantising.fp8, block=(rows, columns)),
    )
    return PackedLayout(".weight", FLOAT8, _matrix, parts, numbers, endings=endings)


def block_of(said: Any) -> tuple[int, int]:
    """Rows and columns that share a scale; raises ModelError."""
    if not isinstance(said, list) or len(said) != 2 or not all(type(one) is int and 0 < one <= 4096 for one in said):
        refuse("a block has two sizes", said)
    return said[0], said[1]


def mxfp4(_settings: Mapping[str, Any]) -> PackedLayout:
    """MXFP4 of gpt-oss: experts as blocks of 32 numbers in 16 bytes, each with an exponent."""

    def weight(packed: Shape) -> Shape:
        if len(packed) != 4 or packed[-1] != MX_BYTES or not 0 < min(packed) <= max(packed) <= LARGEST_SIZE:
            raise ModelError("blocks of MXFP4 have four dimensions, of which the last is 16 bytes", packed, OTHER)
        experts, outputs, count, _ = packed
        return experts, count * MX_GROUP, outputs

    def parts(shape: Shape) -> Mapping[str, PackedPart]:
        experts, inputs, outputs = shape
        return {"_scales": PackedPart(BYTES, ((experts, outputs, inputs // MX_GROUP),))}

    endings = frozenset({"_scales"})
    return PackedLayout("_blocks", BYTES, weight, parts, dequantising.mxfp4, whole="", endings=endings)


def compressed(group: Mapping[str, Any], form: str) -> PackedLayout:
    """One group of compressed-tensors: `form` names how its weights are packed."""
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        refuse("a group says nothing of its weights", weights)
    if form == "nvfp4-pack-quantized":
        return _nvfp4(weights, group.get("input_activations"))
    scheme = _Scheme.read(weights, group.get("input_activations"))
    if form == "pack-quantized":
        return _packed(scheme)
    if form in {"int-quantized", "float-quantized", "naive-quantized"}:
        kind = word(weights, "type", "int")
        wanted = {"int-quantized": "int", "float-quantized": "float"}.get(form, kind)
        if kind not in {"int", "float"} or kind != wanted or scheme.bits != 8:
            refuse(f"{form} is not of {scheme.bits} bits of the type", kind)
        layout = _plain(scheme, SIGNED if kind == "int" else FLOAT8)
        if group.get("input_activations") is not None:
            return layout
        # `_quantization_scheme_map_from_config` asserts, and `_POSSIBLE_WFP8A16_KERNELS` has none for processors.
        whole = f"{form} with whole activations"
        return replace(layout, in_torch=whole) if kind == "int" else replace(layout, on_cards=whole)
    refuse(
        "this format of compressed-tensors is not served; use pack-, int-, float-, naive- or nvfp4-pack-quantized", form
    )


def _nvfp4(weights: Mapping[str, Any], activations: Any) -> PackedLayout:
    """NVFP4: two numbers in a byte, a scale in FP8 for 16 of them, and one for all, by which those are divided."""
    number(weights, "num_bits", allowed=frozenset({4}))
    size = number(weights, "group_size", allowed=frozenset({NV_GROUP}))
    kind = word(weights, "type", ""), word(weights, "strategy", "")
    if kind != ("float", "tensor_group") or not truth(weights, "symmetric", usual=True):
        refuse("NVFP4 is of symmetric floats in a tensor_group", kind)

    def weight(packed: Shape) -> Shape:
        outputs, pairs = _matrix(packed)
        return outputs, 2 * pairs

    def parts(shape: Shape) -> Mapping[str, PackedPart]:
        outputs, inputs = shape
        return {
            ".weight_scale": PackedPart(FLOAT8, ((outputs, groups(inputs, size)),)),
            ".weight_global_scale": PackedPart(SINGLE, SCALAR),
            ".input_global_scale": PackedPart(SINGLE, SCALAR, needed=activations is not None),
        }

    endings = frozenset({".weight_scale", ".weight_global_scale", ".input_global_scale"})
    numbers = dequantising.nvfp4
    return PackedLayout(".weight_packed", BYTES, weight, parts, numbers, endings=endings, on_cards="NVFP4")


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How the numbers of one group are scaled; `size` of a group is that of its strategy."""

    bits: int
    strategy: str
    size: int
    block: tuple[int, int]
    symmetric: bool
    ordered: bool
    static: bool

    @classmethod
    def read(cls, weights: Mapping[str, Any], activations: Any) -> _Scheme:
        size, block = weights.get("group_size"), weights.get("block_structure")
        strategy = word(weights, "strategy", "tensor" if size is None else "channel" if size == -1 else "group")
        if strategy not in {"tensor", "channel", "group", "block"}:
            refuse("this strategy of scales is not served", strategy)
        if activations is not None and not isinstance(activations, Mapping):
            refuse("input_activations of a group are no settings", activations)
        return cls(
            bits=number(weights, "num_bits", allowed=frozenset({2, 4, 8})),
            strategy=strategy,
            size=_group_size(weights, "group_size") if strategy == "group" else -1,
            block=block_of(block) if strategy == "block" else (1, 1),
            symmetric=truth(weights, "symmetric", usual=True),
            ordered=weights.get("actorder") in ("group", True),
            static=activations is not None and activations.get("dynamic", False) is False,
        )

    def scales(self, shape: Shape) -> tuple[Shape, ...]:
        outputs, inputs = shape
        if self.strategy == "tensor":
            return SCALAR
        if self.strategy == "block":
            return ((-(-outputs // self.block[0]), groups(inputs, self.block[1])),)
        return ((outputs, groups(inputs, self.size)),)


def _packed(scheme: _Scheme) -> PackedLayout:
    factor = WORD // scheme.bits
    if scheme.strategy not in {"channel", "group"}:
        refuse("packed words have a scale for each output or group", scheme.strategy)

    def weight(packed: Shape) -> Shape:
        outputs, words = _matrix(packed)
        return outputs, words * factor

    def parts(shape: Shape) -> Mapping[str, PackedPart]:
        outputs, inputs = shape
        (scales,) = scheme.scales(shape)
        zeros = (-(-outputs // factor), scales[1])
        return {
            ".weight_scale": PackedPart(SCALES, (scales,)),
            ".weight_shape": PackedPart(frozenset({"I64", "I32"}), ((2,),)),
            **({} if scheme.symmetric else {".weight_zero_point": PackedPart(WORDS, (zeros,))}),
            **({".weight_g_idx": PackedPart(WORDS, ((inputs,),))} if scheme.ordered else {}),
        }

    endings = frozenset({".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx"})
    on_cards = "" if scheme.bits == 4 else f"packed words of {scheme.bits} bits"
    numbers = partial(dequantising.packed, bits=scheme.bits)
    return PackedLayout(".weight_packed", WORDS, weight, parts, numbers, endings=endings, on_cards=on_cards)


def _plain(scheme: _Scheme, dtypes: frozenset[str]) -> PackedLayout:
    given = PackedPart(SCALES, SCALAR, needed=scheme.static)

    def parts(shape: Shape) -> Mapping[str, PackedPart]:
        scales = scheme.scales(shape)
        return {
            ".weight_scale": PackedPart(SCALES, scales),
            **({} if scheme.symmetric else {".weight_zero_point": PackedPart(dtypes, scales)}),
            **({".weight_g_idx": PackedPart(WORDS, ((shape[1],),))} if scheme.ordered else {}),
            ".input_scale": given,
            ".input_zero_point": PackedPart(dtypes, SCALAR, needed=False),
        }

    endings = {".weight_scale", ".weight_zero_point", ".weight_g_idx", ".input_scale", ".input_zero_point"}
    numbers = partial(dequantising.plain, rows=scheme.block[0])
    return PackedLayout(".weight", dtypes, _matrix, parts, numbers, endings=frozenset(endings))
