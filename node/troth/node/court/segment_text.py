"""A segment of an order as disputes need it: what it read, the rows that it signed, and how both are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from troth.cases.errors import NothingToDo
from troth.node.court.opened_weights import OpenedWeights
from troth.protocol.disputes.layout import NUDGES, Layout
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.segment_trace import segment_rows
from troth.protocol.disputes.tolerance import furthest, most_moved, movement
from troth.protocol.market import checks
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.types import Hash32

Numbers = NDArray[np.float32]
ASK = "Ask the order's client, its scheduler or its verifiers for them."


@dataclass(frozen=True)
class SegmentText:
    """What one segment read and gave.

    Args:
        tokens: one for each position, which the first segment read; None where they are not known.
        read: the rows that the segment before gave, little-endian float32; None for the first segment.
        given: the rows that it signed itself; None where only their hashes travelled, or they are not kept.
        bound: the tokens that the rows of the segment before bind: of the second segment alone.
    """

    order: Hash32
    segment: int
    head_salt: Hash32
    tokens: tuple[int, ...] | None = None
    read: bytes | None = None
    given: bytes | None = None
    hidden: int = 0
    bound: tuple[int, ...] | None = None

    def states(self, weights: OpenedWeights, positions: int) -> Numbers:
        """What the segment read at the first positions, of shape (positions, hidden): embeddings or rows.

        Raises NothingToDo where it is not known.
        """
        if self.segment == 0:
            if self.tokens is None or len(self.tokens) < positions:
                raise NothingToDo("The tokens that were read are not known", self.order.hex(), ASK)
            return weights.embedded(np.array(self.tokens[:positions], np.int64))
        return self._numbers(self.read)[:positions]

    @property
    def signed(self) -> Numbers | None:
        """The rows that were signed, of shape (positions, hidden); None where they are not known."""
        return None if self.given is None else self._numbers(self.given)

    def shown(self, position: int) -> ShownRow:
        """A signed row with its way to the output head; NothingToDo where the rows are not known."""
        return self._shown(self.segment, self.given, self.tokens if self.segment == 0 else None, position)

    def entered(self, position: int) -> ShownRow:
        """Of the first segment the same, else the row that it read with its way to the input head."""
        if self.segment == 0:
            return self.shown(position)
        return self._shown(self.segment - 1, self.read, self.bound if self.segment == 1 else None, position)

    def head(self, *, entered: bool = False) -> Hash32:
        """What the result names of the rows that were given, or, of a later segment, of those that were read."""
        data, tokens, segment = self.given, self.tokens, self.segment
        if entered:
            data, tokens, segment = self.read, self.bound, self.segment - 1
        chain = RowHashes(self.order, segment)
        link = chain.extend(_known(data), 4 * self.hidden, tokens if segment == 0 else None)[0].link
        return checks.head(self.order, self.head_salt, link)

    def _numbers(self, data: bytes | None) -> Numbers:
        return np.frombuffer(_known(data), "<f4").reshape(-1, self.hidden)

    def _shown(self, segment: int, data: bytes | None, tokens: Sequence[int] | None, position: int) -> ShownRow:
        rows, size = _known(data), 4 * self.hidden
        chain = RowHashes(self.order, segment)
        hashes = chain.hashes(rows, size, tokens)
        if position:
            chain, _ = chain.extend_hashed(hashes[:position])
        later = tuple(Hash32(one) for one in hashes[position + 1 :])
        read = 0 if tokens is None else tokens[position]
        return ShownRow(self.head_salt, chain.link, read, rows[position * size : (position + 1) * size], later)


def first_far(weights: OpenedWeights, layout: Layout, text: SegmentText, seed: Hash32) -> int | None:
    """The first position up to the layout's whose signed row is too far from the canonical one; None: none is.

    A row that its node could defend by one of the nudges of ``seed``, the struct hash of its result, is passed over.
    The earlier it is, the less there is to show. Seconds to minutes, on a thread; NothingToDo where rows are not known.
    """
    signed = text.signed
    if signed is None:
        raise NothingToDo("The rows that were signed are not known", text.order.hex(), ASK)
    computed = _CanonicalRows(weights, layout, text.states(weights, layout.position + 1))
    canonical = computed.rows(layout.position)
    far = [at for at in range(layout.position + 1) if furthest(signed[at], canonical[at]) is not None]
    # Most often the first one is nobody's to defend, and short texts are soon nudged.
    for reach in (far[0], layout.position) if far else ():
        for number in range(1, NUDGES + 1):
            if not any(at <= reach for at in far):
                break
            nudged = computed.rows(reach, Nudge(seed, number))
            far = [at for at in far if at > reach or _stays(signed[at], canonical[at], nudged[at])]
        if far and far[0] <= reach:
            return far[0]
    return None


def is_far(weights: OpenedWeights, layout: Layout, text: SegmentText, seed: Hash32) -> bool:
    """The same of the layout's own position: whether its signed row is too far, and no nudge defends it."""
    signed, at = text.signed, layout.position
    if signed is None:
        raise NothingToDo("The rows that were signed are not known", text.order.hex(), ASK)
    computed = _CanonicalRows(weights, layout, text.states(weights, at + 1))
    canonical = computed.rows(at)[at]
    if furthest(signed[at], canonical) is None:
        return False
    nudges = (Nudge(seed, number) for number in range(1, NUDGES + 1))
    return all(_stays(signed[at], canonical, computed.rows(at, nudge)[at]) for nudge in nudges)


@dataclass(frozen=True)
class _CanonicalRows:
    """The canonical rows of a text up to any position, plain or nudged."""

    weights: OpenedWeights
    layout: Layout
    states: Numbers

    def rows(self, position: int, nudge: Nudge | None = None) -> Numbers:
        layout, weights = replace(self.layout, position=position), self.weights
        norm = weights.norm if layout.is_last else None
        return segment_rows(layout, weights.layer, self.states[: position + 1], norm, nudge)


def _stays(signed: Numbers, canonical: Numbers, nudged: Numbers) -> bool:
    """Whether a row is far for all that this nudge moves it."""
    moved = movement(nudged, canonical, most_moved(nudged, canonical))
    return furthest(signed, canonical, moved) is not None


def _known(data: bytes | None) -> bytes:
    if data is None:
        raise NothingToDo("These rows are not known", None, ASK)
    return data
