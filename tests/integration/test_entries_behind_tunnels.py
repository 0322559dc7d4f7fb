"""A node that nobody can connect to is an entry of the overlay: the port that it is lent carries its HTTPS and the
deliveries of proxies. Lender, node, committee and relays are real sockets with TLS; what each of them may try fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from starlette.responses import Response
from support.committee_stage import DOMAIN, committee_stage
from support.committee_stage import Stage as Committee
from support.lending import NODE, OTHER, QUICK, Lending
from support.overlay_stage import Stage as Relays
from support.overlay_stage import overlay_stage
from support.session_stage import StagedCircuits, whole
from support.waiting import eventually

from troth.overlay.circuits.descriptors import Directory, PinnedAddress
from troth.overlay.circuits.link import link_client_context
from troth.overlay.directory.errors import DescriptorRefused
from troth.overlay.directory.listing import CommitteeMembership, ListedDestination
from troth.overlay.directory.publishing import publish_destination
from troth.overlay.relay.delivery import ALPN
from troth.overlay.sessions import entry as entries
from troth.overlay.sessions import session as sessions
from troth.overlay.sessions.entry import EntryKeys, OverlayEntry, SharedEntry, overlay_entry, shared_entry
from troth.overlay.sessions.errors import RequestFailed
from troth.overlay.sessions.session import opened
from troth.protocol.typed_data import address_of
from troth.transport.errors import CircuitFailed, OverlayError, WrongTlsKey
from troth.transport.https import naming_errors, pinned_client
from troth.transport.identity import Operator, create_identity
from troth.transport.server import TlsServer, serving
from troth.transport.tunnel_client import Tunnel

RELAYS, PROXIES = 12, 3
ROOMY = replace(QUICK, visitors=32, visitors_per_customer=32, visitors_in_all=64)
FAILURES = (CircuitFailed, RequestFailed, OverlayError, TimeoutError)


class Entry:
    """A node's server on loopback, and its entry on the same port; ``asked``: what came over the overlay."""

    def __init__(self, folder: Path, lending: Lending, operator: Operator = NODE, proxies: int = 32) -> None:
        self.identity, self.operator, self.lending = create_identity(folder / "tls"), operator, lending
        self.seal = folder / "seal.pem"
        self.place = PinnedAddress("127.0.0.1", lending.ports[operator.address], self.identity.spki_sha256)
        self.asked: list[str] = []
        self.configured = OverlayEntry("", 0, ("localhost", self.place.port), DOMAIN.contract, 3600.0)
        shared = shared_entry(self.configured, proxies)
        assert shared is not None
        self.shared: SharedEntry = shared
        self.server = TlsServer(self._open_app(), self.identity, "127.0.0.1", 0, shared=shared.port)
        self.tunnel = Tunnel(operator, lambda: lending.lender, "127.0.0.1")

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.place.port}"

    @staticmethod
    def _open_app() -> FastAPI:
        app = FastAPI()

        @app.get("/livez")
        async def live() -> str:
            return "openly"

        return app

    def _entry_app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/{path}")
        async def echo(request: Request, path: str) -> Response:
            self.asked.append(path)
            return Response(f"{path} ".encode() + await request.body())

        return app

    @property
    def listed(self) -> ListedDestination:
        """As clients have it from the committee's list."""
        public = entries._seal_secret(self.seal).public_key().public_bytes_raw()
        return ListedDestination(self.place, public, address_of(self.operator.secret), "node", 0, b"")

    @asynccontextmanager
    async def serving(self, *, taking: bool = True) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serving(self.server))
            self.tunnel.start(self.server.port)
            stack.push_async_callback(self.tunnel.close)
            await self.lending.attended(self.operator)
            if taking:
                await stack.enter_async_context(self.taking())
            yield

    @asynccontextmanager
    async def taking(self) -> AsyncIterator[None]:
        keys = EntryKeys("node", self.operator.secret, self.identity, self.seal)
        app = self._entry_app()
        async with overlay_entry(self.configured, "", keys, app, CollectorRegistry(), self.shared):
            yield


@pytest.fixture
async def committee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Committee]:
    async with committee_stage(tmp_path / "committee", 3) as stage:
        stage.bonded.update((operator.address, "node") for operator in (NODE, OTHER))

        async def membership(_rpc: str, _contract: object) -> CommitteeMembership:
            return stage.membership

        monkeypatch.setattr(entries, "read_membership", membership)
        yield stage


@pytest.fixture
async def relays(tmp_path: Path) -> AsyncIterator[Relays]:
    async with overlay_stage(tmp_path / "relays", RELAYS) as stage:
        yield stage


def lead(relays: Relays, **places: PinnedAddress) -> None:
    """Have all relays believe this of where destinations are."""
    known = Directory.of(tuple(relay.descriptor for relay in relays.relays), tuple(places.values()))
    for relay in relays.relays:
        relay.switch.directory = known


async def asked(relays: Relays, entry: Entry, body: bytes = b"") -> bytes:
    session = await opened(StagedCircuits(relays.client, relays.relays), entry.listed)
    try:
        return await whole(session, "/question", body)
    finally:
        await session.close()


