"""A folder's weights by the names that whole ones have, whether its files hold them so or quantised.

What a quantised weight is made of, and by which arithmetic, its layout says (`quantised_layouts`); here are the tensors
that have to be read for it, and the weight itself, one at a time: what is read of files stays mapped, so that memory
is that of the weights asked for, and of one more in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from troth.node.errors import ModelError
from troth.node.models.dequantising import Shape
from troth.node.models.folder import ModelFolder
from troth.node.models.quantised import PackedWeight, unpacked
from troth.node.models.tensor_files import raw_tensors

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class FolderWeights:
    """`shapes` of all weights by their names, of which `packed` are quantised."""

    shapes: Mapping[str, Shape]
    packed: Mapping[str, PackedWeight]

    @classmethod
    def of(cls, folder: ModelFolder) -> FolderWeights:
        """Those of a folder; raises ModelError where its files are not what config.json says of a quantisation."""
        tensors, settings = raw_tensors(folder.path), folder.quantisation
        if settings is None:
            return cls({one.name: one.shape for one in tensors}, {})
        found = unpacked(tensors, settings)
        return cls(found.shapes, found.made)

    def tensors(self, names: Iterable[str]) -> frozenset[str]:
        """Names of the tensors in the files that make these weights."""
        made = (self.packed[name].tensors.values() if name in self.packed else (name,) for name in names)
        return frozenset(one for several in made for one in several)

    def whole(
        self, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype, device: torch.device
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights that tensors of the files make: quantised ones in `dtype` on `device`, others as they are.

        Raises:
            ModelError: a quantised weight is no finite number there.
        """
        parts = {part: name for name, one in self.packed.items() for part in one.tensors.values()}
        for name in dict.fromkeys(parts.get(one, one) for one in tensors):
            found = self.packed.get(name)
            if found is None:
                yield name, tensors[name]
                continue
            read = {ending: tensors[part].to(device) for ending, part in found.tensors.items()}
            weight = found.layout.numbers(read, found.shape, dtype)
            if not bool(weight.isfinite().all()):
                what = "a quantised weight stands for numbers that are none, or too large for the class' dtype"
                raise ModelError(
                    what, f"{name} in {str(dtype).removeprefix('torch.')}", "Use another copy of the model."
                )
            yield name, weight
