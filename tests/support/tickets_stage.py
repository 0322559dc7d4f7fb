"""A market, a committee of seven and Tickets with keys for this epoch, on an anvil that mines at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from support.ticket_committee import TicketCommittee

from troth.chain.adapter import Chain
from troth.chain.deployment import committee_creation, deploy_market, submit, tickets_creation
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.records import TransactionReceipt
from troth.protocol import typed_data
from troth.protocol.calls import Call
from troth.protocol.committee import CommitteeMember, threshold
from troth.protocol.hashing import keccak256
from troth.protocol.market import shipped
from troth.protocol.market.messages import sign
from troth.protocol.market.types import TabConsent
from troth.protocol.tickets import messages
from troth.protocol.tickets.messages import LostTicket, Spending, Ticket, TicketKey, TicketRules, TicketSpending
from troth.protocol.tickets.purchases import (
    Purchase,
    TicketSecret,
    points_of,
    proof_of,
    root_of,
    ticket_secrets,
)
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, address_to_bytes

PRICES = (10**12, 10**13, 10**14)
MEMBERS = 7


def member_key(number: int) -> Key:
    """A member's account."""
    return Key.from_secret(keccak256(b"troth ticket member %d" % number))


@dataclass(frozen=True)
class Bought:
    """A purchase with the secrets of its tickets."""

    purchase: Purchase
    secrets: tuple[TicketSecret, ...]

    def lost(self, index: int) -> LostTicket:
        """What shows that a ticket belongs to the purchase."""
        one = self.secrets[index]
        return LostTicket(one.name, index, one.blinding, proof_of(points_of(self.secrets), index))


@dataclass
class TicketsStage:
    """``members`` sign lists and keys, in ascending order of addresses; ``signers`` hold the epoch's shares."""

    url: str
    payer: Key
    mine: Callable[[int], None]
    rules: TicketRules
    members: tuple[Key, ...]
    committee: Address
    market: Market
    chain: Chain
    start_block: int
    signers: dict[int, TicketCommittee] = field(default_factory=dict)
    _seeds: int = 0

    @property
    def domain(self) -> Domain:
        """Of the Tickets contract."""
        return self.chain.domain

    async def send(self, call: Call, key: Key | None = None) -> TransactionReceipt:
        """A transaction to Tickets, mined."""
        return await submit(self.url, call, key or self.payer, self.chain.contract)

    async def to_epoch(self, epoch: int) -> None:
        """Mine until the epoch has begun."""
        first = self.start_block + epoch * self.rules.epoch_blocks
        self.mine(max(0, first - await self.chain.block_number()))

    async def register(self, epoch: int) -> TransactionReceipt:
        """Deal an epoch's keys, in one place, and register them."""
        needed = threshold(MEMBERS)
        dealt = TicketCommittee.dealt(
            members=MEMBERS, threshold=needed, denominations=len(self.rules.prices), epoch=epoch
        )
        self.signers[epoch] = dealt
        message = messages.keys_message(dealt.keys)
        signatures = [typed_data.sign(message, self.domain, key.secret) for key in self.members[:needed]]
        return await self.send(messages.register_keys(dealt.keys, signatures))

    async def buy(self, denomination: int, count: int, buyer: Key | None = None) -> Bought:
        """Tickets of the current epoch."""
        self._seeds += 1
        secrets = ticket_secrets(keccak256(b"troth ticket seed %d" % self._seeds), count)
        epoch = await self.chain.read(messages.epoch_now())
        root = root_of(points_of(secrets))
        bought = Bought(Purchase((buyer or self.payer).address, epoch, denomination, count, root), secrets)
        await self.send(messages.buy(bought.purchase, self.rules.prices[denomination] * count), buyer)
        return bought

    def another(self, bought: Bought) -> Purchase:
        """The same purchase over other points."""
        return replace(bought.purchase, root=Hash32(keccak256(bought.purchase.root)))

    def key_of(self, purchase: Purchase) -> TicketKey:
        """The key of a purchase's tickets."""
        keys = self.signers[purchase.epoch].keys
        return TicketKey(purchase.epoch, purchase.denomination, keys.chain_keys[purchase.denomination])

    async def spending(self, bought: Bought, places: Sequence[int], payee: Address, tab_key: Key, fee: int) -> Spending:
        """Tickets of one purchase for one payee; of the first key of a call."""
        said = TicketSpending(payee, tab_key.address, fee)
        payer = await self.chain.read(messages.payer_of(tab_key.address))
        consent = sign(TabConsent(payer, payee), self.market.domain, tab_key.secret).signature
        signers = self.signers[bought.purchase.epoch]
        tickets = []
        for place in places:
            one = bought.secrets[place]
            own = messages.spend_with(one.secret, said, self.domain)
            tickets.append(Ticket(0, signers.signature(one, bought.purchase.denomination), own))
        return Spending(payee, tab_key.address, fee, consent, tuple(tickets))

    async def spend(self, bought: Bought, spending: Spending) -> TransactionReceipt:
        """One client's tickets."""
        return await self.send(messages.spend([self.key_of(bought.purchase)], [spending]))


async def tickets_stage(
    url: str, payer: Key, mine: Callable[[int], None], *, epoch_blocks: int = 100, market: Market | None = None
) -> TicketsStage:
    """Deploy a committee and Tickets, and a market unless one is given, and register the keys of epoch 0."""
    mine(3)
    if market is None:
        market, _ = await deploy_market(url, shipped.DEMO, payer)
    keys = sorted((member_key(number) for number in range(MEMBERS)), key=lambda key: address_to_bytes(key.address))
    first = [CommitteeMember(key.address, Hash32(bytes(31) + b"\1"), "https://192.0.2.1:8543") for key in keys]
    committee = (await submit(url, committee_creation(first), payer)).created
    assert committee is not None
    rules = TicketRules(epoch_blocks, PRICES)
    made = await submit(url, tickets_creation(committee, market.contracts.bank, rules), payer)
    assert made.created is not None
    chain = await Chain.connect(url, made.created)
    stage = TicketsStage(url, payer, mine, rules, tuple(keys), committee, market, chain, made.block)
    await stage.register(0)
    return stage


def with_signature(spending: Spending, place: int, signature: bytes) -> Spending:
    """The same with another signature of the members at one place."""
    tickets = list(spending.tickets)
    tickets[place] = replace(tickets[place], signature=signature)
    return replace(spending, tickets=tuple(tickets))
