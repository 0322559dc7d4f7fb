"""Bounded calls to a scheduler's HTTPS interface, pinned to the key that the chain names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

import httpx

from troth.client.errors import (
    OverlayFailed,
    SchedulerRefused,
    SchedulerUnreachable,
    StreamError,
    WrongSchedulerKey,
)
from troth.client.language import LARGEST_FILES
from troth.client.untrusted import read_object
from troth.overlay.sessions.errors import RequestFailed
from troth.protocol.types import Address, Hash32
from troth.transport.errors import ChannelTimeout, ChannelUnavailable, CircuitFailed, OverlayError, WrongTlsKey
from troth.transport.https import naming_errors, pinned_client

LARGEST_LINE = 1024 * 1024
"""Bytes of a line of the stream; the longest is the receipt, with the tokens of the whole answer in it."""

LARGEST_REFUSAL = 64 * 1024

ANSWER_SECONDS = 120.0
"""Time for a whole answer that is no stream: tens of megabytes of tokenizer over a slow line."""

# No compression: a few kilobytes of it may unfold to gigabytes before anyone can count them.
_HEADERS = {"accept-encoding": "identity"}

ORDER_REMEDY = "The order may have arrived: see `troth client receipts` before you ask again."


OTHER_REMEDY = "Try again, or use another scheduler."
UNSENT_REMEDY = "Nothing was sent: asking again is free."

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_DEEPEST_CAUSE = 16


def never_sent(error: Exception) -> bool:
    """Whether it is certain that nobody got the request."""
    if isinstance(error, OverlayFailed):
        return error.delivered == "no"
    return isinstance(error, WrongSchedulerKey) or any(isinstance(one, _NEVER_SENT) for one in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what caused it, and so on."""
    for _ in range(_DEEPEST_CAUSE):
        if error is None:
            return
        yield error
        error = error.__cause__


class Calls:
    """Bounded calls to one endpoint; `refusal` makes the error of an HTTP status that is no success."""

    def __init__(
        self, client: httpx.AsyncClient, endpoint: str, refusal: Callable[[int, bytes], Exception] | None = None
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._refusal = refusal or _refused

    def refusing(self, refusal: Callable[[int, bytes], Exception]) -> Calls:
        """The same calls with another way to read refusals."""
        return Calls(self._client, self._endpoint, refusal)

    async def get(self, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The object at a path."""
        return await self._whole("GET", path, headers, b"")

    async def post(
        self, path: str, content: bytes, seconds: float | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The object that answers a body."""
        sent = {"content-type": "application/json"} | (headers or {})
        return await self._whole("POST", path, sent, content, seconds)

    async def lines(
        self, method: str, path: str, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The lines of a stream; how long to wait for one is the caller's to say."""
        timeout = httpx.Timeout(30.0, read=None)
        sent = _HEADERS | ({"content-type": "application/json"} if content else {}) | (headers or {})
        with unreachable(ORDER_REMEDY), naming_errors(self._endpoint):
            async with self._client.stream(method, path, content=content, timeout=timeout, headers=sent) as response:
                if response.status_code != httpx.codes.OK:
                    raise self._refusal(response.status_code, await _bounded_body(response, LARGEST_REFUSAL))
                async for line in _bounded_lines(response):
                    yield read_object(line)

    async def _whole(
        self, method: str, path: str, headers: dict[str, str] | None, content: bytes, seconds: float | None = None
    ) -> dict[str, Any]:
        limit = seconds or ANSWER_SECONDS
        try:
            async with asyncio.timeout(limit):
                status, body = await self._fetch(method, path, _HEADERS | (headers or {}), content)
        except TimeoutError as error:
            what = f"The scheduler did not finish its answer within {limit:g} s"
            raise SchedulerUnreachable(what, self._endpoint, OTHER_REMEDY) from error
        if status != httpx.codes.OK:
            raise self._refusal(status, body)
        return read_object(body)

    async def _fetch(self, method: str, path: str, headers: dict[str, str], content: bytes) -> tuple[int, bytes]:
        with unreachable(OTHER_REMEDY), naming_errors(self._endpoint):
            async with self._client.stream(method, path, headers=headers, content=content or None) as response:
                limit = LARGEST_FILES if response.status_code == httpx.codes.OK else LARGEST_REFUSAL
                return response.status_code, await _bounded_body(response, limit)


async def _bounded_body(response: httpx.Response, limit: int) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > limit:
            raise StreamError("The scheduler's answer is too large", f"over {limit} bytes", "Use another scheduler.")
    return bytes(body)


async def _bounded_lines(response: httpx.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in response.aiter_raw():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LARGEST_LINE:
            raise StreamError("A line of the scheduler's stream is too long", len(rest), "Use another scheduler.")
    if rest:
        raise StreamError("The scheduler's stream broke off inside a line", len(rest), "See `troth client receipts`.")


def _refused(status: int, _body: bytes) -> Exception:
    return SchedulerRefused("The scheduler refused the request", f"HTTP {status}", "Try again, or use another one.")


@contextmanager
def unreachable(remedy: str) -> Iterator[None]:
    try:
        yield
    except WrongTlsKey as error:
        raise WrongSchedulerKey(
            "Somebody else answers at the scheduler's endpoint (its TLS key is not the registered one)",
            error.what,
            "Nothing was sent. Wait for the scheduler to register its new key, or use another one.",
        ) from error
    except (ChannelUnavailable, ChannelTimeout) as error:
        free = UNSENT_REMEDY if remedy == ORDER_REMEDY and never_sent(error) else remedy
        raise SchedulerUnreachable(error.what, error.value, free) from error
    except CircuitFailed as error:
        delivered = str(error.delivered) if isinstance(error, RequestFailed) else "no"
        free = "Nothing was sent: ask again, it is free." if delivered == "no" else remedy
        raise OverlayFailed(error.what, error.hop, free, hop=error.hop, delivered=delivered) from error
    except OverlayError as error:
        raise OverlayFailed(error.what, error.value, error.remedy, hop="path", delivered="no") from error


class Pinned(Protocol):
    """A registered scheduler: whose it is, where it listens, and the key of its TLS certificate."""

    @property
    def operator(self) -> Address:
        """Its operator."""

    @property
    def endpoint(self) -> str:
        """Where it listens."""

    @property
    def tls_key_hash(self) -> Hash32:
        """Of its certificate's key."""


@asynccontextmanager
async def openly(scheduler: Pinned) -> AsyncIterator[Calls]:
    """Calls to a registered scheduler; endpoint and TLS key come from the chain."""
    with unreachable(OTHER_REMEDY):
        pinned = pinned_client(scheduler.endpoint, scheduler.tls_key_hash)
    async with pinned as client:
        yield Calls(client, scheduler.endpoint)
