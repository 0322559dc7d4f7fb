"""Going on from the newest word of a tab: what a wallet that was restored from an old backup does first.

The scheduler holds the best voucher and the orders that are still open, each under this client's own key. What it shows
is taken over only where it says more than this machine knows; and a chain that has paid more than this machine knows
forbids to order at all until newer words are shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from troth.client.errors import ProofError, SchedulerRefused, SchedulerUnreachable, StreamError
from troth.client.orders.calls import MarketCalls
from troth.client.orders.journal import OrderJournal, OrderRecord, Phase
from troth.client.tabs.books import TabBooks, is_newer
from troth.client.tabs.claims_paid import acknowledge_claimed, behind
from troth.client.tabs.errors import TabBehind
from troth.client.tabs.keys import Keyring
from troth.protocol.errors import ProtocolError
from troth.protocol.market import messages, tabs
from troth.protocol.market.bodies import OpenOrder, Recovered, TabQuery
from troth.protocol.market.messages import sign
from troth.protocol.market.signed import Order
from troth.protocol.market.state import State
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32


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
    _note_draws(session, shown)
    acknowledge_claimed(session, tab_context.identifier)
    if behind(session.books.record(tab_context.identifier).book, session.state):
        raise _behind(session, tab_context)
    return taken


def take_over(session: RecoveringPayer, tab_context: RecoveredTab, shown: Recovered) -> bool:
    """Take over what a scheduler shows, where it says more than this machine knows; ProofError for forged words.

    Another copy of this folder may have gone on from a word that both knew. Its word stands then, and what this one has
    paid since is paid on top of it. Nothing that this one has promised to pay is taken back.
    """
    if shown.voucher is None:
        return False
    identifier = tab_context.identifier
    record = session.books.record(identifier)
    try:
        word = shown.voucher.require(session.domain, record.tab.key)
        opened = {one.order.require(session.domain, record.tab.key).sequence: one for one in shown.orders}
        if word.tab != identifier:
            raise ProofError("The scheduler shows a word on another tab", word.tab, "Leave this scheduler.")
        orders = {number: messages.order_id(one.order.message, session.domain) for number, one in opened.items()}
        if not is_newer(word, record.book) and not _of_another_copy(session, identifier, orders):
            return False
        own = _own_orders(session.journal.unpaid(identifier))
        book = tabs.resume(word, (*own, *(one.order.message for one in opened.values())))
    except ProtocolError as error:
        raise ProofError(error.what, error.value, "Leave this scheduler: `troth client close` ends the tab.") from error
    paid = _paid_here(session, identifier, {number: one for number, one in orders.items() if number in book.bounds})
    if max(record.book.bounds, default=0) > word.sequence or book.spent + sum(paid.values()) < record.book.spent:
        # The first: an order of this machine's is on its way; what becomes of it decides.
        return False
    with session.books.transaction():
        session.books.go_on(identifier, book, shown.voucher)
        for number, fee in sorted(paid.items()):
            session.books.acknowledge(identifier, number, fee, session.keyring.key(record.tab.key))
        _forget(session, tab_context, word.sequence, {number: orders.get(number) for number in book.bounds})
        mine = {entry.identifier for entry in session.journal.unpaid(identifier)}
        for number, one in opened.items():
            if number in book.bounds and number not in paid:
                _note(session, one, mine)
    return True


def _note_draws(session: RecoveringPayer, shown: Recovered) -> None:
    """Orders that still ran when they were taken over, and of which their scheduler shows by now what they cost."""
    if shown.voucher is None:
        return
    for one in shown.orders:
        order = one.order.message
        identifier = messages.order_id(order, session.domain)
        known = _known(session, order.tab, order.sequence, identifier) if one.draw is not None else None
        before = None if known is None or known.paid is not None else known.read("recovered", OpenOrder)
        if before is not None and before.draw is None:
            session.journal.step(identifier, recovered=one)
            session.journal.release(identifier)


def _of_another_copy(session: RecoveringPayer, tab: Hash32, orders: Mapping[int, Hash32]) -> bool:
    """Whether this key signed an order that this machine never made: then another copy of its folder did."""
    return any(_known(session, tab, number, one) is None for number, one in orders.items())


def _known(session: RecoveringPayer, tab: Hash32, number: int, order: Hash32) -> OrderRecord | None:
    return next((entry for entry in session.journal.of(tab, number) if entry.identifier == order), None)


def _paid_here(session: RecoveringPayer, tab: Hash32, orders: Mapping[int, Hash32]) -> dict[int, int]:
    """What this machine has paid for those of the orders that it knows, by number."""
    known = {number: _known(session, tab, number, one) for number, one in orders.items()}
    return {number: entry.paid for number, entry in known.items() if entry is not None and entry.paid is not None}


def _own_orders(entries: Sequence[OrderRecord]) -> list[Order]:
    return [entry.submission.order.message for entry in entries if entry.submission is not None]


def _forget(
    session: RecoveringPayer, tab_context: RecoveredTab, sequence: int, left: Mapping[int, Hash32 | None]
) -> None:
    """Orders of this machine's that newer words paid, or that were never admitted under their number.

    ``left``: the order behind each open number, None where the scheduler does not show it.
    """
    for entry in session.journal.unpaid(tab_context.identifier):
        if entry.sequence <= sequence and left.get(entry.sequence, ZERO_HASH) not in {None, entry.identifier}:
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
