"""The side of a node that was drawn to judge: gathers, recomputes, pledges, shows, and helps itself on chain.

It watches the folded chain for cases in which its operator is a reviewer. What it pledged is on disk before it is
signed. It shows nothing before its own chain says that all commitments are in, and lie ``depth`` blocks back. Where
no driver asks, or its part could be left out, it posts and shows by its own calls, before the window's last quarter.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from troth.cases import calls, hearing
from troth.cases.calls import is_told
from troth.cases.courtroom import CallRefused, ChainView, Courtroom
from troth.cases.errors import CaseError
from troth.cases.foreseeing import foreseen
from troth.cases.gathering import Gathered, Gatherer
from troth.cases.judging import Inputs, JudgingContext, Recompute, ReviewFinding, committed, judge
from troth.cases.record import PledgeRecord, Record
from troth.cases.steps import reveals_now
from troth.cases.supervising import each, watch_blocks
from troth.protocol.market import messages
from troth.protocol.market.calls import PartCall
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import CasePhase, CaseState, Reveal
from troth.protocol.market.reveals import SALT_BYTES, salt_of
from troth.protocol.market.signed import Opinion, ReviewCommitment
from troth.protocol.market.state import CaseRecord, State
from troth.protocol.market.types import ExecutionClass, Parameters, Rules
from troth.protocol.market.views import class_of, parameters_of, rules_in
from troth.protocol.types import Hash32
from troth.transport.identity import Operator

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a reviewer acts, in eighths of a window: data is awaited until ``data``; a part for which nobody asked is
    brought by its own call from ``unasked`` on, any part from ``own`` on, which lies before incomplete sets count.

    ``depth``: blocks that a phase lies back before anything is shown; ``again``: seconds between two tries to get what
    is missing.
    """

    data: int = 4
    unasked: int = 5
    own: int = 6
    depth: int = 0
    again: float = 0.5


@dataclass(frozen=True, slots=True)
class _Seat:
    """One case in which this node judges; ``ahead``: it is drawn by the block that is due, and nobody has said so."""

    case_id: Hash32
    record: CaseRecord
    parameters: Parameters
    definition: ExecutionClass
    rules: Rules
    vrf_key: tuple[int, int]
    ahead: bool = False

    @property
    def state(self) -> CaseState:
        return self.record.state

    @property
    def hearing(self) -> Hash32:
        return hearing.hearing_of(self.state)

    def at(self, eighths: int) -> int:
        """The block at so many eighths of the window of this phase."""
        committing = self.state.phase is CasePhase.DRAWN
        window = self.parameters.commit_window if committing else self.parameters.reveal_window
        return self.state.phase_block + window * eighths // 8


