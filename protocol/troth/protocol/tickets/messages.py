"""What is signed and sent around contracts/tickets: its structs, EIP-712 messages, calls and reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.protocol import typed_data
from troth.protocol.bindings import TICKET_PAYER, TICKETS
from troth.protocol.bindings.structs import converter, encode_values
from troth.protocol.calls import Call, View, calldata
from troth.protocol.hashing import keccak256
from troth.protocol.tickets.curve import G1_BYTES, InvalidTicket
from troth.protocol.tickets.dealing import EpochKeys
from troth.protocol.tickets.purchases import Purchase
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, Uint8, Uint64, Uint96

SIGNATURE_BYTES = 65


@dataclass(frozen=True, slots=True)
class TicketRules:
    """What a deployment decides: blocks of an epoch, and the price of each denomination in smallest units."""

    epoch_blocks: Uint64
    prices: tuple[Uint96, ...]


@dataclass(frozen=True, slots=True)
class TicketKeys:
    """EIP-712 message of more than 2/3 of the members: an epoch's keys, and what they were dealt from."""

    epoch: Uint64
    keys: Hash32
    dealing: Hash32


@dataclass(frozen=True, slots=True)
class TicketSpending:
    """EIP-712 message of each ticket that is spent; ``fee`` is what it alone pays the payee for the transaction."""

    payee: Address
    tab_key: Address
    fee: Uint96


@dataclass(frozen=True, slots=True)
class PayerCommand:
    """EIP-712 message of a tab key to its payer, in the payer's own domain."""

    calls: Hash32
    fee: Uint96
    nonce: Uint64
    last_block: Uint64


@dataclass(frozen=True, slots=True)
class TicketKey:
    """Struct: a key as the contract takes it, 256 bytes."""

    epoch: Uint64
    denomination: Uint8
    key: bytes


@dataclass(frozen=True, slots=True)
class Ticket:
    """Struct: a ticket that is spent; ``key`` is an index."""

    key: Uint8
    signature: bytes
    spending: bytes


@dataclass(frozen=True, slots=True)
class Spending:
    """Struct: tickets that one client spends with one payee; ``fee`` is of each."""

    payee: Address
    tab_key: Address
    fee: Uint96
    consent: bytes
    tickets: tuple[Ticket, ...]


@dataclass(frozen=True, slots=True)
class TicketPayment:
    """What a client sends its scheduler, sealed like an order: tickets, and the keys under which they are signed."""

    keys: tuple[TicketKey, ...]
    spending: Spending


@dataclass(frozen=True, slots=True)
class PayerErrand:
    """A tab key's order to its payer, for whoever carries it to the chain."""

    tab_key: Address
    calls: tuple[PayerCall, ...]
    fee: Uint96
    last_block: Uint64
    signature: bytes


@dataclass(frozen=True, slots=True)
class LostTicket:
    """Struct: a ticket that was never spent, and what shows that it belongs to a purchase."""

    ticket: Address
    index: int
    blinding: int
    proof: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class PayerCall:
    """Struct: one call that a payer makes."""

    target: Address
    value: Uint96
    data: bytes


def keys_message(keys: EpochKeys) -> TicketKeys:
    """What members sign of an epoch's keys."""
    return TicketKeys(keys.epoch, keys.keys_hash, keys.digest)


def spend_with(secret: bytes, spending: TicketSpending, domain: Domain) -> bytes:
    """A ticket's own signature: for this payee and this tab key, and for nobody else."""
    return typed_data.sign(spending, domain, secret)


def name_of(ticket: Ticket, spending: TicketSpending, domain: Domain) -> Address:
    """The name of a ticket that is spent: who signed; raises InvalidTicket or InvalidSignature."""
    if len(ticket.signature) != G1_BYTES or len(ticket.spending) != SIGNATURE_BYTES:
        sizes = len(ticket.signature), len(ticket.spending)
        raise InvalidTicket("A ticket has signatures of 96 and of 65 bytes", sizes, "Send it whole.")
    return typed_data.recover(spending, domain, ticket.spending)


