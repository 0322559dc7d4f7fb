"""A client in direct mode over relays and circuits: real sockets, two nodes at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.client_stage import CLASS, SCHEDULER
from support.direct_client_stage import NODES, Entries, direct_order, whole_state
from support.paths_stage import PoolStage, pool_stage

from troth.client.direct.calls import DirectCalls
from troth.client.direct.overlay_ways import node_choice, overlay_opening
from troth.client.direct.ways import Ways
from troth.client.errors import OverlayFailed
from troth.overlay.circuits.descriptors import Directory, Place
from troth.overlay.directory.listing import ListedDestination, Listing
from troth.overlay.identity import create_identity
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.overlay.sessions.asgi import serve_application
from troth.overlay.sessions.destination import Destination
from troth.protocol.types import Address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ONE, OTHER, *_ = NODES


@dataclass
class Scene:
    """Two entries behind relays, and the calls that lead there."""

    at: PoolStage
    nodes: Entries
    listing: Listing
    ways: Ways
    calls: DirectCalls
    servers: dict[Address, DeliveryServer] = field(default_factory=dict)

    async def order(self, near: Address) -> list[dict[str, Any]]:
        signed = direct_order()
        self.nodes.signed["0x" + signed.signature.hex()] = signed
        async with aclosing(self.calls.near(near).order(signed.to_json())) as lines:
            return [line async for line in lines]


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    async with pool_stage(folder) as at, AsyncExitStack() as stack:
        nodes = Entries()
        app = nodes.app()
        places, listed, servers = [], [], {}
        for node in (ONE, OTHER):

            async def prefixed(request: Any, receive: Any, send: Any, node: Address = node) -> None:
                # Behind one socket the stage tells nodes apart by their paths; here each has an entry of its own.
                request["path"] = f"/{node}{request['path']}"
                await app(request, receive, send)

            identity, secret = create_identity(folder / node), X25519PrivateKey.generate()
            destination = Destination(identity.spki_sha256, secret, serve_application(prefixed))
            server = servers[node] = DeliveryServer(identity, destination.answers)
            place = Place("127.0.0.1", await server.start("127.0.0.1", 0), identity.spki_sha256)
            stack.push_async_callback(server.stop)
            stack.callback(destination.close)
            sweeping = asyncio.create_task(destination.sweeping())
            stack.callback(sweeping.cancel)
            places.append(place)
            listed.append(
                ListedDestination(place, secret.public_key().public_bytes_raw(), node.lower(), "node", 0, b"")
            )
        directory = Directory.of(tuple(relay.descriptor for relay in at.stage.relays), tuple(places))
        for relay in at.stage.relays:
            relay.switch.directory = directory
        listing = Listing(0, 2**40, (), tuple(listed))
        state = whole_state()
        ways = Ways(overlay_opening(at.pool, lambda: listing, lambda: state, SCHEDULER))
        stack.push_async_callback(ways.close)
        calls = DirectCalls(node_choice(lambda: listing, lambda: state), ways, CLASS)
        yield Scene(at, nodes, listing, ways, calls, servers)


async def test_orders_enter_where_they_are_meant_to_on_the_same_circuits(tmp_path: Path) -> None:
    async with scene(tmp_path) as found:
        assert await found.calls.classes() == {CLASS: (2,)}
        for node in (ONE, OTHER, ONE):
            lines = await found.order(node)
            assert [line["type"] for line in lines[-5:]] == ["served", "finished", "committed", "settled", "receipt"]
        assert found.nodes.entered == [ONE, OTHER, ONE]
        assert found.ways.nodes()[-1] == ONE
        assert set(found.ways.nodes()) == {ONE, OTHER}
        # Two sessions, and no more circuits than for one.
        assert found.at.pool.status.held == 4
        await found.ways.close()
        assert found.at.pool.status.held == 0


async def test_an_entry_that_is_gone_is_passed_over_before_the_order_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troth.client.direct.calls.KNOCK_SECONDS", 8.0)
    async with scene(tmp_path) as found:
        await found.servers[ONE].stop()
        lines = await found.order(ONE)
        assert lines[-1]["type"] == "receipt"
        assert found.nodes.entered == [OTHER]
        await found.servers[OTHER].stop()
        found.ways._ways[OTHER].answered = float("-inf")
        with pytest.raises(OverlayFailed) as raised:
            await found.order(OTHER)
        assert (raised.value.hop, raised.value.delivered) == ("node", "no")
        assert found.nodes.entered == [OTHER]
