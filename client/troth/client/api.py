"""The scheduler's HTTPS interface, seen from the client: pinned, bounded, believed in nothing that can be checked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import httpx

from troth.client.errors import (
    InsufficientBalance,
    OutdatedOffer,
    OverlayFailed,
    SchedulerRefused,
    SchedulerUnreachable,
    StreamError,
    WrongSchedulerKey,
)
from troth.client.language import LARGEST_FILES, LanguageFiles
from troth.client.untrusted import read_hex, read_list, read_object, read_text, read_whole
from troth.overlay.errors import ChannelTimeout, ChannelUnavailable, CircuitFailed, OverlayError, WrongTlsKey
from troth.overlay.https import naming_errors, pinned_client
from troth.overlay.sessions.errors import RequestFailed
from troth.protocol.state import Scheduler
from troth.protocol.types import SEGMENTS_LIMIT, Address, Hash32

LARGEST_LINE = 1024 * 1024
"""Bytes of a line of the stream; the longest is the receipt, with the tokens of the whole answer in it."""
LARGEST_REFUSAL = 64 * 1024
ANSWER_SECONDS = 120.0
"""Time for a whole answer that is no stream: tens of megabytes of tokenizer over a slow line."""
SERVED_LIMIT = 256
# No compression: a few kilobytes of it may unfold to gigabytes before anyone can count them.
_HEADERS = {"accept-encoding": "identity"}
_ORDER_REMEDY = "The order may have arrived: see `troth client receipts` before you ask again."
_WEI = re.compile(r"[1-9][0-9]{0,28}")
_OTHER_REMEDY = "Try again, or use another scheduler."


class Calls:
    """Bounded calls to one endpoint; `refusal` makes the error of an HTTP status that is no success."""

    def __init__(
        self, client: httpx.AsyncClient, endpoint: str, refusal: Callable[[int, bytes], Exception] | None = None
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._refusal = refusal or _refusal

    def refusing(self, refusal: Callable[[int, bytes], Exception]) -> Calls:
        """The same calls with another way to read refusals."""
        return Calls(self._client, self._endpoint, refusal)

    async def get(self, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The object at a path."""
        return await self._whole("GET", path, headers, b"")

    async def post(self, path: str, content: bytes, seconds: float | None = None) -> dict[str, Any]:
        """The object that answers a body."""
        return await self._whole("POST", path, {"content-type": "application/json"}, content, seconds)

    async def lines(
        self, method: str, path: str, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The lines of a stream; how long to wait for one is the caller's to say."""
        timeout = httpx.Timeout(30.0, read=None)
        sent = _HEADERS | ({"content-type": "application/json"} if content else {}) | (headers or {})
        with _unreachable(_ORDER_REMEDY), naming_errors(self._endpoint):
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
            raise SchedulerUnreachable(what, self._endpoint, _OTHER_REMEDY) from error
        if status != httpx.codes.OK:
            raise self._refusal(status, body)
        return read_object(body)

    async def _fetch(self, method: str, path: str, headers: dict[str, str], content: bytes) -> tuple[int, bytes]:
        with _unreachable(_OTHER_REMEDY), naming_errors(self._endpoint):
            async with self._client.stream(method, path, headers=headers, content=content or None) as response:
                limit = LARGEST_FILES if response.status_code == httpx.codes.OK else LARGEST_REFUSAL
                return response.status_code, await _bounded_body(response, limit)


class SchedulerApi(Calls):
    """Calls to one scheduler. Use `connected`."""

    async def classes(self) -> dict[Hash32, tuple[int, ...]]:
        """The classes it serves, each with the ends of its segments."""
        entries = read_list((await self.get("/v1/info")).get("classes"), SERVED_LIMIT)
        if not all(isinstance(entry, dict) for entry in entries):
            raise StreamError("The scheduler does not say what it serves", self._endpoint, "Use another scheduler.")
        return {Hash32(read_hex(entry.get("id"), 32)): _ends(entry.get("ends")) for entry in entries}

    async def language(self, identifier: Hash32) -> LanguageFiles:
        """Tokenizer, template and configuration of a class's model, not yet checked."""
        return LanguageFiles.from_json(await self.get(f"/v1/models/0x{identifier.hex()}/tokenizer"))

    async def task(self, identifier: Hash32, salt: Hash32) -> dict[str, Any]:
        """The scheduler's receipt of a task; the salt shows that the caller is the one who ordered it."""
        return await self.get(f"/v1/tasks/0x{identifier.hex()}", {"troth-salt": "0x" + salt.hex()})

    async def order(self, body: dict[str, object]) -> AsyncGenerator[dict[str, Any], None]:
        """Send an order and yield the lines of its stream; how long to wait for one is the caller's to say."""
        async with aclosing(self.lines("POST", "/v1/orders", json.dumps(body).encode())) as lines:
            async for line in lines:
                yield line

    def near(self, node: Address) -> SchedulerApi:
        """The same calls: a scheduler chooses who serves by itself."""
        return self


@asynccontextmanager
async def connected(scheduler: Scheduler) -> AsyncIterator[SchedulerApi]:
    """The interface of a registered scheduler; endpoint and TLS key come from the chain."""
    with _unreachable(_OTHER_REMEDY):
        pinned = pinned_client(scheduler.endpoint, scheduler.tls_key_hash)
    async with pinned as client:
        yield SchedulerApi(client, scheduler.endpoint)


def _ends(value: object) -> tuple[int, ...]:
    return tuple(read_whole(end, 1, 255) for end in read_list(value, SEGMENTS_LIMIT))


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


def _refusal(status: int, body: bytes) -> Exception:
    parts = read_object(body).get("error") if body.startswith(b"{") else None
    if not isinstance(parts, dict):
        return SchedulerRefused("The scheduler refused the request", f"HTTP {status}", "Try again, or use another one.")
    message, code = read_text(parts.get("message", "")), read_text(parts.get("code", ""))
    shown = f"HTTP {status}, {code}"
    shortfall = parts.get("shortfall")
    if code == "insufficient_escrow" and isinstance(shortfall, str) and _WEI.fullmatch(shortfall):
        top_up = f"Top up with `troth client deposit {shortfall}wei --broadcast`."
        return InsufficientBalance(message, f"{shown}, {shortfall} wei short", top_up, int(shortfall))
    if code == "scheduler_away":
        # A node's word: its scheduler is silent, and may have the order all the same.
        return OverlayFailed(message, shown, _ORDER_REMEDY, hop="scheduler", delivered="unknown")
    kind = OutdatedOffer if code == "other_split" else SchedulerRefused
    return kind(message, shown, read_text(parts.get("remedy", "")))


@contextmanager
def _unreachable(remedy: str) -> Iterator[None]:
    try:
        yield
    except WrongTlsKey as error:
        raise WrongSchedulerKey(
            "Somebody else answers at the scheduler's endpoint (its TLS key is not the registered one)",
            error.what,
            "Nothing was sent. Wait for the scheduler to register its new key, or use another one.",
        ) from error
    except (ChannelUnavailable, ChannelTimeout) as error:
        raise SchedulerUnreachable(error.what, error.value, remedy) from error
    except CircuitFailed as error:
        delivered = str(error.delivered) if isinstance(error, RequestFailed) else "no"
        free = "Nothing was sent: ask again, it is free." if delivered == "no" else remedy
        raise OverlayFailed(error.what, error.reason, free, hop=error.hop, delivered=delivered) from error
    except OverlayError as error:
        raise OverlayFailed(error.what, error.value, error.remedy, hop="path", delivered="no") from error
