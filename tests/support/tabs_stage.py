"""A deployed market with everybody on it: a model, a class, nodes of different owners, a scheduler, tabs.

Real contracts on a real anvil process. Who serves is up to the test: give each operator its endpoint and the hash of
its TLS key, and start what listens there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from support.token_asset import TokenAsset

from troth.chain.deployment import deploy_market
from troth.chain.keystore import Key
from troth.chain.market import DeploymentPlace, Market
from troth.chain.market_follower import MarketFollower
from troth.chain.records import TransactionReceipt
from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import shipped
from troth.protocol.market.calls import build
from troth.protocol.market.messages import Signed, sign, state_hash, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.types import (
    NO_ADDRESS,
    Ask,
    Consent,
    ExecutionClass,
    NodeRegistration,
    Parameters,
    SchedulerRegistration,
    Tab,
    TabConsent,
)
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment

PARAMETERS = replace(shipped.DEMO, lag=20, summons_window=6, seasoning=0)
MODEL = ModelDescriptor(
    "llama/toy/toy", layers=2, hidden_size=32, vocabulary=64, dtype=0, weights_root=Hash32(b"\x51" * 32)
)
ASK = Ask(prompt=300_000_000, cached=30_000_000, written=600_000_000)
NODES = 12
DEPOSIT = 10**15

Endpoint = tuple[str, Hash32]
"""URL, and SHA-256 of the TLS public key."""


def nowhere(_operator: Address) -> Endpoint:
    """For parties that nothing listens for."""
    return "https://127.0.0.1:1", Hash32(b"\x02" * 32)


def execution_class_of(model: ModelDescriptor = MODEL, **changes: Any) -> ExecutionClass:
    """A tolerant float32 class of one tile with the money of a demo; ``changes`` replace fields."""
    plain = ExecutionClass(
        model=state_hash(model),
        name="toy float32",
        dtype=0,
        exact=False,
        mantissa_bits=10,
        steps=8,
        theta=9000,
        tiles=1,
        candidates=2,
        verifiers=3,
        reviewers=5,
        check_price=1,
        fee_cap=1,
        least_check_rate=1,
        honest_share=8_000,
        penalty=1,
        seat=1,
        seat_cap=1,
        state_cut=1_000,
        margin_cut=20_000,
        second_cut=4_000_000,
        pool_limit=1,
        pool_window=1,
        calibration=Hash32(bytes(32)),
    )
    return replace(shipped.demo_money().put_into(plain), **changes)


@dataclass
class TabsStage:
    """What stands on the chain, and everybody's keys. ``owner_of`` a node is an account of its own.

    ``asset`` is None where all money is the coin.
    """

    anvil: Any
    market: Market
    model: ModelDescriptor
    execution_class: ExecutionClass
    nodes: tuple[Key, ...]
    scheduler: Key
    vrf_secret: bytes
    client: Key
    tab_key: Key
    asset: TokenAsset | None = None

    @property
    def class_id(self) -> Hash32:
        return state_hash(self.execution_class)

    @property
    def client_tab(self) -> Tab:
        return Tab(self.client.address, self.scheduler.address, self.tab_key.address)

    def node_tab(self, node: Key) -> Tab:
        """The scheduler's tab with a node; its operator is the tab key, so that its stake stands for it."""
        return Tab(self.scheduler.address, node.address, self.scheduler.address)

    def owner_of(self, node: Key) -> Key:
        return _key(f"owner of {node.address}")

    async def send(self, key: Key, part: Part, function: str, *arguments: object, value: int = 0) -> TransactionReceipt:
        """A transaction of a funded account, mined; ChainRejected if a contract refuses."""
        self.anvil.fund(key)
        return await self.market.execute(build(self.market.contracts, part, function, *arguments, value=value), key)

    async def provide(self, payer: Key, amount: int) -> int:
        """Get an account ready to pay a part of the deployment; what of it goes with the call as its value."""
        if self.asset is None:
            return amount
        await self.asset.provide(payer, self.market.contracts.bank)
        return 0

    async def register_node(
        self, node: Key, segments: Sequence[Segment], endpoint: Endpoint, *, seats: int = 2, ask: Ask = ASK
    ) -> None:
        owner, stake = self.owner_of(node), self.execution_class.seat * seats
        first, end = min(one.first for one in segments), max(one.end for one in segments)
        registration = NodeRegistration(
            operator=node.address,
            payout=NO_ADDRESS,
            execution_class=self.class_id,
            first=first,
            end=end,
            segments=tuple(segments),
            asks=tuple(ask for _ in segments),
            stake=stake,
            endpoint=endpoint[0],
            tls_key_hash=endpoint[1],
        )
        consent = self._sign(Consent(owner.address, node.address), node)
        value = await self.provide(owner, stake)
        await self.send(owner, Part.REGISTRY, "registerNode", registration, consent.signature, value=value)

    async def register_scheduler(self, endpoint: Endpoint, *, stake: int = 0) -> None:
        x, y = vrf.public_key(self.vrf_secret)
        staked = stake or 10 * PARAMETERS.scheduler_stake
        registration = SchedulerRegistration(self.scheduler.address, NO_ADDRESS, x, y, staked, *endpoint)
        owner = self.owner_of(self.scheduler)
        consent = self._sign(Consent(owner.address, self.scheduler.address), self.scheduler)
        value = await self.provide(owner, staked)
        await self.send(owner, Part.REGISTRY, "registerScheduler", registration, consent.signature, value=value)

    async def open_tab(self, payer: Key, payee: Address, key: Key, amount: int = DEPOSIT) -> Hash32:
        consent = self._sign(TabConsent(payer.address, payee), key)
        value = await self.provide(payer, amount)
        await self.send(payer, Part.BANK, "openTab", payee, key.address, amount, consent.signature, value=value)
        return tab_id(Tab(payer.address, payee, key.address))

    def _sign(self, message: Any, key: Key) -> Signed[Any]:
        return sign(message, self.market.domain, key.secret)


