"""Endpoints lent to nodes that nobody can connect to: the side of whoever lends them, in front of the visitors.

A node keeps one signed question open (``wire_tunnel.Attend``). While it does, a port of its own is listened on here.
Who connects there is announced to the node by a ticket; the node fetches the visitor with a second connection, and
bytes pass from one to the other unread. The visitor's TLS ends at the node, with the key that the chain names.

Nothing is held for a visitor but two buffers: who sends faster than the other end reads has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from fastapi import FastAPI, WebSocket
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import WebSocketException

from troth.protocol.types import Address
from troth.protocol.wire import TUNNEL_REQUESTS
from troth.protocol.wire_tunnel import VISITORS_LIMIT, Attend, Visited
from troth.transport.channel_server import ChannelLimits, ChannelServer
from troth.transport.errors import TunnelRefused, encode_failure, failure_of
from troth.transport.https import CONNECTIONS
from troth.transport.identity import Operator
from troth.transport.listener import customer_of

log = logging.getLogger(__name__)

TUNNEL_PATH = "/v1/tunnel"
LOOKS = 8
"""Within the time after which a silent node's port is closed."""
PIECE = 32 * 1024
"""Most bytes that are read of a visitor, and sent to it, at once."""
ATTEND_LIMITS = ChannelLimits(
    frame=4 * 1024,
    in_flight=4096,
    in_flight_per_connection=2,
    in_flight_bytes=2**20,
    connections=2048,
    connections_per_sender=4,
    in_flight_per_sender=8,
)
BROKEN = (OSError, RuntimeError, KeyError, EOFError, WebSocketDisconnect, WebSocketException)
"""How the end of a connection shows. KeyError: a text frame; RuntimeError: a frame after the end."""


@dataclass(frozen=True, slots=True)
class TunnelLimits:
    """What is lent, in seconds and visitors.

    Args:
        hold: how long a node's question stays open where nobody comes.
        away: after how long without a question the port is closed.
        arrival: within which a node fetches a visitor.
        visitors: of one node at a time. The node sees all of them come from one address, so it cannot bound this.
        visitors_per_customer: of one node, from one address.
        visitors_in_all: half of the connections that the lender's own server has (`https.CONNECTIONS`): each visitor
            takes one of them, and the lender's clients need the rest.
    """

    hold: float = 15.0
    away: float = 40.0
    arrival: float = 8.0
    visitors: int = VISITORS_LIMIT
    visitors_per_customer: int = 16
    visitors_in_all: int = CONNECTIONS // 2


@dataclass(eq=False, slots=True)
class _Visitor:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    customer: object
    fetched: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class _Lent:
    """One node's port. ``turn`` counts its questions: only the newest gets tickets, an older one's line may be dead.
    ``silent``: looks at it since the last question."""

    port: int
    session: int
    silent: int = 0
    turn: int = 0
    listening: asyncio.Server | None = None
    waiting: list[bytes] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    visitors: set[_Visitor] = field(default_factory=set)

    def wake(self) -> None:
        """Have open questions look again."""
        self.news.set()
        self.news = asyncio.Event()

    def close(self) -> None:
        """Nobody comes in any more, and who is in leaves."""
        if self.listening is not None:
            self.listening.close()
        for visitor in self.visitors:
            visitor.writer.transport.abort()
        self.wake()


