"""Tickets of clients: checked, brought to the chain with those of others, and there they fill tabs.

Nothing has to be remembered: a ticket names the scheduler that it is for and the tab key, so that a client that got no
answer finds on chain what became of it, and asks again if nothing did. Payments that come while a transaction is under
way wait for the next one, which takes all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from py_arkworks_bls12381 import G2Point

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.protocol.bindings import TICKETS, named
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import keccak256
from troth.protocol.market import messages as market_messages
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Tab, TabConsent
from troth.protocol.tickets import messages
from troth.protocol.tickets.curve import InvalidTicket, decode_key, unpadded
from troth.protocol.tickets.messages import (
    PayerCall,
    PayerErrand,
    Spending,
    Ticket,
    TicketKey,
    TicketPayment,
    TicketSpending,
)
from troth.protocol.tickets.signing import SignedName, are_signed
from troth.protocol.types import Address
from troth.scheduler.errors import Busy, TicketsNotTaken
from troth.scheduler.ledger import MarketLedger
from troth.transport.identity import Operator

log = logging.getLogger(__name__)

MOST_TICKETS = 64
"""Of one payment: 5M gas."""
MOST_IN_CALL = 100
MOST_WAITING = 400
MOST_CALLS = 8
LONGEST_CALL = 400
"""Bytes of one call that is carried: none that is needed takes more, but a refund, of which each ticket has
``REFUNDED_BYTES`` at most."""
MOST_REFUNDED, REFUNDED_BYTES, REFUND_BYTES = 16, 448, 228
ERC20 = "erc20"
_CARRIED = {
    Part.BANK.binding: frozenset(
        named("function", Part.BANK.binding)[name].selector for name in ("close", "finishClosing", "withdraw")
    ),
    TICKETS: frozenset(named("function", TICKETS)[name].selector for name in ("buy", "refund")),
    ERC20: frozenset((keccak256(b"approve(address,uint256)")[:4],)),
}
"""What a payer is taken to call, by the contract that it is; each costs little and known gas."""
_REFUND = named("function", TICKETS)["refund"].selector


@dataclass(frozen=True, slots=True)
class TicketTerms:
    """Where tickets are, and what the scheduler takes of each for the transaction, in the asset's smallest unit."""

    contract: Address
    fee: int


@dataclass(eq=False)
class _WaitingPayment:
    payment: TicketPayment
    names: tuple[Address, ...]
    done: asyncio.Future[int]
    """The block that took it; cancelled where its client has left."""

    def take(self, block: int) -> None:
        if not self.done.done():
            self.done.set_result(block)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(eq=False)
