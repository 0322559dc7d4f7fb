"""A whole network in one process: running nodes over a toy engine, the running scheduler, a client, anvil."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from support.tab_scene import CONTEXT, DEPOSIT, LISTED, TabScene, descriptor, texts
from support.tabs_stage import ASK, PARAMETERS, TabsStage, _key, execution_class_of, following, tabs_stage
from support.toy_engine import ToyEngine
from support.waiting import eventually

from troth.chain.keystore import Key
from troth.node.configuration import NodeConfiguration
from troth.node.engine.interface import Computed, SessionKey
from troth.node.orders.running import MarketParts, RunningNode
from troth.node.orders.session import INFERS
from troth.protocol.market import messages, tabs
from troth.protocol.market.parts import MarketPlace
from troth.protocol.market.types import Ask
from troth.protocol.types import Address, Hash32, Segment, segments_from_ends
from troth.scheduler.assembly import SchedulerKeys, assembled_market
from troth.scheduler.configuration import SchedulerConfiguration
from troth.scheduler.duties import DutyPace
from troth.scheduler.nodes.patience import GenerationPatience
from troth.scheduler.orders.context import Waits
from troth.scheduler.served import ModelTexts, ServedClass
from troth.scheduler.tabs.opening import Deposits
from troth.testnet.ports import free_port
from troth.transport.channel import Channel
from troth.transport.identity import TlsIdentity, create_identity
from troth.transport.server import TlsServer, serving

COURT = replace(PARAMETERS, lookahead=2, draw_window=30, commit_window=40, reveal_window=40)


class CheatingEngine(ToyEngine):
    """Computes a cheaper model where it infers, and the true one where it checks or judges."""

    cheats = False

    def __init__(self, hosted: Segment, layers: int) -> None:
        super().__init__(hosted)
        self.layers = layers

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: Any) -> Computed:
        infers = key.attempt == INFERS and len(key.task_id) == 32
        self.scale = np.float32(0.8 if infers and self.cheats else 1.0)
        return await super().forward(key, segment, start, inputs)


@dataclass
class CourtNetwork:
    """``scene`` is the client; ``nodes`` run, each with an engine of its own."""

    stage: TabsStage
    follower: Any
    ends: tuple[int, ...]
    scene: TabScene = field(init=False)
    scheduler: Any = field(init=False)
    nodes: dict[Address, RunningNode] = field(default_factory=dict)
    engines: dict[Address, CheatingEngine] = field(default_factory=dict)

    def channels(self) -> list[Channel]:
        """The scheduler's, to the nodes that run."""
        return [self.scheduler.orders.context.peers.channel(node) for node in self.nodes]

    def connected(self) -> bool:
        """Whether the scheduler reaches every node that runs."""
        return all(channel.connected for channel in self.channels())


class Client(TabScene):
    """The client of a scene over a running scheduler."""

    def __init__(self, stage: TabsStage, scheduler: Any, ends: tuple[int, ...]) -> None:
        self.stage = stage
        self.ends = ends
        self.domain = stage.market.domain
        self.tab_key = stage.tab_key.secret
        self.client_tab = stage.client_tab
        self.definition, self.class_id = stage.execution_class, stage.class_id
        self.ledger = scheduler.ledger
        self.payer = tabs.PayerBook(messages.tab_id(self.client_tab))
        self.now = int(time.time())
        transport = httpx.ASGITransport(app=scheduler.app())
        self.http = httpx.AsyncClient(transport=transport, base_url="https://scheduler", timeout=120)


def groups_of(ends: tuple[int, ...], number: int) -> tuple[Segment, ...]:
    """The segments of a node: all, or two of them where there are more, since no node may be in more groups."""
    segments = segments_from_ends(ends, ends[-1])
    kept = {number % len(segments), (number + 1) % len(segments)}
    return tuple(one for place, one in enumerate(segments) if place in kept)


def node_configuration(stage: TabsStage, folder: Path, port: int, segments: tuple[Segment, ...]) -> NodeConfiguration:
    return NodeConfiguration(
        folder=folder,
        rpc=stage.anvil.url,
        chain_id=31337,
        poll_seconds=0.2,
        execution_class=stage.class_id,
        model="toy",
        slice=Segment(segments[0].first, segments[-1].end),
        segments=segments,
        operator_keystore=folder / "unused.json",
        host="127.0.0.1",
        port=port,
        endpoint=f"https://127.0.0.1:{port}",
        engine="torch",
        device="cpu",
        threads=None,
        cache_bytes=1 << 20,
        sessions=16,
        positions=CONTEXT,
        trace_bytes=1 << 30,
        market=MarketPlace(stage.market.place.factory, stage.market.contracts.bank),
    )


