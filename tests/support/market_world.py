"""A real deployment in the middle of a random course: its parties' keys, what they signed, and what was refused."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from support.market_logs import address

from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import claims, economy
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.fold import apply
from troth.protocol.market.getters import GetterQuestions
from troth.protocol.market.messages import sign, state_hash, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.state import State, TabRecord
from troth.protocol.market.types import (
    NO_ADDRESS,
    Ask,
    Claim,
    Consent,
    ExecutionClass,
    LeafKind,
    NodeRegistration,
    Parameters,
    SchedulerRegistration,
    Tab,
    TabConsent,
    Voucher,
)
from troth.protocol.market.views import strikes_due
from troth.protocol.types import Hash32, ModelDescriptor, Segment

LAYERS = 2
GAS_PRICE = 10**6
PARAMETERS = Parameters(
    asset=NO_ADDRESS,
    lag=9,
    summons_window=2,
    lookahead=1,
    draw_window=2,
    commit_window=4,
    reveal_window=4,
    claim_delay=90,
    answer_window=6,
    close_delay=100,
    unbonding=200,
    seasoning=5,
    reference_age=5,
    suspension_pause=10,
    scheduler_stake=10**15,
    gas_price=GAS_PRICE,
    weights=NO_ADDRESS,
    prover=NO_ADDRESS,
)
DESCRIPTOR = ModelDescriptor("llama/a/b", LAYERS, 64, 100, 0, Hash32(b"\x01" * 32))


def class_of(*, exact: bool = True) -> ExecutionClass:
    """A small class that every rule of registration admits."""
    made = ExecutionClass(
        model=state_hash(DESCRIPTOR),
        name="float32",
        dtype=0,
        exact=exact,
        mantissa_bits=10,
        steps=8,
        theta=9000,
        tiles=0 if exact else 1,
        candidates=2,
        verifiers=1,
        reviewers=3,
        check_price=10**9,
        fee_cap=10**9,
        least_check_rate=500_000,
        honest_share=9000,
        penalty=0,
        seat=0,
        seat_cap=4,
        state_cut=1000,
        margin_cut=20_000,
        second_cut=1_500_000,
        pool_limit=2,
        pool_window=1000,
        calibration=Hash32(bytes(32)),
    )
    penalty = max(economy.least_penalty(made.fee_cap, economy.detection_of(made)), 2 * made.fee_cap)
    return replace(made, penalty=penalty, seat=economy.least_seat(penalty, economy.case_gas_of(made), GAS_PRICE))


@dataclass
class World:
    """A deployment, its parties' keys, and what they have signed so far; the state is folded from its own logs."""

    market: Market
    anvil: Any
    random: random.Random
    execution_class: ExecutionClass
    state: State = field(default_factory=State)
    followed: int = -1
    keys: dict[str, Key] = field(default_factory=dict)
    words: dict[Hash32, tuple[Tab, Voucher, bytes]] = field(default_factory=dict)
    trees: dict[Hash32, claims.SumTree] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    count: int = 0
    coin: bool = True
    """Whether money is the chain's coin: else no call has a value."""

    @property
    def owner(self) -> Key:
        return self.anvil.keys[3]  # type: ignore[no-any-return]

    @property
    def payer(self) -> Key:
        return self.anvil.keys[self.random.choice((1, 2))]  # type: ignore[no-any-return]

    @property
    def class_id(self) -> Hash32:
        return state_hash(self.execution_class)

    def key(self, name: str) -> Key:
        """A key that depends on its name alone."""
        return self.keys.setdefault(name, Key.from_secret(keccak256(name.encode())))

    def fresh(self, label: str) -> str:
        self.count += 1
        return f"{label} {self.count}"

    def call(self, part: Part, function: str, *arguments: object, value: int = 0) -> PartCall:
        return build(self.market.contracts, part, function, *arguments, value=value if self.coin else 0)

    async def run(self, key: Key, part: Part, function: str, *arguments: object, value: int = 0) -> bool:
        """Send; False and a note if a contract refuses."""
        self.anvil.fund(key)
        try:
            await self.market.execute(self.call(part, function, *arguments, value=value), key)
        except ChainRejected as error:
            if error.name in {"Unknown", "Panic"}:
                raise
            self.refused[f"{function}: {error.name}"] += 1
            return False
        self.done[f"{part.value}.{function}"] += 1
        await self.follow()
        return True

    async def follow(self) -> State:
        """Fold what came since."""
        head = await self.market.chain.block_number()
        for event in await self.market.events(self.followed + 1, head):
            self.state = apply(event, self.state)
        self.followed = head
        return self.state

    async def compare(self) -> int:
        """Every getter against the fold, at the followed block and at past ones; how many were asked."""
        await self.follow()
        past = {self.followed, max(0, self.followed - self.random.randint(1, 40))}
        asked = 0
        for word in GetterQuestions(self.market.contracts, self.state, sorted(past)).words():
            answered = await self.market.read(word.view, self.followed)
            assert answered == word.expected, (word.about, answered, word.expected)
            asked += 1
        assert self.state.held() == self.state.came_in - self.state.went_out
        assert self.state.held() == await self.market.chain.balance(self.market.contracts.bank)
        return asked

    def operator(self) -> Key:
        return self.keys[self.random.choice(sorted(name for name in self.keys if name.startswith("node")))]

    def scheduler(self) -> Key:
        return self.keys[self.random.choice(sorted(name for name in self.keys if name.startswith("scheduler")))]

    def word(self) -> tuple[Tab, Voucher, bytes] | None:
        return self.words[self.random.choice(sorted(self.words))] if self.words else None