class TicketDesk:
    """A scheduler's side of tickets; all calls from one event loop."""

    terms: TicketTerms
    chain: Chain
    ledger: MarketLedger
    operator: Operator
    _keys: dict[bytes, tuple[int, G2Point]] = field(default_factory=dict)
    _prices: tuple[int, ...] = ()
    _waiting: list[_WaitingPayment] = field(default_factory=list)
    _under_way: set[Address] = field(default_factory=set)
    _carrying: asyncio.Task[None] | None = None

    async def pay(self, payment: TicketPayment) -> Tab:
        """Check tickets and have them fill their tab; returns once the chain has taken them.

        Raises TicketsNotTaken where one is wrong or spent, or the fee is too small; ChainError.
        """
        spending = payment.spending
        names = self._require_form(payment)
        payer = await self._require_consent(spending)
        await self._require_signed(payment, names)
        self._require_alone(names)
        self._under_way.update(names)
        try:
            await self._require_unspent(names)
        except BaseException:
            self._under_way.difference_update(names)
            raise
        # From here on they are under way until the chain has decided, whether or not the client waits for it.
        await self._carried(payment, names)
        return Tab(payer, self.operator.address, spending.tab_key)

    async def carry(self, errand: PayerErrand) -> int:
        """Carry a tab key's word to its payer; the block that took it. Raises TicketsNotTaken, ChainError.

        Each call pays at least what a ticket does, and a refund so much for each of its tickets. Closing its tab with
        this scheduler is free: what it has is in the tab. Only calls that change and refunds need are carried: any
        other could burn more gas than its fee pays.
        """
        payer = await self.chain.read(messages.payer_of(errand.tab_key))
        if not await self.ledger.is_contract(payer):
            what = "No ticket of this tab key was spent, so that nobody would hear its word"
            raise TicketsNotTaken(what, errand.tab_key, "Spend tickets with it first: troth client tickets open")
        closing = build(self.ledger.contracts, Part.BANK, "close", Tab(payer, self.operator.address, errand.tab_key))
        free = errand.calls == (PayerCall(closing.to, 0, closing.call.data),)
        if not free:
            self._require_errand(errand)
        return await self.ledger.execute(PartCall(payer, messages.command(errand)))

    def _require_errand(self, errand: PayerErrand) -> None:
        fee = self.terms.fee * max(1, sum(map(_worth, errand.calls)))
        if len(errand.calls) > MOST_CALLS or errand.fee < fee:
            what = f"At most {MOST_CALLS} calls are carried; these for {fee} units or more"
            raise TicketsNotTaken(what, (len(errand.calls), errand.fee), "Sign another command.")
        for call in errand.calls:
            functions = _CARRIED.get(self._kind_of(call.target), frozenset())
            if call.data[:4] not in functions or len(call.data) > _longest(call):
                what = "This call of a payer is not carried: closing, withdrawing, approving, buying and refunds are"
                raise TicketsNotTaken(what, call.target, "Send it from an account of your own.")

    def _kind_of(self, target: Address) -> str:
        """What a contract is to a payer; empty for a stranger's."""
        known = {
            self.ledger.contracts.bank: Part.BANK.binding,
            self.terms.contract: TICKETS,
            self.ledger.parameters.asset: ERC20,
        }
        return known.get(target, "")

    # ---- checks

    def _require_form(self, payment: TicketPayment) -> tuple[Address, ...]:
        """The names; raises TicketsNotTaken."""
        spending, me = payment.spending, self.operator.address
        count = len(spending.tickets)
        if not 1 <= count <= MOST_TICKETS or not 1 <= len(payment.keys) <= count:
            raise TicketsNotTaken(f"A payment has 1 to {MOST_TICKETS} tickets", count, "Send the others apart.")
        if spending.payee != me:
            raise TicketsNotTaken("These tickets are for another scheduler", spending.payee, f"Sign them for {me}.")
        if spending.fee < self.terms.fee:
            what = f"Each ticket pays {self.terms.fee} units for the transaction"
            raise TicketsNotTaken(what, spending.fee, "Sign them with this fee.")
        said = TicketSpending(me, spending.tab_key, spending.fee)
        try:
            names = tuple(messages.name_of(ticket, said, self.chain.domain) for ticket in spending.tickets)
        except ProtocolError as error:
            raise TicketsNotTaken(error.what, error.value, error.remedy) from error
        if len(set(names)) != count or any(ticket.key >= len(payment.keys) for ticket in spending.tickets):
            raise TicketsNotTaken("A ticket comes twice, or names no key of the payment", count, "Send each once.")
        return names

    async def _require_consent(self, spending: Spending) -> Address:
        """The payer; TicketsNotTaken where the tab would not open."""
        payer = await self.chain.read(messages.payer_of(spending.tab_key))
        domain = self.operator.domain
        digest = market_messages.signing_digest(TabConsent(payer, self.operator.address), domain)
        if not market_messages.signed_by_account(spending.tab_key, digest, spending.consent):
            what = "The tab key does not consent to this tab"
            raise TicketsNotTaken(what, spending.tab_key, "Sign TabConsent(payer, payee) with it.")
        return payer

    async def _require_signed(self, payment: TicketPayment, names: Sequence[Address]) -> None:
        keys = {(one.epoch, one.denomination): await self._key(one) for one in payment.keys}
        if not self._prices:
            self._prices = (await self.chain.read(messages.rules())).prices
        least = min(self._prices[payment.keys[one.key].denomination] for one in payment.spending.tickets)
        if payment.spending.fee > least:
            what = f"A ticket is worth {least} units, less than its fee"
            raise TicketsNotTaken(what, payment.spending.fee, f"Sign them with {self.terms.fee}.")
        batch = [
            _signed_name(name, ticket, payment) for name, ticket in zip(names, payment.spending.tickets, strict=True)
        ]
        wrong = await asyncio.to_thread(unsigned_of, batch, keys)
        if wrong is not None:
            raise TicketsNotTaken("Members did not sign this ticket", wrong, "Leave it out, or ask members again.")

    async def _key(self, key: TicketKey) -> G2Point:
        """The registered key of this epoch or the one before; raises TicketsNotTaken for another."""
        now = await self.chain.read(messages.epoch_now())
        if key.epoch not in {now - 1, now}:
            what = f"Tickets of epochs {max(0, now - 1)} and {now} are taken"
            raise TicketsNotTaken(what, key.epoch, "Have older ones refunded: troth client tickets refund")
        place = key.epoch, key.denomination
        known = await self.chain.read(messages.keys_of_epoch(key.epoch))
        digest = keccak256(key.key)
        if key.denomination >= len(known) or digest != known[key.denomination]:
            raise TicketsNotTaken("This is not the epoch's key", place, "Read the keys from the chain.")
        # By the key itself: a reorganisation may bring another of the same epoch.
        if digest not in self._keys:
            self._keys = {one: (epoch, point) for one, (epoch, point) in self._keys.items() if epoch >= now - 1}
            self._keys[digest] = key.epoch, decode_key(unpadded(key.key))
        return self._keys[digest][1]

    async def _require_unspent(self, names: Sequence[Address]) -> None:
        bits = await self.chain.read(messages.spent(names))
        if bits:
            gone = [name for place, name in enumerate(names) if bits >> place & 1]
            raise TicketsNotTaken("Tickets are spent already", ", ".join(gone), "Spend others.")

    def _require_alone(self, names: Sequence[Address]) -> None:
        if not self._under_way.isdisjoint(names):
            raise TicketsNotTaken("These tickets are being spent now", len(names), "Wait for the first answer.")
        if len(self._under_way) + len(names) > MOST_WAITING:
            raise Busy("Too many tickets wait for the chain", 15)

    # ---- to the chain

    async def _carried(self, payment: TicketPayment, names: tuple[Address, ...]) -> None:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_WaitingPayment(payment, names, done))
        if self._carrying is None or self._carrying.done():
            self._carrying = asyncio.create_task(self._carry_all())
        await done

    async def _carry_all(self) -> None:
        while self._waiting:
            together = self._next()
            try:
                await self._spend(together)
            finally:
                self._under_way.difference_update(name for one in together for name in one.names)

    def _next(self) -> list[_WaitingPayment]:
        """As many of those that wait as one transaction takes."""
        together: list[_WaitingPayment] = []
        while self._waiting and sum(len(one.names) for one in (*together, self._waiting[0])) <= MOST_IN_CALL:
            together.append(self._waiting.pop(0))
        return together

    async def _spend(self, together: Sequence[_WaitingPayment]) -> None:
        """Send payments in one call; whoever waits for one of them learns what became of it."""
        keys, spendings = merged([one.payment for one in together])
        try:
            block = await self.ledger.execute(PartCall(self.terms.contract, messages.spend(keys, spendings)))
        except Exception as error:  # noqa: BLE001 -- nobody may wait for ever
            if isinstance(error, ChainRejected) and len(together) > 1:
                # One of them spoils the call, as when its epoch has ended: the others go on without it.
                for one in together:
                    await self._spend([one])
                return
            log.warning("tickets were not taken: %s", error)
            for one in together:
                one.fail(error)
            return
        for one in together:
            one.take(block)


