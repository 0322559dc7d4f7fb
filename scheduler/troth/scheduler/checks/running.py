"""A check from the secret that hit to the last verdict: commitments of all before rows of anybody.

It may be run as often as somebody asks: what the journal has is told again, what is missing is asked for. Once most
seats have spoken, or the client has shown its second secret, nobody commits any more: whoever comes so late could have
its trace from those that were shown the rows, or one that fits the tiles. Only who takes the place of a node that a
summons proved silent is late through no doing of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from troth.chain.errors import ChainError
from troth.protocol import rings, typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.market import checks, prices
from troth.protocol.market.ballots import hides_verifiers
from troth.protocol.market.canonical import to_json
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.messages import Signed, tab_id
from troth.protocol.market.signed import Opinion, Promise, TraceCommitment, Verdict
from troth.protocol.market.signed import Work as WorkKind
from troth.protocol.types import Address, Hash32
from troth.scheduler.checks.lottery import drawn_verifiers
from troth.scheduler.checks.seat import DrawnVerifier
from troth.scheduler.court.informing import inform
from troth.scheduler.errors import TaskFailed
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.steps import CastStep, HiddenTraceStep, JudgedStep, PromisedCheckStep
from troth.scheduler.orders.stream import Lines
from troth.scheduler.tabs.database import Statement
from troth.scheduler.tabs.due import inference_fees
from troth.transport.errors import ChannelUnavailable, OverlayError, RemoteFailure

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
LAG_SHARE = 8
"""A verifier that is away is waited for until so large a part of the lag is over at most: a summons comes at half."""
_RESTARTING = {"busy", "overloaded"}
"""What a node answers while it loads its model, or has no place free."""

_SILENT = (OverlayError, ProtocolError, TaskFailed, ChainError, TimeoutError, EOFError, OSError)

Said = TypeVar("Said")


class CheckRun:
    """Checks one drawn order; ``lines`` may be followed by anybody who shows its secret."""

    def __init__(self, context: SchedulerContext, session: OrderSession) -> None:
        self._context = context
        self._session = session
        self._kept = context.rows.open(session.order_id, session.offer.sent_bytes)
        self.lines = Lines()

    @property
    def verifiers(self) -> tuple[Address, ...]:
        """Who was asked, of all segments."""
        return tuple(
            dict.fromkeys(one for rounds in self._session.history.checks.values() for one in rounds[-1].operators)
        )

    async def run(self) -> None:
        """All segments at once."""
        try:
            drawn = drawn_verifiers(self._context, self._session.history)
            self.lines.send("checking", segments=[list(one.operators) for one in drawn])
            await asyncio.gather(*[self._segment(segment, one) for segment, one in enumerate(drawn)])
            await self._acknowledge_checked(drawn)
            self.lines.send("end", complete=self._session.history.is_checked)
        finally:
            self.lines.end()

    async def _segment(self, segment: int, drawn: DrawnSeats) -> None:
        history = self._session.history
        check = await self._promised(segment, drawn)
        seats = [
            DrawnVerifier(self._context, self._session, segment, self._kept, verifier=verifier, promised=promised)
            for verifier, promised in zip(check.operators, check.promises, strict=True)
        ]
        if check.round or not self._is_closed(segment, drawn):
            await self._of_all(segment, "commit", [self._commit(segment, seat) for seat in seats])
        commitments = [history.commitments.get((segment, one)) for one in check.operators]
        self.lines.send("committed", segment=segment, commitments=[to_json(one) for one in commitments if one])
        await self._of_all(segment, "judge", [self._judge(segment, seat) for seat in seats])
        verdicts = [history.verdicts.get((segment, one)) for one in check.operators]
        self.lines.send("verdicts", segment=segment, verdicts=[to_json(one) for one in verdicts if one])
        await self._cast(segment, seats)
        await inform(self._context, history, segment, drawn)

    def _is_closed(self, segment: int, drawn: DrawnSeats) -> bool:
        history = self._session.history
        spoken = sum(count for one, count in drawn.seats.items() if (segment, one) in history.verdicts)
        return history.frozen is not None or 2 * spoken > len(drawn.operators)

    async def _of_all(self, segment: int, what: str, work: Sequence[Awaitable[None]]) -> None:
        """One step of every verifier; who fails is left to the next time, or to a summons."""
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, _SILENT):
                log.warning("a verifier of segment %d did not %s: %s", segment, what, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    # ---- promises

    async def _promised(self, segment: int, drawn: DrawnSeats) -> PromisedCheckStep:
        """Who checks, and what they are promised: written down before anybody is asked."""
        history, seats = self._session.history, drawn.seats
        before = history.check_of(segment)
        if before is not None and before.operators == tuple(seats):
            return before
        reward = prices.check_reward(self._session.offer.rules, prices.positions(history.results[segment]))
        for verifier, count in seats.items():
            await self._context.ensure_paid(verifier, reward * count)
        known = {} if before is None else dict(zip(before.operators, before.promises, strict=True))
        promises: list[Signed[Promise]] = []
        statements: list[Statement] = []
        for verifier, count in seats.items():
            old = known.get(verifier)
            if old is None or old.message.price < reward * count:
                state = self._context.ledger.state.tab_state(tab_id(self._context.node_tabs.tab(verifier)))
                old, more = self._context.node_tabs.promise(verifier, self._wanted(segment, reward * count), state)
                statements += more
            promises.append(old)
        check = PromisedCheckStep(segment, 0 if before is None else before.round + 1, tuple(seats), tuple(promises))
        await self._context.store.note(history, check, *statements)
        return check

    def _wanted(self, segment: int, price: int) -> Callable[[Hash32, int], Promise]:
        order_id, block = self._session.order_id, self._session.history.order.reference_block

        def make(tab: Hash32, number: int) -> Promise:
            return Promise(tab, number, order_id, segment, WorkKind.CHECK, block, 0, 0, 0, price)

        return make

    # ---- what verifiers do

    async def _commit(self, segment: int, seat: DrawnVerifier) -> None:
        history = self._session.history
        if (segment, seat.verifier) in history.commitments:
            return
        try:
            commitment = await self._when_back(seat.commit)
        except OverlayError as error:
            self._context.node_tabs.note_refusal(seat.verifier, error)
            raise
        await self._context.store.note(history, HiddenTraceStep(seat.verifier, commitment))

    async def _judge(self, segment: int, seat: DrawnVerifier) -> None:
        history = self._session.history
        commitment: Signed[TraceCommitment] | None = history.commitments.get((segment, seat.verifier))
        if commitment is None or (segment, seat.verifier) in history.verdicts:
            return
        verdict, is_owed = await self._when_back(lambda: self._judged(seat, commitment))
        fee = self._fee(segment, seat.verifier) if is_owed else []
        await self._context.store.note(history, verdict, *fee)

    async def _cast(self, segment: int, seats: Sequence[DrawnVerifier]) -> None:
        """In a veiled class: ballots of all that have spoken, which the log shows in place of their verdicts."""
        history, domain = self._session.history, self._context.operator.domain
        spoken = {one: said for one in seats if (said := history.verdicts.get((segment, one.verifier))) is not None}
        offer = self._session.offer
        hidden = hides_verifiers(offer.execution_class.name, offer.rules.verifiers, history.segments)
        if not hidden or len(spoken) < rings.FEWEST:
            return
        keys = [
            typed_data.recovered_key(typed_data.digest(one.message, domain), one.signature) for one in spoken.values()
        ]
        ring = rings.ring_of(keys)
        known = history.ballots.get((segment, ring), {})
        asked = [(seat, said.message) for seat, said in spoken.items() if seat.verifier not in known]
        await self._of_all(segment, "cast a ballot", [self._polled(segment, seat, ring, said) for seat, said in asked])

    async def _polled(self, segment: int, seat: DrawnVerifier, ring: tuple[bytes, ...], verdict: Verdict) -> None:
        signature = await self._when_back(lambda: seat.poll(ring, verdict))
        await self._context.store.note(self._session.history, CastStep(segment, ring, seat.verifier, signature))

    async def _when_back(self, ask: Callable[[], Awaitable[Said]]) -> Said:
        """What a verifier says. One that restarts is waited for: the check would lack it for good, since nobody
        commits any more once most have spoken, and the log would show a drawn verifier without a verdict."""
        ledger, waits = self._context.ledger, self._context.waits
        last = self._session.history.drawn_first + ledger.parameters.lag // LAG_SHARE
        give_up = time.monotonic() + waits.absent
        async with asyncio.timeout(waits.check):
            while True:
                try:
                    return await ask()
                except (ChannelUnavailable, RemoteFailure) as error:
                    if isinstance(error, RemoteFailure) and error.remote_code not in _RESTARTING:
                        raise
                    if ledger.block >= last or time.monotonic() + RETRY_SECONDS > give_up:
                        raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _judged(self, seat: DrawnVerifier, commitment: Signed[TraceCommitment]) -> tuple[JudgedStep, bool]:
        try:
            verdict, is_owed = await seat.judge(commitment)
        except (OverlayError, TaskFailed):
            # It may have lost its session with a restart: it is given its inputs again, and answers the same.
            await seat.commit()
            verdict, is_owed = await seat.judge(commitment)
        return JudgedStep(seat.verifier, verdict, self._context.ledger.block), is_owed

    def _fee(self, segment: int, verifier: Address) -> list[Statement]:
        """What was promised, at once."""
        check = self._session.history.check_of(segment)
        assert check is not None
        promised = check.promises[check.operators.index(verifier)].message
        return self._context.node_tabs.set_fee(verifier, promised.sequence, promised.price, self._context.ledger.block)

    async def _acknowledge_checked(self, drawn: Sequence[DrawnSeats]) -> None:
        """Nodes whose work a majority of seats accepts are acknowledged at once, as clients do."""
        history = self._session.history
        for segment, one in enumerate(drawn):
            said = {
                verifier: Opinion(signed.message.opinion)
                for (place, verifier), signed in history.verdicts.items()
                if place == segment
            }
            if checks.majority(one, said) is not Opinion.ACCEPT:
                return
        await self._context.database.commit(
            *inference_fees(self._context.node_tabs, history, self._context.ledger.block)
        )
