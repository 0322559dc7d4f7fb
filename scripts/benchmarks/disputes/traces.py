"""Toy traces: what a party's label stands for, and what it opens of it.

In an exact class a root alone is compared, so that a label's hash will do. In a tolerant one each party that ran the
model has its own small noise, as honest float32 runs have, and opens real tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.disputes.network import COLUMNS, POSITIONS, Network
from troth.protocol import calls, sampling
from troth.protocol.contract_types import Opening
from troth.protocol.dtype import Dtype
from troth.protocol.hashing import keccak256
from troth.protocol.trace import CommittedTrace, TileLayout, tile_count
from troth.protocol.types import ExecutionClass, Hash32

NOISE = np.float32(1e-6)


@dataclass(frozen=True, slots=True)
class Trace:
    """A root, and the tree behind it in a tolerant class."""

    root: Hash32
    committed: CommittedTrace | None

    def opening(self, verdict: bool, salt: Hash32, seed: Hash32, rules: ExecutionClass, masked_by: bytes) -> Opening:
        """What is shown of it; ``masked_by`` the inferencer's tiles, none for the inferencer itself."""
        if self.committed is None:
            return Opening(self.root, verdict, salt)
        count = tile_count(POSITIONS, COLUMNS, Dtype.FLOAT32)
        shown = self.committed.open(sampling.tile_indices(seed, 0, rules.tiles, count))
        siblings = tuple(Hash32(sibling) for sibling in shown.siblings)
        return Opening(self.root, verdict, salt, calls.mask_tiles(shown.tiles, masked_by), siblings)


def make(network: Network, task: Hash32, label: bytes, party: str) -> Trace:
    """The trace of ``party`` under a label that all who computed the same share."""
    if network.rules.exact:
        return Trace(Hash32(keccak256(task + label)), None)
    shared = np.random.default_rng(list(keccak256(task + label)))
    own = np.random.default_rng(list(keccak256(task + label + party.encode())))
    states = shared.standard_normal((POSITIONS, COLUMNS), dtype=np.float32)
    noisy = states * (1 + NOISE * own.standard_normal(states.shape, dtype=np.float32))
    layout = TileLayout(task, network.rules.model, POSITIONS, COLUMNS, Dtype.FLOAT32)
    committed = layout.commit(noisy.astype(np.float32))
    return Trace(Hash32(committed.root), committed)
