"""Tabs over the overlay: committee and relays are processes that follow a market on a real chain.

A scheduler and nodes with toy engines serve real orders; their client is only ever seen by its guards.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs
from prometheus_client import CollectorRegistry
from support.client_network import PASSWORD, ClientSide, client_side, configuration, write_model
from support.court_network import CourtNetwork, court_network, node_configuration
from support.tabs_stage import TabsStage
from support.toy_engine import ToyEngine

from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.client.configuration import save
from troth.client.home import Home
from troth.node.orders.running import MarketParts, RunningNode
from troth.overlay.directory.listing import Listing
from troth.overlay.sessions.entry import EntryKeys, OverlayEntry, overlay_entry
from troth.protocol.types import Address, Segment, to_address
from troth.testnet.overlay import LocalOverlay
from troth.testnet.parties import NetworkPlan
from troth.testnet.ports import free_port
from troth.testnet.processes import ProcessGroup
from troth.transport.identity import create_identity

RELAYS, MEMBERS = 15, 1


@dataclass
class Whole:
    """A running network behind an overlay; ``seen``: path and peer of all that the scheduler was asked there.

    ``node`` is the one whose entry it has, in ``entry``. Clients' commands take it for their scene.
    """

    network: CourtNetwork
    overlay: LocalOverlay
    node: Key
    entry: RunningNode = field(init=False)
    seen: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def stage(self) -> TabsStage:
        return self.network.stage

    @property
    def ledger(self) -> Any:
        return self.network.scheduler.ledger

    @property
    def factory(self) -> str:
        return self.stage.market.place.factory

    @property
    def rpc(self) -> str:
        return str(self.stage.anvil.url)

    async def client(self, folder: Path) -> ClientSide:
        """A client with a tab, that reaches its scheduler through the overlay."""
        side = await client_side(self, folder)  # type: ignore[arg-type]
        configured = structs.replace(configuration(self.stage), committee=self.overlay.committee)
        save(Home(side.home).configuration, configured)
        return side

    async def listed(self) -> Listing:
        found = await self.overlay._listing()
        assert found is not None
        return found

    async def destinations(self) -> set[tuple[str, Address]]:
        return {(one.kind, one.operator) for one in (await self.listed()).destinations}


def entry_on(overlay: LocalOverlay) -> OverlayEntry:
    port = free_port()
    return OverlayEntry("127.0.0.1", port, ("127.0.0.1", port), to_address(overlay.committee), 2.0)


@asynccontextmanager
async def blocks(network: CourtNetwork) -> AsyncIterator[None]:
    async def mine() -> None:
        while True:
            await asyncio.to_thread(network.stage.anvil.mine, 1)
            await network.follower.catch_up()
            await asyncio.sleep(0.5)

    mining = asyncio.create_task(mine())
    try:
        yield
    finally:
        mining.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await mining


@asynccontextmanager
async def whole_network(anvil: Any, folder: Path) -> AsyncIterator[Whole]:
    processes = ProcessGroup(folder / "logs")
    password = folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    create_account(folder / "payer.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=anvil.keys[4])
    try:
        async with (
            court_network(anvil, folder, nodes=10, left_out=1, write=write_model) as network,
            blocks(network),
            AsyncExitStack() as stack,
        ):
            stage = network.stage
            plan, place = NetworkPlan(members=MEMBERS, relays=RELAYS), stage.market.place
            payer = folder / "payer.json"
            overlay = LocalOverlay(folder, plan, processes, password, anvil.url, payer, place.factory)
            await asyncio.to_thread(overlay.set_up)
            # In this thread: they end with the one that starts them.
            overlay.start()
            whole = Whole(network, overlay, stage.nodes[0])
            await stack.enter_async_context(scheduler_entry(whole, folder / "entry", "scheduler", stage.scheduler))
            await stack.enter_async_context(node_as_entry(whole, folder))
            operators = (stage.scheduler.address, whole.node.address)
            await asyncio.to_thread(overlay.wait_until_listed, operators)
            yield whole
    finally:
        await asyncio.to_thread(processes.stop_all)


@asynccontextmanager
async def scheduler_entry(whole: Whole, folder: Path, kind: Any, key: Key) -> AsyncIterator[None]:
    app = whole.network.scheduler.app()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        whole.seen.append((scope["path"], scope["client"]))
        await app(scope, receive, send)

    keys = EntryKeys(kind, key.secret, create_identity(folder), folder / "seal.pem")
    url, entry = whole.overlay.rpc, entry_on(whole.overlay)
    async with overlay_entry(entry, url, keys, watched, CollectorRegistry()):  # type: ignore[arg-type]
        yield


@asynccontextmanager
async def node_as_entry(whole: Whole, folder: Path) -> AsyncIterator[None]:
    """A running node with [overlay] in its configuration."""
    network, key = whole.network, whole.node
    port = int(network.follower.state.parties[key.address].endpoint.rsplit(":", 1)[1])
    plain = node_configuration(network.stage, folder / key.address, port, (Segment(0, 2),))
    # On the node's own port: deliveries and HTTPS are told apart by their names.
    entry = OverlayEntry("", 0, ("127.0.0.1", port), to_address(whole.overlay.committee), 2.0)
    configured = replace(plain, overlay=entry)
    parts = MarketParts(lambda *_arguments, **_keywords: ToyEngine())
    whole.entry = node = RunningNode(configured, key, verify_weights=False, parts=parts)
    task = asyncio.create_task(node.run())
    try:
        yield
    finally:
        node.stop()
        await task
