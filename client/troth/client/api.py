"""The scheduler's HTTPS interface, seen from the client: pinned, bounded, and believed in nothing it can check itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx

from troth.client.answers import read_classes, read_object, refusal
from troth.client.errors import SchedulerUnreachable, StreamError, StreamLost, WrongSchedulerKey
from troth.client.language import LARGEST_FILES, LanguageFiles
from troth.overlay.errors import ChannelTimeout, ChannelUnavailable, WrongTlsKey
from troth.overlay.https import naming_errors, pinned_client
from troth.protocol.state import Scheduler
from troth.protocol.types import Hash32

LARGEST_LINE = 1024 * 1024
"""Bytes of one line of a stream: a receipt of the longest answer stays far below."""
CONNECT_SECONDS = 30.0
STREAM_SILENCE_SECONDS = 180.0
"""A line is at most this late: the longest step is the wait for the chain to lock the fee."""


class SchedulerApi:
    """Calls to one scheduler. Use `connected`."""

    def __init__(self, client: httpx.AsyncClient, endpoint: str) -> None:
        self._client = client
        self._endpoint = endpoint

    async def classes(self) -> dict[Hash32, tuple[int, ...]]:
        """The classes it serves, each with the ends of its segments."""
        return read_classes(await self._get("/v1/info"))

    async def language(self, identifier: Hash32) -> LanguageFiles:
        """Tokenizer, template and configuration of a class's model, not yet checked."""
        return LanguageFiles.from_json(await self._get(f"/v1/models/0x{identifier.hex()}/tokenizer"))

    async def task(self, identifier: Hash32, salt: Hash32) -> dict[str, Any]:
        """The scheduler's receipt of a task; the salt shows that the caller is the one who ordered it."""
        return await self._get(f"/v1/tasks/0x{identifier.hex()}", {"troth-salt": "0x" + salt.hex()})

    async def order(self, body: dict[str, object]) -> AsyncIterator[dict[str, Any]]:
        """Send an order and yield the lines of its stream; StreamLost if it breaks off."""
        timeout = httpx.Timeout(CONNECT_SECONDS, read=STREAM_SILENCE_SECONDS)
        with _unreachable(), naming_errors(self._endpoint):
            async with self._client.stream("POST", "/v1/orders", json=body, timeout=timeout) as response:
                if response.status_code >= 400:
                    raise refusal(response.status_code, await _bounded_body(response))
                async for line in _bounded_lines(response):
                    yield read_object(line)

    async def _get(self, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        with _unreachable(), naming_errors(self._endpoint):
            async with self._client.stream("GET", path, headers=headers) as response:
                body = await _bounded_body(response)
                if response.status_code >= 400:
                    raise refusal(response.status_code, body)
        return read_object(body)


@asynccontextmanager
async def connected(scheduler: Scheduler) -> AsyncIterator[SchedulerApi]:
    """The interface of a registered scheduler; endpoint and TLS key come from the chain."""
    async with pinned_client(scheduler.endpoint, scheduler.tls_key_hash) as client:
        yield SchedulerApi(client, scheduler.endpoint)


async def _bounded_body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > LARGEST_FILES:
            limit = f"over {LARGEST_FILES} bytes"
            raise StreamError("The scheduler's answer is too large", limit, "Use another scheduler.")
    return bytes(body)


async def _bounded_lines(response: httpx.Response) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for piece in response.aiter_bytes():
        rest += piece
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in filter(None, lines):
            yield line
        if len(rest) > LARGEST_LINE:
            raise StreamError("A line of the scheduler's stream is too long", len(rest), "Use another scheduler.")
    if rest:
        raise StreamLost("The scheduler's stream broke off inside a line", f"{len(rest)} bytes", "See the receipt.")


@contextmanager
def _unreachable() -> Iterator[None]:
    try:
        yield
    except WrongTlsKey as error:
        raise WrongSchedulerKey(
            "Somebody else answers at the scheduler's endpoint (its TLS key is not the registered one)",
            error.what,
            "Nothing was sent. Wait for the scheduler to register its new key, or use another one.",
        ) from error
    except (ChannelUnavailable, ChannelTimeout) as error:
        raise SchedulerUnreachable(
            "The scheduler cannot be reached", error.what, "Try again, or use another scheduler."
        ) from error
