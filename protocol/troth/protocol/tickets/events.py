"""Events of contracts/tickets/Tickets.sol, and the state that follows from them: every unit of money, by epoch.

For each epoch and denomination, what was sold is what was spent, refunded and is still outstanding. What is spent in a
transaction is paid in it, to tabs and as fees, to the unit; so a fold that ends cleanly has lost and made nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_args

from troth.protocol.bindings import TICKETS, named
from troth.protocol.errors import InvalidField
from troth.protocol.logs import EventDecoder, EventLog, LogMeta, decoder
from troth.protocol.tickets.messages import TicketRules
from troth.protocol.tickets.purchases import Purchase
from troth.protocol.types import ZERO_HASH, Address, Hash32

REMEDY = "A log is missing or another contract's; read the chain anew."


@dataclass(frozen=True, slots=True)
class TicketsDeployed:
    """The contract stands; epoch 0 began with this block."""

    committee: Address
    bank: Address
    rules: TicketRules
    start_block: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class KeysRegistered:
    """An epoch has keys, 256 bytes for each denomination; ``dealing`` is what they were dealt from."""

    epoch: int
    dealing: Hash32
    keys: tuple[bytes, ...]
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TicketsBought:
    """Tickets were paid; ``paid`` in the asset's smallest unit."""

    purchase: Hash32
    terms: Purchase
    paid: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TicketSpent:
    """A ticket counts for a payer, once."""

    ticket: Address
    payer: Address
    epoch: int
    denomination: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TicketPassedOver:
    """A ticket that had been spent was shown again; nobody is paid for it."""

    ticket: Address
    payer: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SpendingPaid:
    """The worth of one client's tickets: a fee to the payee, the rest into the tab, or to its payer if the tab took
    nothing (``opened`` False)."""

    payer: Address
    payee: Address
    tab_key: Address
    amount: int
    fee: int
    opened: bool
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TicketRefunded:
    """The price of a lost ticket went back to its buyer."""

    purchase: Hash32
    ticket: Address
    index: int
    amount: int
    meta: LogMeta


TicketEvent = (
    TicketsDeployed | KeysRegistered | TicketsBought | TicketSpent | TicketPassedOver | SpendingPaid | TicketRefunded
)


@lru_cache(maxsize=1)
def _decoders() -> Mapping[bytes, EventDecoder[Any]]:
    events = named("event", TICKETS)
    return {events[kind.__name__].topic: decoder(kind, events[kind.__name__]) for kind in get_args(TicketEvent)}


def parse_ticket_log(log: EventLog) -> TicketEvent | None:
    """The event that a log of the contract is; None for one of its base contracts (EIP-5267)."""
    found = _decoders().get(log.topics[0]) if log.topics else None
    event: TicketEvent | None = None if found is None else found.event(log)
    return event


@dataclass(frozen=True, slots=True)
class SoldTickets:
    """Tickets of one epoch and denomination, counted."""

    sold: int = 0
    spent: int = 0
    refunded: int = 0

    @property
    def outstanding(self) -> int:
        """Sold, and neither spent nor refunded."""
        return self.sold - self.spent - self.refunded


