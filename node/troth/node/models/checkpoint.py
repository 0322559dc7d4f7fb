"""Which tensors of a folder's files make which weights of a transformers model.

Files and models name and cut weights differently: experts come one by one and are computed as one tensor, fused
projections come in one piece, models with several kinds of input put their decoder below `language_model`.
transformers keeps lists of what to rename, stack and split for each family; a slice reads by the same lists, but only
what it needs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

from troth.node.errors import ModelError

NESTED = "language_model"
REMEDY = "Import the model again."


@dataclass
class _Recipe:
    """One tensor of the files that is a weight, or several that a converter makes one or more of."""

    sources: list[tuple[str, str | None]] = field(default_factory=list)


class Checkpoint:
    """`names` are those of a folder's tensors, `rooms` those of the model's weights, without numbers."""

    def __init__(self, names: Iterable[str], model: Any, rooms: Mapping[str, torch.Tensor]) -> None:
        self._model = model
        self._rooms = rooms
        transforms = get_model_conversion_mapping(model)
        self._renamings = [one for one in transforms if isinstance(one, WeightRenaming)]
        self._converters = [one for one in transforms if isinstance(one, WeightConverter)]
        self._by_pattern = {pattern: one for one in self._converters for pattern in one.source_patterns}
        self._recipes: dict[str, _Recipe] = {}
        for name in sorted(names, key=dot_natural_key):
            self._add(name)

    def sources(self, wanted: Callable[[str], bool]) -> frozenset[str]:
        """Names in the files that the wanted weights are made of; of those made together, the first one is asked."""
        chosen = (recipe for target, recipe in self._recipes.items() if wanted(target))
        return frozenset(source for recipe in chosen for source, _ in recipe.sources)

    def made(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The weights that tensors of the files make, those of `sources`; raises ModelError where shapes are wrong."""
        weights: dict[str, torch.Tensor] = {}
        for target, recipe in self._recipes.items():
            if all(source in tensors for source, _ in recipe.sources):
                weights.update(self._make(target, recipe, tensors))
        for name, value in weights.items():
            room = self._rooms.get(name)
            if room is not None and room.shape != value.shape:
                self._refuse_shape(name, tuple(value.shape), tuple(room.shape))
        return weights

    def require_whole(self, shapes: Mapping[str, tuple[int, ...]], tied: Mapping[str, str]) -> None:
        """Raise ModelError where a weight is missing, or has the wrong shape; where several tensors make it, the shape
        that they make.

        Args:
            shapes: of the files' tensors.
            tied: weights that are other weights, which need no tensors.
        """
        there = {*tied}
        for target, recipe in self._recipes.items():
            (first, pattern), *_ = recipe.sources
            if pattern is None and tuple(self._rooms[target].shape) != shapes[first]:
                self._refuse_shape(first, shapes[first], tuple(self._rooms[target].shape))
            made = self._by_pattern[pattern].target_patterns if pattern is not None else [target]
            there |= {target} | {target.replace(made[0], other) for other in made}
        if missing := sorted(self._rooms.keys() - there, key=dot_natural_key):
            raise ModelError("tensors are missing", f"{missing[0]}, and {len(missing) - 1} others", REMEDY)
        several = [name for recipe in self._recipes.values() for name, pattern in recipe.sources if pattern is not None]
        self.made({name: torch.empty(shapes[name], device="meta") for name in several})

    def linear(self, kind: Callable[[str], bool]) -> frozenset[str]:
        """Layers of the files whose weights are matrices of products: those of weights of which `kind` says so, and
        those that are made of several tensors."""
        found = (
            name.removesuffix(".weight")
            for target, recipe in self._recipes.items()
            for name, pattern in recipe.sources
            if name.endswith(".weight") and (pattern is not None or kind(target))
        )
        return frozenset(found)

    @staticmethod
    def _refuse_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> NoReturn:
        shapes = f"{name} has {found}, the configuration wants {wanted}"
        raise ModelError("a tensor has the wrong shape", shapes, REMEDY)

    def _add(self, name: str) -> None:
        target, pattern = self._target(plain_name(name))
        if target not in self._rooms:
            return
        recipe = self._recipes.setdefault(target, _Recipe())
        if recipe.sources and pattern is None:
            raise ModelError("two tensors are the same weight", f"{recipe.sources[0][0]} and {name}", REMEDY)
        recipe.sources.append((name, pattern))

    def _target(self, name: str) -> tuple[str, str | None]:
        prefix = self._model.base_model_prefix
        target, pattern = rename_source_key(name, self._renamings, self._converters, prefix, self._rooms)
        if target not in self._rooms and name in self._rooms:
            target, pattern = rename_source_key(name, [], [], prefix, self._rooms)
        return target, pattern

    def _make(self, target: str, recipe: _Recipe, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        (first, pattern), *_ = recipe.sources
        if pattern is None:
            return {target: tensors[first]}
        converter = copy.deepcopy(self._by_pattern[pattern])
        for source, matched in recipe.sources:
            # As a call, which is how transformers hands over what is read when it is needed.
            converter.add_tensor(target, plain_name(source), matched, lambda source=source: tensors[source])
        try:
            found = converter.convert(target, model=self._model, config=self._model.config)
        except Exception as error:  # converters raise what torch raises
            raise ModelError("tensors do not make the weight that they should", target, REMEDY) from error
        return {name: (value[0] if isinstance(value, list) else value) for name, value in found.items()}


def plain_name(name: str) -> str:
    """A tensor's name without the part that puts the decoder below a model of several kinds of input."""
    return ".".join(part for part in name.split(".") if part != NESTED)
