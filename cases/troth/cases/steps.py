"""What comes next in a case: a pure function of its state, the block and what parties have given so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from troth.protocol.market import court
from troth.protocol.market.proceedings import CasePhase, CaseState
from troth.protocol.market.types import Parameters, Rules
from troth.protocol.types import ZERO_HASH

DRAWN_ALONE = 4
"""Of the window for a draw, one in so many is waited for what goes with it: commitments with the reviewers, showings
with the tiles."""
TURNS = 8
"""Blocks after a window in which drivers take turns at what is possible for ever."""


class Move(Enum):
    """A call that carries a case on, or what is awaited before it."""

    CONVENE = "convene"
    DRAW = "draw"
    COMMIT = "commit"
    SEED = "seed"
    CONCLUDE = "conclude"
    DECIDE = "decide"
    EXPIRE = "expire"
    BLOCKS = "wait for a block"
    COMMITMENTS = "wait for commitments"
    SHOWINGS = "wait for what is shown"

    @property
    def is_call(self) -> bool:
        """Whether something is sent."""
        return self in {Move.CONVENE, Move.DRAW, Move.COMMIT, Move.SEED, Move.CONCLUDE, Move.DECIDE, Move.EXPIRE}


@dataclass(frozen=True, slots=True)
class CaseStep:
    """What comes next, from block ``first`` on, until ``last``. What is possible for ever, like an expiry, has a
    ``last``, too, within which drivers take turns."""

    move: Move
    first: int
    last: int

    def is_due(self, block: int, share: float) -> bool:
        """Whether a driver that lets others go first for a ``share`` of the window acts in this block."""
        if not self.move.is_call:
            return False
        return block >= self.first + int(share * (self.last - self.first))


@dataclass(frozen=True, slots=True)
class Submitted:
    """Whose commitments and showings are at hand, by place; ``node``: whether the node's showing is.

    In a case that is opened, ``committed`` is by the places that its reviewers will have; empty where they are unknown.
    """

    committed: Sequence[bool]
    shown: Sequence[bool]
    node: bool


def reveals_now(state: CaseState, rules: Rules) -> bool:
    """Whether parties show their parts in this phase: exact classes once all committed, others once tiles are known."""
    return state.phase is (CasePhase.COMMITTED if rules.exact else CasePhase.SEEDED)


def next_step(state: CaseState, block: int, given: Submitted, parameters: Parameters, rules: Rules) -> CaseStep:
    """The next step of a live case; ``block`` is the one in which a call would be mined."""
    last = court.expires_after(state, parameters, rules.exact)
    if reveals_now(state, rules):
        return _showing(state, block, given, last)
    if state.phase is CasePhase.DRAWN:
        return _committing(state, block, given, parameters)
    if block > last:
        return CaseStep(Move.EXPIRE, last + 1, last + TURNS)
    first = state.phase_block + parameters.lookahead + 1
    if block < first:
        return CaseStep(Move.BLOCKS, first, last)
    if state.phase is CasePhase.OPENED:
        return _drawing(block, given, first, last)
    return _seeding(state, block, given, first, last)


def _drawing(block: int, given: Submitted, first: int, last: int) -> CaseStep:
    """All that was signed goes with the reviewers, in one call; after a quarter of the window they are drawn alone, so
    that who does not sign is held to it."""
    if given.committed and all(given.committed):
        return CaseStep(Move.CONVENE, first, last)
    alone = first + (last - first) // DRAWN_ALONE
    return CaseStep(Move.DRAW, alone, last) if block >= alone else CaseStep(Move.COMMITMENTS, first, alone - 1)


def _seeding(state: CaseState, block: int, given: Submitted, first: int, last: int) -> CaseStep:
    """All that is shown goes with the tiles, in one call; after a quarter of the window the tiles go alone, so that who
    does not show its part is held to it."""
    if given.node and not _is_awaited(state, given):
        return CaseStep(Move.CONCLUDE, first, last)
    alone = first + (last - first) // DRAWN_ALONE
    return CaseStep(Move.SEED, alone, last) if block >= alone else CaseStep(Move.SHOWINGS, first, alone - 1)


def _committing(state: CaseState, block: int, given: Submitted, parameters: Parameters) -> CaseStep:
    window = parameters.commit_window
    last = state.phase_block + window
    if block > last:
        return CaseStep(Move.EXPIRE, last + 1, last + TURNS)
    if not court.may_end_commitments(state, given.committed, block, parameters):
        return CaseStep(Move.COMMITMENTS, state.phase_block + 1, last)
    whole = all(given.committed)
    return CaseStep(Move.COMMIT, state.phase_block + 1 if whole else state.phase_block + window * 3 // 4 + 1, last)


def _showing(state: CaseState, block: int, given: Submitted, last: int) -> CaseStep:
    if given.node and not _is_awaited(state, given):
        return CaseStep(Move.DECIDE, state.phase_block + 1, last)
    if block > last:
        return CaseStep(Move.DECIDE, last + 1, last + TURNS)
    return CaseStep(Move.SHOWINGS, state.phase_block + 1, last)


def _is_awaited(state: CaseState, given: Submitted) -> bool:
    """Whether somebody who committed has not shown its part."""
    return any(one != ZERO_HASH and not shown for one, shown in zip(state.commitments, given.shown, strict=True))
