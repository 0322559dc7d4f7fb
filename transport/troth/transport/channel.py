"""The calling side of the channel: one pinned websocket to one peer, many requests in flight on it.

A request that was under way when the connection broke fails; it is not sent twice, for the peer may have acted on
it. The next request connects again, unless the last attempt failed too recently: then it fails at once and says when.
Who has nobody else to ask awaits that attempt first, with ``open`` and its ``wait``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from troth.protocol.types import Address
from troth.protocol.wire import Failure, Frame, Request, decode_frame, encode_frame
from troth.transport.channel_server import HELLO_HEADER, PATH
from troth.transport.envelope import OVERHEAD, EnvelopeKind, NonceSequence, check, seal, take_apart
from troth.transport.errors import (
    ChannelTimeout,
    ChannelUnavailable,
    EnvelopeRefused,
    FrameTooLarge,
    MalformedEnvelope,
    OverlayError,
    decode_failure,
    remote_failure,
)
from troth.transport.event_loop import beside
from troth.transport.identity import Operator
from troth.transport.tls import as_wrong_tls_key, pinned_context

log = logging.getLogger(__name__)

UNASKED_LIMIT = 64
"""Late answers in a row, each to a request that had timed out, before a peer is no longer listened to."""


@dataclass(frozen=True, slots=True)
class ChannelPatience:
    """Seconds to wait, and bytes to send at most.

    Args:
        connect: for TCP, TLS and the greeting together.
        request: for one answer, where the caller names no other limit.
        first_pause, longest_pause: between attempts to connect; doubles from the one to the other.
        frame: largest message in either direction.
    """

    connect: float = 5.0
    request: float = 60.0
    first_pause: float = 0.2
    longest_pause: float = 10.0
    frame: int = 64 * 2**20


class Channel:
    """Requests to one peer, identified by its operator address and its TLS key's SHA-256."""

    def __init__(
        self,
        endpoint: str,
        tls_key_hash: bytes,
        operator: Operator,
        recipient: Address,
        *,
        patience: ChannelPatience | None = None,
        path: str = PATH,
    ) -> None:
        if not endpoint.startswith("https://"):
            raise ChannelUnavailable("An endpoint starts with https://", endpoint, "Correct the registration.")
        self.endpoint = endpoint.rstrip("/")
        self._tls_key_hash = bytes(tls_key_hash)
        self.recipient = recipient
        self._path = path
        self._tls = pinned_context(tls_key_hash)
        self._operator = operator
        self._patience = patience or ChannelPatience()
        self._nonces = NonceSequence()
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pending: dict[bytes, asyncio.Future[memoryview]] = {}
        self._opening = asyncio.Lock()
        self._pause = 0.0
        self._not_before = 0.0
        self._unasked = 0
        self._closed = False

    @classmethod
    async def connect(
        cls,
        endpoint: str,
        tls_key_hash: bytes,
        operator: Operator,
        recipient: Address,
        *,
        patience: ChannelPatience | None = None,
    ) -> Channel:
        """An open channel; raises WrongTlsKey, RemoteFailure (turned away) or ChannelUnavailable."""
        channel = cls(endpoint, tls_key_hash, operator, recipient, patience=patience)
        await channel.open()
        return channel

    def leads_to(self, endpoint: str, tls_key_hash: bytes) -> bool:
        """Whether this is the way to a peer that is registered so."""
        return (self.endpoint, self._tls_key_hash) == (endpoint.rstrip("/"), bytes(tls_key_hash))

    @property
    def connected(self) -> bool:
        """Whether the connection stands now."""
        return self._socket is not None

    @property
    def idle(self) -> bool:
        """Whether no answer is awaited."""
        return not self._pending and not self._opening.locked()

    async def open(self, wait: float = 0.0) -> ClientConnection:
        """Connect unless connected, after a pause between attempts that is over within ``wait`` seconds.

        Raises as `connect` does: at once where the pause is longer, and where the attempt after it fails.
        """
        pause = self._not_before - time.monotonic()
        if self._socket is None and 0 < pause <= wait:
            await asyncio.sleep(pause)
        async with self._opening:
            if self._closed:
                raise ChannelUnavailable("The channel was closed", self.endpoint)
            if self._socket is not None:
                return self._socket
            wait = self._not_before - time.monotonic()
            if wait > 0:
                raise ChannelUnavailable(f"{self.endpoint} is unreachable, next attempt in {wait:.1f} s")
            try:
                socket = await self._dial()
            except OverlayError:
                self._pause = min(max(2 * self._pause, self._patience.first_pause), self._patience.longest_pause)
                self._not_before = time.monotonic() + self._pause
                raise
            self._pause = 0.0
            if self._closed:
                await socket.close()
                raise ChannelUnavailable("The channel was closed", self.endpoint)
            self._socket = socket
            self._reader = asyncio.create_task(self._read(socket))
            return socket

    async def request(self, header: Request, payload: bytes | memoryview = b"", timeout: float | None = None) -> Frame:
        """The peer's answer.

        Raises RemoteFailure (the peer's own words), ChannelTimeout, ChannelUnavailable, FrameTooLarge, WireError.
        """
        content = await beside(len(payload), encode_frame, header, payload)
        frame = decode_frame(await self._exchange(content, timeout))
        if isinstance(frame.header, Failure):
            raise remote_failure(self.endpoint, frame.header)
        return frame

    async def _exchange(self, content: bytes, timeout: float | None) -> memoryview:
        if len(content) + OVERHEAD > self._patience.frame:
            raise FrameTooLarge(f"The message is {len(content)} bytes, {self._patience.frame} are allowed")
        socket = self._socket or await self.open()
        nonce = self._nonces.next()
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._pending[nonce] = answer
        seconds = timeout if timeout is not None else self._patience.request
        try:
            async with asyncio.timeout(seconds):
                await socket.send(await beside(len(content), self._seal, EnvelopeKind.REQUEST, nonce, content))
                return await answer
        except TimeoutError as error:
            raise ChannelTimeout(f"{self.endpoint} did not answer within {seconds:g} s") from error
        except ConnectionClosed as error:
            raise ChannelUnavailable(f"The connection to {self.endpoint} broke", error) from error
        finally:
            self._pending.pop(nonce, None)
            if answer.done() and not answer.cancelled():
                # The connection broke while the request was being sent: the reader said so here too, unheard.
                answer.exception()

    async def round_trip(self, timeout: float) -> float:
        """Seconds there and back, without any work; raises ChannelTimeout or ChannelUnavailable."""
        socket = self._socket or await self.open()
        try:
            async with asyncio.timeout(timeout):
                return await (await socket.ping())
        except TimeoutError as error:
            raise ChannelTimeout(f"{self.endpoint} did not answer within {timeout:g} s") from error
        except ConnectionClosed as error:
            raise ChannelUnavailable(f"The connection to {self.endpoint} broke", error) from error

    async def close(self) -> None:
        """Close for good; requests in flight fail with ChannelUnavailable."""
        self._closed = True
        socket, reader = self._socket, self._reader
        if socket is not None:
            await socket.close()
        if reader is not None:
            await reader

    def _seal(self, kind: EnvelopeKind, nonce: bytes, content: bytes) -> bytes:
        return seal(self._operator, self.recipient, kind, nonce, content, now=int(time.time()))

    async def _dial(self) -> ClientConnection:
        hello = f"{self._operator.address} {self._seal(EnvelopeKind.HELLO, self._nonces.next(), b'').hex()}"
        try:
            return await connect(
                f"wss://{self.endpoint.removeprefix('https://')}{self._path}",
                ssl=self._tls,
                additional_headers={HELLO_HEADER: hello},
                compression=None,
                max_size=self._patience.frame + OVERHEAD,
                open_timeout=self._patience.connect,
                proxy=None,
            )
        except InvalidStatus as error:
            raise self._turned_away(error) from error
        except (OSError, TimeoutError, WebSocketException, EOFError, ValueError, OverflowError) as error:
            # The last three also stand for an address that cannot be one: it comes from a stranger's registration.
            wrong_key = as_wrong_tls_key(error, self.endpoint)
            if wrong_key is not None:
                raise wrong_key from error
            raise ChannelUnavailable(f"{self.endpoint} cannot be reached", error) from error

    def _turned_away(self, error: InvalidStatus) -> OverlayError:
        failure = decode_failure(bytes(error.response.body or b""))
        if failure is not None:
            return remote_failure(self.endpoint, failure)
        return ChannelUnavailable(f"{self.endpoint} answered HTTP {error.response.status_code}")

    async def _read(self, socket: ClientConnection) -> None:
        """Hand each answer to the request that waits for it, until the connection ends."""
        cause: Exception = ChannelUnavailable(f"The connection to {self.endpoint} ended")
        try:
            async for frame in socket:
                if isinstance(frame, bytes):
                    await self._deliver(frame)
        except ConnectionClosed as error:
            cause = ChannelUnavailable(f"The connection to {self.endpoint} broke", error)
        except EnvelopeRefused as error:
            log.warning("%s sent an envelope that is not believed: %s", self.endpoint, error)
            cause = error
            with contextlib.suppress(ConnectionClosed):
                await socket.close(1008)
        finally:
            self._socket = None
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(cause)

    async def _deliver(self, frame: bytes) -> None:
        sealed = take_apart(frame)
        answer = self._pending.get(sealed.nonce)
        # The request timed out before, or there never was one; a nonce never comes back, so a replayed answer ends
        # here too. Looked at first: hashing 64 MiB that nobody waits for would hold up every other peer.
        if answer is None or answer.done():
            self._unasked += 1
            if self._unasked > UNASKED_LIMIT:
                raise MalformedEnvelope("Answers came that nobody asked for", self._unasked)
            return
        await beside(len(frame), check, sealed, self.recipient, self._operator, int(time.time()))
        if sealed.kind is EnvelopeKind.REPLY and not answer.done():
            self._unasked = 0
            answer.set_result(sealed.content)
