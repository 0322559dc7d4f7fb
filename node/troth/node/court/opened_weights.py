"""A model's weights as disputes take them: layer by layer in float32, and leaf by leaf under the weights root."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from troth.cases.errors import NothingToDo
from troth.node.engine.head import weight_numbers
from troth.node.models.folder import ModelFolder
from troth.node.models.roots.weight_hashing import row_leaves
from troth.node.models.roots.weights_root import settings_hash, tensor_roots
from troth.node.models.tensor_files import RawTensor, pieces, raw_tensors, read_rows
from troth.protocol.arithmetic.operations import WeightSlice
from troth.protocol.disputes.layout import DisputedShape, model_shape
from troth.protocol.disputes.proofs import WeightOpening
from troth.protocol.disputes.segment_trace import embedded
from troth.protocol.tensors import Dtype
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import tree_path

READ = frozenset({"F32", "BF16"})
"""How files may hold the numbers of tensors that disputes open."""
MOST_DIMENSIONS = 2


class OpenedWeights:
    """The weights of a folder. Opening a leaf hashes the whole model once."""

    def __init__(self, folder: ModelFolder) -> None:
        self._folder = folder
        self.shape: DisputedShape = model_shape(folder.config)
        self._tensors = {tensor.name: tensor for tensor in raw_tensors(folder.path)}

    def layer(self, number: int) -> Mapping[str, NDArray[np.float32]]:
        """A layer's tensors by full name."""
        prefix = f"{self.shape.layers}{number}."
        return {name: self._numbers(one) for name, one in self._tensors.items() if name.startswith(prefix)}

    @property
    def norm(self) -> NDArray[np.float32]:
        """The last norm's weights."""
        return self._numbers(self._named(self.shape.norm))

    def embedded(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Tokens' first states, of shape (tokens, hidden)."""
        table = self._named(self.shape.embedding)
        whole = np.concatenate([self._numbers(table, int(token)) for token in tokens])
        return embedded(whole, self.shape.embedding_scale)

    def open(self, slice_: WeightSlice) -> WeightOpening:
        """The leaf that holds a slice; raises NothingToDo for a tensor that disputes do not read."""
        tensor = self._named(slice_.tensor)
        matrix = len(tensor.shape) == MOST_DIMENSIONS
        rows, columns = tensor.shape if matrix else (0, tensor.shape[0])
        size = tensor.length // (max(rows, 1) * columns)
        leaf = (slice_.row * columns + slice_.start) * size // tensor.row_bytes
        leaves = [one for first, end in pieces(tensor) for one in row_leaves(tensor, first, end)]
        names = sorted(self._roots)
        place = names.index(tensor.name)
        return WeightOpening(
            dtype=tensor.dtype,
            rows=rows,
            columns=columns,
            leaves=tensor.rows,
            quantisation=Hash32(settings_hash(self._folder.quantisation)),
            tensors=len(names),
            place=place,
            siblings=tree_path([self._roots[name] for name in names], place),
            leaf=bytes(read_rows(tensor, leaf, leaf + 1)),
            leaf_siblings=tree_path(leaves, leaf),
        )

    @cached_property
    def _roots(self) -> dict[str, bytes]:
        return tensor_roots(list(self._tensors.values()))

    def _named(self, name: str) -> RawTensor:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.dtype not in READ or len(tensor.shape) > MOST_DIMENSIONS:
            what = "The model has no such tensor that disputes read"
            raise NothingToDo(what, name, "Bring the answer to the court: `troth case open`.")
        return tensor

    def _numbers(self, tensor: RawTensor, row: int | None = None) -> NDArray[np.float32]:
        """A whole tensor, or one row of a matrix, of shape (1, columns)."""
        if row is None:
            data = bytes(read_rows(tensor, 0, tensor.rows))
            return weight_numbers(data, tensor, Dtype.FLOAT32).reshape(tensor.shape)
        if tensor.rows == tensor.shape[0]:
            return weight_numbers(bytes(read_rows(tensor, row, row + 1)), tensor, Dtype.FLOAT32).reshape(1, -1)
        return self._numbers(tensor)[row : row + 1]