# ------------------------------------------------------------------------------------------------------------- parties


def splits(world: World) -> tuple[tuple[Segment, ...], tuple[Ask, ...]]:
    """One or two of the segments of a model of two layers, with asks."""
    choices = ((Segment(0, 2),), (Segment(0, 1), Segment(1, 2)), (Segment(0, 1),), (Segment(0, 2), Segment(1, 2)))
    segments = world.random.choice(choices)
    return segments, tuple(ask(world) for _ in segments)


def ask(world: World) -> Ask:
    return Ask(*(world.random.randint(0, 1000) for _ in range(3)))


async def register_node(world: World) -> None:
    operator = world.key(world.fresh("node"))
    segments, asks = splits(world)
    stake = world.execution_class.seat * world.random.randint(1, 5) + world.random.randint(0, 3)
    payout = world.random.choice((NO_ADDRESS, address(77)))
    registration = NodeRegistration(
        operator.address,
        payout,
        world.class_id,
        0,
        LAYERS,
        segments,
        asks,
        stake,
        "https://a.example",
        Hash32(b"\2" * 32),
    )
    consent = sign(Consent(world.owner.address, operator.address), world.market.domain, operator.secret)
    if not await world.run(world.owner, Part.REGISTRY, "registerNode", registration, consent.signature, value=stake):
        del world.keys[f"node {world.count}"]


async def register_scheduler(world: World) -> None:
    operator = world.key(world.fresh("scheduler"))
    x, y = vrf.public_key(operator.secret)
    stake = PARAMETERS.scheduler_stake
    registration = SchedulerRegistration(
        operator.address, NO_ADDRESS, x, y, stake, "https://b.example", Hash32(b"\3" * 32)
    )
    consent = sign(Consent(world.owner.address, operator.address), world.market.domain, operator.secret)
    if not await world.run(
        world.owner, Part.REGISTRY, "registerScheduler", registration, consent.signature, value=stake
    ):
        del world.keys[f"scheduler {world.count}"]


async def top_up_stake(world: World) -> None:
    amount = world.random.choice((1, world.execution_class.seat))
    who = world.random.choice((world.owner, world.payer))
    await world.run(who, Part.REGISTRY, "topUp", world.operator().address, amount, value=amount)


async def set_ask(world: World) -> None:
    segment = world.random.choice((Segment(0, 1), Segment(0, 2), Segment(1, 2)))
    operator = world.operator()
    await world.run(operator, Part.REGISTRY, "setAsk", operator.address, segment.first, segment.end, ask(world))


async def change_slice(world: World) -> None:
    segments, asks = splits(world)
    await world.run(
        world.owner, Part.REGISTRY, "changeSlice", world.operator().address, 0, LAYERS, list(segments), list(asks)
    )