async def test_an_entry_behind_a_tunnel_is_listed_and_answers_beside_its_https(
    tmp_path: Path, committee: Committee, relays: Relays
) -> None:
    lending = Lending(tmp_path / "lender", ROOMY)
    node = Entry(tmp_path / "node", lending)
    async with lending.serving(), node.serving():
        await eventually(lambda: all(one.state.admission.entries().destinations for one in committee.members))
        (found,) = committee.members[0].state.admission.entries().destinations
        # Listed by its address, though the configuration has a name.
        assert (found.descriptor.host, found.descriptor.port) == (node.place.host, lending.port)
        assert found.descriptor.tls_key_hash == node.identity.spki_sha256
        lead(relays, node=node.place)
        assert await asked(relays, node, bytes(100_000)) == b"question " + bytes(100_000)
        async with pinned_client(node.endpoint, node.identity.spki_sha256) as client:
            assert (await client.get("/livez")).json() == "openly"
            assert (await client.post("/question")).status_code == 404, "what clients ask over the overlay is not open"
    assert node.asked == ["question"]


async def test_an_entry_that_does_not_take_yet_cuts_proxies_off_and_serves_https(
    tmp_path: Path, committee: Committee
) -> None:
    lending = Lending(tmp_path / "lender", ROOMY)
    node = Entry(tmp_path / "node", lending)
    async with lending.serving(), node.serving(taking=False):
        reader, writer = await proxy(node)
        assert not await reader.read()
        writer.close()
        async with pinned_client(node.endpoint, node.identity.spki_sha256) as client:
            assert (await client.get("/livez")).status_code == 200
        async with node.taking():
            reader, writer = await proxy(node)
            with contextlib.suppress(TimeoutError):
                assert await asyncio.wait_for(reader.read(1), 0.5) == b"?", "it is held"
            writer.close()


async def proxy(node: Entry) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = link_client_context(node.identity.spki_sha256, ALPN)
    return await asyncio.open_connection("127.0.0.1", node.place.port, ssl=context, server_hostname="")


# ------------------------------------------------------------------------------------------------------------- attacks


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CIRCUIT_SECONDS", 4.0)


@pytest.mark.usefixtures("impatient")
async def test_a_lender_that_leads_proxies_to_another_node_gets_nothing_delivered(
    tmp_path: Path, committee: Committee, relays: Relays
) -> None:
    """Both nodes' visitors are crossed: every proxy meets the other's TLS key."""
    lending = Lending(tmp_path / "lender", ROOMY)
    node, other = Entry(tmp_path / "node", lending), Entry(tmp_path / "other", lending, OTHER)
    async with lending.serving(), node.serving(), other.serving():
        node.tunnel._place, other.tunnel._place = other.tunnel._place, node.tunnel._place
        lead(relays, node=node.place)
        async with pinned_client(node.endpoint, node.identity.spki_sha256) as client:
            with pytest.raises(WrongTlsKey), naming_errors(node.endpoint):
                await client.get("/livez")
        with pytest.raises(FAILURES):
            await asyncio.wait_for(asked(relays, node), 30)
    assert (node.asked, other.asked) == ([], [])


@pytest.mark.usefixtures("impatient")
async def test_a_relay_that_redirects_a_message_delivers_what_the_other_cannot_open(
    tmp_path: Path, committee: Committee, relays: Relays
) -> None:
    """Relays that hand everything for one entry to another: it is sealed to the first one's key and name."""
    lending = Lending(tmp_path / "lender", ROOMY)
    node, other = Entry(tmp_path / "node", lending), Entry(tmp_path / "other", lending, OTHER)
    async with lending.serving(), node.serving(), other.serving():
        known = Directory(
            {one.descriptor.name: one.descriptor for one in relays.relays}, {node.place.name: other.place}
        )
        for relay in relays.relays:
            relay.switch.directory = known
        with pytest.raises(FAILURES):
            await asyncio.wait_for(asked(relays, node), 30)
        assert any(other.place.name in relay.switch.deliveries._connections for relay in relays.relays), (
            "it was led there"
        )
        lead(relays, node=node.place, other=other.place)
    assert (node.asked, other.asked) == ([], [])


async def test_a_flood_of_proxies_leaves_room_for_schedulers(tmp_path: Path, committee: Committee) -> None:
    lending = Lending(tmp_path / "lender", replace(ROOMY, visitors=2 * PROXIES))
    node = Entry(tmp_path / "node", lending, proxies=PROXIES)
    async with lending.serving(), node.serving():
        held = []
        for _ in range(4 * PROXIES):
            held.append(await proxy(node))
            await eventually(lambda: lending.tunnels.visitors <= PROXIES + 1)
        async with pinned_client(node.endpoint, node.identity.spki_sha256) as client:
            assert (await client.get("/livez")).status_code == 200
        assert lending.tunnels.visitors <= PROXIES + 1
        for reader, writer in held[:-PROXIES]:
            assert not await ended(reader), "the oldest gave way"
            writer.close()
        for _reader, writer in held[-PROXIES:]:
            writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except OSError:
        return b""


async def test_nobody_enters_the_tunnel_of_another_as_his_own(tmp_path: Path, committee: Committee) -> None:
    """OTHER is bonded, and publishes the port that is lent to NODE: under its own key, and under NODE's."""
    lending = Lending(tmp_path / "lender", ROOMY)
    node, own = Entry(tmp_path / "node", lending), create_identity(tmp_path / "own")
    seal = X25519PrivateKey.generate().public_key().public_bytes_raw()
    async with lending.serving(), node.serving():
        place = PinnedAddress("127.0.0.1", lending.port, own.spki_sha256)
        with pytest.raises(DescriptorRefused, match="0 of 3"):
            await publish_destination(OTHER.secret, own, place, committee.membership, seal_key=seal, kind="node")
        with pytest.raises(DescriptorRefused, match="0 of 3"):
            await publish_destination(OTHER.secret, own, node.place, committee.membership, seal_key=seal, kind="node")
