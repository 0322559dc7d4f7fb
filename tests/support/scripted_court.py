"""A Court in memory for the steps of a case: it keeps the state that the contract would keep, and refuses as it does.

It checks windows, phases and states, not signatures or openings: those are the contract tests' part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from support.cases_scene import state_of
from support.market_case import CaseScene
from support.market_logs import META
from support.market_record import PARAMETERS, PLACE
from support.market_scene import DOMAIN, KEYS, rules

from troth.cases.courtroom import CallRefused, ChainView, Mined
from troth.chain.errors import ChainUnavailable
from troth.chain.headers import RawHeader
from troth.protocol.hashing import keccak256
from troth.protocol.market import court, messages
from troth.protocol.market import events as on
from troth.protocol.market import reveals as packing
from troth.protocol.market.calls import argument, read_call
from troth.protocol.market.fold import apply
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CasePhase, CaseState, NodeReveal, Outcome, Reveal
from troth.protocol.market.signed import Opinion, ReviewCommitment
from troth.protocol.market.state import CaseRecord, State
from troth.protocol.market.types import NO_ADDRESS, Parameters
from troth.protocol.types import ZERO_HASH, Address, Hash32

WINDOWS: Parameters = replace(PARAMETERS, lookahead=2, draw_window=6, commit_window=16, reveal_window=16)


@dataclass
class ScriptedCourt:
    """A Courtroom; ``block`` moves by ``mine`` and with each call. ``away``: the chain does not answer; ``foresees``:
    it says who will be drawn before anybody has drawn them."""

    scene: CaseScene
    account: Address
    block: int = 0
    state: State = field(default_factory=State)
    sent: list[str] = field(default_factory=list)
    inputs: dict[Hash32, bytes] = field(default_factory=dict)
    away: bool = False
    foresees: bool = False
    shared: Any = None

    def __post_init__(self) -> None:
        if self.shared is not None:
            return
        plain = state_of(self.scene.scene)
        assert plain.deployed
        deployed = replace(plain.deployed, parameters=WINDOWS)
        opening = replace(self.scene.opening, opener=self.account)
        self.block = opening.phase_block
        opened = on.CaseOpened(self.case_id, opening.order, opening.node, opening, META)
        self.state = apply(opened, replace(plain, deployed=deployed))

    @property
    def contracts(self) -> Any:
        return PLACE.contracts

    @property
    def domain(self) -> Any:
        return DOMAIN

    @property
    def case_id(self) -> Hash32:
        return self.scene.case_id

    @property
    def record(self) -> CaseRecord:
        return self._own().state.cases[self.case_id]

    @property
    def case(self) -> CaseState:
        return self.record.state

    def _own(self) -> ScriptedCourt:
        return self.shared or self

    def as_account(self, account: Address) -> ScriptedCourt:
        """The same court for somebody else."""
        return ScriptedCourt(self.scene, account, shared=self._own())

    def mine(self, blocks: int = 1) -> None:
        self._own().block += blocks

    # ---- Courtroom

    async def seen(self) -> ChainView:
        own = self._own()
        if own.away:
            raise ChainUnavailable("away", "here", "Wait.")
        return ChainView(own.state, own.block)

    async def header(self, number: int) -> RawHeader:
        return RawHeader(number, ZERO_HASH, ZERO_HASH, 0, Hash32(keccak256(b"%d" % number)), b"header")

    async def hints(self, request: Any) -> bytes:
        return b""

    async def drawn(self, request: Any) -> tuple[Address, ...]:
        if not self._own().foresees:
            raise CallRefused("draw", "TooFewSeats", "nobody can tell")
        drawn = self.scene.drawn
        return tuple(one for one, seats in zip(drawn.reviewers, drawn.seats, strict=True) for _ in range(seats))

    async def input_of(self, transaction: Hash32) -> bytes:
        return self._own().inputs[transaction]

    async def read(self, view: Any) -> Any:
        raise AssertionError(view)

    async def base_fee(self) -> int:
        return 1

    async def simulate(self, call: Any) -> Any:
        raise AssertionError(call)

    async def after(self, block: int, timeout: float) -> None:
        self.mine()

    async def send(self, call: Any) -> Mined:
        own = self._own()
        if own.away:
            raise ChainUnavailable("away", "here", "Wait.")
        decoded = read_call(Part.COURT, call.call.data)
        name, block = decoded.entry.name, own.block + 1
        given = argument(decoded, "state", CaseState)
        record = own.state.cases[self.case_id]
        if record.outcome is not None or messages.state_hash(given) != messages.state_hash(record.state):
            raise CallRefused(name, "StateMismatch", "the case moved on")
        place = replace(META, block=block, transaction=Hash32(keccak256(call.call.data)))
        events = _HANDLERS[name](self, decoded, record, place)
        own.block = block
        for event in events if isinstance(events, tuple) else (events,):
            own.state = apply(event, own.state)
        own.inputs[place.transaction] = call.call.data
        own.sent.append(name)
        return Mined(place.transaction, block)

    # ---- what the contract does

    def _within(self, name: str, block: int, first: int, last: int) -> None:
        if not first <= block <= last:
            raise CallRefused(name, "TooEarly" if block < first else "TooLate", f"{first} to {last}")

    def _draw(self, decoded: Any, record: CaseRecord, place: Any) -> Any:
        due = record.state.phase_block + WINDOWS.lookahead
        self._require(record, CasePhase.OPENED)
        self._within("draw", place.block, due + 1, due + WINDOWS.draw_window)
        drawn = self.scene.drawn
        return on.ReviewersDrawn(
            self.case_id, self.account, record.state.round, ZERO_HASH, drawn.reviewers, drawn.seats, place
        )

    def _convene(self, decoded: Any, record: CaseRecord, place: Any) -> Any:
        drawn = replace(self._draw(decoded, record, place), drawer=NO_ADDRESS)
        given = argument(decoded, "commitments", tuple[Hash32, ...])
        if len(given) != len(drawn.reviewers) or ZERO_HASH in given:
            raise CallRefused("convene", "WrongCount", "all must have signed")
        return drawn, on.ReviewsCommitted(self.case_id, self.account, given, place)

    def _post(self, decoded: Any, record: CaseRecord, place: Any) -> Any:
        self._require(record, CasePhase.DRAWN)
        if (record.state.round, self.account) in record.posts:
            raise CallRefused("post", "AlreadyDone", "posted")
        commitment = argument(decoded, "commitment", Hash32)
        return on.ReviewPosted(self.case_id, self.account, record.state.round, commitment, place)

    def _commit(self, decoded: Any, record: CaseRecord, place: Any) -> Any:
        self._require(record, CasePhase.DRAWN)
        state, given = record.state, list(argument(decoded, "commitments", tuple[Hash32, ...]))
        for index, reviewer in enumerate(state.reviewers):
            given[index] = record.posts.get((state.round, reviewer), given[index])
        committed = [one != ZERO_HASH for one in given]
        if not court.may_end_commitments(state, committed, place.block, WINDOWS):
            raise CallRefused("commit", "TooFewCommitments", "wait")
        return on.ReviewsCommitted(self.case_id, self.account, tuple(given), place)

    def _reveal(self, decoded: Any, record: CaseRecord, place: Any) -> Any:
        self._require(record, CasePhase.COMMITTED)
        return on.Revealed(self.case_id, self.account, record.state.round, ZERO_HASH, place)

    def _decide(self, decoded: Any, record: CaseRecord, place: Any) -> Any:
        self._require(record, CasePhase.COMMITTED)
        state, late = record.state, place.block > record.state.phase_block + WINDOWS.reveal_window
        node = argument(decoded, "node", NodeReveal)
        packed, count = argument(decoded, "reveals", bytes), len(state.reviewers)
        reveals = packing.decode(packed, count, packing.Sample(), node.tiles)
        revealed = {party for of, party in record.reveals if of == state.round}
        awaited = [
            one
            for one, shown, commitment in zip(state.reviewers, reveals, state.commitments, strict=True)
            if not shown.opinion and ((commitment != ZERO_HASH and not late) or one in revealed)
        ]
        if awaited or (node.root == ZERO_HASH and (not late or state.node in revealed)):
            raise CallRefused("decide", "RevealMissing", str(awaited))
        shown = tuple(court.Showing(one.root, b"", Opinion(one.opinion)) if one.opinion else None for one in reveals)
        own = court.Showing(node.root) if node.root != ZERO_HASH else None
        finding = court.judge(court.Hearing(state.kind, state.seats, shown, own), rules(**self.scene.scene.changes))
        if finding.outcome is Outcome.NONE:
            return on.CaseRestarted(self.case_id, state.round + 1, state.bond, place)
        return on.CaseDecided(self.case_id, state.order, finding.outcome, 0, 0, 0, place)

    def _expire(self, decoded: Any, record: CaseRecord, place: Any) -> Any:
        state = record.state
        if place.block <= court.expires_after(state, WINDOWS, True):
            raise CallRefused("expire", "TooEarly", "wait")
        if state.phase is CasePhase.OPENED:
            return on.CaseDecided(self.case_id, state.order, Outcome.LAPSED, 0, 0, 0, place)
        if state.round % 2:
            return on.CaseDecided(self.case_id, state.order, Outcome.UNDECIDED, 0, 0, 0, place)
        return on.CaseRestarted(self.case_id, state.round + 1, state.bond, place)

    def _require(self, record: CaseRecord, phase: CasePhase) -> None:
        if record.state.phase is not phase:
            raise CallRefused("call", "WrongPhase", record.state.phase.name)


_HANDLERS: dict[str, Callable[..., Any]] = {
    "convene": ScriptedCourt._convene,
    "draw": ScriptedCourt._draw,
    "post": ScriptedCourt._post,
    "commit": ScriptedCourt._commit,
    "reveal": ScriptedCourt._reveal,
    "revealNode": ScriptedCourt._reveal,
    "decide": ScriptedCourt._decide,
    "expire": ScriptedCourt._expire,
}


@dataclass
class ScriptedParties:
    """Parties that answer what an honest committee would; ``silent`` ones say nothing, ``lying`` ones nonsense, and
    ``endless`` ones take for ever."""

    scene: CaseScene
    court: ScriptedCourt
    silent: set[Address] = field(default_factory=set)
    lying: set[Address] = field(default_factory=set)
    endless: set[Address] = field(default_factory=set)
    asked: list[Address] = field(default_factory=list)
    furnished: list[Address] = field(default_factory=list)

    async def furnish(self, party: Address, case: Hash32, evidence: Any) -> bool:
        self.furnished.append(party)
        return True

    async def _answers(self, party: Address) -> None:
        self.asked.append(party)
        if party in self.endless:
            await asyncio.Event().wait()

    async def pledge(self, party: Address, case: Hash32, round_: int) -> Signed[ReviewCommitment] | None:
        await self._answers(party)
        if party in self.silent:
            return None
        hearing = messages.hearing_id(case, round_ + (1 if party in self.lying else 0))
        return sign(ReviewCommitment(hearing, self.commitment(party, round_)), DOMAIN, KEYS[party])

    def commitment(self, party: Address, round_: int) -> Hash32:
        shown = self.reveal_of(party)
        hearing = messages.hearing_id(self.court.case_id, round_)
        named = {"root": shown.root, "opinion": shown.opinion, "score": 0, "spread": 0, "salt": shown.salt}
        return messages.review_commitment(hearing, party, **named)  # type: ignore[arg-type]

    def reveal_of(self, party: Address) -> Reveal:
        return self.scene.reveals[self.scene.drawn.reviewers.index(party)]

    async def show(self, party: Address, case: Hash32, round_: int) -> Reveal | None:
        await self._answers(party)
        if party in self.silent:
            return None
        shown = self.reveal_of(party)
        return replace(shown, score=7) if party in self.lying else shown

    async def show_node(self, node: Address, case: Hash32, round_: int) -> NodeReveal | None:
        await self._answers(node)
        if node in self.silent:
            return None
        shown = self.scene.node_reveal
        return replace(shown, salt=ZERO_HASH) if node in self.lying else shown