@dataclass(slots=True)
class TicketsFold:
    """What the events said so far: ``take`` them in the order of the chain. It grows in place, since tickets are many.

    Attributes:
        sold: by (epoch, denomination).
        keys: each epoch's, by denomination; ``dealings`` what they were dealt from.
        purchases: what each is, by its id.
        ended: every ticket that was spent; ``refunded`` each place of a purchase whose ticket was refunded.
        unpaid: what tickets of the transaction ``paying`` are worth that no spending was paid for yet, by payer.
        received: units that purchases brought; ``paid`` went into tabs or to payers, ``fees`` to payees, ``returned``
            to buyers.
        passed_over: how often a spent ticket was shown again.
    """

    deployed: TicketsDeployed | None = None
    sold: dict[tuple[int, int], SoldTickets] = field(default_factory=dict)
    keys: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    dealings: dict[int, Hash32] = field(default_factory=dict)
    purchases: dict[Hash32, Purchase] = field(default_factory=dict)
    ended: set[Address] = field(default_factory=set)
    refunded: set[tuple[Hash32, int]] = field(default_factory=set)
    unpaid: dict[Address, int] = field(default_factory=dict)
    paying: Hash32 = ZERO_HASH
    received: int = 0
    paid: int = 0
    fees: int = 0
    returned: int = 0
    passed_over: int = 0

    @property
    def rules(self) -> TicketRules:
        """What the deployment decided; raises InvalidField before it is known."""
        if self.deployed is None:
            raise InvalidField("The contract has not said that it was deployed", None, REMEDY)
        return self.deployed.rules

    @property
    def held(self) -> int:
        """Units that the contract must hold: the price of all that is outstanding."""
        return sum(counts.outstanding * self._price(denomination) for (_, denomination), counts in self.sold.items())

    def epoch_at(self, block: int) -> int:
        """The epoch of a block."""
        start = 0 if self.deployed is None else self.deployed.start_block
        return (block - start) // self.rules.epoch_blocks

    def take(self, event: TicketEvent) -> None:
        """One more event; raises InvalidField for one that cannot follow, a sum that is wrong included."""
        if event.meta.transaction != self.paying:
            self.require_settled()
            self.paying = event.meta.transaction
        match event:
            case TicketsDeployed():
                self.deployed = event
            case KeysRegistered():
                self._registered(event)
            case TicketsBought():
                self._bought(event)
            case TicketSpent():
                self._spent(event)
            case TicketPassedOver():
                if event.ticket not in self.ended:
                    raise InvalidField("A ticket was passed over that nobody had spent", event.ticket, REMEDY)
                self.passed_over += 1
            case SpendingPaid():
                self._paid(event)
            case TicketRefunded():
                self._refunded(event)

    def require_settled(self) -> None:
        """InvalidField where a transaction is over, and tickets that it spent were not paid for to the unit."""
        if self.unpaid:
            what = "Tickets were spent, and their worth was not paid in the same transaction"
            raise InvalidField(what, dict(self.unpaid), REMEDY)

    def _registered(self, event: KeysRegistered) -> None:
        if event.epoch in self.keys or len(event.keys) != len(self.rules.prices):
            raise InvalidField("An epoch has one key a price, once", event.epoch, REMEDY)
        self.keys[event.epoch], self.dealings[event.epoch] = event.keys, event.dealing

    def _bought(self, event: TicketsBought) -> None:
        terms = event.terms
        if event.purchase != terms.identifier or event.purchase in self.purchases:
            raise InvalidField("A purchase is named by what it is, and made once", event.purchase, REMEDY)
        if terms.epoch != self.epoch_at(event.meta.block) or terms.epoch not in self.keys:
            raise InvalidField("Tickets are sold in their own epoch, once it has keys", terms.epoch, REMEDY)
        if event.paid != self._price(terms.denomination) * terms.count:
            raise InvalidField("A purchase costs its price times its count", event.paid, REMEDY)
        self._count(terms.epoch, terms.denomination, sold=terms.count)
        self.purchases[event.purchase] = terms
        self.received += event.paid

    def _spent(self, event: TicketSpent) -> None:
        if self.epoch_at(event.meta.block) - event.epoch not in {0, 1}:
            raise InvalidField("A ticket is spent in its epoch or the next", event.ticket, REMEDY)
        if event.ticket in self.ended:
            raise InvalidField("A ticket was spent twice", event.ticket, REMEDY)
        self.ended.add(event.ticket)
        self._count(event.epoch, event.denomination, spent=1)
        self.unpaid[event.payer] = self.unpaid.get(event.payer, 0) + self._price(event.denomination)

    def _paid(self, event: SpendingPaid) -> None:
        left = self.unpaid.pop(event.payer, 0) - event.amount - event.fee
        if left < 0:
            raise InvalidField("More was paid for tickets than they are worth", event.payer, REMEDY)
        if left:
            self.unpaid[event.payer] = left
        self.paid += event.amount
        self.fees += event.fee

    def _refunded(self, event: TicketRefunded) -> None:
        terms = self.purchases.get(event.purchase)
        if terms is None or event.index >= terms.count or event.amount != self._price(terms.denomination):
            raise InvalidField("A refund is of a purchase, at its price", event.ticket, REMEDY)
        if self.epoch_at(event.meta.block) <= terms.epoch + 1:
            raise InvalidField("A ticket is refunded when it can no longer be spent", event.ticket, REMEDY)
        place = event.purchase, event.index
        if event.ticket in self.ended or place in self.refunded:
            raise InvalidField("A ticket was refunded that was spent or refunded before", event.ticket, REMEDY)
        self.refunded.add(place)
        self._count(terms.epoch, terms.denomination, refunded=1)
        self.returned += event.amount

    def _count(self, epoch: int, denomination: int, *, sold: int = 0, spent: int = 0, refunded: int = 0) -> None:
        before = self.sold.get((epoch, denomination), SoldTickets())
        after = SoldTickets(before.sold + sold, before.spent + spent, before.refunded + refunded)
        if after.outstanding < 0:
            raise InvalidField("More tickets came back than were sold", (epoch, denomination), REMEDY)
        self.sold[epoch, denomination] = after

    def _price(self, denomination: int) -> int:
        if denomination >= len(self.rules.prices):
            raise InvalidField("There is no such price", denomination, REMEDY)
        return self.rules.prices[denomination]