async def set_endpoint(world: World) -> None:
    await world.run(
        world.owner, Part.REGISTRY, "setEndpoint", world.operator().address, "https://c.example", Hash32(b"\4" * 32)
    )


async def set_payout(world: World) -> None:
    payout = world.random.choice((address(5), world.owner.address, NO_ADDRESS))
    await world.run(world.owner, Part.REGISTRY, "setPayout", world.operator().address, payout)


async def deregister(world: World) -> None:
    if world.random.random() < 0.5:
        await world.run(world.owner, Part.REGISTRY, "deregister", world.operator().address)


async def withdraw_stake(world: World) -> None:
    leaving = [party for party in world.state.parties.values() if party.exit_block]
    if not leaving:
        return
    party = world.random.choice(sorted(leaving, key=lambda one: one.operator))
    world.anvil.mine(max(1, party.exit_block - world.followed + 1))
    await world.run(world.payer, Part.REGISTRY, "withdrawStake", party.operator)


async def evict(world: World) -> None:
    await world.run(world.payer, Part.REGISTRY, "evict", world.operator().address)


PARTIES = (
    register_node,
    register_node,
    register_scheduler,
    top_up_stake,
    set_ask,
    set_ask,
    change_slice,
    set_endpoint,
    set_payout,
    deregister,
    withdraw_stake,
    evict,
)


# --------------------------------------------------------------------------------------------------------------- money


async def open_tab(world: World) -> None:
    payer, payee = world.payer, world.scheduler()
    key = world.key(f"tab {payer.address} {world.random.randint(0, 2)}")
    tab = Tab(payer.address, payee.address, key.address)
    consent = sign(TabConsent(payer.address, payee.address), world.market.domain, key.secret)
    amount = world.random.randint(1, 10**12)
    arguments = (payee.address, key.address, amount, consent.signature)
    if await world.run(payer, Part.BANK, "openTab", *arguments, value=amount):
        sign_word(world, tab)


def sign_word(world: World, tab: Tab) -> tuple[Tab, Voucher, bytes]:
    """A newer word of the payer on a tab: some numbers acknowledged, some only authorised."""
    tab_key = next(key for key in world.keys.values() if key.address == tab.key)
    before = world.words.get(tab_id(tab))
    spent = (before[1].spent if before else 0) + world.random.randint(0, 10**11)
    through = (before[1].acknowledged_through if before else 0) + world.random.randint(0, 3)
    voucher = Voucher(tab_id(tab), spent, spent + world.random.randint(10, 10**12), through + 5, through, 0)
    word = (tab, voucher, sign(voucher, world.market.domain, tab_key.secret).signature)
    world.words[tab_id(tab)] = word
    return word


async def top_up_tab(world: World) -> None:
    if (word := world.word()) is not None:
        await world.run(world.payer, Part.BANK, "topUp", tab_id(word[0]), 10**11, value=10**11)


async def redeem(world: World) -> None:
    if (word := world.word()) is not None:
        await world.run(world.payer, Part.BANK, "redeem", *sign_word(world, word[0]))


async def redeem_many(world: World) -> None:
    words = [sign_word(world, tab) for tab, _, _ in list(world.words.values())[:3]]
    lists = [list(column) for column in zip(*words, strict=True)] or [[], [], []]
    await world.run(world.payer, Part.BANK, "redeemMany", *lists)


async def close_tab(world: World) -> None:
    if (word := world.word()) is not None and world.random.random() < 0.4:
        payer = next(key for key in world.anvil.keys if key.address == word[0].payer)
        await world.run(payer, Part.BANK, "close", word[0])


async def finish_closing(world: World) -> None:
    for tab, record in world.state.tabs.items():
        if record.closes_at and record.claim is None:
            world.anvil.mine(max(1, record.closes_at - world.followed))
            await world.run(world.payer, Part.BANK, "finishClosing", world.words[tab][0])
            return


