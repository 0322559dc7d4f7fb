"""M24 and M25: where the money of tickets is, and that what was spent is what members signed.

Neither looks at who bought or asked: a purchase shows blinded points and a spending shows names, and no computation
here or elsewhere joins the two. What an epoch sold, spent and refunded has to add up all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from py_arkworks_bls12381 import G2Point

from troth.audit.checks import TICKETS_MONEY, TICKETS_SIGNED
from troth.audit.errors import SourceUnusable
from troth.audit.evidence.inputs import Unavailable, values
from troth.audit.evidence.source import each, fetched
from troth.audit.evidence.transactions import Transaction
from troth.audit.report import AuditReport, CheckReport, CheckResult, Finding, FindingKind
from troth.audit.subject import AuditSubject, unavailable
from troth.chain.errors import ChainError
from troth.chain.rpc import Rpc
from troth.chain.tickets import TicketsContract, TicketsReading, read_tickets
from troth.protocol.bindings import TICKETS, functions_by_selector
from troth.protocol.bindings.structs import converter, decode_parameters
from troth.protocol.calls import DecodedCall
from troth.protocol.errors import InvalidSignature, ProtocolError
from troth.protocol.logs import LogMeta
from troth.protocol.tickets.curve import InvalidTicket, decode_key, encode_point, unpadded
from troth.protocol.tickets.events import TicketPassedOver, TicketRefunded, TicketSpent
from troth.protocol.tickets.messages import LostTicket, Spending, TicketKey, TicketSpending, name_of
from troth.protocol.tickets.purchases import Purchase, is_inside
from troth.protocol.tickets.signing import SignedName, blind, invalid_among
from troth.protocol.types import Address, Hash32

NOT_CHECKED = (
    "Who bought what was spent: nothing shows it, and nobody has to know.",
    "That members signed no ticket that nobody bought: t of them can, at most as many as an epoch sold and lost.",
    "That those who signed an epoch's keys were members: the contract asked the Committee.",
)
TicketUse = TicketSpent | TicketPassedOver


async def audit_tickets(rpc: str, place: TicketsContract, subject: AuditSubject) -> AuditReport:
    """Read the contract up to the audit's last block, and check all of it.

    Raises:
        SourceUnusable: the chain node or the contract cannot be used.
    """
    evidence = subject.evidence
    try:
        reading = await read_tickets(rpc, place, subject.history.state, block=subject.block)
        calls = await calls_of(rpc, reading)
    except ChainError as error:
        raise SourceUnusable(error.what, error.value, error.remedy) from error
    return AuditReport(
        chain_id=evidence.chain_id,
        contract=place.contract,
        first_block=place.start_block,
        last_block=evidence.last.number,
        last_block_hash=evidence.last.hash,
        tasks=transactions_of(reading),
        checks=await asyncio.to_thread(reports, reading, calls),
        not_checked=NOT_CHECKED,
        subject="transaction",
    )


def reports(reading: TicketsReading, calls: Mapping[Hash32, Transaction]) -> tuple[CheckReport, ...]:
    """Both checks; ``calls`` are the transactions that spent or refunded, as far as they could be had."""
    return (
        CheckReport(*TICKETS_MONEY, tuple(money(reading))),
        CheckReport(*TICKETS_SIGNED, tuple(signed(reading, calls))),
    )


# ---- M24


def money(reading: TicketsReading) -> Iterator[CheckResult]:
    """One result for the events, one for each epoch and price, one for what the contract holds."""
    number, fold = TICKETS_MONEY[0], reading.fold
    broken = [Finding(number, FindingKind.MISMATCH, f"The events do not fit together: {reading.broken}")]
    yield CheckResult(None, tuple(broken if reading.broken else ()))
    for (epoch, denomination), counts in sorted(fold.sold.items()):
        said = reading.outstanding.get((epoch, denomination))
        found = list[Finding]()
        if not reading.broken and said is not None and said != counts.outstanding:
            values_ = (("epoch", str(epoch)), ("price", str(denomination)), ("sold", str(counts.sold)))
            more = (("spent", str(counts.spent)), ("refunded", str(counts.refunded)), ("contract says", str(said)))
            what = "What is outstanding of an epoch is not what was sold and did not come back"
            found.append(Finding(number, FindingKind.MISMATCH, what, evidence=(*values_, *more)))
        yield CheckResult(None, tuple(found))
    yield CheckResult(None, tuple(_held(reading)))


def _held(reading: TicketsReading) -> Iterator[Finding]:
    """Received is paid, kept as fees, returned and still here, to the unit; and so much is really here."""
    number, fold = TICKETS_MONEY[0], reading.fold
    if reading.broken:
        return
    out = fold.paid + fold.fees + fold.returned
    sums = {"received": fold.received, "to tabs": fold.paid, "fees": fold.fees, "refunded": fold.returned}
    shown = tuple((name, str(units)) for name, units in (sums | {"outstanding": fold.held}).items())
    if fold.received != out + fold.held:
        what = "What tickets brought in is not what went out and what is outstanding"
        yield Finding(number, FindingKind.MISMATCH, what, evidence=shown)
    if reading.holdings is not None and reading.holdings < fold.held:
        what = "The contract holds less than the tickets that are outstanding are worth"
        holdings = ("holdings", str(reading.holdings))
        yield Finding(number, FindingKind.MISMATCH, what, evidence=(*shown, holdings))


# ---- M25


def signed(reading: TicketsReading, calls: Mapping[Hash32, Transaction]) -> Iterator[CheckResult]:
    """A result for each transaction that spent or refunded tickets: its input shows what its events say."""
    keys = _EpochPoints(reading)
    used: dict[Hash32, list[TicketUse]] = {}
    lost: dict[Hash32, list[TicketRefunded]] = {}
    for event in reading.events:
        match event:
            case TicketSpent() | TicketPassedOver():
                used.setdefault(event.meta.transaction, []).append(event)
            case TicketRefunded():
                lost.setdefault(event.meta.transaction, []).append(event)
            case _:
                pass
    for name, spent in used.items():
        yield CheckResult(None, tuple(_spent(reading, keys, calls.get(name), spent)))
    for name, returned in lost.items():
        yield CheckResult(None, tuple(_returned(reading, calls.get(name), returned)))


class _EpochPoints:
    """Registered keys as points, each decoded once."""

    def __init__(self, reading: TicketsReading) -> None:
        self._registered = reading.fold.keys
        self._points: dict[tuple[int, int], G2Point] = {}

    def of(self, key: TicketKey) -> G2Point | None:
        """The point of a call's key; None where it is not the epoch's."""
        known = self._registered.get(key.epoch, ())
        if key.denomination >= len(known) or known[key.denomination] != key.key:
            return None
        place = key.epoch, key.denomination
        if place not in self._points:
            self._points[place] = decode_key(unpadded(key.key))
        return self._points[place]


def _spent(
    reading: TicketsReading, keys: _EpochPoints, sent: Transaction | None, events: Sequence[TicketUse]
) -> Iterator[Finding]:
    number, place = TICKETS_SIGNED[0], events[0].meta
    call = _call(reading, sent, "spend")
    if isinstance(call, Unavailable):
        yield unavailable(number, call, place)
        return
    try:
        shown = values(call, "keys", TicketKey)
        names, batch = _batch(reading, shown, values(call, "spendings", Spending))
    except (InvalidTicket, InvalidSignature, IndexError) as error:
        yield _mismatch(place, f"A call that spent tickets shows what is none: {error}")
        return
    if names != [one.ticket for one in events]:
        yield _mismatch(place, "The tickets of a call are not those that it spent")
    points = {(one.epoch, one.denomination): keys.of(one) for one in shown}
    if None in points.values():
        yield _mismatch(place, "Tickets were taken under a key that is not their epoch's")
        return
    fresh = {one.ticket for one in events if isinstance(one, TicketSpent)}
    mine = [one for one in batch if one.name in fresh]
    for wrong in invalid_among(mine, {key: point for key, point in points.items() if point is not None}):
        yield _mismatch(place, "Members did not sign a ticket that was spent", ticket=mine[wrong].name)


def _batch(
    reading: TicketsReading, keys: Sequence[TicketKey], spendings: Sequence[Spending]
) -> tuple[list[Address], list[SignedName]]:
    """Who signed each ticket for its payee, in the order of the call, and the members' signature over it."""
    found = list[SignedName]()
    for spending in spendings:
        said = TicketSpending(spending.payee, spending.tab_key, spending.fee)
        for ticket in spending.tickets:
            key = keys[ticket.key]
            name = name_of(ticket, said, reading.domain)
            found.append(SignedName(name, ticket.signature, (key.epoch, key.denomination)))
    return [one.name for one in found], found


