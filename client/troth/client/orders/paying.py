"""Paying what is owed: one step of a tab's book, with the order that it pays, in one transaction.

A number that cannot be paid yet, since an older one would leave the window, is paid later (``keeping``).

An answer that can be checked no more is never paid by itself: a scheduler would draw late to have none checked. Its
number stays open, and once it leaves the window nothing more is ordered on the tab. Whoever knows that it was this
client that was away pays it by hand.
"""

from __future__ import annotations

from troth.client.errors import ReceiptNotFound
from troth.client.orders.evidence import served_of
from troth.client.orders.following import fell
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.session import PayerSession
from troth.protocol.market import checks, life, messages, prices
from troth.protocol.market.bodies import OpenOrder
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.lottery import secret_due
from troth.protocol.market.messages import case_id


def pay(session: PayerSession, entry: OrderRecord, amount: int) -> bool:
    """Acknowledge an order with ``amount``; False where it is paid already, or must wait for an older one."""
    record = session.books.record(entry.tab)
    if session.journal.entry(entry.identifier).paid is not None:
        # Its number may be another order's by now, of another copy of this folder.
        return False
    if entry.sequence not in record.book.bounds:
        # A newer word, of another process or from before a backup was restored, has decided on it.
        session.journal.paid(entry.identifier, amount)
        return False
    key = session.keyring.key(record.tab.key)
    try:
        with session.books.transaction():
            session.books.acknowledge(entry.tab, entry.sequence, amount, key)
            session.journal.paid(entry.identifier, amount)
    except InvalidVoucher:
        return False
    session.changed.set()
    return True


def give_up(session: PayerSession, entry: OrderRecord, failure: str) -> None:
    """Nothing is owed for an order: note why, and pay 0 for its number at once."""
    session.journal.step(entry.identifier, Phase.FAILED, failure=failure)
    session.journal.release(entry.identifier)
    pay(session, entry, 0)


def unchecked(session: PayerSession) -> list[OrderRecord]:
    """Answers that ended without their check and wait for their user, or for a claim, oldest first."""
    found = [one for one in session.journal.all() if one.phase is Phase.REFUSED_CHECK and one.paid is None]
    return found[::-1]


def require_unchecked(session: PayerSession, entry: OrderRecord) -> int:
    """What an answer costs that ended without its check, and may be paid by hand; raises ReceiptNotFound for others."""
    remedy = "`troth client receipts` shows its state."
    if entry.phase is not Phase.REFUSED_CHECK or entry.paid is not None:
        what = "Only an answer that ended without its check is paid by hand"
        raise ReceiptNotFound(what, f"{entry.name[:12]} is {entry.phase}", remedy)
    if entry.fee is None:
        what = "Nobody signed for this client what the answer costs"
        raise ReceiptNotFound(what, entry.name[:12], "Its scheduler may claim it; `troth client close` ends the tab.")
    if fell(session.state, entry):
        raise ReceiptNotFound("Nothing is owed for this answer: the chain voids it", entry.name[:12], remedy)
    served = served_of(entry)
    if served is not None and session.block <= (last := secret_due(served.draw, session.parameters)):
        what = f"This answer may still be checked, until block {last}"
        raise ReceiptNotFound(
            what, entry.name[:12], "`troth client ask` takes it up; `troth client summon` asks for it."
        )
    return entry.fee


# ------------------------------------------------------------------------------------------------------- what is owed


def owed_now(session: PayerSession, entry: OrderRecord) -> int | None:
    """What may be acknowledged for an order now; None: nothing yet.

    Failed orders cost nothing, checked ones their fee at once, others once the lag is over, unless a case that runs
    permits to withhold them. A leaf that fell in court, or with a conviction of who served it, costs nothing.
    """
    if entry.phase is Phase.FAILED:
        return 0
    if fell(session.state, entry):
        return 0
    if entry.phase is Phase.RECOVERED:
        return _owed_recovered(session, entry)
    if entry.fee is None:
        return None
    if entry.phase is Phase.CHECKED:
        return entry.fee
    over = entry.due is not None and session.block >= entry.due
    paid_late = entry.phase in {Phase.UNDRAWN, Phase.UNCLEAR, Phase.REJECTED}
    return entry.fee if paid_late and over and not withheld(session, entry) else None


def withheld(session: PayerSession, entry: OrderRecord) -> bool:
    """Whether a case that runs permits to keep this leaf back; a rejection that nobody brought to court does not."""
    served = served_of(entry)
    if served is None:
        return False
    for segment, node in enumerate(served.admitted.nodes):
        for place in (segment, segment + messages.DOUBTS):
            record = session.state.cases.get(case_id(entry.identifier, place))
            live = record is not None and record.live
            if record is not None and live and life.may_withhold(record.state, entry.identifier, node, segment):
                return True
    return False


def _owed_recovered(session: PayerSession, entry: OrderRecord) -> int | None:
    """An order of before a backup: its request is lost, but what was signed shows what it costs."""
    shown = entry.read("recovered", OpenOrder)
    if shown is None or shown.draw is None or not shown.results:
        return None
    order, tab = shown.order.message, session.books.record(entry.tab).tab
    view = session.view(order, tab)
    results = checks.require_results(order, shown.results, shown.nodes, view)
    shown.draw.require(session.domain, tab.payee)
    if session.block < shown.draw.message.block_number + view.lag:
        return None
    return prices.fee(order, view.rules, len(results), results[-1])
