"""Tickets signed over to a scheduler, the tab that they fill, and what comes back of it as smaller tickets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.tokens import approval, balance
from troth.client.errors import ConfigurationError, SchedulerRefused, TicketsUnusable
from troth.client.https_calls import Calls
from troth.client.tabs.books import TabBooks
from troth.client.tabs.store import opened
from troth.client.tickets.members import epoch_keys
from troth.client.tickets.session import TicketSession
from troth.client.tickets.store import OwnPurchase, OwnTicket, Payment
from troth.client.untrusted import read_text
from troth.protocol.market import canonical
from troth.protocol.market.calls import build, view
from troth.protocol.market.messages import sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Tab, TabConsent, TabState
from troth.protocol.tickets import messages
from troth.protocol.tickets.messages import (
    LostTicket,
    PayerCall,
    PayerOrder,
    Spending,
    Ticket,
    TicketKey,
    TicketPayment,
    TicketSpending,
)
from troth.protocol.tickets.purchases import (
    MAXIMUM_COUNT,
    ticket_secret,
)
from troth.protocol.types import Address

LARGEST_FEE_PART = 4
"""A scheduler that keeps more than a fourth of a ticket for the transaction is not paid with it, and of what a tab
gave back not more than a fourth for bringing it."""
PAYMENT_SECONDS = 180.0
"""A payment's answer comes when a block has taken it."""
ERRAND_BLOCKS = 50
"""For which a word to a payer counts."""
MOST_DENOMINATIONS = 6
"""Of one change: a scheduler carries eight calls."""
MOST_REFUNDED = 16
"""Tickets of one call that a scheduler carries."""
BITS = 256
"""Names of which the chain says in one answer whether they are spent."""


