"""From the draw to the end: the lottery, the check that it asks for, the openings, and what a majority says.

The first secret is shown only once the draw is stored, the second one only once every verifier's commitment and verdict
are. Both follow from the tab key, and every request here may be repeated: a scheduler gives the same answer again, so a
client that was killed at any place goes on there.

In direct mode both go by way of the node that the order entered at, and from there to the scheduler. Every word is
signed by its verifier and every opening is sealed, so that the node can only keep them back; then the scheduler itself
is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from troth.chain.keystore import Key
from troth.chain.retries import attempts_of
from troth.client.errors import ClientError, SchedulerUnreachable, StreamError
from troth.client.orders.building import secrets_of
from troth.client.orders.calls import MarketCalls, SchedulerRefusal, SealedSegment
from troth.client.orders.check_words import CheckForged, CheckLate, CheckReading
from troth.client.orders.evidence import CheckWords, Openings, SealedOpenings, ServedOrder, served_of
from troth.client.orders.failing import OrderContradicted, what_happened
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.paying import pay
from troth.client.orders.session import PayerSession, TabContext
from troth.client.orders.updates import CourseStep, DrawnUpdate, EndedUpdate, OrderOutcome
from troth.client.tabs.keys import master_of, reply_secret
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.market import bodies, canonical, checks, life, lottery, prices
from troth.protocol.market.checks import Opened, OrderView
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.life import Check
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Opinion
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, to_address
from troth.transport.errors import OverlayError, SealBroken
from troth.transport.sealing import unseal

_log = logging.getLogger(__name__)

CHECK_SECONDS = 120.0
"""How long the verifiers of an answer may take; each runs one prefill. Then the check can be summoned."""
TOLD_SECONDS = 5.0
"""How long a secret that misses is offered: the scheduler wants it for its log alone."""
OPENING_LIMIT = 1 << 22
"""Bytes of one opening."""
OPENING_PAUSES = (0.0, 0.5, 2.0)
"""Seconds before each try to get the openings, which a scheduler gathers once it has the second secret."""
RESTART_PAUSES = (4.0, 8.0, 16.0)
"""And before those that follow where it cannot be reached: it may start again, and then has them on disk; so has it an
order whose check was not begun, or broke off."""
ENTRY_SECONDS = 5.0
"""How long the node that the order entered at may be silent before the scheduler is asked the same."""
NOT_YET_SECONDS = 0.1
_FAILURES = (ClientError, OverlayError, TimeoutError)
_AWAY = (SchedulerUnreachable, StreamError, OverlayError)


class OrderSettlement:
    """One order whose draw is stored, on its way to an acknowledgement."""

    def __init__(self, session: PayerSession, tab_context: TabContext, entry: OrderRecord) -> None:
        served = served_of(entry)
        assert served is not None
        self._session = session
        self._tab_context = tab_context
        self._entry = entry
        self._served: ServedOrder = served
        self._key: Key = session.keyring.key(served.submission.tab.key)
        self._secrets = secrets_of(session, served.order, master_of(self._key))
        self._view: OrderView = session.view(served.order, served.submission.tab)
        results = served.given
        self._fee = prices.fee(served.order, self._view.rules, len(results), results[-1])
        self._due = served.draw.block_number + self._view.lag

    async def run(self) -> AsyncGenerator[CourseStep, None]:
        """What becomes of it. Raises OrderContradicted; a check that does not come is an outcome, not an error."""
        journal, identifier = self._session.journal, self._entry.identifier
        served = self._served
        if not served.shown and self._session.block > lottery.secret_due(served.draw, self._session.parameters):
            # Nobody need answer a secret any more.
            journal.step(identifier, Phase.UNDRAWN, fee=self._fee, due=self._due)
            yield self._ended(OrderOutcome.UNDRAWN)
            return
        hit = lottery.is_drawn(served.order, self._secrets.draw, served.draw.beta)
        if not served.shown:
            journal.step(identifier, Phase.REVEALED, secret=bytes(self._secrets.draw))
        if not hit:
            journal.step(identifier, Phase.UNDRAWN, fee=self._fee, due=self._due)
            yield self._ended(OrderOutcome.UNDRAWN)
            await self._tell()
            return
        seats = self._seats()
        yield DrawnUpdate(identifier, tuple(one.operators for one in seats))
        words = served.words
        if words is None:
            try:
                words = await self._words(seats)
            except CheckLate as error:
                journal.step(identifier, Phase.REFUSED_CHECK, fee=self._fee, due=self._due, failure=error.what)
                journal.release(identifier)
                outcome = OrderOutcome.UNCHECKED if error.away else OrderOutcome.REFUSED_CHECK
                yield self._ended(outcome, self._summons_advice(error))
                return
            journal.step(identifier, Phase.JUDGED, check=words)
        yield await self._judged(seats, words)

    def _seats(self) -> tuple[DrawnSeats, ...]:
        served = self._served
        silent = self._silent()
        return checks.verifiers(
            served.order,
            served.given,
            self._secrets.draw,
            served.draw.beta,
            nodes=served.admitted.nodes,
            view=self._view,
            silent=silent,
        )

    def _silent(self) -> dict[int, tuple[Address, ...]]:
        """Nodes that a summons of this check proved silent, so that others were drawn."""
        found = {
            segment: self._session.state.silent_in_check(self._entry.identifier, segment)
            for segment in range(len(self._served.given))
        }
        return {segment: nodes for segment, nodes in found.items() if nodes}

    async def _tell(self) -> None:
        try:
            async with asyncio.timeout(TOLD_SECONDS):
                if await self._by_way_of_node(self._shown_to):
                    return
                await self._shown_to(await self._session.calls(self._tab_context))
        except _FAILURES as error:
            _log.info("a missed secret was not told, which only the scheduler's log wants: %s", what_happened(error))

    async def _shown_to(self, calls: MarketCalls) -> bool:
        """Show the first secret; whether anything was said to it."""
        async with aclosing(calls.show(self._entry.identifier, self._secrets.draw)) as lines:
            return await anext(lines, None) is not None

    async def _by_way_of_node(self, ask: Callable[[MarketCalls], Awaitable[bool]]) -> bool:
        """Ask something at the node that the order entered at; whether it answered well. Else it is left out."""
        entrance, order = self._session.entrance, self._entry.identifier
        node = None if entrance is None else entrance.entered(order)
        if entrance is None or node is None:
            return False
        try:
            async with entrance.way(self._tab_context.scheduler, node) as calls:
                if await ask(calls):
                    return True
            _log.info("the node that the order entered at answers too little: its scheduler is asked")
        except _FAILURES as error:
            # Nobody's lie yet: what a node changed or kept back, the scheduler itself may tell otherwise.
            _log.info("the check goes on at its scheduler, not at the entry %s: %s", node, what_happened(error))
        entrance.leave(order)
        return False

    # ---- the check

    async def _words(self, seats: Sequence[DrawnSeats]) -> CheckWords:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                gathering = await self._gathered(seats)
        except TimeoutError as error:
            raise CheckLate(f"The check was not done within {CHECK_SECONDS:g} s") from error
        except CheckForged as error:
            raise self._contradiction(error.what) from error
        except (CheckLate, OrderContradicted):
            raise
        except (ClientError, OverlayError) as error:
            raise CheckLate(error.what, away=isinstance(error, _AWAY)) from error
        if not gathering.decided:
            raise CheckLate(gathering.lacking)
        return gathering.words(self._silent())

    async def _gathered(self, seats: Sequence[DrawnSeats]) -> CheckReading:
        """What the verifiers say, from the entry node or the scheduler; that one may start again meanwhile."""
        session, identifier = self._session, self._entry.identifier
        gathering = CheckReading(session, self._served, seats, self._view)

        async def gathered(calls: MarketCalls) -> bool:
            async with aclosing(calls.show(identifier, self._secrets.draw)) as lines:
                await gathering.read(lines, ENTRY_SECONDS)
            return gathering.decided

        if await self._by_way_of_node(gathered):
            return gathering
        for pause in (*RESTART_PAUSES, None):
            gathering = CheckReading(session, self._served, seats, self._view)
            try:
                calls = await session.calls(self._tab_context)
                async with aclosing(calls.show(identifier, self._secrets.draw)) as lines:
                    await gathering.read(lines)
                return gathering
            except _AWAY as error:
                if pause is None:
                    raise
                _log.info("the check waits for its scheduler: %s", what_happened(error))
            session.journal.hold(identifier)
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _judged(self, seats: Sequence[DrawnSeats], words: CheckWords) -> CourseStep:
        journal, identifier = self._session.journal, self._entry.identifier
        journal.step(identifier, Phase.OPENING, second=bytes(self._secrets.tiles))
        openings = self._served.openings
        if openings is None:
            openings = await self._openings_by_way_of_node(seats, words) or await self._openings()
            if openings is not None:
                journal.step(identifier, openings=openings)
        opinions = self._opinions(seats, words, openings)
        if Opinion.REJECT in opinions:
            journal.step(identifier, Phase.REJECTED, fee=self._fee, due=self._due, failure="verifiers reject it")
            journal.release(identifier)
            rejected = tuple(number for number, one in enumerate(opinions) if one is Opinion.REJECT)
            return self._ended(OrderOutcome.REJECTED, f"segments {', '.join(map(str, rejected))}")
        if all(one is Opinion.ACCEPT for one in opinions):
            journal.step(identifier, Phase.CHECKED, fee=self._fee, due=self._due)
            journal.release(identifier)
            pay(self._session, self._entry, self._fee)
            return self._ended(OrderOutcome.CHECKED)
        what = _why_unclear(words, openings)
        journal.step(identifier, Phase.UNCLEAR, fee=self._fee, due=self._due, failure=what)
        journal.release(identifier)
        return self._ended(OrderOutcome.UNCLEAR, what)

    def _opinions(self, seats: Sequence[DrawnSeats], words: CheckWords, openings: Openings | None) -> list[Opinion]:
        parts = parts_of(self._served, words, openings, self._key, self._view.domain)
        return [self._opinion(segment, part, seats[segment]) for segment, part in enumerate(parts)]

    async def _openings_by_way_of_node(self, seats: Sequence[DrawnSeats], words: CheckWords) -> Openings | None:
        """The openings, if they decide: a node that keeps some back changes nothing."""
        found: list[Openings] = []

        async def asked(calls: MarketCalls) -> bool:
            async with asyncio.timeout(ENTRY_SECONDS):
                shown = await self._tiles(calls)
            if len(shown) == len(self._served.given):
                found.append(Openings(tuple(_kept(one) for one in shown)))
            return bool(found) and Opinion.CANNOT_TELL not in self._opinions(seats, words, found[0])

        return found[0] if await self._by_way_of_node(asked) else None

    async def _tiles(self, calls: MarketCalls) -> tuple[SealedSegment, ...]:
        """The openings; the verifiers' words may be here before the scheduler has all of them."""
        async for attempt in attempts_of(_is_not_there_yet, pause=NOT_YET_SECONDS):
            with attempt:
                return await calls.tiles(self._entry.identifier, self._secrets.tiles)
        raise AssertionError("it is asked until it is there")

    async def _openings(self) -> Openings | None:
        """The openings; None where the scheduler shows none, or stays away."""
        for tried, pause in enumerate((*OPENING_PAUSES, *RESTART_PAUSES), start=1):
            self._session.journal.hold(self._entry.identifier)
            await asyncio.sleep(pause)
            away = False
            try:
                calls = await self._session.calls(self._tab_context)
                found = await calls.tiles(self._entry.identifier, self._secrets.tiles)
            except _FAILURES as error:
                _log.info("the openings of a check did not come: %s", what_happened(error))
                away = isinstance(error, SchedulerUnreachable)
            else:
                if len(found) == len(self._served.given):
                    return Openings(tuple(_kept(one) for one in found))
            if tried >= len(OPENING_PAUSES) and not away:
                return None
        return None

    def _opinion(self, segment: int, part: Check, seats: DrawnSeats) -> Opinion:
        """What the majority of one segment says, once the openings bear it out."""
        result = self._served.given[segment]
        try:
            return life.verify_check(
                self._served.order, result, part, drawn=seats, second_secret=self._secrets.tiles, view=self._view
            )
        except InvalidCheck:
            # The node opens another trace than it signed, or none: nothing that was accepted is proven.
            return Opinion.CANNOT_TELL

    # ---- how it ends

    def _ended(self, outcome: OrderOutcome, advice: str = "") -> EndedUpdate:
        if outcome is OrderOutcome.UNDRAWN:
            self._session.journal.release(self._entry.identifier)
        return EndedUpdate(self._entry.identifier, outcome, self._fee, self._due, advice)

    def _summons_advice(self, late: CheckLate) -> str:
        last = lottery.secret_due(self._served.draw, self._session.parameters)
        summon = f"`troth client summon {self._entry.name[:12]} --broadcast`"
        if not late.away:
            return f"{late.what}: {summon} until block {last}"
        back = (
            "Once the scheduler is back, the next `troth client ask` or a running `troth client serve` has it checked"
        )
        return f"{late.what}. {back}; if it stays away, {summon} asks for the check on chain until block {last}"

    def _contradiction(self, what: str) -> OrderContradicted:
        self._session.journal.step(self._entry.identifier, Phase.CONTRADICTED, failure=what)
        self._session.journal.release(self._entry.identifier)
        self._session.books.doubt(self._tab_context.identifier, f"{what} (order {self._entry.name[:12]})")
        return OrderContradicted(what, self._entry.name, "Nothing is paid for it. Use another scheduler.")