def scheduler_configuration(
    stage: TabsStage, folder: Path, port: int, ends: tuple[int, ...], words: ModelTexts
) -> SchedulerConfiguration:
    return SchedulerConfiguration(
        folder=folder,
        rpc=stage.anvil.url,
        chain_id=31337,
        poll_seconds=0.2,
        market=MarketPlace(stage.market.place.factory, stage.market.contracts.bank),
        operator_keystore=folder / "unused.json",
        vrf_keystore=folder / "unused.json",
        host="127.0.0.1",
        port=port,
        endpoint=f"https://127.0.0.1:{port}",
        served=(ServedClass(stage.class_id, ends, words, CONTEXT),),
        prices={stage.class_id: LISTED},
        deposits=Deposits(DEPOSIT, DEPOSIT // 1_000),
        redeem_times=10**6,
        concurrent=16,
        waits=Waits(GenerationPatience(token=30.0, prefill=60.0), check=60.0),
    )


@dataclass
class _Place:
    """Where an operator will listen."""

    identity: TlsIdentity
    port: int

    @property
    def endpoint(self) -> tuple[str, Hash32]:
        return f"https://127.0.0.1:{self.port}", Hash32(self.identity.spki_sha256)


@asynccontextmanager
async def court_network(
    anvil: Any,
    folder: Path,
    nodes: int = 12,
    ends: tuple[int, ...] = (2,),
    left_out: int = 0,
    ask: Ask = ASK,
    write: Callable[[Path], ModelTexts] = texts,
    **changes: Any,
) -> AsyncIterator[CourtNetwork]:
    """The first ``left_out`` nodes are registered and do not run: their identities are in place.

    ``write`` makes the files that clients read prompts with.
    """
    keys = [*(_key(f"node {number}") for number in range(nodes)), _key("scheduler")]
    places = {key.address: _Place(create_identity(folder / key.address / "tls"), free_port()) for key in keys}
    words = write(folder / "words")
    model = replace(descriptor(), architecture=words.architecture, layers=ends[-1])
    async with AsyncExitStack() as stack:
        made = tabs_stage(
            anvil,
            parameters=COURT,
            model=model,
            execution_class=execution_class_of(model, **changes),
            nodes=nodes,
            segments=lambda number: groups_of(ends, number),
            ask=ask,
            endpoint=lambda operator: places[operator].endpoint,
        )
        stage = await stack.enter_async_context(made)
        follower = await stack.enter_async_context(following(stage))
        for key in keys:
            anvil.fund(key)
        network = CourtNetwork(stage, follower, ends)
        # Before the scheduler: whose calls are refused pauses for longer and longer, and its first order fails with it.
        for number, key in tuple(enumerate(stage.nodes))[left_out:]:
            place = folder / key.address, places[key.address].port
            await stack.enter_async_context(_running(network, key, *place, groups_of(ends, number)))
        own = places[stage.scheduler.address]
        configuration = scheduler_configuration(stage, folder / stage.scheduler.address, own.port, ends, words)
        pace = DutyPace(urgent=0.2, money=1.0, slow=5.0)
        assembling = assembled_market(configuration, SchedulerKeys(stage.scheduler, stage.vrf_secret), pace)
        network.scheduler = scheduler = await stack.enter_async_context(assembling)
        await stack.enter_async_context(serving(TlsServer(scheduler.app(), own.identity, "127.0.0.1", own.port)))
        await eventually(network.connected)
        network.scene = Client(stage, scheduler, ends)
        yield network
        await network.scene.http.aclose()


@asynccontextmanager
async def _running(
    network: CourtNetwork, key: Key, folder: Path, port: int, segments: tuple[Segment, ...]
) -> AsyncIterator[None]:
    configuration = node_configuration(network.stage, folder, port, segments)
    engine = CheatingEngine(configuration.slice, network.stage.model.layers)
    parts = MarketParts(lambda *_arguments, **_keywords: engine)
    node = RunningNode(configuration, key, verify_weights=False, parts=parts)
    network.engines[key.address] = engine
    network.nodes[key.address] = node
    task = asyncio.create_task(node.run())
    try:
        while node._service is None:
            assert not task.done(), task
            await asyncio.sleep(0.05)
        assert node._court is not None
        node._court.bringer.pause = 0.5
        yield
    finally:
        node.stop()
        await task
