"""The serving side of the channel: a websocket at /v1/channel in a FastAPI app.

The first word is in the upgrade request: a signed, empty envelope. A stranger is turned away there with a JSON
reason, before it can send a frame of any size. Then each request is answered under its nonce, in any order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import FastAPI, WebSocket
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, to_address
from troth.protocol.wire import Reply, decode_frame, encode_frame
from troth.transport.envelope import OVERHEAD, Clock, EnvelopeKind, Receiver, Sealed, seal
from troth.transport.errors import (
    INTERNAL,
    EnvelopeRefused,
    FrameTooLarge,
    MalformedEnvelope,
    NotAuthorised,
    OverlayError,
    Overloaded,
    encode_failure,
    failure_of,
)
from troth.transport.event_loop import beside
from troth.transport.identity import Operator

log = logging.getLogger(__name__)

PATH = "/v1/channel"
HELLO_HEADER = "troth-hello"
SAID_SECONDS, MOST_SAID, LONGEST_NAME = 600.0, 256, 96
"""For how long, and of how many, it is not said again that they are refused; characters of their names."""
Handler = Callable[[Address, Any, memoryview], Awaitable[tuple[Reply, bytes]]]
Authorise = Callable[[Address], bool]


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """What a server lends to its peers.

    Args:
        frame: bytes of the largest message; large enough for all rows of a full context.
        in_flight: requests being worked on at once, all connections together.
        in_flight_per_connection: the same for one connection.
        in_flight_bytes: of the requests being worked on, all connections together.
        connections: open connections, all senders together.
        connections_per_sender, in_flight_per_sender: of one sender, so that none can keep the others out.
    """

    frame: int = 64 * 2**20
    in_flight: int = 128
    in_flight_per_connection: int = 32
    in_flight_bytes: int = 1024 * 2**20
    connections: int = 256
    connections_per_sender: int = 8
    in_flight_per_sender: int = 64


class ChannelServer:
    """Authenticates connections and runs `handler(sender, header, payload) -> (header, payload)` for each request.

    Args:
        operator: whose endpoint this is.
        handler: may raise; an error with `what` and `remedy` reaches the sender as a Failure, others as "internal".
            The payload is a view that lives as long as somebody holds it.
        authorise: says whether a sender may connect; it is asked before the greeting's signature is checked.
        requests: the kinds of messages that are answered; `handler` gets no other.
        who: may call, in words, for those who are turned away.
        path: where it is served; an endpoint may have one channel for each kind of caller.
    """

    def __init__(
        self,
        operator: Operator,
        handler: Handler,
        authorise: Authorise,
        *,
        limits: ChannelLimits | None = None,
        clock: Clock | None = None,
        requests: tuple[type, ...],
        who: str = "bonded schedulers",
        path: str = PATH,
    ) -> None:
        self._path = path
        self._requests = requests
        self._who = who
        self._operator = operator
        self._handler = handler
        self._authorise = authorise
        self.limits = limits or ChannelLimits()
        self._receiver = Receiver(operator, clock) if clock else Receiver(operator)
        self._connections: set[_PeerConnection] = set()
        self._answering: dict[asyncio.Task[None], Address] = {}
        """Requests that are being worked on, and whose they are, also once their connection has ended."""
        self._said: dict[str, float] = {}
        self.in_flight = 0
        self.in_flight_bytes = 0

    def mount(self, app: FastAPI) -> None:
        """Serve the channel from `app` at its path."""
        # Not FastAPI's own kind of route, which parses the endpoint's source while the first peer waits.
        app.router.routes.append(WebSocketRoute(self._path, self._accept))

    async def drain(self) -> None:
        """Wait until every request that was started has been answered."""
        await asyncio.gather(*self._answering)

    def in_flight_of(self, sender: Address) -> int:
        """Requests of one sender that are being worked on, those of connections that it has left, too."""
        return sum(one == sender for one in self._answering.values())

    async def _accept(self, socket: WebSocket) -> None:
        try:
            sender = self._introduced(socket)
        except (OverlayError, ProtocolError) as error:
            self._say_refused(socket.headers.get(HELLO_HEADER, "").partition(" ")[0], error)
            body = encode_failure(failure_of(error))
            await socket.send_denial_response(Response(body, 403, media_type="application/json"))
            return
        # Counted before anything is awaited: greetings that come at once would all find room.
        connection = _PeerConnection(self, socket, sender)
        self._connections.add(connection)
        try:
            await socket.accept()
            await connection.run()
        finally:
            self._connections.discard(connection)

    def _is_news(self, name: str) -> bool:
        """Whether something is said of a name for the first time in a while: a party that left, or a stranger, tries
        again and again. Whoever makes names up finds the list full, and nobody is told of it any more."""
        name, now = name[:LONGEST_NAME], time.monotonic()
        self._said = {known: until for known, until in self._said.items() if until > now}
        if name in self._said or len(self._said) >= MOST_SAID:
            return False
        self._said[name] = now + SAID_SECONDS
        return True

    def _say_refused(self, claimed: str, error: Exception) -> None:
        log.log(logging.WARNING if self._is_news(claimed) else logging.DEBUG, "connection refused: %s", error)

    def _introduced(self, socket: WebSocket) -> Address:
        claimed, _, hello = socket.headers.get(HELLO_HEADER, "").partition(" ")
        try:
            frame = bytes.fromhex(hello)
        except ValueError as error:
            raise MalformedEnvelope("The greeting is not hexadecimal") from error
        sender = to_address(claimed)
        # Before the greeting is noted: strangers could fill the replay window, which turns newcomers away when full.
        if not self._authorise(sender):
            raise NotAuthorised(
                f"{sender} is not allowed here", remedy=f"Only {self._who} may call; check the registration."
            )
        if self._receiver.open(frame, sender).kind is not EnvelopeKind.HELLO:
            raise MalformedEnvelope("The greeting is another kind of message")
        own = sum(connection.sender == sender for connection in self._connections)
        if own >= self.limits.connections_per_sender:
            raise Overloaded(f"{own} connections of {sender} are open", remedy="Use those.")
        if len(self._connections) >= self.limits.connections:
            raise Overloaded(f"{len(self._connections)} connections are open", remedy="Try again later.")
        return sender

    def begin(self, sender: Address, sealed: Sealed, answering: asyncio.Task[None]) -> None:
        """Count a request that is about to be answered: those that come at once would all find room."""
        self.in_flight += 1
        self.in_flight_bytes += len(sealed.content)
        self._answering[answering] = sender
        answering.add_done_callback(self._answering.pop)

    async def answer(self, sender: Address, sealed: Sealed) -> bytes:
        """The sealed answer to a request that was begun, a failure included."""
        try:
            frame = decode_frame(sealed.content)
            if not isinstance(frame.header, self._requests):
                raise MalformedEnvelope("A peer sends requests only", type(frame.header).__name__)
            header, payload = await self._handler(sender, frame.header, frame.payload)
            content = encode_frame(header), payload
            if (size := sum(map(len, content))) > self.limits.frame:
                raise FrameTooLarge(f"The answer is {size} bytes, {self.limits.frame} are allowed")
        except Exception as error:  # noqa: BLE001 - the sender must get an answer whatever broke
            content = self._failed(sender, error), b""
        finally:
            self.in_flight -= 1
            self.in_flight_bytes -= len(sealed.content)
        return await self._reply(sender, sealed, content)

    def _failed(self, sender: Address, error: Exception) -> bytes:
        failure = failure_of(error)
        if failure.code == INTERNAL:
            log.error("a request of %s failed", sender, exc_info=error)
        else:
            level = logging.INFO if self._is_news(f"{sender} {failure.code}") else logging.DEBUG
            log.log(level, "a request of %s was refused: %s", sender, failure.code)
        return encode_frame(failure)

    async def _reply(self, sender: Address, sealed: Sealed, content: Sequence[bytes]) -> bytes:
        replying = partial(seal, now=self._receiver.now())
        size = sum(map(len, content))
        return await beside(size, replying, self._operator, sender, EnvelopeKind.REPLY, sealed.nonce, *content)

    async def receive(self, frame: bytes, sender: Address) -> Sealed:
        """The checked request in a frame; raises EnvelopeRefused."""
        # The websocket's own limit is that of the endpoint's most generous channel.
        if len(frame) > self.limits.frame + OVERHEAD:
            raise MalformedEnvelope(f"A message has at most {self.limits.frame} bytes here", len(frame))
        sealed = await self._receiver.open_beside(frame, sender)
        if sealed.kind is not EnvelopeKind.REQUEST:
            raise MalformedEnvelope("A peer sends requests only", sealed.kind.name)
        return sealed

    async def refuse(self, sender: Address, sealed: Sealed, error: OverlayError) -> bytes:
        """A sealed Failure for a request that was not started."""
        return await self._reply(sender, sealed, (encode_frame(failure_of(error)),))


class _PeerConnection:
    """One authenticated websocket: reads requests, answers each in its own task."""

    def __init__(self, server: ChannelServer, socket: WebSocket, sender: Address) -> None:
        self._server = server
        self._socket = socket
        self.sender = sender
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            while True:
                await self._take(await self._socket.receive_bytes())
        except WebSocketDisconnect:
            log.debug("%s disconnected", self.sender)
        except (EnvelopeRefused, KeyError) as error:
            # Nothing after an unbelievable frame can be believed either. KeyError: a text frame.
            log.warning("connection of %s closed: %s", self.sender, error)
            await self._socket.close(1008, str(error)[:120])

    async def _take(self, frame: bytes) -> None:
        sealed = await self._server.receive(frame, self.sender)
        limits = self._server.limits
        too_many = (
            len(self.tasks) >= limits.in_flight_per_connection
            or self._server.in_flight >= limits.in_flight
            or self._server.in_flight_of(self.sender) >= limits.in_flight_per_sender
        )
        held = self._server.in_flight_bytes
        if too_many or (held and held + len(sealed.content) > limits.in_flight_bytes):
            busy = Overloaded(f"{self._server.in_flight} requests are in flight", remedy="Try again in a second.")
            await self._socket.send_bytes(await self._server.refuse(self.sender, sealed, busy))
            return
        task = asyncio.create_task(self._answer(sealed))
        self._server.begin(self.sender, sealed, task)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, sealed: Sealed) -> None:
        frame = await self._server.answer(self.sender, sealed)
        try:
            await self._socket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError) as error:
            log.info("the answer came too late, %s is gone: %s", self.sender, error)
