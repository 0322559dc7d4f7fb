"""Bonded schedulers that mean an entry harm: over real connections, since what is read without asking is what hurts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse, StreamingResponse

from troth.node.direct import scheduler_side
from troth.node.direct.counters import Counters
from troth.node.direct.entry_app import MOST_FETCHES, MOST_ORDERS, Entry, entry_app
from troth.node.direct.scheduler_side import LARGEST_LINE, SchedulerSide
from troth.node.errors import SchedulerAway
from troth.overlay.identity import create_identity
from troth.overlay.server import TlsServer, serving
from troth.overlay.tls import server_context
from troth.protocol.contract_types import Role
from troth.protocol.state import Scheduler
from troth.protocol.typed_data import Domain, address_of
from troth.protocol.types import ZERO_HASH, Address, Hash32

BAD, GOOD = (address_of(bytes([number]) * 32) for number in (1, 2))
TASK, SALT, CLASS = Hash32(b"t" * 32), Hash32(b"s" * 32), Hash32(b"c" * 32)
ORDER = {
    "order": {"execution_class": "0x" + CLASS.hex()},
    "request": {"prompt_tokens": [1], "max_tokens": 4},
    "salt": "0x" + SALT.hex(),
}


class Chain:
    """Schedulers that are bonded, each with the endpoint that it registered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.schedulers: dict[Address, Scheduler] = {}
        self.accounts: dict[Address, Any] = {}

    def register(self, address: Address, endpoint: str, pin: bytes = ZERO_HASH) -> Scheduler:
        made = SimpleNamespace(operator=address, endpoint=endpoint, tls_key_hash=Hash32(pin))
        self.schedulers[address] = cast(Scheduler, made)
        self.accounts[address] = SimpleNamespace(role=Role.SCHEDULER, exit_block=0)
        return self.schedulers[address]

    async def serve(self, stack: AsyncExitStack, address: Address, app: FastAPI) -> Scheduler:
        identity = create_identity(self._folder / address)
        server = TlsServer(app, identity, "127.0.0.1", 0)
        await stack.enter_async_context(serving(server))
        return self.register(address, f"https://127.0.0.1:{server.port}", identity.spki_sha256)

    def side(self, stack: AsyncExitStack) -> SchedulerSide:
        side = SchedulerSide(lambda: cast(Any, self))
        stack.push_async_callback(side.close)
        return side


async def endless(piece: bytes, sent: list[int]) -> AsyncIterator[bytes]:
    while True:
        sent[0] += len(piece)
        yield piece
        await asyncio.sleep(0)


async def test_what_answers_a_choice_is_not_read(tmp_path: Path) -> None:
    app, sent = FastAPI(), [0]

    @app.post("/v1/tasks/{task}/inferencer")
    async def _(task: str) -> StreamingResponse:
        return StreamingResponse(endless(bytes(65536), sent))

    async with AsyncExitStack() as stack:
        chain = Chain(tmp_path)
        bad = await chain.serve(stack, BAD, app)
        choosing = chain.side(stack).choose(bad, TASK, SALT, GOOD)
        assert not await asyncio.wait_for(choosing, 30)
        assert sent[0] < 16 * 2**20


async def test_a_choice_that_is_answered_drop_by_drop_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_side, "CHOICE_SECONDS", 0.5)

    async def trickle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\n")
        for number in range(200):
            writer.write(b"x-%d: 1\r\n" % number)
            await writer.drain()
            await asyncio.sleep(0.1)

    async with AsyncExitStack() as stack:
        identity = create_identity(tmp_path / "tls")
        server = await asyncio.start_server(trickle, "127.0.0.1", 0, ssl=server_context(identity))
        stack.push_async_callback(_closed, server)
        chain = Chain(tmp_path)
        port = server.sockets[0].getsockname()[1]
        bad = chain.register(BAD, f"https://127.0.0.1:{port}", identity.spki_sha256)
        began = asyncio.get_running_loop().time()
        assert not await chain.side(stack).choose(bad, TASK, SALT, GOOD)
        assert asyncio.get_running_loop().time() - began < 10


async def _closed(server: asyncio.Server) -> None:
    server.close()


