"""A gateway on a real socket before a scheduler that a test scripts: no chain, no nodes, a byte tokenizer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from support.client_stage import (
    CLIENT,
    DOMAIN,
    LANGUAGE,
    OFFER,
    FakeFollower,
    base_state,
    honest_lines,
    record,
    tokens_of,
)

from troth.chain.keystore import Key
from troth.client.choices import Choices
from troth.client.gateway.serving import Running, Settings
from troth.client.gateway.task_serving import assembled
from troth.client.home import Home
from troth.client.ordering import SignedOrder
from troth.client.receipts import Receipts
from troth.client.session import Session
from troth.overlay.server import serving
from troth.protocol.settlement import Outcome

Script = Callable[[SignedOrder], list[Any]]
MESSAGES = [{"role": "user", "content": "hello"}]


class StagedSession(Session):
    """Remembers what was signed, so that the scripted scheduler can prove its draw."""

    async def prepare_tokens(self, prompt: tuple[int, ...], choices: Choices, key: Key) -> SignedOrder:
        signed = await super().prepare_tokens(prompt, choices, key)
        self.api.signed["0x" + signed.signature.hex()] = signed  # type: ignore[attr-defined]
        return signed


@dataclass
class ScriptedApi:
    """A scheduler's streams. An event among the lines is awaited, an exception raised, None stalls for ever."""

    script: Script
    signed: dict[str, SignedOrder] = field(default_factory=dict)
    orders: list[SignedOrder] = field(default_factory=list)

    async def order(self, body: dict[str, object]) -> AsyncGenerator[dict[str, Any], None]:
        signed = self.signed[str(body["signature"])]
        self.orders.append(signed)
        for line in self.script(signed):
            if line is None:
                await asyncio.Event().wait()
            if isinstance(line, asyncio.Event):
                await line.wait()
                continue
            if isinstance(line, Exception):
                raise line
            yield line


@dataclass
class Staged:
    """The gateway, and the pieces that a test can reach."""

    running: Running
    follower: FakeFollower
    api: ScriptedApi
    home: Home
    sessions: int = 0

    @property
    def client(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.running.access.key}"}
        return httpx.AsyncClient(
            base_url=self.running.gateway.base, headers=headers, timeout=120, trust_env=False, verify=False
        )

    async def post(self, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        """A request with a short chat in it, or what replaces it."""
        body = {"model": "toy", "messages": MESSAGES, "max_tokens": 64} | fields
        async with self.client as client:
            return await client.post(path, json=body)

    async def get(self, path: str) -> httpx.Response:
        async with self.client as client:
            return await client.get(path)


def answering(text: str, outcome: Outcome = Outcome.ACCEPTED, *, before: int | None = None, gate: Any = None) -> Script:
    """An honest stream; `gate` comes before the `before`th line from the end on."""

    def script(signed: SignedOrder) -> list[Any]:
        lines: list[Any] = honest_lines(signed, tokens_of(text)[: signed.request.max_tokens])
        for line in lines:
            if line["type"] == "settled":
                line["outcome"] = outcome.name.lower()
        if before is not None:
            lines.insert(before, gate)
        return lines

    return script


@asynccontextmanager
async def staged(
    folder: Path, script: Script, *, outcome: Outcome = Outcome.ACCEPTED, escrow: int = 10**18, **settings: Any
) -> AsyncIterator[Staged]:
    """A gateway on a free port. Orders are on chain, with this outcome, as soon as they are sent."""
    follower = FakeFollower(base_state(escrow))

    def scripted(signed: SignedOrder) -> list[Any]:
        lines = script(signed)
        tokens = [line["id"] for line in lines if isinstance(line, dict) and line["type"] == "token"]
        if any(isinstance(line, dict) and line["type"] == "settled" for line in lines):
            follower.put(signed, record(signed, tokens, outcome))
        return lines

    api = ScriptedApi(scripted)

    class Chain:
        domain = DOMAIN

    @asynccontextmanager
    async def factory() -> AsyncIterator[Session]:
        stage.sessions += 1
        receipts = Receipts(home.receipts, DOMAIN)
        try:
            yield StagedSession(Chain(), follower, api, OFFER, LANGUAGE, receipts)  # type: ignore[arg-type]
        finally:
            receipts.close()

    home = Home(folder)
    plain = Settings(port=0, keep_alive=0.1)
    stage = Staged(None, follower, api, home)  # type: ignore[arg-type]
    async with assembled(home, CLIENT, factory, replace(plain, **settings)) as running:
        stage.running = running
        async with serving(running.server) as server:
            running.listens(server.port)
            yield stage


def said(text: str) -> list[Any]:
    """The data of a stream's events."""
    found = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in found]
