"""The scheduler's HTTPS interface, seen from the client: pinned, bounded, believed in nothing that can be checked."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

from troth.client.errors import (
    InsufficientBalance,
    OutdatedOffer,
    OverlayFailed,
    SchedulerRefused,
    StreamError,
)
from troth.client.https_calls import ORDER_REMEDY, OTHER_REMEDY, Calls, unreachable
from troth.client.language import LanguageFiles
from troth.client.untrusted import read_hex, read_list, read_object, read_text, read_whole
from troth.overlay.https import pinned_client
from troth.protocol.state import Scheduler
from troth.protocol.types import SEGMENTS_LIMIT, Address, Hash32

SERVED_LIMIT = 256


class SchedulerApi(Calls):
    """Calls to one scheduler. Use `connected`."""

    def __init__(self, client: httpx.AsyncClient, endpoint: str) -> None:
        super().__init__(client, endpoint, _refusal)

    @classmethod
    def over(cls, calls: Calls) -> SchedulerApi:
        """The same endpoint."""
        return cls(calls._client, calls._endpoint)

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
    with unreachable(OTHER_REMEDY):
        pinned = pinned_client(scheduler.endpoint, scheduler.tls_key_hash)
    async with pinned as client:
        yield SchedulerApi(client, scheduler.endpoint)


def _ends(value: object) -> tuple[int, ...]:
    return tuple(read_whole(end, 1, 255) for end in read_list(value, SEGMENTS_LIMIT))


_WEI = re.compile(r"[1-9][0-9]{0,28}")


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
        return OverlayFailed(message, shown, ORDER_REMEDY, hop="scheduler", delivered="unknown")
    kind = OutdatedOffer if code == "other_split" else SchedulerRefused
    return kind(message, shown, read_text(parts.get("remedy", "")))
