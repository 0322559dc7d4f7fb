"""Direct mode on a real chain: five whole-model nodes with channels among them, a scheduler, and one node's entry.

Who is chosen is the test's to say: the group is a real Passage over a forwarder that does as it is told.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from support.client_network import reachable
from support.real_nodes import LAYERS, RealNode, real_stage
from support.scheduler_stage import Stage, body_of
from support.waiting import SECONDS

from troth.node.direct import entering, serving_task
from troth.node.direct.assembly import DirectParts, direct_parts
from troth.node.direct.counters import Counters
from troth.node.direct.entry_app import entry_app
from troth.node.direct.group_side import LIMITS, PATH, WHO
from troth.node.group.assembly import group_of
from troth.overlay.channel import Channel
from troth.overlay.channel_server import ChannelServer
from troth.overlay.errors import ChannelUnavailable
from troth.overlay.forwarding.decision import Choice, Reason
from troth.overlay.forwarding.passage import Passage
from troth.overlay.hash_radix.load import Load
from troth.overlay.https import pinned_client
from troth.overlay.identity import create_identity
from troth.overlay.server import TlsServer, serving
from troth.protocol.types import Address
from troth.protocol.wire import GROUP_REQUESTS
from troth.protocol.wire_group import LoadPart, Tell, Told
from troth.scheduler import lifecycle
from troth.scheduler.admission import SubmittedOrder
from troth.scheduler.api import scheduler_app
from troth.scheduler.assembly import assembled
from troth.scheduler.desk import Waits
from troth.scheduler.entry_choice import EntryChoice
from troth.scheduler.patience import Patience
from troth.scheduler.service import Scheduler


class ToldForwarder:
    """Chooses among the candidates in the order that the test gives; nobody, without one."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def choose(self, path: object, tokens: int, candidates: Iterable[str], now: float) -> Choice | None:
        names = list(candidates)
        found = next((name for name in self.order if name in names), None)
        return None if found is None else Choice(found, 0, Reason.LOAD)

    def standings(self, candidates: Iterable[str], now: float) -> list[Any]:
        return []

    def ended(self, name: str, now: float, seconds: float | None = None) -> None:
        """Nothing is counted."""

    def reported(self, name: str, load: Load, now: float) -> None:
        """Nothing is known of loads."""


