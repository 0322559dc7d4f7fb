"""A client's tickets of one contract: bought, signed by members, refunded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.keystore import Key, create_account, load_account
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.tokens import read_asset
from troth.client.configuration import ClientConfiguration
from troth.client.errors import ConfigurationError, TicketsUnusable, TransactionRefused
from troth.client.orders.session import following
from troth.client.tabs.managing import Purse
from troth.client.tabs.opening import OpeningCalls, approved, carry_out
from troth.client.tickets.members import epoch_keys, signed_tickets
from troth.client.tickets.store import OwnPurchase, TicketStore
from troth.overlay.directory.listing import CommitteeMembership, read_membership
from troth.protocol.amounts import Asset
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import PartCall
from troth.protocol.tickets import messages
from troth.protocol.tickets.messages import (
    LostTicket,
    TicketRules,
)
from troth.protocol.tickets.purchases import (
    MAXIMUM_COUNT,
    Purchase,
    points_of,
    proof_of,
    root_of,
    ticket_secrets,
)
from troth.protocol.types import ZERO_HASH, Address, to_address

SEED_TAG = b"troth/client/tickets/1"
SIGNING_SECONDS, ASKED_EVERY = 90.0, 2.0
"""For how long members are asked after a purchase, and how often: they sign it some blocks after it."""


@dataclass
class TicketSession:
    """A client's tickets of one contract."""

    purse: Purse
    configuration: ClientConfiguration
    market: Market
    follower: MarketFollower
    chain: Chain
    store: TicketStore
    rules: TicketRules
    asset: Asset
    _secret: bytes | None = field(default=None, repr=False)

    # ---- secrets

    def ticket_key(self) -> bytes:
        """From which all seeds follow; made, and on disk, before the first purchase."""
        if self._secret is None:
            path = self.purse.home.ticket_key
            password = self.purse.password("the tickets")
            if not path.exists():
                options = {} if self.purse.scrypt_n is None else {"scrypt_n": self.purse.scrypt_n}
                create_account(path, password, key=Key.generate(), **options)
            self._secret = load_account(path, password).secret
        return self._secret

    def seed(self, number: int) -> bytes:
        """Of a purchase, for this contract alone."""
        place = f"{self.chain.chain_id}/{self.chain.contract}/{number}".encode()
        return keccak256(SEED_TAG + self.ticket_key() + place)

    # ---- buying

    async def buy(self, denomination: int, count: int, *, broadcast: bool) -> dict[str, Any]:
        """Buy tickets in this epoch, and have them signed; a dry run keeps nothing."""
        if not 1 <= count <= MAXIMUM_COUNT:
            raise TicketsUnusable(f"A purchase has 1 to {MAXIMUM_COUNT} tickets", count, "Buy the others after it.")
        wallet = self.purse.wallet(self.purse.payer(""), broadcast=broadcast)
        epoch = await self.chain.read(messages.epoch_now())
        if await self.chain.read(messages.dealing_of(epoch)) == ZERO_HASH:
            raise TicketsUnusable("Members have no keys for this epoch yet", epoch, "Try again in some minutes.")
        own = self.prepared(self.purse.payer(""), epoch, denomination, count)
        try:
            done = await self._paid(own, wallet, broadcast=broadcast)
        except TransactionRefused:
            self.store.drop_purchase(own.number)
            raise
        if not broadcast:
            self.store.drop_purchase(own.number)
            return done
        return done | await self.collect_in_time()

    def prepared(self, buyer: Address, epoch: int, denomination: int, count: int) -> OwnPurchase:
        self.ticket_key()
        with self.store.writing():
            number = self.store.next_number()
            root = root_of(points_of(ticket_secrets(self.seed(number), count)))
            own = OwnPurchase(number, Purchase(buyer, epoch, denomination, count, root))
            self.store.add_purchase(number, own.purchase)
        return own

    async def _paid(self, own: OwnPurchase, wallet: Key | None, *, broadcast: bool) -> dict[str, Any]:
        cost = self.cost(own.purchase)
        to, buyer = self.chain.contract, own.purchase.buyer
        call = messages.buy(own.purchase, cost if self.asset.is_coin else 0)
        plan = OpeningCalls(buyer, (PartCall(to, call),))
        if not self.asset.is_coin:
            plan = await approved(self.market, self.asset.token, cost, plan, to)
        done = await carry_out(self.market, plan, wallet, broadcast=broadcast)
        return done | {"purchase": "0x" + own.purchase.identifier.hex(), "cost": self.asset.show(cost)}

    async def collect(self) -> dict[str, Any]:
        """Have members sign whatever was paid and is not signed yet; asking again costs nothing.

        A purchase that was written down and never paid, as by a client that was killed, is counted and asks nobody.
        """
        signed = {one.number for one in self.store.tickets()}
        now = await self.chain.read(messages.epoch_now())
        collected, unpaid, waiting, liars = 0, 0, [], set[Address]()
        for own in self.store.purchases():
            if own.number in signed or own.purchase.epoch + 1 < now:
                continue
            if not await self.chain.read(messages.is_purchase(own.purchase.identifier)):
                unpaid += 1
                continue
            try:
                liars.update(await self._signed(own))
                collected += own.purchase.count
            except TicketsUnusable as error:
                waiting.append(f"purchase {own.number}: {error.what} ({error.value})")
        return {"signed": collected, "unpaid": unpaid, "waiting": waiting, "signed_nonsense": sorted(liars)}

    async def collect_in_time(self) -> dict[str, Any]:
        """The same, asking again while members wait for the blocks that they want after a purchase."""
        began, collected = time.monotonic(), 0
        while True:
            done = await self.collect()
            collected += done["signed"]
            if not done["waiting"] or time.monotonic() - began > SIGNING_SECONDS:
                return done | {"signed": collected}
            await asyncio.sleep(ASKED_EVERY)

    async def _signed(self, own: OwnPurchase) -> tuple[Address, ...]:
        membership = await self.membership()
        digest = await self.chain.read(messages.dealing_of(own.purchase.epoch))
        keys = await epoch_keys(membership, own.purchase.epoch, digest)
        secrets = ticket_secrets(self.seed(own.number), own.purchase.count)
        made = await signed_tickets(membership, keys, own.purchase, secrets)
        self.store.add_tickets(own.number, [one.name for one in secrets], made.signatures)
        return made.liars

    def cost(self, purchase: Purchase) -> int:
        return self.rules.prices[purchase.denomination] * purchase.count

    async def membership(self) -> CommitteeMembership:
        """Of the committee that signs this contract's tickets."""
        return await read_membership(self.configuration.rpc, await self.chain.read(messages.committee()))

    # ---- refunds

    async def refund(self, *, broadcast: bool) -> list[dict[str, Any]]:
        """Have tickets refunded that can no longer be spent, and pay the wallet that bought them.

        Not those that a tab's payer bought as change: a transaction of the wallet would join the two. They come back
        with the next change of that tab.
        """
        wallet, done = self.purse.payer(""), []
        for own, lost in await self.lost(wallet):
            done.append(await self._refunded(own, lost, broadcast=broadcast))
        return done

    async def lost(self, buyer: Address) -> list[tuple[OwnPurchase, list[LostTicket]]]:
        """What of a buyer's purchases can be refunded: tickets that were neither spent nor refunded in time."""
        now = await self.chain.read(messages.epoch_now())
        found = []
        for own in self.store.purchases():
            if own.purchase.buyer != buyer or own.purchase.epoch + 1 >= now:
                continue
            if await self.chain.read(messages.is_purchase(own.purchase.identifier)):
                found.append((own, await self._lost(own)))
        return [(own, lost) for own, lost in found if lost]

    async def _lost(self, own: OwnPurchase) -> list[LostTicket]:
        """Of a purchase, the tickets that the chain has not seen."""
        secrets = ticket_secrets(self.seed(own.number), own.purchase.count)
        bits = await self.chain.read(messages.spent([one.name for one in secrets]))
        bits |= await self.chain.read(messages.refunded(own.purchase.identifier))
        points = points_of(secrets)
        return [
            LostTicket(one.name, place, one.blinding, proof_of(points, place))
            for place, one in enumerate(secrets)
            if not bits >> place & 1
        ]

    async def _refunded(self, own: OwnPurchase, lost: Sequence[LostTicket], *, broadcast: bool) -> dict[str, Any]:
        sender = self.purse.payer("")
        wallet = self.purse.wallet(sender, broadcast=broadcast)
        call: Call = messages.refund(own.purchase, lost)
        plan = OpeningCalls(sender, (PartCall(self.chain.contract, call),))
        told = await carry_out(self.market, plan, wallet, broadcast=broadcast)
        if told["transactions"]:
            self.store.end([one.ticket for one in lost], "refunded")
        return told | {"purchase": own.number, "tickets": len(lost)}

    # ---- looking

    async def listed(self) -> dict[str, Any]:
        """How many tickets of each price can be spent, and what waits."""
        now = await self.chain.read(messages.epoch_now())
        purchases = {one.number: one.purchase for one in self.store.purchases()}
        tickets = self.store.tickets()
        free = [one for one in tickets if not one.ended and one.payment is None]
        rows = []
        for denomination, price in enumerate(self.rules.prices):
            mine = [one for one in free if purchases[one.number].denomination == denomination]
            fresh = sum(purchases[one.number].epoch == now for one in mine)
            last = sum(purchases[one.number].epoch == now - 1 for one in mine)
            late = len(mine) - fresh - last
            shown = self.asset.show(price)
            rows.append({"price": shown, "spendable": fresh + last, "this_epoch_only": last, "to_refund": late})
        signed = {one.number for one in tickets}
        unsigned = sum(number not in signed and one.epoch + 1 >= now for number, one in purchases.items())
        cut_off = sum(not one.done for one in self.store.payments())
        return {"epoch": now, "tickets": rows, "purchases_to_sign": unsigned, "payments_cut_off": cut_off}


@asynccontextmanager
async def ticket_session(purse: Purse, configuration: ClientConfiguration) -> AsyncIterator[TicketSession]:
    """Connect to the chain and open the file of tickets; raises ConfigurationError where no contract is named."""
    if not configuration.tickets:
        raise ConfigurationError("No tickets are configured", "tickets is empty", "Name the contract with --tickets.")
    async with AsyncExitStack() as stack:
        market, follower = await stack.enter_async_context(following(purse.home, configuration))
        contract = to_address(configuration.tickets)
        chain = await stack.enter_async_context(await Chain.connect(configuration.rpc, contract))
        if await chain.read(messages.bank()) != market.contracts.bank:
            raise ConfigurationError("These tickets fill tabs of another market", contract, "Correct --tickets.")
        store = TicketStore(purse.home.tickets, chain.domain)
        stack.callback(store.close)
        assert follower.state.deployed is not None
        asset = await read_asset(market, follower.state.deployed.parameters.asset)
        rules = await chain.read(messages.rules())
        yield TicketSession(purse, configuration, market, follower, chain, store, rules, asset)