class TunnelServer:
    """Lends ports of one host to nodes. An asynchronous context manager; ``mount`` it on the application.

    Args:
        host: where visitors are listened for.
        port_of: the port that a node may have now; raises a TrothError that tells it why it may not.
        authorise: whether somebody may ask at all.
    """

    def __init__(
        self,
        operator: Operator,
        host: str,
        port_of: Callable[[Address], Awaitable[int]],
        authorise: Callable[[Address], bool],
        limits: TunnelLimits | None = None,
    ) -> None:
        self._host = host
        self._port_of = port_of
        self._limits = limits or TunnelLimits()
        self._lent: dict[Address, _Lent] = {}
        self._tickets: dict[bytes, _Visitor] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._channel = ChannelServer(
            operator,
            self._attend,
            authorise,
            limits=ATTEND_LIMITS,
            requests=TUNNEL_REQUESTS,
            who="nodes whose endpoint on chain is lent here",
            path=TUNNEL_PATH,
        )
        self.passed = 0

    @property
    def nodes(self) -> int:
        """Nodes that are reached through here now."""
        return len(self._lent)

    @property
    def visitors(self) -> int:
        """Connections that pass through here now."""
        return sum(len(lent.visitors) for lent in self._lent.values())

    def mount(self, app: FastAPI) -> None:
        """Serve the nodes' side."""
        self._channel.mount(app)
        app.add_api_websocket_route(TUNNEL_PATH + "/{ticket}", self._fetch)

    async def __aenter__(self) -> Self:
        """Start to take ports back from nodes that went silent."""
        self._sweeping = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every port."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for node in list(self._lent):
            self._take_back(node)

    # -------------------------------------------------------------------------------------------------- the node's line

    async def _attend(self, node: Address, question: Attend, _payload: memoryview) -> tuple[Visited, bytes]:
        port = await self._port_of(node)
        lent = await self._lend(node, port, question.session)
        lent.silent, lent.turn = 0, lent.turn + 1
        turn = lent.turn
        lent.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.hold):
                # The first one is answered at once: the node learns that its tunnel stands.
                while not lent.waiting and lent.turn == turn > 1 and self._lent.get(node) is lent:
                    await lent.news.wait()
        if lent.turn != turn or self._lent.get(node) is not lent:
            return Visited(), b""
        lent.silent = 0
        tickets, lent.waiting = tuple(lent.waiting), []
        return Visited(tickets), b""

    async def _lend(self, node: Address, port: int, session: int) -> _Lent:
        lent = self._lent.get(node)
        if lent is not None and session < lent.session:
            remedy = "Stop one of the two processes, and leave this one alone for a minute."
            raise TunnelRefused("A process of this node that started later has the tunnel", session, remedy)
        if lent is not None and (lent.port, lent.session) == (port, session):
            return lent
        if lent is not None:
            self._take_back(node)
        made = self._lent[node] = _Lent(port, session)
        try:
            made.listening = await asyncio.start_server(
                lambda reader, writer: self._receive(made, reader, writer), self._host, port, limit=PIECE
            )
        except OSError as error:
            if self._lent.get(node) is made:
                del self._lent[node]
            remedy = "Ask its operator to free the port, or take another one: troth node reach."
            raise TunnelRefused(f"The scheduler cannot listen on {port}", error, remedy) from error
        if self._lent.get(node) is not made:
            made.close()
        log.info("%s is reached through port %d", node, port)
        return made

    def _take_back(self, node: Address) -> None:
        lent = self._lent.pop(node)
        lent.close()
        log.info("port %d of %s is closed", lent.port, node)

    async def _sweep(self) -> None:
        while True:
            # Looks are counted, and not seconds: after a pause of this process nobody can have asked yet.
            await asyncio.sleep(self._limits.away / LOOKS)
            for node, lent in list(self._lent.items()):
                lent.silent += 1
                if lent.silent > LOOKS:
                    self._take_back(node)

    # -------------------------------------------------------------------------------------------------------- visitors

    async def _receive(self, lent: _Lent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A visitor has come: it is announced, and waits until the node fetches it or the time is over."""
        visitor = _Visitor(reader, writer, customer_of(writer.get_extra_info("peername")))
        own = sum(other.customer == visitor.customer for other in lent.visitors)
        limits = self._limits
        full = len(lent.visitors) >= limits.visitors or self.visitors >= limits.visitors_in_all
        if full or own >= limits.visitors_per_customer:
            writer.transport.abort()
            return
        ticket = secrets.token_bytes(32)
        lent.visitors.add(visitor)
        self._tickets[ticket] = visitor
        lent.waiting.append(ticket)
        lent.wake()
        writer.transport.set_write_buffer_limits(high=PIECE)
        try:
            async with asyncio.timeout(self._limits.arrival):
                await visitor.fetched.wait()
            await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            self._tickets.pop(ticket, None)
            lent.visitors.discard(visitor)
            if ticket in lent.waiting:
                lent.waiting.remove(ticket)

    async def _fetch(self, socket: WebSocket) -> None:
        """The node has come for a visitor; who shows the ticket is the node, to which alone it was told."""
        try:
            visitor = self._tickets.pop(bytes.fromhex(socket.path_params["ticket"]))
        except (KeyError, ValueError):
            refusal = TunnelRefused("There is no such visitor, or not any more", remedy="Ask who comes again.")
            body = encode_failure(failure_of(refusal))
            await socket.send_denial_response(Response(body, 404, media_type="application/json"))
            return
        try:
            await socket.accept()
            visitor.fetched.set()
            await first_ended(self._inwards(visitor, socket), self._outwards(visitor, socket))
        finally:
            # What the node said last still leaves; but not for as long as the visitor likes to take.
            visitor.writer.close()
            asyncio.get_running_loop().call_later(self._limits.arrival, visitor.writer.transport.abort)

    async def _inwards(self, visitor: _Visitor, socket: WebSocket) -> None:
        while piece := await visitor.reader.read(PIECE):
            self.passed += len(piece)
            await socket.send_bytes(piece)
        await socket.close()

    async def _outwards(self, visitor: _Visitor, socket: WebSocket) -> None:
        while True:
            piece = await socket.receive_bytes()
            self.passed += len(piece)
            visitor.writer.write(piece)
            await visitor.writer.drain()


async def first_ended(*ways: Coroutine[Any, Any, None]) -> None:
    """Both directions of a connection until one of them ends; what else than that ended it is logged."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, BROKEN):
                log.error("a connection through a tunnel failed", exc_info=ended)