@dataclass
class ToldGroup:
    """All nodes of the stage, as one of them sees them."""

    node: RealNode
    nodes: Sequence[RealNode]
    forwarder: ToldForwarder = field(default_factory=ToldForwarder)
    running: int = 0
    channels: dict[str, Channel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.own = self.node.address
        self.passage = Passage(self.own, self.forwarder)  # type: ignore[arg-type]

    def path(self, tokens: Sequence[int]) -> Sequence[tuple[int, int]]:
        return ()

    def load(self) -> Load:
        return Load(running=self.running)

    def load_part(self) -> LoadPart:
        return LoadPart(0, 0, self.running, 1, 0, 0)

    def served(self, seconds: float) -> None:
        """Not counted."""

    def is_member(self, sender: Address) -> bool:
        return any(node.address == sender for node in self.nodes if node is not self.node)

    def channel(self, node: Address) -> Channel:
        other = next((one for one in self.nodes if one.address == node), None)
        if other is None:
            raise ChannelUnavailable("This is no member", node)
        if node not in self.channels:
            self.channels[node] = Channel(
                other.endpoint, other.identity.spki_sha256, self.node.operator, node, path=PATH
            )
        return self.channels[node]

    def acknowledged(self, node: Address, part: LoadPart, round_trip: float) -> None:
        """Not noted."""

    async def tell(self, sender: Address, message: Tell, payload: memoryview) -> tuple[Told, bytes]:
        return Told(self.load_part()), b""

    async def run(self) -> None:
        """Nothing to tell."""

    async def close(self) -> None:
        for channel in self.channels.values():
            await channel.close()


@dataclass
class DirectNode:
    """One node's part in direct mode."""

    node: RealNode
    group: Any
    parts: DirectParts
    registry: CollectorRegistry

    def count(self, name: str, **labels: str) -> float:
        """A metric's value, 0 before it was ever touched."""
        return self.registry.get_sample_value(name, labels) or 0.0


@dataclass
class DirectStage:
    """The network, and a plain HTTPS client of the first node's entry."""

    scene: Stage
    scheduler: Scheduler
    nodes: dict[str, DirectNode]
    entry: DirectNode
    client: httpx.AsyncClient

    @property
    def path(self) -> str:
        """Where the scheduler's interface is found at the entry."""
        return f"/schedulers/{self.scene.scheduler.address}/v1"

    async def order(self, submitted: SubmittedOrder) -> list[dict[str, Any]]:
        """Every line of an answer."""
        async with self.client.stream("POST", f"{self.path}/orders", json=body_of(submitted)) as answer:
            assert answer.status_code == 200, await answer.aread()
            return [json.loads(line) async for line in answer.aiter_lines()]

    def prefer(self, *order: str) -> None:
        """Whom the entry asks, in this order."""
        self.entry.group.forwarder.order = list(order)


@asynccontextmanager
async def direct_stage(
    deployed: Any, folder: Path, *, grouped: bool = False, choice_seconds: float = SECONDS, **options: Any
) -> AsyncIterator[DirectStage]:
    """Everything, with all the time that a busy machine needs.

    Args:
        grouped: the nodes' own groups, which find each other, instead of told ones.
        choice_seconds: how long the scheduler waits for the entry's word.
        options: those of `real_stage`.
    """
    # Openings are waited for in vain until the next block, which comes with the next transaction here.
    waits = Waits(Patience(token=SECONDS, prefill=SECONDS), SECONDS, SECONDS, opening=4.0)
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(entering, "ASKING_SECONDS", SECONDS)
        patch.setattr(serving_task, "SERVED_SECONDS", SECONDS)
        patch.setattr(lifecycle, "EntryChoice", partial(EntryChoice, seconds=choice_seconds))
        scene = await stack.enter_async_context(real_stage(deployed, folder, ends=(LAYERS,), **options))
        scheduler = await stack.enter_async_context(assembled(scene.configuration(waits=waits), scene.keys))
        await stack.enter_async_context(reachable(scene, scheduler_app(scheduler), folder / "scheduler-tls"))
        view = scene.nodes[0].bench.view
        await view._follower.catch_up()
        nodes = {}
        for node in scene.nodes:
            group = _group(node, view._follower) if grouped else ToldGroup(node, scene.nodes)
            nodes[node.address] = await _joined(stack, node, group, view._follower)
        entry = nodes[scene.nodes[0].address]
        identity = create_identity(folder / "entry-tls")
        server = TlsServer(entry_app(entry.parts.entry), identity, "127.0.0.1", 0)
        await stack.enter_async_context(serving(server))
        address = f"https://127.0.0.1:{server.port}"
        client = pinned_client(address, identity.spki_sha256, timeout=SECONDS)
        await stack.enter_async_context(client)
        yield DirectStage(scene, scheduler, nodes, entry, client)


def _group(node: RealNode, follower: Any) -> Any:
    group = group_of(node.bench, state=lambda: follower.state, sessions=lambda: node._service.sessions, wanted=True)
    assert group is not None
    node._service.answered = group.served
    return group


async def _joined(stack: AsyncExitStack, node: RealNode, group: Any, follower: Any) -> DirectNode:
    """A node with its part in direct mode, and its channel for the others."""
    registry = CollectorRegistry()
    stack.push_async_callback(group.close)
    parts = direct_parts(group, node.bench, node._service, lambda: follower.state, Counters(registry))
    stack.push_async_callback(parts.schedulers.close)
    channel = ChannelServer(
        node.operator, parts.side.handle, group.is_member,
        limits=LIMITS, requests=GROUP_REQUESTS, who=WHO, path=PATH,
    )  # fmt: skip
    channel.mount(node._app)
    running = asyncio.create_task(group.run())
    stack.push_async_callback(_ended, running)
    return DirectNode(node, group, parts, registry)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
