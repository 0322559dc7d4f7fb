"""What the chain has paid of a tab by a claim that was settled, and this client has not acknowledged.

The money has left the tab: to acknowledge what the claim stood for costs nothing more, and nobody can take it back any
more. Without it the scheduler takes no further order on the tab, since each later claim would show it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from troth.client.orders.journal import RUNNING, OrderJournal, OrderRecord, Phase
from troth.client.tabs.books import TabBooks
from troth.client.tabs.keys import Keyring
from troth.protocol.market import claims
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.state import State, TabRecord
from troth.protocol.market.tabs import PayerBook
from troth.protocol.types import Hash32

CLAIMED = "its scheduler claimed it on chain, so that it is acknowledged: this costs nothing more"


class AcknowledgingPayer(Protocol):
    """What acknowledging needs of a session."""

    books: TabBooks
    journal: OrderJournal
    keyring: Keyring

    @property
    def state(self) -> State:
        """The chain's state up to the followed block."""


def unacknowledged(book: PayerBook, state: State) -> int:
    """What the chain has paid of a tab above what this book says.

    What a struck claim cost counts as redeemed, too, and no word of this client's pays it.
    """
    record = state.tabs.get(book.tab)
    return 0 if record is None else max(record.redeemed - record.forgiven - book.spent, 0)


def behind(book: PayerBook, state: State) -> bool:
    """Whether the chain has paid more of a tab than this book can owe: it comes from an older backup.

    What a settled claim may have paid for numbers that are open here is no newer word.
    """
    record = state.tabs.get(book.tab)
    known = sum(book.bounds[number] for number in _claimed(book, record)) if record is not None else 0
    return unacknowledged(book, state) > known


def acknowledge_claimed(session: AcknowledgingPayer, tab: Hash32) -> int:
    """Acknowledge answers that a settled claim paid, for no more than the chain has paid; how many.

    An order that runs, or whose scheduler contradicted itself, is left as it is.
    """
    book, state = session.books.record(tab).book, session.state
    if not unacknowledged(book, state):
        return 0
    key = session.keyring.key(session.books.record(tab).tab.key)
    done = 0
    with session.books.transaction():
        # In the transaction: another process may have acknowledged them meanwhile.
        book = session.books.record(tab).book
        left = unacknowledged(book, state)
        for entry, amount in _worth(session.journal, book, state.tabs[tab]):
            if amount > left:
                break
            try:
                session.books.acknowledge(tab, entry.sequence, amount, key)
            except InvalidVoucher:
                continue
            note = CLAIMED if entry.failure is None else f"{entry.failure}; {CLAIMED}"
            session.journal.step(entry.identifier, failure=note)
            session.journal.paid(entry.identifier, amount)
            session.journal.release(entry.identifier)
            left, done = left - amount, done + 1
    return done


def _claimed(book: PayerBook, record: TabRecord | None) -> list[int]:
    """Numbers that the last settled claim stood for, and that are open in this book."""
    if record is None or record.settled is None:
        return []
    claim = record.settled.state.claim
    return [number for number in sorted(book.bounds) if claims.is_claimed(claim, number)]


def _worth(journal: OrderJournal, book: PayerBook, record: TabRecord) -> Iterator[tuple[OrderRecord, int]]:
    """Ended orders of a settled claim, each with what it was claimed for: the known ones first."""
    entries = {number: entry for number in _claimed(book, record) for entry in journal.of(book.tab, number)}
    ended = {number: one for number, one in entries.items() if _may_be_paid(one)}
    known = {number: one.fee for number, one in ended.items() if one.fee is not None}
    yield from ((ended[number], fee) for number, fee in known.items())
    unknown = [number for number in ended if number not in known]
    if not unknown or len(ended) != len(_claimed(book, record)):
        return
    # Which of them stands for how much, only the scheduler knows; it looks whether their sum is paid.
    left = _rest(journal, book, record, known)
    if 0 < left <= sum(book.bounds[number] for number in unknown):
        for number in unknown:
            amount = min(book.bounds[number], left)
            left -= amount
            yield ended[number], amount


def _rest(journal: OrderJournal, book: PayerBook, record: TabRecord, known: Mapping[int, int]) -> int:
    """What a settled claim stood for beside the amounts that are known here."""
    assert record.settled is not None
    claim = record.settled.state.claim
    before = (
        entry.paid or 0
        for entry in journal.between(book.tab, claim.first, claim.last)
        if claims.is_claimed(claim, entry.sequence) and entry.sequence not in book.bounds
    )
    return claim.total - sum(known.values()) - sum(before)


def _may_be_paid(entry: OrderRecord) -> bool:
    return entry.paid is None and entry.phase not in {*RUNNING, Phase.CONTRADICTED}