def _why_unclear(words: CheckWords, openings: Openings | None) -> str:
    if openings is None:
        return "the openings of the check were not shown"
    said = {signed.message.opinion for one in words.segments for signed in one.verdicts}
    if said == {Opinion.ACCEPT}:
        return "verifiers accept it, and what they show of their traces disagrees with the node's"
    return "no majority of verifiers accepts it"


def _by_signer(words: Sequence[Signed[Any]], domain: Domain) -> dict[Address, Signed[Any]]:
    return {typed_data.recover(one.message, domain, one.signature): one for one in words}


def parts_of(
    served: ServedOrder, words: CheckWords, openings: Openings | None, key: Key, domain: Domain
) -> tuple[Check, ...]:
    """The check of every segment as the rules take it, its openings unsealed; what does not open is not shown."""
    found = []
    for segment, said in enumerate(words.segments):
        operators = list(dict.fromkeys(said.drawn))
        sealed = None if openings is None else openings.segments[segment]
        node = served.admitted.nodes[segment]
        opened = {} if sealed is None else dict(zip(sealed.operators, sealed.sealed, strict=True))
        shown = {one: _open(served, segment, one, opened[one], key) for one in operators if one in opened}
        found.append(
            Check(
                promises={},
                commitments=_by_signer(said.commitments, domain),
                verdicts=_by_signer(said.verdicts, domain),
                node=None if sealed is None else _open(served, segment, node, sealed.node, key),
                opened={one: value for one, value in shown.items() if value is not None},
            )
        )
    return tuple(found)


def _open(served: ServedOrder, segment: int, party: Address, sealed: bytes, key: Key) -> Opened | None:
    context = bodies.opening_context(served.entry.identifier, segment, party)
    try:
        plain = unseal(sealed, reply_secret(key, served.order.request_hash), context)
        return canonical.decode(Opened, plain, OPENING_LIMIT)
    except (SealBroken, ProtocolError):
        return None


def _kept(found: SealedSegment) -> SealedOpenings:
    pairs = [(_address(name), one) for name, one in sorted(found.opened.items())]
    known = [(name, one) for name, one in pairs if name is not None and one]
    return SealedOpenings(found.node, tuple(name for name, _ in known), tuple(one for _, one in known))


def _address(name: str) -> Address | None:
    try:
        return to_address(name)
    except ProtocolError:
        return None


def _is_not_there_yet(error: Exception) -> bool:
    return isinstance(error, SchedulerRefusal) and error.code == "not_yet"
