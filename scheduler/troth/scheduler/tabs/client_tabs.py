"""Clients' tabs with this scheduler: their best words, and what their orders are worth.

Books are the protocol's values (``tabs.PayeeBook``). A change is made in memory first, so that requests that come at
once see each other, and returns the statements that store it; whoever signs anything commits them before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from troth.protocol.market import canonical, life, messages, tabs
from troth.protocol.market.checks import OrderView
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import KeyCheck, Signed
from troth.protocol.market.signed import Order
from troth.protocol.market.state import State, TabRecord
from troth.protocol.market.tabs import PayeeBook
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32
from troth.scheduler.tabs.database import SchedulerDatabase, Statement

_LIMIT = 1 << 14


@dataclass(frozen=True, slots=True)
class Kept:
    """A tab as it is stored: who it is of, and the best word."""

    tab: Tab
    best: Signed[Voucher] | None


@dataclass(frozen=True, slots=True)
class OpenLeaf:
    """What stands behind a number that is not acknowledged: its order, and the block from which its time runs."""

    order: Hash32
    block: int


@dataclass(frozen=True, slots=True)
class ClientTab:
    """One tab: its book, the signature of the best word, and the orders behind its numbers."""

    tab: Tab
    book: PayeeBook
    best: Signed[Voucher] | None
    leaves: dict[int, OpenLeaf]


class ClientTabs:
    """All tabs of clients, by id."""

    def __init__(self, database: SchedulerDatabase) -> None:
        self._tabs: dict[Hash32, ClientTab] = {}
        self._ended: tuple[State | None, dict[Hash32, int]] = None, {}
        worth: dict[bytes, dict[int, int]] = {}
        leaves: dict[bytes, dict[int, OpenLeaf]] = {}
        rows = database.read("SELECT tab, number, worth, order_id, block FROM client_number")
        for tab_id, number, most, order, block in rows:
            worth.setdefault(tab_id, {})[number] = int(most)
            leaves.setdefault(tab_id, {})[number] = OpenLeaf(Hash32(order), block)
        for tab_id, data in database.read("SELECT tab, data FROM client_tab"):
            kept = canonical.decode(Kept, data, _LIMIT)
            best = kept.best.message if kept.best else tabs.first_voucher(Hash32(tab_id))
            book = PayeeBook(best, worth.get(tab_id, {}))
            self._tabs[Hash32(tab_id)] = ClientTab(kept.tab, book, kept.best, leaves.get(tab_id, {}))
        self.exposure = sum(held.book.exposure for held in self._tabs.values())

    def __iter__(self) -> Iterator[ClientTab]:
        return iter(list(self._tabs.values()))

    def at_stake(self, state: State) -> int:
        """The same without what the chain has ended: what a claim paid, and what a tab that was closed cannot pay.

        All tabs are gone over once for each state of the chain, and not for each order.
        """
        seen, ended = self._ended
        if seen is not state:
            open_ = ((tab_id, held) for tab_id, held in self._tabs.items() if held.book.worth)
            found = ((tab_id, _ended_of(held, state.tabs.get(tab_id))) for tab_id, held in open_)
            self._ended = state, {tab_id: worth for tab_id, worth in found if worth}
            ended = self._ended[1]
        return self.exposure - sum(ended.values())

    def get(self, tab_id: Hash32) -> ClientTab | None:
        """A tab on which something was ordered or signed here."""
        return self._tabs.get(tab_id)

    def book(self, tab_id: Hash32) -> PayeeBook:
        """The book of a tab, an empty one for a tab that was not used yet."""
        held = self._tabs.get(tab_id)
        return PayeeBook(tabs.first_voucher(tab_id)) if held is None else held.book

    def take_on(
        self, order: Order, voucher: Signed[Voucher], view: OrderView
    ) -> tuple[Signed[Voucher], list[Statement]]:
        """Enter an order under its voucher; the word that authorises it. Raises InvalidVoucher, nothing changed.

        Requests of one tab overtake each other: a word that is older than the best one is no refusal of its order, if
        the best one authorises that.
        """
        held = self._tabs.get(order.tab)
        before = self.book(order.tab)
        try:
            after, used = life.take_on(before, order, voucher, view), voucher
        except InvalidVoucher:
            if held is None or held.best is None or voucher.message.sequence > held.best.message.sequence:
                raise
            after, used = life.take_on(before, order, held.best, view), held.best
        leaves = {} if held is None else held.leaves
        leaves[order.sequence] = OpenLeaf(messages.order_id(order, view.domain), view.block)
        return used, self._changed(ClientTab(view.tab, after, used, leaves), before, number=order.sequence)

    def acknowledge(
        self, tab: Tab, voucher: Signed[Voucher], domain: Domain, key_check: KeyCheck
    ) -> tuple[ClientTab, list[Statement]]:
        """Take a newer word; raises InvalidVoucher, InvalidSignature. One that says nothing new is no fault."""
        tab_id = messages.tab_id(tab)
        if not key_check(tab.key, messages.signing_digest(voucher.message, domain), voucher.signature):
            raise InvalidVoucher("The tab key did not sign this voucher", tab.key, messages.BY_ACCOUNT)
        held = self._tabs.get(tab_id) or ClientTab(tab, self.book(tab_id), None, {})
        if held.best is not None and _is_older(voucher.message, held.book.best):
            return held, []
        after = tabs.accept(held.book, voucher.message)
        return replace(held, book=after), self._changed(ClientTab(tab, after, voucher, held.leaves), held.book)

    def serve(self, tab_id: Hash32, number: int, fee: int, block: int) -> list[Statement]:
        """The order's fee is known, 0 where it failed; its time runs from ``block``."""
        held = self._tabs[tab_id]
        if number not in held.book.worth:
            return []  # its client has acknowledged it already
        leaf = held.leaves[number]
        held.leaves[number] = OpenLeaf(leaf.order, block)
        return self._changed(replace(held, book=tabs.served(held.book, number, fee)), held.book, number=number)

    def withdraw(self, tab_id: Hash32, number: int) -> None:
        """Forget an order that could not be stored: nothing about it was signed."""
        held = self._tabs[tab_id]
        left = {one: worth for one, worth in held.book.worth.items() if one != number}
        self._changed(replace(held, book=PayeeBook(held.book.best, left)), held.book)
        held.leaves.pop(number, None)

    def _changed(self, after: ClientTab, before: PayeeBook, number: int | None = None) -> list[Statement]:
        """What stores a tab of which one number was entered or changed, and others acknowledged by a newer word."""
        tab_id = messages.tab_id(after.tab)
        self._tabs[tab_id] = after
        old, new = before.worth, after.book.worth
        self.exposure += after.book.exposure - before.exposure
        if tab_id in self._ended[1]:
            self._ended = None, {}
        statements: list[Statement] = [
            (
                "INSERT OR REPLACE INTO client_tab VALUES (?, ?)",
                (tab_id, canonical.encode(Kept(after.tab, after.best))),
            )
        ]
        acknowledged = () if tabs.acknowledges_alike(before.best, after.book.best) else old.keys() - new.keys()
        for gone in acknowledged:
            after.leaves.pop(gone, None)
            statements.append(("DELETE FROM client_number WHERE tab = ? AND number = ?", (tab_id, gone)))
        if number is not None:
            leaf = after.leaves[number]
            values = (tab_id, number, str(new[number]), leaf.order, leaf.block)
            statements.append(("INSERT OR REPLACE INTO client_number VALUES (?, ?, ?, ?, ?)", values))
        return statements


def _ended_of(held: ClientTab, record: TabRecord | None) -> int:
    """What the chain has ended of what is open on a tab."""
    if record is None:
        return 0
    exposure = held.book.exposure
    owed = held.book.best.spent + exposure - (record.redeemed - record.forgiven)
    return exposure - min(exposure, max(owed, 0)) if record.known else exposure


def _is_older(voucher: Voucher, best: Voucher) -> bool:
    """Whether it says nothing that the best one does not: it was overtaken on its way."""
    return (voucher.spent, voucher.sequence, voucher.acknowledged_through) == (
        min(voucher.spent, best.spent),
        min(voucher.sequence, best.sequence),
        min(voucher.acknowledged_through, best.acknowledged_through),
    )