async def claim(world: World) -> None:
    if (word := world.word()) is None:
        return
    tab, voucher, signature = word
    numbers = range(voucher.acknowledged_through + 1, voucher.acknowledged_through + 4)
    share = max(1, (voucher.authorised - voucher.spent) // 8)
    made, tree = claims.claim_of(voucher, {number: share for number in numbers if number <= voucher.sequence})
    payee = next(key for key in world.keys.values() if key.address == tab.payee)
    if await world.run(payee, Part.BANK, "claim", tab, voucher, signature, made):
        record = world.state.tabs[tab_id(tab)].claim
        assert record is not None
        world.trees[record.claim_id] = tree


def under_way(world: World) -> list[Hash32]:
    return sorted(tab for tab, record in world.state.tabs.items() if record.claim is not None)


async def object_to(world: World) -> None:
    if not (tabs := under_way(world)):
        return
    record = world.state.tabs[world.random.choice(tabs)]
    assert record.claim is not None
    first: Claim = record.claim.state.claim
    payer = next(key for key in world.anvil.keys if key.address == record.tab.payer)
    # Three leaves are padded to four: the last place is empty, and anybody can show that.
    places = (first.first, first.last + 1)
    for number in world.random.sample(places, world.random.randint(1, len(places))):
        value = world.random.choice((0, 10**12))
        await world.run(payer, Part.BANK, "object", record.tab, record.claim.state, number, value=value)


async def answer_empty(world: World) -> None:
    """An empty place of the tree is answered with its path alone."""
    for tab in under_way(world):
        record = world.state.tabs[tab]
        assert record.claim is not None
        claimed = record.claim.state.claim
        tree = world.trees[record.claim.claim_id]
        for number in record.claim.objections:
            if number > claimed.last:
                path = tree.path(number)
                arguments = (number, LeafKind.ORDER, 0, list(path.siblings), list(path.sums), b"")
                await world.run(world.payer, Part.BANK, "answer", record.tab, record.claim.state, *arguments)
                return


async def end_claim(world: World) -> None:
    for tab in under_way(world):
        record = world.state.tabs[tab]
        assert record.claim is not None
        if record.claim.objections:
            await strike_all(world, record)
        else:
            world.anvil.mine(max(1, record.claim.state.settles_at - world.followed))
            await world.run(world.payer, Part.BANK, "settle", record.tab, record.claim.state)
        return


async def strike_all(world: World, record: TabRecord) -> None:
    """One objection strikes the claim; the deposits of the others come back by a call each."""
    world.anvil.mine(PARAMETERS.answer_window + 1)
    await world.follow()
    assert record.claim is not None
    deposited, count = [one for one in record.claim.objections.values() if one.deposit], 0
    while strikes := strikes_due(world.state.tabs[tab_id(record.tab)], world.state, world.followed):
        claimed, number = strikes[0]
        assert await world.run(world.payer, Part.BANK, "strike", record.tab, claimed, number), world.refused
        count += 1
    assert count >= len(deposited)


async def give_credit(world: World) -> None:
    amount = world.random.randint(1, 1000)
    await world.run(world.payer, Part.BANK, "credit", world.owner.address, amount, value=amount)


async def withdraw(world: World) -> None:
    accounts = [key.address for key in (*world.keys.values(), world.owner)]
    await world.run(world.payer, Part.BANK, "withdraw", world.random.choice(sorted(accounts)))


MONEY = (
    open_tab,
    open_tab,
    open_tab,
    top_up_tab,
    redeem,
    redeem,
    redeem_many,
    close_tab,
    finish_closing,
    claim,
    claim,
    object_to,
    object_to,
    answer_empty,
    end_claim,
    give_credit,
    withdraw,
)


async def post_log(world: World) -> None:
    scheduler = world.scheduler()
    number = world.state.head_of(scheduler.address)[0] + world.random.choice((1, 1, 1, 2))
    counts = LogCounts(*(world.random.randint(0, 99) for _ in range(7)))
    root, data = Hash32(keccak256(b"root %d" % number)), Hash32(keccak256(b"data %d" % number))
    await world.run(scheduler, Part.LOG, "post", number, root, counts, data)


async def build_world(world: World) -> None:
    """A class, some nodes and a scheduler."""
    assert await world.run(world.owner, Part.CLASSES, "registerModel", DESCRIPTOR)
    assert await world.run(world.owner, Part.CLASSES, "registerClass", world.execution_class), world.refused
    await register_scheduler(world)
    await register_node(world)
    assert world.done["registry.registerNode"] == world.done["registry.registerScheduler"] == 1, world.refused
