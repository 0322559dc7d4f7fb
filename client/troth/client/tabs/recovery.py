"""Going on from the newest word of a tab: what a wallet that was restored from an old backup does first.

The scheduler holds the best voucher and the orders that are still open, each under this client's own key. What it shows
is taken over only where it says more than this machine knows; and a chain that has paid more than this machine knows
forbids to order at all until newer words are shown.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from troth.client.errors import ProofError, SchedulerRefused, SchedulerUnreachable, StreamError
from troth.client.orders.calls import MarketCalls
from troth.client.orders.journal import OrderJournal, OrderRecord, Phase
from troth.client.tabs.books import TabBooks, behind, is_newer
from troth.client.tabs.errors import TabBehind
from troth.client.tabs.keys import Keyring
from troth.protocol.errors import ProtocolError
from troth.protocol.market import messages, tabs
from troth.protocol.market.bodies import OpenOrder, Recovered, TabQuery
from troth.protocol.market.messages import sign
from troth.protocol.market.signed import Order
from troth.protocol.market.state import State
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32


class RecoveringPayer(Protocol):
    """What recovering needs of a session with schedulers."""

    domain: Domain
    books: TabBooks
    journal: OrderJournal
    keyring: Keyring

    @property
    def state(self) -> State:
        """The chain's state up to the followed block."""


class RecoveredTab(Protocol):
    """What it needs of a tab's context."""

    identifier: Hash32

    @property
    def scheduler(self) -> Address:
        """The operator's address."""


async def recover(session: RecoveringPayer, tab_context: RecoveredTab, calls: MarketCalls) -> bool:
    """Whether newer words than this machine's were taken over from a tab's scheduler, whose ``calls`` these are.

    Raises TabBehind where the chain shows that there are newer words, and the scheduler shows none.
    """
    record = session.books.record(tab_context.identifier)
    key = session.keyring.key(record.tab.key)
    query = sign(TabQuery(tab_context.identifier, int(time.time())), session.domain, key.secret)
    known_behind = behind(record.book, session.state)
    try:
        shown = await calls.recover(query)
    except (SchedulerRefused, SchedulerUnreachable, StreamError) as error:
        if known_behind:
            raise _behind(session, tab_context) from error
        if isinstance(error, SchedulerRefused):
            # A tab on which nothing was ever ordered may be unknown to its scheduler.
            return False
        raise
    taken = take_over(session, tab_context, shown)
    if behind(session.books.record(tab_context.identifier).book, session.state):
        raise _behind(session, tab_context)
    return taken


def take_over(session: RecoveringPayer, tab_context: RecoveredTab, shown: Recovered) -> bool:
    """Take over what a scheduler shows, where it says more than this machine knows; ProofError for forged words."""
    record = session.books.record(tab_context.identifier)
    if shown.voucher is None or not is_newer(shown.voucher.message, record.book):
        return False
    try:
        word = shown.voucher.require(session.domain, record.tab.key)
        opened = {one.order.require(session.domain, record.tab.key).sequence: one for one in shown.orders}
        own = _own_orders(session.journal.unpaid(tab_context.identifier))
        book = tabs.resume(word, (*own, *(one.order.message for one in opened.values())))
    except ProtocolError as error:
        raise ProofError(error.what, error.value, "Leave this scheduler: `troth client close` ends the tab.") from error
    if word.tab != tab_context.identifier:
        raise ProofError("The scheduler shows a word on another tab", word.tab, "Leave this scheduler.")
    if not session.books.resume(tab_context.identifier, book, shown.voucher):
        return False
    _forget(session, tab_context, word.sequence, set(book.bounds))
    mine = {entry.identifier for entry in session.journal.unpaid(tab_context.identifier)}
    for one in opened.values():
        if one.order.message.sequence in book.bounds:
            _note(session, one, mine)
    return True


def _own_orders(entries: Sequence[OrderRecord]) -> list[Order]:
    return [entry.submission.order.message for entry in entries if entry.submission is not None]


def _forget(session: RecoveringPayer, tab_context: RecoveredTab, sequence: int, left: set[int]) -> None:
    """Orders of the backup that newer words paid, or that were never admitted under their number."""
    for entry in session.journal.unpaid(tab_context.identifier):
        if entry.sequence <= sequence and entry.sequence not in left:
            failure = "paid, or given up, by a newer word than this machine had"
            session.journal.step(entry.identifier, failure=failure)
            session.journal.paid(entry.identifier, entry.fee or 0)


def _note(session: RecoveringPayer, one: OpenOrder, mine: set[Hash32]) -> None:
    """Journal an order that the scheduler shows, unless it is one of ``mine``."""
    order = one.order.message
    identifier = messages.order_id(order, session.domain)
    if identifier in mine:
        return
    session.journal.add(
        identifier, order.tab, order.sequence, order.max_fee, question="", mode="recovered", phase=Phase.RECOVERED
    )
    session.journal.step(identifier, recovered=one)
    session.journal.release(identifier)


def _behind(session: RecoveringPayer, tab_context: RecoveredTab) -> TabBehind:
    redeemed = session.state.tab_state(tab_context.identifier).redeemed
    spent = session.books.record(tab_context.identifier).book.spent
    what = f"The chain has paid {redeemed} of this tab, and this machine knows of {spent}"
    remedy = "Restore a newer backup, or close the tab: `troth client close` gives back what is left."
    return TabBehind(what, tab_context.scheduler, remedy)
