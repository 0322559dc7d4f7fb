"""This scheduler's own tabs with nodes: promises, vouchers, and the lag after which work is acknowledged.

A promise takes the next number of the tab with its node. What it is worth is known with the result; it is acknowledged
when its time has come, in the order of the numbers, since a later number may not leave an older one behind for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from troth.protocol.market import canonical, messages, tabs
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Promise, Work
from troth.protocol.market.tabs import PayerBook
from troth.protocol.market.types import Tab, TabState, Voucher
from troth.protocol.types import Address, Hash32
from troth.scheduler.tabs.database import SchedulerDatabase, Statement
from troth.transport.errors import RemoteFailure
from troth.transport.identity import Operator

_LIMIT = 1 << 12
REFUSED_WORDS = frozenset({"invalid_voucher", "not_paid"})
"""Codes by which nodes refuse a voucher or a promise."""


@dataclass(frozen=True, slots=True)
class Book:
    """What is stored of a book beside its numbers."""

    node: Address
    spent: int
    sequence: int
    acknowledged: int


@dataclass(slots=True)
class Owed:
    """One promise: for what, at most how much; ``fee`` and ``due`` (a block) once they are known."""

    order: Hash32
    segment: int
    work: Work
    fee: int | None = None
    due: int | None = None

    def is_same_work(self, other: Owed) -> bool:
        """Whether both are for the same, whatever is known of it."""
        return (self.order, self.segment, self.work) == (other.order, other.segment, other.work)


@dataclass(slots=True)
class NodeTab:
    """The tab with one node."""

    tab: Tab
    book: PayerBook
    owed: dict[int, Owed] = field(default_factory=dict)
    signed: Signed[Voucher] | None = None
    delivered: int = 0

    @property
    def node(self) -> Address:
        return self.tab.payee


class NodeTabs:
    """All tabs with nodes. The operator is the key of its own tabs, so that its stake stands for them.

    ``fence`` is a block: nodes told of words that these records did not hold, and nothing that was admitted before it
    is known here (``tabs.reminding``).
    """

    def __init__(self, database: SchedulerDatabase, operator: Operator) -> None:
        self._operator = operator
        self._tabs: dict[Address, NodeTab] = {}
        self._heard: set[Address] | None = None
        self._refusing: set[Address] = set()
        self.fence = 0
        bounds: dict[bytes, dict[int, int]] = {}
        owed: dict[bytes, dict[int, Owed]] = {}
        for tab_id, number, bound, order, segment, work, fee, due in database.read("SELECT * FROM node_number"):
            bounds.setdefault(tab_id, {})[number] = int(bound)
            known = None if fee is None else int(fee)
            owed.setdefault(tab_id, {})[number] = Owed(Hash32(order), segment, Work(work), known, due)
        for tab_id, data in database.read("SELECT tab, data FROM node_tab"):
            kept = canonical.decode(Book, data, _LIMIT)
            left = bounds.get(tab_id, {})
            book = PayerBook(Hash32(tab_id), kept.spent, kept.sequence, kept.acknowledged, left)
            self._tabs[kept.node] = NodeTab(self.tab(kept.node), book, owed.get(tab_id, {}))

    def __iter__(self) -> Iterator[NodeTab]:
        return iter(list(self._tabs.values()))

    def tab(self, node: Address) -> Tab:
        """The tab with a node, whether it was opened or not."""
        return Tab(self._operator.address, node, self._operator.address)

    def held(self, node: Address) -> NodeTab:
        """The tab with a node and its book."""
        if node not in self._tabs:
            tab = self.tab(node)
            self._tabs[node] = NodeTab(tab, PayerBook(messages.tab_id(tab)))
        return self._tabs[node]

    def order_only_from(self, heard: set[Address]) -> None:
        """From now on no order goes to a node that is not in ``heard``: it has not said what it holds."""
        self._heard = heard

    def note_refusal(self, node: Address, error: Exception) -> None:
        """A node that refused a word is heard again: perhaps another machine signs with this key."""
        if isinstance(error, RemoteFailure) and error.remote_code in REFUSED_WORDS and self._heard is not None:
            self._heard.discard(node)
            self._refusing.add(node)

    @property
    def refusing(self) -> list[Address]:
        """Nodes that refused a word and were not heard since, members of groups or not: one that has left is still
        drawn for orders over blocks from before that."""
        self._refusing = {node for node in self._refusing if not self.is_heard(node)}
        return sorted(self._refusing)

    def is_heard(self, node: Address) -> bool:
        """Whether a node may be chosen for an order: it has said what it holds, or need not."""
        return self._heard is None or node in self._heard

    def require_heard(self, node: Address) -> None:
        """Raise InvalidVoucher where no order may go to a node."""
        if not self.is_heard(node):
            what = "The node has not said yet what was promised to it before"
            raise InvalidVoucher(what, node, "Try again once it is connected.")

    def covers(self, node: Address, price: int, state: TabState) -> bool:
        """Whether an order could be promised now."""
        return self.is_heard(node) and tabs.covers_next(self.held(node).book, price, state)

    def promise(
        self, node: Address, wanted: Callable[[Hash32, int], Promise], state: TabState
    ) -> tuple[Signed[Promise], list[Statement]]:
        """Promise with the next number; ``wanted`` makes it from tab and number. Raises InvalidVoucher.

        Also to a node that was not heard: verifiers are drawn, and one that refuses the word counts as silent.
        """
        held = self.held(node)
        price = wanted(held.book.tab, 0).price
        held.book, number = tabs.order_next(held.book, price, state)
        promised = wanted(held.book.tab, number)
        owed = held.owed[number] = Owed(promised.order, promised.segment, Work(promised.work))
        held.signed = None
        return self._signed(promised), [self._kept(held), _row(held, number, owed)]

    def voucher(self, node: Address) -> Signed[Voucher]:
        """The newest word to a node: all its promises are authorised by it."""
        held = self.held(node)
        if held.signed is None:
            held.signed = self._signed(held.book.voucher)
        return held.signed

    def caught_up(self, node: Address, book: PayerBook, owed: dict[int, Owed]) -> list[Statement]:
        """How a book that goes on from what a node holds is stored; ``catch_up`` follows once it is."""
        held = replace(self.held(node), book=book, owed=owed)
        gone = ("DELETE FROM node_number WHERE tab = ?", (book.tab,))
        return [self._kept(held), gone, *(_row(held, number, one) for number, one in owed.items())]

    def catch_up(self, node: Address, book: PayerBook, owed: dict[int, Owed]) -> None:
        """Go on from what a node holds, which is stored."""
        held = self.held(node)
        held.book, held.owed, held.signed = book, owed, None

    def set_fee(self, node: Address, number: int, fee: int, due: int) -> list[Statement]:
        """What a promise is worth, and the block from which it is acknowledged; earlier if it was said before."""
        held = self.held(node)
        owed = held.owed.get(number)
        if owed is None:
            return []
        owed.fee = fee
        owed.due = due if owed.due is None else min(owed.due, due)
        return [_row(held, number, owed)]

    def acknowledge_due(self, block: int, decide: Callable[[Address, Owed], int | None]) -> list[Statement]:
        """Acknowledge whatever is due by ``block``; ``decide`` says what of its fee is owed, None where it waits."""
        statements: list[Statement] = []
        for held in self._tabs.values():
            due = sorted(number for number, owed in held.owed.items() if owed.due is not None and owed.due <= block)
            for number in due:
                fee = decide(held.node, held.owed[number])
                if fee is not None:
                    statements += self._acknowledge(held, number, fee)
        return statements

    def undecided(self, work: Work) -> set[Hash32]:
        """Orders with work of a kind of which it is not said yet what it is worth."""
        every = (owed for held in self._tabs.values() for owed in held.owed.values())
        return {owed.order for owed in every if owed.due is None and owed.work is work}

    def _acknowledge(self, held: NodeTab, number: int, fee: int) -> list[Statement]:
        try:
            held.book = tabs.acknowledge(held.book, number, fee)
        except InvalidVoucher:
            return []  # an older number has to be decided first: the window would be left
        del held.owed[number]
        held.signed = None
        gone = ("DELETE FROM node_number WHERE tab = ? AND number = ?", (held.book.tab, number))
        return [self._kept(held), gone]

    def withdraw(self, node: Address, number: int) -> None:
        """A promise that could not be stored was not sent: its number is worth nothing, and is acknowledged so."""
        held = self.held(node)
        if number in held.owed:
            held.owed[number] = replace(held.owed[number], fee=0, due=0)

    def _kept(self, held: NodeTab) -> Statement:
        book = Book(held.node, held.book.spent, held.book.sequence, held.book.acknowledged)
        return "INSERT OR REPLACE INTO node_tab VALUES (?, ?)", (held.book.tab, canonical.encode(book))

    def _signed(self, message: object) -> Signed[Any]:
        return Signed(message, self._operator.sign(message))


def _row(held: NodeTab, number: int, owed: Owed) -> Statement:
    fee = None if owed.fee is None else str(owed.fee)
    values = (held.book.tab, number, str(held.book.bounds[number]), owed.order, owed.segment, int(owed.work))
    return "INSERT OR REPLACE INTO node_number VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*values, fee, owed.due)