async def test_an_endpoint_without_tls_is_not_asked(tmp_path: Path) -> None:
    """Else whoever registers a scheduler reads, through every entry, what is served openly in the entry's network."""
    asked: list[str] = []
    app = FastAPI()

    @app.get("/{path:path}")
    async def _(path: str) -> PlainTextResponse:
        asked.append(path)
        return PlainTextResponse("internal")

    async with AsyncExitStack() as stack:
        server = TlsServer(app, None, "127.0.0.1", 0)
        await stack.enter_async_context(serving(server))
        chain = Chain(tmp_path)
        bad = chain.register(BAD, f"http://127.0.0.1:{server.port}/latest/secrets?x=")
        with pytest.raises(SchedulerAway):
            async with chain.side(stack).fetch(bad, "/v1/info", None) as answer:
                await answer.aread()
        assert asked == []


async def test_long_lines_do_not_pile_up(tmp_path: Path) -> None:
    """One long line is the receipt. Any number of them, unread by a client who is in it too, would be this node's
    memory."""
    app, sent = FastAPI(), [0]
    line = json.dumps({"type": "other", "x": "x" * (LARGEST_LINE - 100)}).encode() + b"\n"

    @app.post("/v1/direct/orders")
    async def _() -> StreamingResponse:
        return StreamingResponse(endless(line, sent))

    async with AsyncExitStack() as stack:
        chain = Chain(tmp_path)
        bad = await chain.serve(stack, BAD, app)
        lines = await stack.enter_async_context(chain.side(stack).order(bad, b"{}"))
        assert not isinstance(lines, scheduler_side.Refused)
        async with asyncio.timeout(30):
            assert len(await anext(lines)) > LARGEST_LINE - 200
            with pytest.raises(SchedulerAway, match="long line"):
                await anext(lines)


class Class:
    """What an entry asks its own chain and the scheduler's about."""

    domain = Domain(31337, address_of(b"\x77" * 32))
    head = 1

    def execution_class(self, _: Hash32) -> Any:
        return SimpleNamespace(model=Hash32(b"m" * 32), name="toy", candidates=2)

    def descriptor(self, _: Hash32) -> Any:
        return SimpleNamespace(vocabulary=64)


async def test_a_scheduler_that_hangs_leaves_places_to_others(tmp_path: Path) -> None:
    hanging, working, stuck = FastAPI(), FastAPI(), asyncio.Event()

    @hanging.post("/v1/direct/orders")
    async def _() -> None:
        await stuck.wait()

    @hanging.get("/v1/info")
    async def _() -> None:
        await stuck.wait()

    @working.post("/v1/direct/orders")
    async def _() -> PlainTextResponse:
        return PlainTextResponse('{"type":"other"}\n')

    @working.get("/v1/info")
    async def _() -> dict[str, str]:
        return {"it": "works"}

    async with AsyncExitStack() as stack:
        chain = Chain(tmp_path)
        await chain.serve(stack, BAD, hanging)
        await chain.serve(stack, GOOD, working)
        stack.callback(stuck.set)
        idle = cast(Any, SimpleNamespace(ended=lambda *_: None))
        entry = Entry(GOOD, CLASS, cast(Any, Class()), chain.side(stack), idle, idle, Counters(CollectorRegistry()))
        transport = httpx.ASGITransport(entry_app(entry))
        client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="https://entry"))
        waiting = [
            asyncio.create_task(client.post(f"/schedulers/{BAD}/v1/orders", json=ORDER)) for _ in range(MOST_ORDERS)
        ]
        waiting += [asyncio.create_task(client.get(f"/schedulers/{BAD}/v1/info")) for _ in range(MOST_FETCHES)]
        await asyncio.sleep(1)
        served = await client.post(f"/schedulers/{GOOD}/v1/orders", json=ORDER)
        assert (served.status_code, served.text) == (200, '{"type":"other"}\n')
        assert (await client.get(f"/schedulers/{GOOD}/v1/info")).json() == {"it": "works"}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_time_to_come_back_in_other_digits_is_left_out(tmp_path: Path) -> None:
    app = FastAPI()

    @app.get("/v1/info")
    async def _() -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            yield b'{"error":{}}'

        answer = StreamingResponse(body(), 503, media_type="application/json")
        answer.raw_headers.append((b"retry-after", "٣".encode()))
        return answer

    async with AsyncExitStack() as stack:
        chain = Chain(tmp_path)
        bad = await chain.serve(stack, BAD, app)
        async with chain.side(stack).fetch(bad, "/v1/info", None) as answer:
            assert (await scheduler_side.refusal(answer)).retry_after is None
