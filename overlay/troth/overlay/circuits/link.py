"""Links: TLS 1.3 connections between neighbours, on which cells of many circuits travel, shared by all of them.

The end that connected is on the client's side of every circuit on the link and alone may begin one. It checks the
other's pin; the other learns nothing but an address. The version is agreed by ALPN, within the TLS handshake.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from troth.overlay.cells.format import Cell, CellReader
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.transport.errors import CellRefused, ChannelUnavailable, Overloaded, WrongTlsKey
from troth.transport.identity import TlsIdentity
from troth.transport.tls import as_wrong_tls_key, pinned_context, server_context

log = logging.getLogger(__name__)

ALPN = "troth-cells/1"
HIGH_WATER, LOW_WATER = 128 * 1024, 32 * 1024
"""Bytes that wait in a connection before its cells wait in the relay's bounded queues, where they can be dropped."""
MOST_LINKS = 256
OPENING_SECONDS = 5.0
"""For TCP and TLS together."""


class LinkOwner(Protocol):
    """Who is told what happens on a link. All calls come from the event loop."""

    def cell_came(self, link: Link, cell: Cell) -> None:
        """A cell; may raise CellRefused, which closes the link."""

    def batch_ended(self) -> None:
        """All cells that came together were told: write what they caused."""

    def link_ready(self, link: Link) -> None:
        """The link takes cells again after it was full."""

    def link_lost(self, link: Link) -> None:
        """The link is gone, with every circuit on it."""


class Link(asyncio.Protocol):
    """One end of a link. `dialed`: this end connected, so it is nearer to the clients."""

    def __init__(self, owner: LinkOwner, *, dialed: bool, on_open: Callable[[Link], None] | None = None) -> None:
        self._owner = owner
        self._on_open = on_open
        self._reader = CellReader()
        self._batch: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.dialed = dialed
        self.full = False
        self.last_used = 0.0
        self.host = ""

    @property
    def open(self) -> bool:
        """Whether cells can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TLS handshake is over; the protocol that both ends speak is agreed, or the link is closed."""
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        tls = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != ALPN:
            transport.abort()
            return
        self.last_used = asyncio.get_running_loop().time()
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Hand on every cell that is complete."""
        owner = self._owner
        try:
            for cell in self._reader.feed(data):
                owner.cell_came(self, cell)
        except CellRefused as error:
            log.info("a link was closed: %s", error)
            self.abort()
        finally:
            owner.batch_ended()

    def send(self, cell: bytes) -> None:
        """Put a cell into the batch that the next `flush` writes."""
        self._batch.append(cell)

    def flush(self) -> None:
        """Write the batch: one TLS record for many cells."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(batch[0] if len(batch) == 1 else b"".join(batch))

    def pause_writing(self) -> None:
        """The peer reads slower than we write."""
        self.full = True

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.full = False
        self._owner.link_ready(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Everything on this link is over."""
        self._transport = None
        self._owner.link_lost(self)

    def close(self) -> None:
        """Send what was written, then close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def link_server_context(identity: TlsIdentity) -> ssl.SSLContext:
    """The TLS context of a relay's listening end."""
    context = server_context(identity)
    context.set_alpn_protocols([ALPN])
    # Sessions would let a relay recognise a client that comes back.
    context.num_tickets = 0
    return context


def link_client_context(tls_key_hash: bytes, protocol: str = ALPN) -> ssl.SSLContext:
    """The TLS context that connects to one key and nobody else."""
    context = pinned_context(tls_key_hash)
    context.set_alpn_protocols([protocol])
    return context


async def dial(place: PinnedAddress, owner: LinkOwner, seconds: float) -> Link:
    """An open link to `place`; raises WrongTlsKey or ChannelUnavailable."""
    address = f"{place.host}:{place.port}"
    loop = asyncio.get_running_loop()
    tls = link_client_context(place.tls_key_hash)
    try:
        async with asyncio.timeout(seconds):
            _, link = await loop.create_connection(
                lambda: Link(owner, dialed=True), place.host, place.port, ssl=tls, server_hostname=""
            )
    except (OSError, TimeoutError, ValueError) as error:
        wrong_key: WrongTlsKey | None = as_wrong_tls_key(error, address)
        if wrong_key is not None:
            raise wrong_key from error
        raise ChannelUnavailable(f"{address} cannot be reached", error) from error
    if not link.open:
        raise ChannelUnavailable(f"{address} does not speak {ALPN}", remedy="Both ends need the same version.")
    link.host = place.host
    return link


class LinkPool:
    """Links that this end dialed, by the name of the other end.

    Args:
        owner: who gets their cells.
    """

    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        self._links: dict[bytes, Link] = {}
        self._opening: dict[bytes, asyncio.Task[Link]] = {}

    def __len__(self) -> int:
        return len(self._links) + len(self._opening)

    async def to(self, place: PinnedAddress) -> Link:
        """The open link to `place`; raises WrongTlsKey, ChannelUnavailable or Overloaded."""
        link = self._links.get(place.name)
        if link is not None and link.open:
            return link
        opening = self._opening.get(place.name)
        if opening is None:
            if len(self) >= MOST_LINKS:
                raise Overloaded("Too many links are open", len(self), "Try again later.")
            opening = self._opening[place.name] = asyncio.create_task(self._open(place))
            # Everybody who waits may be gone before it fails.
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(opening)

    async def _open(self, place: PinnedAddress) -> Link:
        try:
            link = await dial(place, self._owner, OPENING_SECONDS)
            self._links[place.name] = link
            return link
        finally:
            self._opening.pop(place.name, None)

    def forget(self, link: Link) -> None:
        """The link is gone."""
        for name in [name for name, known in self._links.items() if known is link]:
            del self._links[name]

    def links(self) -> tuple[Link, ...]:
        """Those that are open now."""
        return tuple(self._links.values())

    async def close(self) -> None:
        """Close all; whoever waits for one gets ChannelUnavailable."""
        for opening in self._opening.values():
            opening.cancel()
        results = await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for link in (*self._links.values(), *(one for one in results if isinstance(one, Link))):
            link.close()
        self._links.clear()
