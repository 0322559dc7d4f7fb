"""Parties that are contracts and call the market back while it pays them, in any order; everything is followed."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from eth_abi.abi import encode
from support.market_world import LAYERS, World
from support.token_asset import PLENTY, TokenAsset

from troth.chain.deployment import submit
from troth.chain.keystore import Key
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market import claims
from troth.protocol.market.calls import PartCall
from troth.protocol.market.getters import GetterQuestions
from troth.protocol.market.messages import sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.state import TabRecord
from troth.protocol.market.types import NO_ADDRESS, Ask, Consent, NodeRegistration, PotKind, Tab, TabConsent, Voucher
from troth.protocol.market.views import strikes_due
from troth.protocol.types import Address, Hash32, Segment

ROOT = Path(__file__).parents[2]
SUPPORT = "contracts/test/market/support"
PLANNED = "(address,uint256,bytes)"
ACT = keccak256(f"act({PLANNED},{PLANNED}[])".encode())[:4]
GAS = 25_000_000
AT_ONCE = 6
"""Calls that are planned for each payment: three a time, and those that these bring."""


@lru_cache
def creation_of(name: str) -> Call:
    """What creates a contract of the tests' support, compiled anew."""
    script = ROOT / "tests" / "contracts" / "compile_library_harness.mjs"
    command = [ROOT / "node_modules" / ".bin" / "node", script, ROOT, f"{SUPPORT}/{name}.sol"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    return Call(f"deployment of {name}", bytes.fromhex(json.loads(finished.stdout)["bytecode"]))


async def create(anvil: Any, creation: Call) -> Address:
    """Deploy it."""
    created = (await submit(anvil.url, creation, anvil.keys[0])).created
    assert created is not None
    return created


@dataclass
class Play:
    """``parties`` are contracts that call back, with money of their own; ``keys`` those of their tabs.

    ``token`` is None where all money is the coin.
    """

    world: World
    parties: tuple[Address, ...]
    keys: tuple[Key, ...]
    token: TokenAsset | None = None
    tried: dict[str, bytes] = field(default_factory=dict)

    @property
    def tabs(self) -> list[Tab]:
        """All that there may be."""
        payees = (*self.parties, self.world.scheduler().address)
        return [Tab(payer, payee, key.address) for payer in self.parties for payee in payees for key in self.keys]

    @property
    def records(self) -> list[TabRecord]:
        """Those that were ever opened."""
        return [found for tab in self.tabs if (found := self.world.state.tabs.get(tab_id(tab))) is not None]

    def key_of(self, tab: Tab) -> Key:
        return next(key for key in self.keys if key.address == tab.key)

    def call(self, part: Part, function: str, *arguments: object, value: int = 0) -> PartCall:
        """A call of a party."""
        return self.world.call(part, function, *arguments, value=value)

    def signature(self, message: Any, key: Key) -> bytes:
        return sign(message, self.world.market.domain, key.secret).signature

    async def step(self) -> None:
        """A party makes a call; whatever it is paid by that, it calls back."""
        chosen = self.world.random
        party, tab = chosen.choice(self.parties), chosen.choice(self.tabs)
        call = chosen.choice(ALL)(self, party, tab)
        if chosen.random() < 0.6:
            call, tab = self._payment(party) or (call, tab)
        await self.act(party, call, tab)
        if chosen.random() < 0.3:
            self.world.anvil.mine(chosen.choice((1, 5)))

    async def act(self, party: Address, call: PartCall | None, tab: Tab) -> None:
        """This call of a party, which calls back mostly about a tab; all of it is followed."""
        chosen = self.world.random
        planned = (
            chosen.choice(ALL)(self, party, tab if chosen.random() < 0.6 else chosen.choice(self.tabs))
            for _ in range(AT_ONCE)
        )
        await self._act(party, call, [one for one in planned if one is not None])
        await self.world.follow()

    def _payment(self, party: Address) -> tuple[PartCall, Tab] | None:
        """What pays it: the rest of a tab, once that is due, or credit."""
        state, chosen = self.world.state, self.world.random
        closing = [one for one in self.records if one.closes_at and one.tab.payer == party and not one.claim]
        if closing and chosen.random() < 0.7:
            record = chosen.choice(closing)
            self.world.anvil.mine(max(0, record.closes_at - self.world.followed - 1))
            return finish(self, party, record.tab), record.tab
        if state.pot(PotKind.CREDIT, party):
            return withdraw(self, party, self.tabs[0]), chosen.choice(self.tabs)
        return None

    async def _act(self, party: Address, call: PartCall | None, planned: list[PartCall]) -> None:
        if call is None:
            return
        values = [_values(call), [_values(one) for one in planned]]
        data = ACT + encode([PLANNED, f"{PLANNED}[]"], values)
        anvil = self.world.anvil
        fields = {"from": anvil.rpc("eth_accounts")[0], "to": party, "data": "0x" + data.hex(), "gas": hex(GAS)}
        sent, receipt = anvil.rpc("eth_sendTransaction", fields), None
        while receipt is None:
            receipt = anvil.rpc("eth_getTransactionReceipt", sent)
        assert receipt["status"] == "0x1", "what a party calls is refused to it, and never ends its own call"
        self.tried |= {one.call.function: bytes(one.call.data[:4]) for one in (call, *planned)}

    def count(self, counter: str) -> Counter[str]:
        """How often each function was called by a step ("done") or called back ("made"), and not refused."""
        selector, found = keccak256(f"{counter}(bytes4)".encode())[:4], Counter[str]()
        for function, called in sorted(self.tried.items()):
            for party in self.parties:
                asked = {"to": party, "data": "0x" + (selector + called.ljust(32, b"\0")).hex()}
                found[function] += int(self.world.anvil.rpc("eth_call", asked, "latest"), 16)
        return found

    async def compare(self) -> None:
        """The contracts say of everything what was folded, and the Bank holds it."""
        state, market = await self.world.follow(), self.world.market
        for word in GetterQuestions(market.contracts, state, [self.world.followed]).words():
            answered = await market.read(word.view, self.world.followed)
            assert answered == word.expected, (word.about, answered, word.expected)
        assert state.held() == state.came_in - state.went_out
        bank = market.contracts.bank
        held = await market.chain.balance(bank) if self.token is None else self.token.balance(bank)
        assert state.held() == held


def _values(one: PartCall) -> tuple[str, int, bytes]:
    return one.to, one.call.value, one.call.data


async def play(world: World, token: TokenAsset | None = None) -> Play:
    """Two parties with coins, and with tokens that tell them of each transfer."""
    creation = creation_of("CallingBack")
    parties = tuple([await create(world.anvil, creation) for _ in range(2)])
    made = Play(world, parties, (world.key("tab 1"), world.key("tab 2")), token)
    for party in parties:
        world.anvil.rpc("anvil_setBalance", party, hex(PLENTY))
        if token is not None:
            await token.give(party, PLENTY)
            await token.tell(party)
            approve = keccak256(b"approve(address,uint256)")[:4]
            approve += encode(["address", "uint256"], [world.market.contracts.bank, 2**255])
            await made._act(party, PartCall(token.address, Call("approve", approve)), [])
    return made


# ------------------------------------------------------------------------------------------------ what parties call


def open_tab(play: Play, party: Address, tab: Tab) -> PartCall:
    amount = play.world.random.randint(1, 10**12)
    consent = play.signature(TabConsent(party, tab.payee), play.key_of(tab))
    return play.call(Part.BANK, "openTab", tab.payee, tab.key, amount, consent, value=amount)


def open_in_coin(play: Play, party: Address, tab: Tab) -> PartCall:
    consent = play.signature(TabConsent(party, tab.payee), play.key_of(tab))
    s = int.from_bytes(consent[32:64], "big") | (consent[64] - 27) << 255
    arguments = (tab.payee, tab.key, Hash32(consent[:32]), Hash32(s.to_bytes(32, "big")))
    return play.call(Part.BANK, "openTabInCoin", *arguments, value=10**9)


def top_up(play: Play, _party: Address, tab: Tab) -> PartCall:
    return play.call(Part.BANK, "topUp", tab_id(tab), 10**6, value=10**6)


def close(play: Play, party: Address, tab: Tab) -> PartCall:
    return play.call(Part.BANK, "close", Tab(party, tab.payee, tab.key))


def finish(play: Play, party: Address, tab: Tab) -> PartCall:
    return play.call(Part.BANK, "finishClosing", Tab(party, tab.payee, tab.key))


def _voucher(play: Play, tab: Tab) -> Voucher:
    record = play.world.state.tabs.get(tab_id(tab))
    spent = (record.redeemed if record else 0) + play.world.random.randint(1, 10**11)
    return Voucher(tab_id(tab), spent, spent + 10**12, 5, 0, 0)


def redeem(play: Play, _party: Address, tab: Tab) -> PartCall:
    voucher = _voucher(play, tab)
    return play.call(Part.BANK, "redeem", tab, voucher, play.signature(voucher, play.key_of(tab)))


def redeem_many(play: Play, _party: Address, tab: Tab) -> PartCall:
    tabs = [tab, play.world.random.choice(play.tabs)]
    vouchers = [_voucher(play, one) for one in tabs]
    signatures = [play.signature(one, play.key_of(tab)) for one, tab in zip(vouchers, tabs, strict=True)]
    return play.call(Part.BANK, "redeemMany", tabs, vouchers, signatures)


def credit(play: Play, _party: Address, _tab: Tab) -> PartCall:
    return play.call(Part.BANK, "credit", play.world.random.choice(play.parties), 1000, value=1000)


def withdraw(play: Play, party: Address, _tab: Tab) -> PartCall:
    return play.call(Part.BANK, "withdraw", party)


def claim(play: Play, party: Address, tab: Tab) -> PartCall:
    claimed = Tab(play.world.random.choice(play.parties), party, tab.key)
    voucher = _voucher(play, claimed)
    made, _ = claims.claim_of(voucher, dict.fromkeys((1, 2, 3), 10**10))
    signature = play.signature(voucher, play.key_of(claimed))
    return play.call(Part.BANK, "claim", claimed, voucher, signature, made)


def object_to(play: Play, party: Address, _tab: Tab) -> PartCall | None:
    under_way = [one for one in play.records if one.claim and one.tab.payer == party]
    if not under_way:
        return None
    record = play.world.random.choice(under_way)
    assert record.claim is not None
    number = play.world.random.randint(1, 4)
    return play.call(Part.BANK, "object", record.tab, record.claim.state, number, value=10**12)


def end_claim(play: Play, _party: Address, _tab: Tab) -> PartCall | None:
    state, block = play.world.state, play.world.followed
    for record in play.records:
        if due := strikes_due(record, state, block):
            return play.call(Part.BANK, "strike", record.tab, *due[0])
        if record.claim is not None and block >= record.claim.state.settles_at:
            return play.call(Part.BANK, "settle", record.tab, record.claim.state)
    return None


def register(play: Play, party: Address, _tab: Tab) -> PartCall:
    world = play.world
    operator = world.key(world.fresh("operator"))
    stake, whole = world.execution_class.seat, (Segment(0, LAYERS),)
    registration = NodeRegistration(
        operator.address, NO_ADDRESS, world.class_id, 0, LAYERS, whole, (Ask(1, 1, 1),), stake, "https://a.example",
        Hash32(b"\2" * 32),
    )  # fmt: skip
    consent = play.signature(Consent(party, operator.address), operator)
    return play.call(Part.REGISTRY, "registerNode", registration, consent, value=stake)


def of_operator(play: Play, party: Address, _tab: Tab) -> PartCall | None:
    """Something that an owner does with a node of its own, or anybody with any."""
    world = play.world
    own = sorted(one.operator for one in world.state.parties.values() if one.owner == party)
    if not own:
        return None
    node = world.random.choice(own)
    return world.random.choice(
        (
            play.call(Part.REGISTRY, "topUp", node, 1, value=1),
            play.call(Part.REGISTRY, "setAsk", node, 0, LAYERS, Ask(world.random.randint(1, 9), 1, 1)),
            play.call(Part.REGISTRY, "setPayout", node, world.random.choice(play.parties)),
            play.call(Part.REGISTRY, "deregister", node),
            play.call(Part.REGISTRY, "withdrawStake", node),
            play.call(Part.REGISTRY, "evict", node),
            play.call(Part.BANK, "withdraw", node),
        )
    )


Action = Callable[[Play, Address, Tab], PartCall | None]
ALL: tuple[Action, ...] = (
    open_tab, open_in_coin, open_tab, top_up, top_up, close, close, finish, redeem, redeem, redeem_many, credit,
    withdraw, claim, object_to, end_claim, register, of_operator, of_operator,
)  # fmt: skip