@dataclass
class TicketPayments:
    """What a client does with the tickets of a session."""

    own: TicketSession

    # ---- spending

    async def open_tab(self, amount: int, calls: Calls, payee: Address) -> dict[str, Any]:
        """Fill a tab of a new key with tickets worth ``amount`` at least; payments that were cut off come first."""
        terms = await calls.get("/v1/tickets")
        if read_text(terms.get("contract"), 42) != self.own.chain.contract:
            what = "This scheduler takes tickets of another contract"
            raise TicketsUnusable(what, terms.get("contract"), "Use another scheduler.")
        repeated = [await self._finish(one, calls) for one in self._cut_off(payee)]
        if repeated:
            return repeated[-1]
        fee, most = int(read_text(terms.get("fee"), 30)), int(str(terms.get("most", 0)))
        keyring = self.own.purse.keyring()
        tab_key = keyring.create(self.own.purse.scrypt_n)
        payer = await self.own.chain.read(messages.payer_of(tab_key.address))
        now = await self.own.chain.read(messages.epoch_now())
        self._note_tab(Tab(payer, payee, tab_key.address))
        with self.own.store.writing():
            chosen = self._choose(amount, fee, most, now)
            names = [one.name for one in chosen]
            self.own.store.add_payment(payer, payee, tab_key.address, fee, names)
        return await self._finish(self.own.store.payments()[-1], calls)

    def _cut_off(self, payee: Address) -> list[Payment]:
        return [one for one in self.own.store.payments() if not one.done and one.payee == payee]

    def _choose(self, amount: int, fee: int, most: int, now: int) -> list[OwnTicket]:
        """Few tickets that are worth enough after fees; raises TicketsUnusable where there are none."""
        purchases = {one.number: one.purchase for one in self.own.store.purchases()}
        free = [one for one in self.own.store.tickets() if not one.ended and one.payment is None]
        price = {one.name: self.own.rules.prices[purchases[one.number].denomination] for one in free}
        fresh = [one for one in free if purchases[one.number].epoch >= now - 1]
        usable = [one for one in fresh if 0 <= LARGEST_FEE_PART * fee <= price[one.name]]
        worth = {one.name: price[one.name] - fee for one in usable}
        usable.sort(key=lambda one: (-worth[one.name], purchases[one.number].epoch))
        chosen, left = list[OwnTicket](), amount
        for one in usable:
            if worth[one.name] <= left:
                chosen.append(one)
                left -= worth[one.name]
        if left > 0:
            rest = [one for one in usable if one not in chosen and worth[one.name] >= left]
            if not rest:
                what = f"Tickets worth {sum(worth.values())} units after fees are here"
                raise TicketsUnusable(what, amount, "Buy more: troth client tickets buy")
            chosen.append(rest[-1])
        if len(chosen) > most:
            raise TicketsUnusable(f"This scheduler takes {most} tickets at once", len(chosen), "Open a smaller tab.")
        return chosen

    def _note_tab(self, tab: Tab) -> None:
        """Before a ticket is signed over: orders and vouchers find the tab among the others."""
        place = self.own.configuration.market.place(ConfigurationError)
        with opened(self.own.purse.home.tabs) as tabs:
            TabBooks(tabs).add(
                tab,
                chain_id=self.own.chain.chain_id,
                bank=self.own.market.contracts.bank,
                factory=place.factory,
                start_block=place.start_block,
                rpc=self.own.configuration.rpc,
            )

    async def _finish(self, payment: Payment, calls: Calls) -> dict[str, Any]:
        """Send a payment, again if need be, until the chain shows what became of its tickets."""
        mine = [one for one in self.own.store.tickets() if one.payment == payment.identifier]
        refused: SchedulerRefused | None = None
        if not await self._spent(mine):
            try:
                body = canonical.encode(await self._payment(payment, mine))
                await calls.post("/v1/tickets", body, PAYMENT_SECONDS)
            except SchedulerRefused as error:
                refused = error
        spent = await self._spent(mine)
        if refused is not None and not spent:
            self.own.store.finish_payment(payment.identifier, ())
            raise refused
        self.own.store.finish_payment(payment.identifier, spent)
        tab = Tab(payment.payer, payment.payee, payment.tab_key)
        # Whoever sees a payment before it is mined can have it arrive beside its tab: nothing is lost by that.
        opened_ = (await self._tab_state(tab)).known
        told = {"tab": "0x" + tab_id(tab).hex(), "scheduler": payment.payee, "tickets": len(spent)}
        return told | {"opened": opened_}

    async def _payment(self, payment: Payment, mine: Sequence[OwnTicket]) -> TicketPayment:
        purchases = {one.number: one.purchase for one in self.own.store.purchases()}
        said = TicketSpending(payment.payee, payment.tab_key, payment.fee)
        places: dict[tuple[int, int], int] = {}
        tickets = []
        for one in mine:
            purchase = purchases[one.number]
            place = places.setdefault((purchase.epoch, purchase.denomination), len(places))
            secret = ticket_secret(self.own.seed(one.number), one.place).secret
            own = messages.spend_with(secret, said, self.own.chain.domain)
            tickets.append(Ticket(place, one.signature, own))
        tab_key = self.own.purse.keyring().key(payment.tab_key)
        consent = sign(TabConsent(payment.payer, payment.payee), self.own.market.domain, tab_key.secret).signature
        keys = tuple([await self._key(epoch, denomination) for epoch, denomination in places])
        return TicketPayment(keys, Spending(payment.payee, payment.tab_key, payment.fee, consent, tuple(tickets)))

    async def _key(self, epoch: int, denomination: int) -> TicketKey:
        digest = await self.own.chain.read(messages.dealing_of(epoch))
        keys = await epoch_keys(await self.own.membership(), epoch, digest)
        return TicketKey(epoch, denomination, keys.chain_keys[denomination])

    async def _spent(self, tickets: Sequence[OwnTicket]) -> list[Address]:
        names = [one.name for one in tickets]
        found = []
        for first in range(0, len(names), BITS):
            some = names[first : first + BITS]
            bits = await self.own.chain.read(messages.spent(some))
            found += [name for place, name in enumerate(some) if bits >> place & 1]
        return found

    # ---- change

    async def change(self, payment: Payment, calls: Calls) -> dict[str, Any]:
        """The next step that brings back what is left of a tab: close it, wait, then buy smaller tickets with it.

        The payer does it by the tab key's word; the scheduler carries that to the chain. No wallet signs anything.
        """
        tab = Tab(payment.payer, payment.payee, payment.tab_key)
        state, block = await self._tab_state(tab), await self.own.chain.block_number()
        told = {"tab": "0x" + tab_id(tab).hex(), "block": block, "closes_at": state.closes_at}
        if state.known and not state.closes_at:
            close = build(self.own.market.contracts, Part.BANK, "close", tab)
            await self._errand(payment, (PayerCall(close.to, 0, close.call.data),), 0, calls)
            return told | {"step": "closed"}
        if state.known and block < state.closes_at:
            return told | {"step": "wait"}
        fee = int(read_text((await calls.get("/v1/tickets")).get("fee"), 30))
        lost = await self.own.lost(payment.payer)
        if lost:
            own, tickets = lost[0]
            return told | await self._refunded(payment, own, tickets[:MOST_REFUNDED], fee, calls)
        finish = build(self.own.market.contracts, Part.BANK, "finishClosing", tab)
        first = (PayerCall(finish.to, 0, finish.call.data),) if state.known else ()
        rest = state.balance + await balance(self.own.market, self.own.asset, payment.payer)
        besides = len(first) + (not self.own.asset.is_coin)
        counts = counts_of(rest - besides * fee, self.own.rules.prices, fee)
        if not counts:
            return told | {"step": "nothing", "left": self.own.asset.show(rest)}
        fees = _bearable(fee * (besides + len(counts)), rest)
        epoch = await self.own.chain.read(messages.epoch_now())
        # Kept whatever the scheduler says: one that refuses, and has it mined all the same, would have it forgotten.
        bought = [self.own.prepared(payment.payer, epoch, *one) for one in counts.items()]
        cost = sum(self.own.cost(one.purchase) for one in bought)
        # What buys no ticket is the carrier's; what is more stays with the payer, for the next change.
        left = rest - cost if rest - cost - fees < self.own.rules.prices[0] else fees
        await self._errand(payment, (*first, *self._purchases(bought, cost)), left, calls)
        return told | {"step": "bought", "cost": self.own.asset.show(cost)} | await self.own.collect_in_time()

    async def _refunded(
        self, payment: Payment, own: OwnPurchase, lost: Sequence[LostTicket], fee: int, calls: Calls
    ) -> dict[str, Any]:
        """Bring back to a payer what its change cost that was not spent in time."""
        worth = len(lost) * self.own.rules.prices[own.purchase.denomination]
        call = PayerCall(self.own.chain.contract, 0, messages.refund(own.purchase, lost).data)
        await self._errand(payment, (call,), _bearable(fee * len(lost), worth), calls)
        self.own.store.end([one.ticket for one in lost], "refunded")
        return {"step": "refunded", "tickets": len(lost)}

    def _purchases(self, bought: Sequence[OwnPurchase], cost: int) -> tuple[PayerCall, ...]:
        market, asset, to = self.own.market, self.own.asset, self.own.chain.contract
        values = [self.own.cost(one.purchase) if asset.is_coin else 0 for one in bought]
        pairs = zip(bought, values, strict=True)
        made = tuple(PayerCall(to, value, messages.buy(one.purchase, value).data) for one, value in pairs)
        if asset.is_coin:
            return made
        return (PayerCall(asset.token, 0, approval(market, asset.token, cost, to).call.data), *made)

    async def _errand(self, payment: Payment, wanted: tuple[PayerCall, ...], fee: int, calls: Calls) -> None:
        """Have the scheduler carry a word of the tab key; it counts for a while only, and once."""
        async with await Chain.connect(self.own.configuration.rpc, payment.payer) as payer:
            nonce, last = await payer.read(messages.payer_nonce()), await payer.block_number() + ERRAND_BLOCKS
            key = self.own.purse.keyring().key(payment.tab_key)
            signed = messages.errand(PayerOrder(wanted, fee, nonce, last), payer.domain, key.secret)
        await calls.post("/v1/tickets/errands", canonical.encode(signed), PAYMENT_SECONDS)

    async def _tab_state(self, tab: Tab) -> TabState:
        asked = view(self.own.market.contracts, Part.BANK, "tabOf", tab_id(tab), returns=TabState)
        return await self.own.market.read(asked)


def counts_of(rest: int, prices: Sequence[int], fee: int) -> dict[int, int]:
    """How many tickets of which denomination a sum comes to, the dearest first; each purchase pays a fee.

    None of a price of which the fee is more than a fourth: this scheduler would not be paid with them.
    """
    counts = dict[int, int]()
    for denomination, price in reversed(list(enumerate(prices))):
        count = min(max(rest - fee, 0) // price, MAXIMUM_COUNT)
        if count and LARGEST_FEE_PART * fee <= price and len(counts) < MOST_DENOMINATIONS:
            counts[denomination] = count
            rest -= count * price + fee
    return counts


def _bearable(fees: int, worth: int) -> int:
    """Fees of an errand; raises TicketsUnusable where they are more than a fourth of what it brings."""
    if not 0 <= LARGEST_FEE_PART * fees <= worth:
        what = f"This scheduler wants {fees} units for bringing {worth} back"
        raise TicketsUnusable(what, fees, "Ask again later: it may want less then.")
    return fees
