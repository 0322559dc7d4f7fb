"""A tiny random Llama whose answers are disputed: honest rows, and those of a node with other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support.tiny_llama import tiny_model

from troth.node.court.opened_weights import OpenedWeights
from troth.node.models.descriptor import cached_weights_root
from troth.node.models.folder import ModelFolder
from troth.protocol.disputes.layout import Layout
from troth.protocol.disputes.segment_trace import SegmentTrace, segment_trace
from troth.protocol.hashing import keccak256
from troth.protocol.market import checks
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.types import Hash32, ModelDescriptor

SALT = Hash32(keccak256(b"head salt"))
Numbers = NDArray[np.float32]


@dataclass
class LayerScene:
    """The model and a text; a node reads ``tokens`` and signs a row for each."""

    folder: ModelFolder
    weights: OpenedWeights
    tokens: NDArray[np.int64]

    @classmethod
    def make(cls, path: Path, tokens: int = 5, **shape: object) -> LayerScene:
        folder = tiny_model(path, **shape)
        entered = np.arange(3, 3 + tokens, dtype=np.int64) * 5 % 48
        return cls(folder, OpenedWeights(folder), entered)

    @cached_property
    def model(self) -> ModelDescriptor:
        config = self.folder.config
        root = cached_weights_root(self.folder, 0)
        layers, hidden = config["num_hidden_layers"], config["hidden_size"]
        return ModelDescriptor("llama/tiny/tiny/weights-2", layers, hidden, config["vocab_size"], 0, root)

    def layout(self, position: int | None = None, first: int = 0, end: int | None = None) -> Layout:
        last = len(self.tokens) - 1 if position is None else position
        return Layout(self.weights.shape, first, end or self.folder.config["num_hidden_layers"], last)

    def trace(
        self, layout: Layout | None = None, wrong: Mapping[str, tuple[tuple[int, ...], float]] | None = None
    ) -> SegmentTrace:
        """Of the whole model; ``wrong``: single weights by tensor, with their place and value."""
        found, changes = layout or self.layout(), wrong or {}

        def weights(layer: int) -> Mapping[str, Numbers]:
            tensors = {name: tensor.copy() for name, tensor in self.weights.layer(layer).items()}
            for name, (place, value) in changes.items():
                if name in tensors:
                    tensors[name][place] = value
            return tensors

        states = self.weights.embedded(self.tokens[: found.position + 1])
        return segment_trace(found, weights, states, self.weights.norm if found.is_last else None)


class SignedRows:
    """The chain of a segment's rows, and what is shown of it."""

    def __init__(self, rows: Numbers, tokens: NDArray[np.int64] | None) -> None:
        self._rows = [row.astype("<f4").tobytes() for row in rows]
        self._tokens = None if tokens is None else [int(token) for token in tokens]

    def head(self, order: Hash32, segment: int = 0) -> Hash32:
        """What the result names."""
        chain, _ = RowHashes(order, segment).extend(b"".join(self._rows), len(self._rows[0]), self._tokens)
        return checks.head(order, SALT, chain.link)

    def shown(self, order: Hash32, position: int, segment: int = 0) -> ShownRow:
        """One row with its way to the head."""
        chain, size = RowHashes(order, segment), len(self._rows[0])
        hashes = chain.hashes(b"".join(self._rows), size, self._tokens)
        if position:
            chain, _ = chain.extend_hashed(hashes[:position])
        read = 0 if self._tokens is None else self._tokens[position]
        return ShownRow(
            SALT, chain.link, read, self._rows[position], tuple(Hash32(one) for one in hashes[position + 1 :])
        )
