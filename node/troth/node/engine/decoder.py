"""A decoder of transformers, run by its own forward pass over some of its layers.

The model is built without weights. Its own code makes embeddings, masks and rotary embeddings, and calls its layers in
turn; in their places stand `Place`s, which pass states by before a segment, put the segment's rows in at its first
layer, and stop after its last one. So a slice computes what the whole model computes, whatever the family: nothing
about a family is written down here. What must hold of it is looked at once, without weights (`_Survey`): each layer
takes states and gives states of one shape, reads and writes keys and values of its own, and is told nothing of the
tokens or of other layers. A model of which that is not true is refused.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_outputs import MoeModelOutputWithPast

from troth.node.engine.architectures import require_known_settings, require_one_architecture
from troth.node.engine.attention_cache import CacheShape
from troth.node.engine.packing import PACKED, Past, WatchedPast
from troth.node.engine.wide_products import WORTHWHILE, wide_products
from troth.node.errors import ModelError
from troth.node.models.families import require_decoder
from troth.node.models.folder import QUANTISATIONS, ModelFolder
from troth.protocol.architecture import INCIDENTAL_KEYS
from troth.protocol.types import Segment

Layer = Callable[..., torch.Tensor]
REMEDY = "Use a model whose layers only pass states on, or serve it whole with vLLM."
LAYER_WORDS = frozenset({"attention_mask", "cache_position", "position_embeddings", "position_ids"})
"""What a layer may be told besides its states: all of it follows from positions alone."""
FOREIGN = frozenset({"attn_implementation", "auto_map", "experts_implementation"})
"""Of config.json: names code to run, or kernels to fetch."""
LARGEST_CONSTANT = 1 << 30
"""Bytes of one constant, such as rotary frequencies, which no file holds."""
SHOWN = 200
"""Characters of what transformers says of a configuration."""
WITHOUT_EXPERTS = "troth_without_experts"


class _ReachedError(Exception):
    """The segment's last layer has given its states; the rest of the model's forward pass is of no use."""


@dataclass
class LayerPass:
    """One pass: `rows` (sequences, positions, hidden size) enter the segment; `layers` are run."""

    segment: Segment
    rows: torch.Tensor
    layers: Mapping[int, Layer]
    whole: int

    def through(self, index: int, states: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        """What comes out of the place of a layer."""
        if index < self.segment.first:
            return states
        if index == self.segment.first and index > 0:
            states = self.rows
        self.rows = self.layers[index](states, *given, **named)
        if index + 1 == self.segment.end < self.whole:
            raise _ReachedError
        return self.rows


class Place(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Stands where a layer stands in the model; attributes that the model's code asks for are those of the layer."""

    def __init__(self, decoder: Decoder, index: int, layer: torch.nn.Module) -> None:
        super().__init__()
        # In a tuple, so that torch does not take them for parts of this module.
        self._held = (decoder, layer)
        self._index = index

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_held"][1], name)

    def forward(self, states: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        """See `LayerPass.through`."""
        passage: LayerPass = self._held[0].passage
        return passage.through(self._index, states, *given, **named)


class _Given(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """In the place of the whole model before the head: its rows are there already."""

    def forward(self, inputs_embeds: torch.Tensor, **_: Any) -> MoeModelOutputWithPast:
        return MoeModelOutputWithPast(last_hidden_state=inputs_embeds)


class Decoder:
    """A model without weights in its layers; `entry` and `ending` name the weights before and after them.

    `packs`: several sequences can go through it in one pass, for which `joins` says how (see `packing.PackedPast`).
    `fewest_widened`: rows of a pass from which products in bfloat16 may be widened (see `wide_products`).
    """

    fewest_widened = WORTHWHILE

    def __init__(self, folder: ModelFolder, dtype: torch.dtype, device: torch.device) -> None:
        """Build it.

        Args:
            dtype: the execution class' own: constants of the model are rounded to it, as transformers does.

        Raises:
            ModelError: transformers has no such decoder, or it cannot be cut between layers.
        """
        self.device = device
        self.model = _built(text_config(folder), dtype)
        self.dtype = dtype
        self.config: Any = self.model.config
        self._choose_attention()
        self._base_name = _name_of_base(self.model)
        self.prefix = f"{self._base_name}.layers."
        self.rooms: dict[str, torch.Tensor] = dict(self.model.state_dict(keep_vars=True))
        self.base: Any = getattr(self.model, self._base_name)
        self.templates: list[torch.nn.Module] = list(self.base.layers)
        self.total = len(self.templates)
        self.passage: Any = None
        places = (Place(self, index, layer) for index, layer in enumerate(self.templates))
        self.base.layers = torch.nn.ModuleList(places)
        seen = _surveyed(self)
        self.shapes, self.entry, self.ending = seen.shapes, seen.entry, seen.ending
        self.packs, self.joins = self._asks_for_attention and not seen.counts, seen.changes_keys
        self._fill_buffers(self.model)

    def multiplies(self, name: str) -> bool:
        """Whether a weight is the matrix of a linear layer within one of the model's layers."""
        if not name.startswith(self.prefix):
            return False
        index, _, own = name.removeprefix(self.prefix).partition(".")
        try:
            owner = self.templates[int(index)].get_submodule(own.rpartition(".")[0])
        except AttributeError:
            return False
        return isinstance(owner, torch.nn.Linear)

    @property
    def tied(self) -> Mapping[str, str]:
        """Names of weights that are other weights, and those."""
        return dict(self.model.all_tied_weights_keys)

    def stays_wide(self, name: str) -> bool:
        """Whether transformers keeps a weight in float32 whatever the class' dtype."""
        return any(part in name for part in self.model._keep_in_fp32_modules_strict or ())

    def assign(self, name: str, value: torch.Tensor | None) -> None:
        """Give the model a weight of its entry or ending, or take it away."""
        owner, _, own = name.rpartition(".")
        room = self.rooms[name]
        made = room if value is None else torch.nn.Parameter(value, requires_grad=False)
        self.model.get_submodule(owner)._parameters[own] = made

    def layer(self, index: int, weights: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """A layer of its own with these weights, named as inside of the layer; raises ModelError if they do not fit."""
        template = self.templates[index]
        # The configuration stays shared: how attention is computed is set there.
        made: torch.nn.Module = copy.deepcopy(template, {id(self.config): self.config})
        self._fill_buffers(made)
        try:
            made.load_state_dict(dict(weights), assign=True)
        except RuntimeError as error:
            raise ModelError(f"layer {index} is incomplete", str(error), "Import the model again.") from error
        return made.eval().requires_grad_(False)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """What enters the model: tokens of any shape, with one more axis of the hidden size."""
        made: torch.Tensor = self.model.get_input_embeddings()(tokens)
        return made

    def run(
        self,
        segment: Segment,
        rows: torch.Tensor,
        layers: Mapping[int, Layer],
        past: Past,
    ) -> torch.Tensor:
        """States (sequences, positions, hidden size) after a segment, post-norm at the last one."""
        passage = LayerPass(segment, rows, layers, self.total)
        try:
            return self.pass_through(passage, rows, past)
        except _ReachedError:
            return passage.rows

    def pass_through(self, passage: LayerPass, rows: torch.Tensor, past: Past) -> torch.Tensor:
        """The model's own forward pass, whose layers are what `passage` makes of them."""
        positions = past.positions(rows.shape[1], rows.device).unsqueeze(0)
        self.passage = passage
        try:
            with past.at_work(), wide_products(rows, self.fewest_widened):
                made = self.base(inputs_embeds=rows, position_ids=positions, past_key_values=past, use_cache=True)
        finally:
            self.passage = None
        states: torch.Tensor = made.last_hidden_state
        return states

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """What the model's head makes of (sequences, positions, hidden size) post-norm rows, soft caps included."""
        setattr(self.model, self._base_name, _Given())
        try:
            with wide_products(rows, self.fewest_widened):
                made: torch.Tensor = self.model(inputs_embeds=rows, use_cache=False).logits
        finally:
            setattr(self.model, self._base_name, self.base)
        return made.float()

    @property
    def _asks_for_attention(self) -> bool:
        """Whether the family's code asks transformers for attention by its name; some compute it by themselves."""
        return bool(self.model._can_set_attn_implementation())

    def _choose_attention(self) -> None:
        capped = getattr(self.config, "attn_logit_softcapping", None) is not None
        # sdpa would leave the cap out, in silence.
        eager = capped or not getattr(self.model, "_supports_sdpa", False)
        kind = "eager" if eager else "sdpa"
        self.config._attn_implementation = PACKED[kind] if self._asks_for_attention else kind

    @property
    def has_two_ways(self) -> bool:
        """Whether attention may be computed in plain operations instead of by a kernel."""
        return bool(self.config._attn_implementation == PACKED["sdpa"])

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """While it lasts attention is computed in plain operations; nothing else runs meanwhile."""
        usual = self.config._attn_implementation
        self.config._attn_implementation = PACKED["eager"]
        try:
            yield
        finally:
            self.config._attn_implementation = usual

    def _fill_buffers(self, module: torch.nn.Module) -> None:
        """Constants that no file holds, such as rotary frequencies: computed as transformers does after loading."""
        for part in module.modules():
            if isinstance(part, Place):
                continue
            empty = {
                name: buffer
                for name, buffer in part.named_buffers(recurse=False)
                if buffer.device.type == "meta" and name in part._non_persistent_buffers_set
            }
            for name, buffer in empty.items():
                if buffer.nbytes > LARGEST_CONSTANT:
                    raise ModelError("a constant of the model would be enormous", f"{name}: {buffer.nbytes}", REMEDY)
                filling = float("nan") if buffer.is_floating_point() else 0
                part._buffers[name] = torch.full_like(buffer, filling, device=self.device)
            if empty:
                with torch.no_grad():
                    self.model._init_weights(part)
            for name in empty:
                if bool(torch.isnan(part.get_buffer(name).float()).any()):
                    raise ModelError("transformers does not say how to make a constant", name, REMEDY)


def text_config(folder: ModelFolder) -> Any:
    """The configuration of the model that writes text, as transformers reads it, without a quantisation, as quantised
    weights are whole once they are read (`dequantised`)."""
    require_decoder(folder.text_config)
    try:
        with tempfile.TemporaryDirectory(prefix="troth-config-") as room:
            (Path(room) / "config.json").write_text(json.dumps(_computed(folder.config)), encoding="utf-8")
            read = AutoConfig.from_pretrained(room, trust_remote_code=False, local_files_only=True)
        config = read.get_text_config(decoder=True)
        if not isinstance(config, PreTrainedConfig):
            raise TypeError(f"{type(read).__name__} has no part that writes text")
        config.name_or_path = ""  # of the folder above: two readings of one model would seem to be two models
    except Exception as error:  # each family's own checks raise what they like
        raise ModelError("transformers does not read config.json", _shown(error), REMEDY) from error
    nested = folder.config.get("text_config")
    require_one_architecture(folder.config, read.model_type)
    require_one_architecture(nested if isinstance(nested, Mapping) else {}, config.model_type)
    require_known_settings(folder.text_config, config)
    return config


def _computed(config: Any) -> Any:
    """What of config.json a model is computed by: nothing that its identifier leaves out, and no code or kernel that
    somebody else wrote."""
    if not isinstance(config, dict):
        return config
    left_out = INCIDENTAL_KEYS | FOREIGN | {*QUANTISATIONS}
    return {name: _computed(part) for name, part in config.items() if name not in left_out and name[:1] != "_"}


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:SHOWN]}"


def _built(config: Any, dtype: torch.dtype) -> Any:
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # as above
        told = f"{config.model_type}: {_shown(error)}"
        raise ModelError("transformers does not build this decoder", told, REMEDY) from error
    return model.eval()


def _name_of_base(model: Any) -> str:
    for name, part in model.named_children():
        if isinstance(getattr(part, "layers", None), torch.nn.ModuleList):
            return str(name)
    raise ModelError("the model does not slice: it is no stack of layers", model.config.model_type, REMEDY)


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """What a survey saw: each layer's cache, the weights before and after the layers, and whether layers ask how many
    positions there are, and give attention other keys than the cache gave."""

    shapes: tuple[CacheShape, ...]
    entry: frozenset[str]
    ending: frozenset[str]
    counts: bool
    changes_keys: bool


_SEEN: dict[tuple[str, torch.dtype], _Surveyed] = {}
"""By configuration and dtype, from which all of it follows: a survey takes as long as a small model's whole answer, and
whoever checks a model builds it several times."""


def _surveyed(decoder: Decoder) -> _Surveyed:
    """Of a decoder just built; raises ModelError where it does not slice, each time anew."""
    key = (decoder.config.to_json_string(use_diff=False), decoder.dtype)
    if key not in _SEEN:
        survey = _Survey(decoder)
        past = survey.past
        _SEEN[key] = _Surveyed(survey.shapes, survey.entry, survey.ending, past.counted, past.made_others)
    return _SEEN[key]


class _Survey:
    """One pass without weights that sees what each layer is told, and what it keeps."""

    POSITIONS = 3

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._family = decoder.config.model_type
        self._kept: dict[int, CacheShape] = {}
        self._index = -1
        self.past = WatchedPast(self._keep)
        self._early = {id(decoder.model.get_input_embeddings())}
        with _experts_left_out(decoder.config):
            self._walk()
        early = [module for module in decoder.model.modules() if id(module) in self._early]
        entries = {id(weight) for module in early for weight in module.parameters(recurse=False)}
        outer = [name for name in decoder.rooms if not name.startswith(decoder.prefix)]
        own = [name for name in outer if name not in decoder.tied]
        self.entry = frozenset(name for name in own if id(decoder.rooms[name]) in entries)
        self.ending = frozenset(own) - self.entry
        self.shapes = tuple(self._kept[index] for index in range(decoder.total))

    def through(self, index: int, states: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        """A layer without weights, in the place of `LayerPass.through`."""
        shape = (1, self.POSITIONS, self._decoder.config.hidden_size)
        told = {name for name, value in named.items() if _holds_tensor(value)} - LAYER_WORDS
        if given and any(_holds_tensor(value) for value in given):
            told.add("a tensor without a name")
        if told:
            self._refuse(f"its layers are told more than states: {', '.join(sorted(told))}")
        if tuple(states.shape) != shape:
            self._refuse(f"between its layers pass tensors of the shape {tuple(states.shape)}")
        self._index, self.past.in_layers = index, True
        made = self._decoder.templates[index](states, *given, **named)
        self.past.in_layers = False
        if not isinstance(made, torch.Tensor) or tuple(made.shape) != shape:
            self._refuse("its layers give more than states")
        if index not in self._kept:
            self._refuse("some of its layers keep no keys and values of their own")
        return made

    def _walk(self) -> None:
        decoder = self._decoder
        rows = torch.empty((1, self.POSITIONS, decoder.config.hidden_size), dtype=decoder.dtype, device="meta")
        hooks = [part.register_forward_pre_hook(self._called) for part in decoder.base.modules()]
        try:
            decoder.pass_through(self, rows, self.past)  # type: ignore[arg-type]
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a family's own code stumbles over, it does not slice
            self._refuse(f"a pass over layers alone fails ({type(error).__name__}: {str(error)[:200]})", error)
        finally:
            for hook in hooks:
                hook.remove()

    def _called(self, module: torch.nn.Module, _: Any) -> None:
        if self._index < 0 and not isinstance(module, Place):
            self._early.add(id(module))

    def _keep(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        if layer != self._index or layer in self._kept or keys.ndim != 4 or keys.shape[2] != self.POSITIONS:
            self._refuse("its layers keep more than keys and values of their own")
        self._kept[layer] = CacheShape(
            int(keys.shape[1]), int(keys.shape[3]), int(values.shape[1]), int(values.shape[3])
        )
        return keys, values

    def _refuse(self, reason: str, cause: Exception | None = None) -> NoReturn:
        raise ModelError(f"the model does not slice: {reason}", self._family, REMEDY) from cause


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_tensor(part) for part in value)
    return isinstance(value, torch.Tensor)


def _no_experts(module: torch.nn.Module, states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.zeros_like(states)


ALL_EXPERTS_FUNCTIONS.register(WITHOUT_EXPERTS, _no_experts)


@contextmanager
def _experts_left_out(config: Any) -> Iterator[None]:
    """Which experts a row goes to depends on numbers, and without weights there are none."""
    kept = config._experts_implementation
    config._experts_implementation = WITHOUT_EXPERTS
    try:
        yield
    finally:
        config._experts_implementation = kept
