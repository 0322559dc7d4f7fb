"""A party's entry to the overlay: its table in the configuration, and the application it serves there as over HTTPS."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from troth.overlay.attestation.measurement import Attested
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.overlay.directory.attesting import AttestedParty, attest
from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.directory.fetching import RETRY_SECONDS, DirectoryClient
from troth.overlay.directory.listing import CommitteeMembership, Listing, read_membership
from troth.overlay.directory.publishing import Published, keep_publishing, publish_destination
from troth.overlay.directory.vouched import VouchedMachines
from troth.overlay.relay.delivery import ALPN
from troth.overlay.relay.delivery_server import PROXIES, DeliveryServer
from troth.overlay.relay.keys import create_handshake_key, load_handshake_key
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.entry_section import ConfidentialEntry, OverlayEntry
from troth.overlay.sessions.limits import SessionMetrics
from troth.overlay.sessions.messages import HttpRequest, ResponseHead
from troth.overlay.sessions.serving import Responder, Serve
from troth.protocol.typed_data import address_of
from troth.transport.errors import OverlayError
from troth.transport.identity import TlsIdentity
from troth.transport.shared_port import SharedPort

__all__ = ["EntryKeys", "OverlayEntry", "SharedEntry", "overlay_entry", "shared_entry", "vouched_machines"]

_Message = MutableMapping[str, Any]
Application = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]
_SCHEME = "troth"
log = logging.getLogger(__name__)
Kind = Literal["scheduler", "node"]


def serve_application(application: Application) -> Serve:
    """A `Serve` that hands each request to the application (ASGI 3.0, HTTP)."""

    async def serve(request: HttpRequest, responder: Responder) -> None:
        gone = asyncio.Event()
        asked = False

        async def receive() -> _Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": request.body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: _Message) -> None:
            if message["type"] == "http.response.start":
                headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
                await responder.head(ResponseHead(int(message["status"]), headers))
            elif message["type"] == "http.response.body" and message.get("body"):
                await responder.body(bytes(message["body"]))

        try:
            await application(_scope(request), receive, send)
        finally:
            gone.set()

    return serve


def _scope(request: HttpRequest) -> _Message:
    path, _, query = request.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": _SCHEME,
        "path": unquote(path),
        "raw_path": path.encode("ascii", "ignore"),
        "query_string": query.encode("ascii", "ignore"),
        "root_path": "",
        "headers": [
            (name.lower().encode("latin-1", "ignore"), value.encode("latin-1", "ignore"))
            for name, value in request.headers
        ],
        # No client: the overlay does not know one, and nothing behind it may believe that it does.
        "client": None,
        "server": None,
        "extensions": {},
    }


@dataclass(frozen=True, slots=True)
class EntryKeys:
    """Who answers at an entry: its kind in the directory, its operator's key, its TLS key, and the file of the X25519
    key to which clients seal (made on first use)."""

    kind: Kind
    operator_secret: bytes
    identity: TlsIdentity
    seal_key: Path


@dataclass(frozen=True, slots=True)
class SharedEntry:
    """A port that an entry shares, and how many proxies it may have there at once."""

    port: SharedPort
    connections: int = PROXIES


def shared_entry(entry: OverlayEntry | None, connections: int = PROXIES) -> SharedEntry | None:
    """The port for a server and its entry; None where they share none."""
    return SharedEntry(SharedPort((ALPN,)), connections) if entry is not None and entry.shares else None


@asynccontextmanager
async def overlay_entry(  # noqa: PLR0917
    entry: OverlayEntry | None,
    rpc: str,
    keys: EntryKeys,
    app: FastAPI,
    registry: CollectorRegistry,
    shared: SharedEntry | None = None,
) -> AsyncIterator[None]:
    """Takes deliveries inside the block, and has the committee list it; does nothing without an entry.

    Args:
        shared: as `shared_entry` makes it for this entry.
    """
    if entry is None:
        yield
        return
    # A key on a disk may be read by whoever owns the disk: what is attested lives in the guest's memory alone.
    secret = X25519PrivateKey.generate() if entry.confidential is not None else _seal_secret(keys.seal_key)
    name = keys.identity.spki_sha256
    destination = Destination(name, secret, serve_application(app), metrics=SessionMetrics(registry))
    connections = PROXIES if shared is None else shared.connections
    server = DeliveryServer(keys.identity, destination.answers, connections=connections)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        if shared is not None:
            stack.enter_context(shared.port.serving(ALPN, server.protocol))
        else:
            await server.start(entry.host, entry.port)
        log.info("taking deliveries of the overlay at %s:%d", *entry.address)
        stack.callback(destination.close)
        for work in (destination.sweeping(), _publishing(rpc, entry, keys, secret)):
            task = asyncio.create_task(work)
            stack.callback(task.cancel)
        yield


@asynccontextmanager
async def vouched_machines(entry: OverlayEntry | None, rpc: str, kept: Path) -> AsyncIterator[VouchedMachines | None]:
    """Whom a party hands prompts and answers to, by the lists that it follows inside the block; None for one that is
    not confidential, which serves anybody.

    Args:
        kept: where the newest list is kept between processes.
    """
    if entry is None or entry.confidential is None:
        yield None
        return
    client = DirectoryClient.over(rpc, entry.committee, kept, lambda _: None, RETRY_SECONDS)

    def current() -> Listing:
        found = client.current()
        if found is None:
            raise DirectoryUnavailable("No list holds now", entry.committee, "Try again in a minute.")
        return found

    client.start()
    try:
        yield VouchedMachines(current, entry.confidential.trusted)
    finally:
        await client.stop()


def _seal_secret(path: Path) -> X25519PrivateKey:
    return load_handshake_key(path) if path.exists() else create_handshake_key(path)


async def _attested(
    confidential: ConfidentialEntry | None, keys: EntryKeys, seal_key: bytes, membership: CommitteeMembership
) -> Attested | None:
    """What the members vouch for; None where nothing is shown, and where they are too few: the entry is then listed
    without, and no confidential order comes."""
    if confidential is None:
        return None
    party = AttestedParty(keys.identity.spki_sha256, seal_key, address_of(keys.operator_secret), keys.kind)
    try:
        found = await attest(confidential.attester, party, membership)
    except OverlayError as error:
        log.warning("not attested, so that no confidential order comes: %s", error)
        return None
    log.info("attested as %s until %d", found.measurement, found.until)
    return found


async def _publishing(rpc: str, entry: OverlayEntry, keys: EntryKeys, secret: X25519PrivateKey) -> None:
    seal_key = secret.public_key().public_bytes_raw()

    async def once() -> Published:
        membership = await read_membership(rpc, entry.committee)
        place = PinnedAddress(await _literal(*entry.address), entry.address[1], keys.identity.spki_sha256)
        attested = await _attested(entry.confidential, keys, seal_key, membership)
        return await publish_destination(
            keys.operator_secret, keys.identity, place, membership, seal_key=seal_key, kind=keys.kind, attested=attested
        )

    await keep_publishing(once, again=entry.publish_seconds)


async def _literal(host: str, port: int) -> str:
    """The address behind a host's name, of IPv4 where there is one: lists hold addresses, so that no proxy has to tell
    a resolver whom it serves."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DirectoryUnavailable(
            f"{host} has no address", error, "Correct the name under which proxies come."
        ) from error
    return str(min(found, key=lambda one: one[0] is not socket.AF_INET)[4][0])
