"""Tabs over the overlay: committee and relays are processes that follow a market on a real chain.

A scheduler and nodes with toy engines serve real orders; their client is only ever seen by its guards.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from support.court_network import CourtNetwork, court_network, node_configuration
from support.toy_engine import ToyEngine
from support.waiting import SECONDS

from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.reaching import reaching
from troth.demo.overlay import PERIOD, LocalOverlay
from troth.demo.plan import Plan
from troth.demo.ports import free_port
from troth.demo.processes import ProcessGroup
from troth.node.direct.assembly import Direct
from troth.node.errors import ConfigError
from troth.node.orders.running import MarketParts, RunningMarketNode
from troth.overlay.directory.listing import Listing
from troth.overlay.identity import create_identity
from troth.overlay.operator import Operator
from troth.overlay.paths.pool import CircuitPool
from troth.overlay.sessions.entry import EntryKeys, OverlayEntry, overlay_entry
from troth.overlay.sessions.sessions import Sessions
from troth.overlay.sessions.transport import OverlayTransport
from troth.protocol.market.parts import Part
from troth.protocol.market.types import NO_ADDRESS, Opinion
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Segment, to_address

pytestmark = [
    pytest.mark.network,
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform != "linux", reason="relays need loopback addresses of their own: Linux"),
]
RELAYS, MEMBERS = 13, 1
PASSWORD = "a password of tests"


@dataclass
class Whole:
    """A running network behind an overlay; ``seen``: path and peer of all that the scheduler was asked there."""

    network: CourtNetwork
    overlay: LocalOverlay
    node: Key
    seen: list[tuple[str, Any]] = field(default_factory=list)

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
            court_network(anvil, folder, nodes=10, left_out=1) as network,
            blocks(network),
            AsyncExitStack() as stack,
        ):
            stage = network.stage
            plan, place = Plan(members=MEMBERS, relays=RELAYS), stage.market.place
            payer = folder / "payer.json"
            overlay = LocalOverlay(folder, plan, processes, password, anvil.url, payer, place.factory)
            await asyncio.to_thread(overlay.set_up)
            # In this thread: they end with the one that starts them.
            overlay.start()
            whole = Whole(network, overlay, stage.nodes[0])
            await stack.enter_async_context(scheduler_entry(whole, folder / "entry", "scheduler", stage.scheduler))
            await stack.enter_async_context(node_as_entry(whole, folder))
            await asyncio.to_thread(overlay.wait_until_listed, 2)
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
    configuration = replace(plain, overlay=entry_on(whole.overlay))
    parts = MarketParts(lambda *_arguments, **_keywords: ToyEngine())
    node = RunningMarketNode(configuration, key, verify_weights=False, parts=parts)
    task = asyncio.create_task(node.run())
    try:
        yield
    finally:
        node.stop()
        await task


@asynccontextmanager
async def client_of(whole: Whole, folder: Path) -> AsyncIterator[Any]:
    place = whole.network.stage.market.place
    table = MarketTable(place.factory, place.contracts.bank)
    configuration = Configuration(table, whole.overlay.rpc, committee=whole.overlay.committee)
    home = Home(folder / "client")
    home.create()
    async with reaching(home, configuration) as reach:
        yield reach


async def test_orders_and_checks_go_over_circuits_and_bonded_parties_alone_are_listed(
    anvil: Any, tmp_path: Path
) -> None:
    async with whole_network(anvil, tmp_path) as whole:
        stage, scene = whole.network.stage, whole.network.scene
        assert await whole.destinations() == {("scheduler", stage.scheduler.address), ("node", whole.node.address)}
        async with client_of(whole, tmp_path) as reach:
            party = whole.network.follower.state.parties[stage.scheduler.address]
            over = (await reach.to(party))._client
            plain, scene.http = scene.http, over
            await answered_and_checked(whole)
            assert await ready_through_a_node(whole, reach.pool, reach.directory) == {"ready": True, "reasons": []}
            scene.http = plain
        assert {path for path, _ in whole.seen} >= {"/v1/orders"}
        assert {client for _, client in whole.seen} == {None}
        await who_is_not_bonded_is_not_listed(whole, tmp_path)


async def answered_and_checked(whole: Whole) -> None:
    scene = whole.network.scene
    asked = await scene.send(scene.asked())
    assert [line["type"] for line in asked.lines][-1] == "draw", asked.lines
    assert len(asked.tokens) > 0
    lines = await scene.show(asked)
    assert lines[-1] == {"type": "end", "complete": True}, lines
    story = whole.network.scheduler.orders.desk.store.get(asked.order_id)
    assert {one.message.opinion for one in story.verdicts.values()} == {Opinion.ACCEPT}
    assert len(await scene.tiles(asked)) == 1


async def ready_through_a_node(whole: Whole, pool: CircuitPool, directory: Any) -> Any:
    """What a node's entry answers: to clients it shows neither metrics nor the channel of schedulers."""

    def destination() -> Any:
        return next(one for one in directory.current().destinations if one.operator == whole.node.address)

    sessions = Sessions(pool, destination)
    await sessions.current()
    async with httpx.AsyncClient(base_url="https://node", transport=OverlayTransport(sessions), timeout=60) as client:
        assert (await client.get("/metrics")).status_code == 404
        found = (await client.get("/readyz")).json()
    await sessions.close()
    return found


async def who_is_not_bonded_is_not_listed(whole: Whole, folder: Path) -> None:
    """A stranger, a node that calls itself a scheduler, and a node that leaves."""
    stage, stranger = whole.network.stage, Key.generate()
    async with AsyncExitStack() as stack:
        refused = [("node", stranger), ("scheduler", stranger), ("scheduler", stage.nodes[1])]
        for number, (kind, key) in enumerate(refused):
            await stack.enter_async_context(scheduler_entry(whole, folder / f"refused{number}", kind, key))
        await stage.send(stage.owner_of(whole.node), Part.REGISTRY, "deregister", whole.node.address)
        await until(whole, lambda listing: len(listing.destinations) == 1)
        since = (await whole.listed()).valid_after
        # Two more lists, so that all had their time to be entered.
        listing = await until(whole, lambda listing: listing.valid_after >= since + 2 * PERIOD)
        assert [one.operator for one in listing.destinations] == [stage.scheduler.address]


async def until(whole: Whole, condition: Callable[[Listing], bool]) -> Listing:
    """The first list that fulfils the condition."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while True:
        listing = await whole.listed()
        if condition(listing):
            return listing
        assert asyncio.get_running_loop().time() < deadline, listing.destinations
        await asyncio.sleep(PERIOD / 4)


async def test_an_entry_of_a_part_of_the_model_is_refused() -> None:
    nothing: Any = None
    part: Any = SimpleNamespace(engine=SimpleNamespace(slice=Segment(0, 1), layers=2))
    entry: Any = SimpleNamespace(overlay=OverlayEntry("127.0.0.1", 0, ("127.0.0.1", 0), nothing, 2.0))
    direct = Direct(entry, Operator(b"\x01" * 32, Domain(31337, NO_ADDRESS)), CollectorRegistry(), list)
    with pytest.raises(ConfigError, match="whole model"):
        await direct.run(part, nothing, nothing)