@dataclass(slots=True)
class Reviewer:
    """One operator's reviews. ``report`` hears in words what is done; it never hears a prompt."""

    courtroom: Courtroom
    operator: Operator
    recompute: Recompute
    gatherer: Gatherer
    record: Record
    timing: Timing = Timing()
    report: Callable[[str], None] = _log.info
    _preparing: dict[Hash32, asyncio.Task[None]] = field(default_factory=dict)
    _engine: asyncio.Lock = field(default_factory=asyncio.Lock)
    _pledge_asked: set[Hash32] = field(default_factory=set)
    _shown_asked: set[Hash32] = field(default_factory=set)

    # ---- watching

    async def run(self) -> None:
        """Judge until cancelled; a chain that is away is waited for."""
        try:
            await watch_blocks(self._look, self.courtroom, "reviewing")
        finally:
            await self.close()

    async def _look(self) -> None:
        await self.tick(await self.courtroom.seen())

    async def close(self) -> None:
        """Stop what is being computed."""
        tasks = tuple(self._preparing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def tick(self, seen: ChainView) -> None:
        """One look at all cases: begin what is new, act on chain where it is time, forget what is over."""
        cases = seen.state.cases
        await each(cases, lambda case_id: self._act(case_id, cases[case_id], seen))
        self._forget(seen.state)

    async def _act(self, case_id: Hash32, record: CaseRecord, seen: ChainView) -> None:
        seat = await self._drawn(case_id, record, seen)
        if seat is None:
            return
        if seat.state.phase is CasePhase.DRAWN:
            self._prepare(seat)
            if not seat.ahead:
                await self._post_if_due(seat, seen)
        elif reveals_now(seat.state, seat.rules):
            await self._reveal_if_due(seat, seen)

    async def _drawn(self, case_id: Hash32, record: CaseRecord, seen: ChainView) -> _Seat | None:
        """This node's seat in a live case, also where the draw is fixed and nobody has said so on chain; None: none."""
        if not record.live:
            return None
        if self.operator.address in record.state.reviewers:
            return self._seat(case_id, record, seen.state)
        own = seen.state.parties.get(self.operator.address)
        may_be_drawn = own is not None and own.execution_class == record.state.execution_class
        if record.state.phase is not CasePhase.OPENED or not may_be_drawn:
            return None
        seat = await self._ahead(self._seat(case_id, record, seen.state), seen)
        return replace(seat, ahead=True) if self.operator.address in seat.state.reviewers else None

    def _seat(self, case_id: Hash32, record: CaseRecord, state: State) -> _Seat:
        execution_class = record.state.execution_class
        definition, _ = class_of(state, execution_class)
        key = state.parties[record.state.scheduler].vrf_key
        return _Seat(case_id, record, parameters_of(state), definition, rules_in(state, execution_class), key)

    def _forget(self, state: State) -> None:
        """Prompts and states are held no longer than a case lasts."""
        for hearing_id, case_id in self.record.hearings():
            record = state.cases.get(case_id)
            if record is not None and not record.live:
                self.record.forget(hearing_id)
        for case_id in self.gatherer.inbox.cases():
            record = state.cases.get(case_id)
            if record is not None and not record.live:
                self.gatherer.inbox.forget(case_id)
        if not (self._preparing or self._pledge_asked or self._shown_asked):
            return
        live = {hearing.hearing_of(record.state) for record in state.cases.values() if record.live}
        self._preparing = {one: task for one, task in self._preparing.items() if one in live or not task.done()}
        self._pledge_asked &= live
        self._shown_asked &= live

    # ---- judging

    def _prepare(self, seat: _Seat) -> None:
        """Begin to judge, once for each hearing in this process; again after an error."""
        running = self._preparing.get(seat.hearing)
        if self.record.find(seat.hearing) is None and (running is None or running.done()):
            self._preparing[seat.hearing] = asyncio.create_task(self._judge(seat), name="review")

    async def _judge(self, seat: _Seat) -> None:
        try:
            judged = await self._opinion(seat)
            if judged is None:
                return
            self._keep(seat, judged)
            self.report(f"case {seat.case_id.hex()}: judged, {judged.opinion.name.lower().replace('_', ' ')}")
        except CaseError as error:
            _log.error("a review was not kept: %s", error)

    async def _opinion(self, seat: _Seat) -> ReviewFinding | None:
        """None: not everything is there, and the window in which it is owed has not begun."""
        gathered = await self._gather(seat)
        if gathered.missing is not None:
            return None if seat.ahead else ReviewFinding(gathered.missing)
        assert gathered.papers is not None
        assert gathered.text is not None
        assert gathered.opening is not None
        state, segment = seat.state, seat.state.segment
        span = messages.layers_of(state.ends, segment)
        last = segment == len(gathered.papers.results) - 1
        inputs = Inputs(state.order, state.execution_class, span, gathered.text, gathered.before, last, gathered.rows)
        context = JudgingContext(state, seat.definition, seat.rules, gathered.papers, gathered.text)
        try:
            async with self._engine:  # one prefill of this length at a time
                own = await self.recompute.recompute(inputs)
            return await asyncio.to_thread(judge, context, own, gathered.rows, gathered.opening)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises
            # An engine that cannot run this must not accuse anybody, nor be silent, which costs stake. Its message may
            # hold a prompt, and stays out of the log.
            _log.error("a review could not be computed: %s", type(error).__name__)
            return ReviewFinding(Opinion.CANNOT_TELL)

    async def _gather(self, seat: _Seat) -> Gathered:
        """Until everything is there, or the time for it is over."""
        until = seat.at(self.timing.data)
        while True:
            gathered = await self.gatherer.gather(seat.state, seat.rules, seat.vrf_key)
            if gathered.missing is None or seat.ahead:
                return gathered
            seen = await self.courtroom.seen()
            if seen.block >= until:
                return gathered
            await asyncio.sleep(self.timing.again)

    def _keep(self, seat: _Seat, judged: ReviewFinding) -> PledgeRecord:
        shown = Reveal(
            root=judged.root,
            opinion=int(judged.opinion),
            score=judged.score,
            spread=judged.spread,
            salt=salt_of(secrets.token_bytes(SALT_BYTES)),
        )
        commitment = hearing.commitment_of(seat.state, self.operator.address, shown)
        pledged = PledgeRecord(seat.case_id, seat.state.result, commitment, shown)
        return self.record.pledge_once(seat.hearing, pledged, judged.states)

    # ---- what others ask for

    async def pledge(self, seen: ChainView, case_id: Hash32, round_: int) -> Signed[ReviewCommitment] | None:
        """The signed commitment of a round, once it is on disk; None: not yet, or no such hearing of this node."""
        record = seen.state.cases.get(case_id)
        seat = None if record is None else await self._drawn(case_id, record, seen)
        if seat is None or seat.state.round != round_ or seat.state.phase is not CasePhase.DRAWN:
            return None
        pledged = self._pledged(seat)
        if pledged is None:
            return None
        self._pledge_asked.add(seat.hearing)
        message = ReviewCommitment(seat.hearing, pledged.commitment)
        return Signed(message, self.operator.sign(message))

    async def show(self, seen: ChainView, case_id: Hash32, round_: int) -> Reveal | None:
        """What this node shows in the clear, once all have committed and the tiles are fixed; None: not yet."""
        seat = self._live(seen.state, case_id, round_)
        if seat is None:
            return None
        seat = await self._ahead(seat, seen)
        if not self._may_show(seat, seen):
            return None
        self._shown_asked.add(seat.hearing)
        return self._showing(seat)

    async def _ahead(self, seat: _Seat, seen: ChainView) -> _Seat:
        """The seat with the tiles that this node's own chain has fixed, where nobody has drawn them yet."""
        believed = seen.block - self.timing.depth
        state = await foreseen(self.courtroom, seat.state, seat.rules, seat.parameters, believed)
        return seat if state is None else replace(seat, record=replace(seat.record, state=state))

    def _may_show(self, seat: _Seat, seen: ChainView) -> bool:
        return reveals_now(seat.state, seat.rules) and seen.block >= seat.state.phase_block + self.timing.depth

    def _showing(self, seat: _Seat) -> Reveal | None:
        state, pledged = seat.state, self._pledged(seat)
        place = state.reviewers.index(self.operator.address)
        if pledged is None or state.commitments[place] != pledged.commitment:
            return None
        if seat.rules.exact or not is_told(pledged.reveal):
            return pledged.reveal
        states = self.record.states(seat.hearing)
        if states is None:
            return None
        trace = committed(state, seat.definition, seat.rules, states)
        opening = trace.open(hearing.sampled_tiles(state, seat.rules))
        siblings = tuple(Hash32(one) for one in opening.siblings)
        return replace(pledged.reveal, tiles=opening.tiles, siblings=siblings)

    def _pledged(self, seat: _Seat) -> PledgeRecord | None:
        pledged = self.record.find(seat.hearing)
        return pledged if pledged is not None and pledged.result == seat.state.result else None

    def _live(self, state: State, case_id: Hash32, round_: int) -> _Seat | None:
        record = state.cases.get(case_id)
        if record is None or not record.live or self.operator.address not in record.state.reviewers:
            return None
        return self._seat(case_id, record, state) if record.state.round == round_ else None

    # ---- helping itself

    async def _post_if_due(self, seat: _Seat, seen: ChainView) -> None:
        pledged = self._pledged(seat)
        posted = (seat.state.round, self.operator.address) in seat.record.posts
        eighths = self.timing.own if seat.hearing in self._pledge_asked else self.timing.unasked
        # A block early: what is sent now may be mined one later, when incomplete sets count already.
        if pledged is None or posted or seen.next + 1 < seat.at(eighths):
            return
        await self._send(seat, calls.post(self.courtroom.contracts, seat.state, pledged.commitment))

    async def _reveal_if_due(self, seat: _Seat, seen: ChainView) -> None:
        address, state = self.operator.address, seat.state
        asked = seat.hearing in self._shown_asked
        eighths = self.timing.own if asked else self.timing.unasked
        done = (state.round, address) in seat.record.reveals
        if done or not self._may_show(seat, seen) or seen.next < seat.at(eighths):
            return
        shown = self._showing(seat)
        if shown is not None:
            place = state.reviewers.index(address)
            await self._send(seat, calls.reveal(self.courtroom.contracts, state, place, shown))

    async def _send(self, seat: _Seat, call: PartCall) -> None:
        try:
            mined = await self.courtroom.send(call)
            self.report(f"case {seat.case_id.hex()}: {call.call.function} by its own call in block {mined.block}")
        except CallRefused as refused:
            self.report(f"case {seat.case_id.hex()}: {refused}")
