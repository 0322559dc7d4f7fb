"""Drives cases through the real contracts, from the opening to the outcome; anyone may, and several may at once.

Each look at a case reads what stands on the chain, asks the parties for what is missing, and sends at most one call,
which was simulated on the pending block before: who was faster is only noticed. What parties handed over is in the
journal before it is used. A driver that is killed anywhere goes on from chain and journal.

Drivers that did not open a case let others go first for a share of each window.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from troth.cases import calls, hearing
from troth.cases import evidence as files
from troth.cases.courtroom import AWAY, CallRefused, ChainView, Courtroom
from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence, SegmentRows
from troth.cases.foreseeing import due_block, foreseen
from troth.cases.journal import CarriedCase, CaseJournal
from troth.cases.opening import Opener
from troth.cases.parties import CaseParties
from troth.cases.steps import Move, Submitted, next_step, reveals_now
from troth.cases.supervising import BLOCK_TIMEOUT, each, watch_blocks
from troth.protocol.market.calls import PartCall
from troth.protocol.market.events import Revealed
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import CasePhase, CaseState, NodeReveal, Outcome, Reveal
from troth.protocol.market.signed import ReviewCommitment
from troth.protocol.market.state import CaseRecord
from troth.protocol.market.types import Parameters, Rules
from troth.protocol.market.views import parameters_of, rules_in
from troth.protocol.types import ZERO_HASH, Address, Hash32

SHARE = 0.5
"""Of a window: how long a driver that did not open the case lets others go first."""
GIVEN_UP = "not opened"
"""How a case ended that was wanted and can never be opened."""
ASKING_SECONDS = 5.0
"""How long one look waits for parties that it asks first. Who takes longer is heard at a later look: a reviewer that
takes hours to accept evidence holds up no step of its case, and no other case."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CaseProgress:
    """What one look at a case did: ``outcome`` once it is over, ``move`` what was sent or is awaited."""

    case_id: Hash32
    move: Move | None
    words: str
    outcome: Outcome | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a live case; ``foreseen``: with reviewers or tiles that are fixed, and that nobody has drawn."""

    seen: ChainView
    record: CaseRecord
    parameters: Parameters
    rules: Rules
    foreseen: CaseState | None = None

    @property
    def state(self) -> CaseState:
        return self.record.state

    @property
    def given_to(self) -> CaseState:
        """The state to which parties give their parts."""
        return self.foreseen or self.state


class _Asked(NamedTuple):
    """Who is asked for its part, and at which point of which case."""

    case_id: Hash32
    round: int
    phase: CasePhase
    party: Address


class Carrier:
    """Carries on all cases of a journal; ``opener`` opens those that are wanted and do not stand yet."""

    def __init__(
        self,
        courtroom: Courtroom,
        parties: CaseParties,
        journal: CaseJournal,
        *,
        opener: Opener | None = None,
        share: float = SHARE,
        report: Callable[[CaseProgress], None] | None = None,
    ) -> None:
        self._courtroom = courtroom
        self._parties = parties
        self._journal = journal
        self._opener = opener
        self._share = share
        self._report = report
        self._furnished: set[tuple[Hash32, int, Address]] = set()
        self._asking: dict[_Asked, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Carry on every case, now and those that come, until cancelled. A chain that is away is waited for."""
        try:
            await watch_blocks(self._look_at_all, self._courtroom, "carrying cases on")
        finally:
            await self.close()

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = self._leave(lambda _: True)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_at_all(self) -> None:
        await each(self._journal.cases(), self._reported)

    async def carry(self, case_id: Hash32) -> CaseProgress:
        """Carry one case to its end; what was its end."""
        self._journal.follow(case_id)
        while True:
            try:
                progress = await self._reported(case_id)
                if progress.over:
                    return progress
                await self._courtroom.after((await self._courtroom.seen()).block, BLOCK_TIMEOUT)
            except AWAY as error:
                _log.warning("case %s waits, the chain is away: %s", case_id.hex(), error)
                await asyncio.sleep(1.0)

    async def _reported(self, case_id: Hash32) -> CaseProgress:
        progress = await self.tick(case_id)
        if self._report is not None:
            self._report(progress)
        return progress

    async def tick(self, case_id: Hash32) -> CaseProgress:
        """One look: at most one call is sent."""
        followed = self._journal.case(case_id)
        if followed is not None and followed.wanted:
            gave_up = await self._open(followed)
            if gave_up is not None:
                return gave_up
        seen = await self._courtroom.seen()
        record = seen.state.cases.get(case_id)
        if record is None:
            return CaseProgress(case_id, None, "no such case is known yet")
        if record.outcome is not None:
            self._journal.end(case_id, record.outcome.name)
            self._leave(lambda asked: asked.case_id == case_id)
            words = f"ended: {record.outcome.name.lower().replace('_', ' ')}"
            return CaseProgress(case_id, None, words, record.outcome, over=True)
        return await self._carry_on(await self._look(seen, record))

    async def _look(self, seen: ChainView, record: CaseRecord) -> _Look:
        parameters, rules = parameters_of(seen.state), rules_in(seen.state, record.state.execution_class)
        ahead = await foreseen(self._courtroom, record.state, rules, parameters, seen.block)
        return _Look(seen, record, parameters, rules, ahead)

    async def _open(self, followed: CarriedCase) -> CaseProgress | None:
        """Open what is wanted and does not stand; None: it stands."""
        if self._opener is None:
            return None
        try:
            await self._opener.open(followed)
        except NothingToDo as error:
            self._journal.end(followed.case_id, GIVEN_UP)
            return CaseProgress(followed.case_id, None, f"not opened: {error}", over=True)
        except CallRefused as refused:
            return CaseProgress(followed.case_id, None, f"not opened yet: {refused}")
        return None

    # ---- one step

    async def _carry_on(self, look: _Look) -> CaseProgress:
        state, case_id = look.state, look.record.case_id
        await self._collect(look)
        given = self._given(look)
        step = next_step(state, look.seen.next, given, look.parameters, look.rules)
        share = 0.0 if state.opener == self._courtroom.account else self._share
        if not step.move.is_call:
            return CaseProgress(case_id, step.move, f"{step.move.value} until block {step.last}")
        if not step.is_due(look.seen.next, share):
            return CaseProgress(case_id, step.move, f"{step.move.value} is left to others for now")
        if step.move is Move.DECIDE and self._is_unread(look):
            return CaseProgress(
                case_id, Move.SHOWINGS, "a party showed its part on the chain, and it cannot be read yet"
            )
        try:
            mined = await self._courtroom.send(await self._call(look, step.move))
            return CaseProgress(case_id, step.move, f"{step.move.value} in block {mined.block}")
        except CallRefused as refused:
            return CaseProgress(case_id, step.move, str(refused))

    async def _call(self, look: _Look, move: Move) -> PartCall:
        state, contracts = look.state, self._courtroom.contracts
        match move:
            case Move.DRAW | Move.CONVENE:
                header = await self._courtroom.header(due_block(state, look.parameters))
                hints = await self._courtroom.hints(calls.reviewers_request(state, look.rules, header.randao))
                if move is Move.DRAW:
                    return calls.draw_case(contracts, state, header.raw, hints)
                reviewers = look.given_to.reviewers
                return calls.convene(contracts, state, header.raw, hints, reviewers, self._pledges(look))
            case Move.COMMIT:
                return calls.commit(contracts, state, self._pledges(look), self._posted(look))
            case Move.SEED:
                header = await self._courtroom.header(due_block(state, look.parameters))
                return calls.seed(contracts, state, header.raw)
            case Move.CONCLUDE:
                header = await self._courtroom.header(due_block(state, look.parameters))
                node, reveals = self._showings(look)
                assert node is not None
                return calls.conclude(contracts, state, header.raw, node, reveals)
            case Move.DECIDE:
                node, reveals = self._showings(look)
                return calls.decide(contracts, state, node, reveals)
            case _:
                return calls.expire(contracts, state)

    # ---- what parties gave

    def _given(self, look: _Look) -> Submitted:
        state = look.given_to
        if state.phase is CasePhase.DRAWN:
            known = self._pledges(look).keys() | self._posted(look)
            return Submitted([one in known for one in state.reviewers], [], False)
        if reveals_now(look.given_to, look.rules):
            node, reveals = self._showings(look)
            return Submitted([], [one in reveals for one in state.reviewers], node is not None)
        return Submitted([], [], False)

    def _posted(self, look: _Look) -> set[Address]:
        round_ = look.state.round
        return {reviewer for reviewer in look.state.reviewers if (round_, reviewer) in look.record.posts}

    def _pledges(self, look: _Look) -> dict[Address, Signed[ReviewCommitment]]:
        """Signed commitments that hold against the chain as it is now; a reorganisation may have drawn others."""
        kept = self._journal.pledges(look.record.case_id, look.state.round)
        domain = self._courtroom.domain
        return {one: pledge for one, pledge in kept.items() if hearing.holds_pledge(look.given_to, one, pledge, domain)}

    def _showings(self, look: _Look) -> tuple[NodeReveal | None, dict[Address, Reveal]]:
        state, case_id = look.given_to, look.record.case_id
        node = self._journal.node(case_id, state.round)
        reveals = self._journal.reveals(case_id, state.round)
        fitting = {one: shown for one, shown in reveals.items() if hearing.holds_reveal(state, look.rules, one, shown)}
        return (node if node is not None and hearing.holds_node(state, look.rules, node) else None), fitting

    def _is_unread(self, look: _Look) -> bool:
        """Whether somebody showed its part by its own call, and it is not at hand: the contract demands it."""
        node, reveals = self._showings(look)
        round_ = look.state.round
        shown = {party for of, party in look.record.reveals if of == round_}
        return any(party not in reveals for party in shown if party != look.state.node) or (
            look.state.node in shown and node is None
        )

    # ---- asking

    async def _collect(self, look: _Look) -> None:
        state, case_id = look.given_to, look.record.case_id
        self._leave(lambda one: one.case_id == case_id and (one.round, one.phase) != (state.round, state.phase))
        if state.phase is CasePhase.DRAWN:
            known = self._pledges(look).keys() | self._posted(look)
            asked = {one: partial(self._ask_pledge, look, one) for one in state.reviewers if one not in known}
            await self._ask_all(look, asked)
        elif reveals_now(look.given_to, look.rules):
            await self._read_chain(look)
            node, reveals = self._showings(look)
            missing = [
                one
                for one, commitment in zip(state.reviewers, state.commitments, strict=True)
                if commitment != ZERO_HASH and one not in reveals
            ]
            asked = {one: partial(self._ask_reveal, look, one) for one in missing}
            if node is None:
                asked[state.node] = partial(self._ask_node, look)
            await self._ask_all(look, asked)

    async def _ask_all(self, look: _Look, asked: Mapping[Address, Callable[[], Awaitable[None]]]) -> None:
        """Ask parties at once, and wait a little for what they say; whoever is still asked is not asked twice."""
        case_id, state = look.record.case_id, look.given_to
        now = {party: _Asked(case_id, state.round, state.phase, party) for party in asked}
        self._leave(lambda one: one.case_id == case_id and one not in now.values())
        begun = []
        for party, ask in asked.items():
            if now[party] not in self._asking:
                task = self._asking[now[party]] = asyncio.create_task(_heard(ask))
                task.add_done_callback(partial(self._answered, now[party]))
                begun.append(task)
        if begun:
            await asyncio.wait(begun, timeout=ASKING_SECONDS)

    def _answered(self, asked: _Asked, task: asyncio.Task[None]) -> None:
        if self._asking.get(asked) is task:
            del self._asking[asked]

    def _leave(self, over: Callable[[_Asked], bool]) -> list[asyncio.Task[None]]:
        """Break off asking for what nobody needs any more."""
        left = [self._asking.pop(one) for one in tuple(self._asking) if over(one)]
        for task in left:
            task.cancel()
        return left

    async def _ask_pledge(self, look: _Look, reviewer: Address) -> None:
        state, case_id = look.given_to, look.record.case_id
        await self._furnish(look, reviewer)
        pledge = await self._parties.pledge(reviewer, case_id, state.round)
        if pledge is not None and hearing.holds_pledge(state, reviewer, pledge, self._courtroom.domain):
            self._journal.keep_pledge(case_id, state.round, reviewer, pledge)

    async def _furnish(self, look: _Look, reviewer: Address) -> None:
        """Once for each reviewer; what it lacks it asks for itself."""
        case_id, key = look.record.case_id, (look.record.case_id, look.state.round, reviewer)
        followed = self._journal.case(case_id)
        if key in self._furnished or followed is None or followed.evidence is None:
            return
        evidence = _with_rows(followed, look.state.segment)
        if await self._parties.furnish(reviewer, case_id, evidence):
            going_on = self._journal.cases()
            self._furnished = {one for one in self._furnished if one[0] in going_on} | {key}

    async def _ask_reveal(self, look: _Look, reviewer: Address) -> None:
        shown = await self._parties.show(reviewer, look.record.case_id, look.state.round)
        if shown is not None:
            self._keep(look, reviewer, shown)

    async def _ask_node(self, look: _Look) -> None:
        shown = await self._parties.show_node(look.state.node, look.record.case_id, look.state.round)
        if shown is not None:
            self._keep(look, look.state.node, shown)

    async def _read_chain(self, look: _Look) -> None:
        """What parties showed by their own calls, from those calls' inputs."""
        node, reveals = self._showings(look)
        for event in look.record.events:
            if not isinstance(event, Revealed) or event.round != look.state.round:
                continue
            if event.party in reveals or (event.party == look.state.node and node is not None):
                continue
            shown = calls.shown_reveal(await self._courtroom.input_of(event.meta.transaction), look.state, look.rules)
            if shown is not None:
                self._keep(look, event.party, shown)

    def _keep(self, look: _Look, party: Address, shown: Reveal | NodeReveal) -> None:
        state, case_id = look.given_to, look.record.case_id
        if isinstance(shown, NodeReveal):
            if party == state.node and hearing.holds_node(state, look.rules, shown):
                self._journal.keep_node(case_id, state.round, shown)
        elif hearing.holds_reveal(state, look.rules, party, shown):
            self._journal.keep_reveal(case_id, state.round, party, shown)


def _with_rows(followed: CarriedCase, segment: int) -> Evidence:
    """The evidence with the rows that reviewers of a segment need inside: of the one before, and the judged ones."""
    evidence = followed.evidence
    assert evidence is not None
    needed = [one for one in evidence.rows if one.segment in {segment - 1, segment}]
    found = ((one.segment, files.rows_of(evidence, one.segment, followed.folder)) for one in needed)
    return replace(evidence, rows=tuple(SegmentRows.of(place, data) for place, data in found if data is not None))


async def _heard(ask: Callable[[], Awaitable[None]]) -> None:
    """One party; that it breaks keeps no other from answering."""
    try:
        await ask()
    except Exception as error:  # noqa: BLE001 - also what nobody foresaw: other parties are heard
        _log.warning("a party of a case could not be asked: %s: %s", type(error).__name__, error)