@asynccontextmanager
async def tabs_stage(
    anvil: Any,
    *,
    parameters: Parameters = PARAMETERS,
    model: ModelDescriptor = MODEL,
    execution_class: ExecutionClass | None = None,
    nodes: int = NODES,
    segments: Callable[[int], Sequence[Segment]] | None = None,
    endpoint: Callable[[Address], Endpoint] = nowhere,
    ask: Ask = ASK,
    tabs: bool = True,
    factory: Address | None = None,
) -> AsyncIterator[TabsStage]:
    """Deploy and register all; ``segments`` says which of a node's number (the whole model by default).

    With ``tabs`` the client has a tab with the scheduler, and the scheduler one with each node. Where the test before
    wanted the very same on this chain, the chain is taken back to where that stood: whatever was sent since is gone.
    """
    definition = execution_class or execution_class_of(model)
    keys = tuple(_key(f"node {number}") for number in range(nodes))
    parts = {
        key: (tuple(segments(number)) if segments else (Segment(0, model.layers),), endpoint(key.address))
        for number, key in enumerate(keys)
    }
    scheduler = _key("scheduler")
    reached = endpoint(scheduler.address)
    wanted = (parameters, model, definition, parts, reached, ask, tabs, factory)
    place = None if anvil.standing is None else anvil.standing.again(wanted)
    if place is None:
        anvil.mine(3)
        market, _ = await deploy_market(anvil.url, parameters, anvil.keys[0], factory=factory)
    else:
        market = await Market.connect(anvil.url, place)
    async with market:
        stage = TabsStage(
            anvil=anvil,
            market=market,
            model=model,
            execution_class=definition,
            nodes=keys,
            scheduler=scheduler,
            vrf_secret=keccak256(b"vrf"),
            client=anvil.keys[1],
            tab_key=_key("tab key"),
            asset=None if parameters.asset == NO_ADDRESS else TokenAsset(anvil, parameters.asset),
        )
        if place is None:
            await _set_up(stage, parts, reached, ask, tabs=tabs)
            anvil.standing = _Standing(anvil, wanted, market.place, anvil.rpc("evm_snapshot"))
        anvil.stages += 1
        try:
            yield stage
        finally:
            anvil.stages -= 1


async def _set_up(
    stage: TabsStage,
    parts: Mapping[Key, tuple[Sequence[Segment], Endpoint]],
    reached: Endpoint,
    ask: Ask,
    *,
    tabs: bool,
) -> None:
    anvil = stage.anvil
    await stage.send(anvil.keys[0], Part.CLASSES, "registerModel", stage.model)
    await stage.send(anvil.keys[0], Part.CLASSES, "registerClass", stage.execution_class)
    await stage.register_scheduler(reached)
    for node, (hosted, endpoint) in parts.items():
        await stage.register_node(node, hosted, endpoint, ask=ask)
    if tabs:
        await stage.open_tab(stage.client, stage.scheduler.address, stage.tab_key)
        for node in stage.nodes:
            await stage.open_tab(stage.scheduler, node.address, stage.scheduler)
    anvil.mine(3)


@dataclass
class _Standing:
    """The newest stage of a chain: what it was made of, and the chain as it was then."""

    anvil: Any
    wanted: object
    place: DeploymentPlace
    snapshot: str

    def again(self, wanted: object) -> DeploymentPlace | None:
        """Its place, with the chain taken back to it; None where another stage is wanted, or one is in use."""
        if self.anvil.stages or wanted != self.wanted:
            return None
        assert self.anvil.rpc("evm_revert", self.snapshot)
        self.snapshot = self.anvil.rpc("evm_snapshot")
        return self.place


@asynccontextmanager
async def following(stage: TabsStage) -> AsyncIterator[MarketFollower]:
    """A follower of the stage's deployment that has caught up."""
    async with MarketFollower(stage.market, poll_interval=0.05) as follower:
        await follower.catch_up()
        yield follower


def _key(name: str) -> Key:
    return Key.from_secret(keccak256(b"tabs stage " + name.encode()))