def _returned(reading: TicketsReading, sent: Transaction | None, events: Sequence[TicketRefunded]) -> Iterator[Finding]:
    place = events[0].meta
    call = _call(reading, sent, "refund")
    if isinstance(call, Unavailable):
        yield unavailable(TICKETS_SIGNED[0], call, place)
        return
    purchase: Purchase = converter(Purchase)(call.value("purchase"))
    tickets = values(call, "tickets", LostTicket)
    pairs = [(purchase.identifier, one.ticket, one.index) for one in tickets]
    if pairs != [(one.purchase, one.ticket, one.index) for one in events]:
        yield _mismatch(place, "The tickets of a call are not those that it refunded")
    for one in tickets:
        point = encode_point(blind(one.ticket, one.blinding))
        if not is_inside(purchase, one.index, point, one.proof):
            yield _mismatch(place, "A ticket was refunded that is not in its purchase", ticket=one.ticket)


def _call(reading: TicketsReading, sent: Transaction | None, function: str) -> DecodedCall | Unavailable:
    """The call of the contract behind an event, from the input that the transaction's sender signed."""
    if sent is None:
        return Unavailable("the transaction's input could not be had")
    if sent.receiver != reading.place.contract:
        return Unavailable(f"the call came through another contract, {sent.receiver}")
    entry = functions_by_selector(TICKETS).get(sent.data[:4])
    if entry is None or entry.name != function:
        return Unavailable(f"its input is no call of {function}", impossible=True)
    try:
        return DecodedCall(entry, decode_parameters(entry.inputs, sent.data[4:]))
    except ProtocolError as error:
        return Unavailable(f"its input is no call of {function}: {error}", impossible=True)


def _mismatch(place: LogMeta, what: str, **shown: str) -> Finding:
    return Finding(TICKETS_SIGNED[0], FindingKind.MISMATCH, what, place=place, evidence=tuple(shown.items()))


def transactions_of(reading: TicketsReading) -> tuple[Hash32, ...]:
    """Those that spent or refunded."""
    used = (TicketSpent, TicketPassedOver, TicketRefunded)
    return tuple(sorted({one.meta.transaction for one in reading.events if isinstance(one, used)}))


async def calls_of(url: str, reading: TicketsReading) -> dict[Hash32, Transaction]:
    """The transactions that spent or refunded, as far as the node has them."""
    rpc = Rpc(url)
    try:
        found = await each(transactions_of(reading), lambda wanted: fetched(rpc, wanted))
    finally:
        await rpc.close()
    return {one.hash: one for one in found if one is not None}
