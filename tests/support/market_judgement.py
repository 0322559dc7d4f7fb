"""Random cases at the end of their hearing: every outcome, exact and tolerant, little stake, locks of other cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from support.market_scene import Scene, hash_of, rules

from troth.protocol.market import court, messages
from troth.protocol.market.court import Hearing, Showing
from troth.protocol.market.court_money import OutcomePool, Pot, pot_of
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, NodeReveal, Reveal
from troth.protocol.market.reveals import salt_of
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import PotKind, Rules
from troth.protocol.tensors import Dtype
from troth.protocol.trace import CommittedTrace, tile_count, tile_indices
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Address, Hash32, address_from_bytes

ROWS, SEGMENT = 41, 1
REVEALED = 128
"""Bit of the first reviewer that showed its part by its own call."""
NOISES = (0.0, 1e-7, 2e-7, 0.5, 0.7)
"""Of the traces: three that agree with each other, and two that agree with none."""
SALT = salt_of(hash_of("salt"))


@cache
def traces() -> tuple[CommittedTrace, ...]:
    return tuple(Scene().trace(noise, seed) for seed, noise in enumerate(NOISES))


@dataclass(frozen=True)
class RandomCase:
    """A case, what is shown in it, and what else its outcome depends on."""

    rules: Rules
    state: CaseState
    node: NodeReveal
    reveals: tuple[Reveal, ...]
    hearing: Hearing
    pots: dict[Pot, int]
    pool: OutcomePool
    decider: Address
    voided: bool
    posted: int
    """Bit i: reviewer i committed by its own call."""

    @property
    def case_id(self) -> Hash32:
        return court.case_of(self.state)


@dataclass
class Maker:
    """Makes random cases; nobody is in two of them."""

    source: random.Random
    made: list[Address] = field(default_factory=list)

    def account(self) -> Address:
        return address_from_bytes(self.source.randbytes(20))

    def case(self, *, block: int, exact: bool) -> RandomCase:
        source = self.source
        used = self._rules(exact)
        state = self._state(used, exact)
        state, node, reveals, hearing = self._shown(state, used)
        parties = [state.opener, state.client, *state.reviewers, self.account()]
        return RandomCase(
            rules=used,
            state=state,
            node=node,
            reveals=reveals,
            hearing=hearing,
            pots=self._pots(state, used),
            # Often full, so that one more convicts.
            pool=OutcomePool(
                source.randint(used.pool_limit - 1, used.pool_limit + 1), max(0, block - source.randint(0, 40))
            ),
            decider=source.choice(parties),
            voided=source.random() < 0.2,
            posted=source.choice((0, source.getrandbits(31))),
        )

    def _rules(self, exact: bool) -> Rules:
        source = self.source
        changes = {"exact": True, "tiles": 0} if exact else {"tiles": source.randint(1, 3)}
        return rules(
            reviewers=source.choice((3, 5, 15)),
            verifiers=source.choice((1, 3)),
            penalty=source.choice((1, 1_000, 4_000_000)),
            seat=source.choice((500, 20_000_000)),
            pool_limit=source.randint(1, 3),
            pool_window=source.randint(1, 30),
            second_cut=source.choice((1_500_000, 4_000_000)),
            **changes,
        )

    def _state(self, used: Rules, exact: bool) -> CaseState:
        source = self.source
        kind = source.choice((CaseKind.REJECTION, CaseKind.REJECTION, CaseKind.ACCEPTANCE, CaseKind.DOUBT))
        verifiers, opinions = self._verifiers(used, kind)
        client, reviewers = self.account(), self._partition(used.reviewers)
        rejecting = [one for one, said in zip(verifiers, opinions, strict=True) if said == Opinion.REJECT]
        opener = source.choice([client, self.account(), *rejecting])
        carriers = [opener, self.account(), ZERO_ADDRESS]
        return CaseState(
            kind=kind,
            phase=CasePhase.COMMITTED if exact else CasePhase.SEEDED,
            segment=SEGMENT,
            round=source.randint(0, 1),
            suspends=kind is CaseKind.REJECTION and source.random() < 0.5,
            phase_block=1,
            rows=ROWS,
            order=Hash32(source.randbytes(32)),
            trace_commitment=ZERO_HASH,
            client=client,
            scheduler=self.account(),
            node=self.account(),
            opener=opener,
            fee=source.choice((0, 130, 2_000_000)),
            unit=source.randint(1, 9),
            bond=source.choice((0, 300, 1_000_000)),
            locked=0 if kind is CaseKind.DOUBT else source.choice((0, used.penalty // 2, used.penalty)),
            verifiers=verifiers,
            opinions=bytes(opinions),
            reviewers=tuple(self.account() for _ in reviewers),
            seats=bytes(reviewers),
            seed=Hash32(source.randbytes(32)),
            drawer=source.choice(carriers),
            committer=source.choice(carriers),
            seeder=source.choice(carriers),
        )

    def _verifiers(self, used: Rules, kind: CaseKind) -> tuple[tuple[Address, ...], tuple[int, ...]]:
        """One per seat; a node says the same from each of its seats."""
        if kind is CaseKind.DOUBT:
            return (), ()
        named = [self.account() for _ in range(self.source.randint(1, used.verifiers))]
        said = {one: int(self.source.choice((Opinion.NONE, Opinion.ACCEPT, Opinion.REJECT))) for one in named}
        seats = tuple(self.source.choice(named) for _ in range(used.verifiers))
        return seats, tuple(said[one] for one in seats)

    def _partition(self, total: int) -> tuple[int, ...]:
        cuts = sorted(self.source.sample(range(1, total), self.source.randint(0, total - 1)))
        return tuple(end - start for start, end in zip((0, *cuts), (*cuts, total), strict=True))

    def _pots(self, state: CaseState, used: Rules) -> dict[Pot, int]:
        """What each party has: often little, and locks that other cases made, or took already."""
        source, penalty = self.source, used.penalty
        pots: dict[Pot, int] = {(PotKind.BOND, court.case_of(state)): state.bond}
        for party in (state.node, state.scheduler, *state.verifiers, *state.reviewers):
            pots[pot_of(PotKind.STAKE, party)] = source.choice((0, 5, penalty, 3 * penalty, source.randint(0, penalty)))
            pots[pot_of(PotKind.LOCKED, party)] = source.choice((0, penalty, 2 * penalty, source.randint(0, penalty)))
        return pots

    # ---- what is shown

    def _shown(self, state: CaseState, used: Rules) -> tuple[CaseState, NodeReveal, tuple[Reveal, ...], Hearing]:
        source = self.source
        indices = self._indices(state, used)
        plain = traces()[source.choice((0, 0, 3))]
        node_there = source.random() < 0.85
        showing = _opened(plain, indices)
        node = NodeReveal(showing.root, SALT, showing.tiles, _siblings(plain, indices)) if node_there else NodeReveal()
        dominant = source.choice([Opinion.REJECT, *(one for one in Opinion if one)])
        sure = source.choice((0.4, 0.8, 0.95, 1.0))
        usual = self._usual(sure > 0.9, bool(indices))
        parts = [self._part(dominant, sure, indices, usual) for _ in state.reviewers]
        shown = tuple(one and one[0] for one in parts)
        hearing = messages.hearing_id(court.case_of(state), state.round)
        commitments, reveals = [], []
        for reviewer, part in zip(state.reviewers, parts, strict=True):
            if part is None:
                commitments.append(source.choice((ZERO_HASH, hash_of("never shown"))))
                reveals.append(Reveal())
                continue
            one, siblings = part
            hidden = {"root": one.root, "opinion": one.opinion, "score": one.score, "spread": one.spread, "salt": SALT}
            commitments.append(messages.review_commitment(hearing, reviewer, **hidden))
            reveals.append(Reveal(one.root, one.opinion, one.score, one.spread, SALT, one.tiles, siblings))
        state = replace(
            state,
            commitments=tuple(commitments),
            trace_commitment=messages.trace_commitment(showing.root, SALT),
        )
        return state, node, tuple(reveals), Hearing(state.kind, state.seats, shown, showing if node_there else None)

    def _indices(self, state: CaseState, used: Rules) -> tuple[int, ...]:
        if used.exact:
            return ()
        count = tile_count(ROWS, used.hidden_size, Dtype(used.dtype))
        return tile_indices(state.seed, SEGMENT, used.tiles, count)

    def _usual(self, clean: bool, tolerant: bool) -> tuple[tuple[int, ...], tuple[int, int]]:
        """The traces that reviewers of a case have computed, and the score and spread that most of them found."""
        score = self.source.choice((1_000_000, 3_000_000, 9_000_000))
        held = (0, 1, 2) if tolerant else (0,)
        return held if clean else (*held, *held, 3, 4), (score, self.source.choice((0, score // 2, score // 2 - 1)))

    def _part(
        self, dominant: Opinion, sure: float, indices: Sequence[int], usual: tuple[tuple[int, ...], tuple[int, int]]
    ) -> tuple[Showing, tuple[Hash32, ...]] | None:
        """What one reviewer shows, or nothing."""
        source = self.source
        if source.random() < 0.1:
            return None
        opinion = dominant if source.random() < sure else source.choice([one for one in Opinion if one])
        held, (score, spread) = usual
        if source.random() < 0.2:
            score, spread = source.randint(0, 2**32 - 1), source.choice((0, 400_000, 2**32 - 1))
        if opinion not in court.TOLD:
            return Showing(hash_of("no trace"), b"", opinion, score, spread), ()
        trace = traces()[source.choice(held)]
        return replace(_opened(trace, indices), opinion=opinion, score=score, spread=spread), _siblings(trace, indices)


def _opened(trace: CommittedTrace, indices: Sequence[int]) -> Showing:
    return Showing(Hash32(trace.root), trace.open(indices).tiles if indices else b"")


def _siblings(trace: CommittedTrace, indices: Sequence[int]) -> tuple[Hash32, ...]:
    return tuple(Hash32(one) for one in trace.open(indices).siblings) if indices else ()


def silent_mask(found: Any) -> int:
    """A set of reviewers as the contract writes it."""
    return sum(1 << index for index in found)
