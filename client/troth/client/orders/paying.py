"""Paying what is owed: one step of a tab's book, with the order that it pays, in one transaction.

A number that cannot be paid yet, since an older one would leave the window, is paid later (``keeping``).
"""

from __future__ import annotations

from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.session import PayerSession
from troth.protocol.market.errors import InvalidVoucher


def pay(session: PayerSession, entry: OrderRecord, amount: int) -> bool:
    """Acknowledge an order with ``amount``; False where it is paid already, or must wait for an older one."""
    record = session.books.record(entry.tab)
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