@dataclass(frozen=True, slots=True)
class PayerOrder:
    """What a tab key wants of its payer.

    Attributes:
        fee: for whoever carries it, in the asset's smallest unit.
        nonce: the payer's next.
        last_block: in which it counts.
    """

    calls: tuple[PayerCall, ...]
    fee: int
    nonce: int
    last_block: int

    @property
    def message(self) -> PayerCommand:
        """What the tab key signs."""
        encoded = encode_values(["(address,uint96,bytes)[]"], [self.calls])
        return PayerCommand(Hash32(keccak256(encoded)), self.fee, self.nonce, self.last_block)


def errand(order: PayerOrder, domain: Domain, secret: bytes) -> PayerErrand:
    """The same, signed by the tab key; ``domain`` is the payer's."""
    key = typed_data.address_of(secret)
    return PayerErrand(key, order.calls, order.fee, order.last_block, typed_data.sign(order.message, domain, secret))


def command(carried: PayerErrand) -> Call:
    """What carries it to the payer."""
    arguments = (list(carried.calls), carried.fee, carried.last_block, carried.signature)
    return Call("command", calldata(TICKET_PAYER, "command", *arguments))


# ---- calls and reads of Tickets


def register_keys(keys: EpochKeys, signatures: Sequence[bytes]) -> Call:
    """Register an epoch's keys; signatures in ascending order of their signers."""
    data = _data("registerKeys", keys.epoch, keys.digest, list(keys.chain_keys), list(signatures))
    return Call("registerKeys", data)


def buy(purchase: Purchase, value: int) -> Call:
    """Buy tickets; ``value`` in wei, 0 where a token pays."""
    return Call("buy", _data("buy", purchase.epoch, purchase.denomination, purchase.count, purchase.root), value)


def spend(keys: Sequence[TicketKey], spendings: Sequence[Spending]) -> Call:
    """Spend tickets of many clients at once."""
    return Call("spend", _data("spend", list(keys), list(spendings)))


def refund(purchase: Purchase, tickets: Sequence[LostTicket]) -> Call:
    """Get the price of tickets back that were never spent."""
    return Call("refund", _data("refund", purchase, list(tickets)))


def committee() -> View[Address]:
    """Whose members sign."""
    return View("committee", _data("committee"), converter(Address), TICKETS)


def bank() -> View[Address]:
    """Whose tabs are filled."""
    return View("bank", _data("bank"), converter(Address), TICKETS)


def rules() -> View[TicketRules]:
    """What the deployment decided."""
    return View("rules", _data("rules"), converter(TicketRules), TICKETS)


def start_block() -> View[int]:
    """The first block of epoch 0."""
    return View("startBlock", _data("startBlock"), int, TICKETS)


def epoch_now() -> View[int]:
    """The current epoch."""
    return View("epochNow", _data("epochNow"), int, TICKETS)


def keys_of_epoch(epoch: int) -> View[tuple[bytes, ...]]:
    """keccak256 of each denomination's key; empty where none are registered."""
    return View("keysOf", _data("keysOf", epoch), tuple, TICKETS)


def dealing_of(epoch: int) -> View[Hash32]:
    """What members signed beside an epoch's keys (``EpochKeys.digest``); zero where none are registered."""
    return View("dealingOf", _data("dealingOf", epoch), Hash32, TICKETS)


def is_purchase(purchase: Hash32) -> View[bool]:
    """Whether it was paid."""
    return View("isPurchase", _data("isPurchase", purchase), bool, TICKETS)


def spent(names: Sequence[Address]) -> View[int]:
    """Bit i says that the i-th of at most 256 tickets is spent."""
    return View("spent", _data("spent", list(names)), int, TICKETS)


def refunded(purchase: Hash32) -> View[int]:
    """Bit i says that the ticket at place i of a purchase was refunded."""
    return View("refunded", _data("refunded", purchase), int, TICKETS)


def outstanding(epoch: int, denomination: int) -> View[int]:
    """Tickets sold and neither spent nor refunded."""
    return View("outstanding", _data("outstanding", epoch, denomination), int, TICKETS)


def payer_of(tab_key: Address) -> View[Address]:
    """Who pays the tabs of a tab key."""
    return View("payerOf", _data("payerOf", tab_key), converter(Address), TICKETS)


def payer_nonce() -> View[int]:
    """What the next command to a payer is signed over."""
    return View("nonce", calldata(TICKET_PAYER, "nonce"), int, TICKET_PAYER)


def _data(function: str, *arguments: object) -> bytes:
    return calldata(TICKETS, function, *arguments)