def _worth(call: PayerCall) -> int:
    """How many tickets' fees a call pays."""
    return max(1, -(-(len(call.data) - REFUND_BYTES) // REFUNDED_BYTES)) if call.data[:4] == _REFUND else 1


def _longest(call: PayerCall) -> int:
    return REFUND_BYTES + MOST_REFUNDED * REFUNDED_BYTES if call.data[:4] == _REFUND else LONGEST_CALL


def merged(payments: Sequence[TicketPayment]) -> tuple[list[TicketKey], list[Spending]]:
    """Several payments as one call: each key once."""
    keys = list(dict.fromkeys(key for payment in payments for key in payment.keys))
    places = {key: place for place, key in enumerate(keys)}
    spendings = []
    for payment in payments:
        spending = payment.spending
        tickets = tuple(Ticket(places[payment.keys[one.key]], one.signature, one.spending) for one in spending.tickets)
        spendings.append(Spending(spending.payee, spending.tab_key, spending.fee, spending.consent, tickets))
    return keys, spendings


def _signed_name(name: Address, ticket: Ticket, payment: TicketPayment) -> SignedName:
    key = payment.keys[ticket.key]
    return SignedName(name, ticket.signature, (key.epoch, key.denomination))


def unsigned_of(batch: Sequence[SignedName], keys: Mapping[tuple[int, int], G2Point]) -> Address | None:
    """One of some tickets that members did not sign; None where they signed all.

    Not all of them: whoever sends 64 wrong ones would have them looked for seven times as long.
    """
    if _are_signed(batch, keys):
        return None
    while len(batch) > 1:
        half = batch[: len(batch) // 2]
        batch = batch[len(half) :] if _are_signed(half, keys) else half
    return batch[0].name


def _are_signed(batch: Sequence[SignedName], keys: Mapping[tuple[int, int], G2Point]) -> bool:
    try:
        return are_signed(batch, keys)
    except InvalidTicket:
        return False
