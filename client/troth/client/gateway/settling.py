"""Bringing the ledger up to date with the chain: what finished while nobody listened."""

from __future__ import annotations

from troth.client.errors import ReceiptNotFound
from troth.client.gateway.ledger import Ledger
from troth.client.history import refreshed
from troth.client.session import Session

_OPEN = {"running", "not opened"}


def settle(ledger: Ledger, session: Session) -> None:
    """Note the cost of every task that the chain has decided since, or that can no longer be opened."""
    for task in ledger.open_tasks():
        try:
            receipt = session.receipts.find(task)
        except ReceiptNotFound:
            # Never written down, so never sent; or of another contract, whose money is not ours to count here.
            continue
        entry = refreshed(session.receipts, receipt, session.follower.state)
        if entry.state not in _OPEN:
            ledger.paid(task, entry.paid)
