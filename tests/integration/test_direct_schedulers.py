"""An entry before schedulers that answer with anything: sizes, words, keys. Real sockets and TLS, no chain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from troth.node.direct.scheduler_side import LARGEST_LINE, LARGEST_REFUSAL, Refused, SchedulerSide
from troth.node.errors import EntryRefused, SchedulerAway
from troth.overlay.identity import create_identity
from troth.overlay.server import TlsServer, serving
from troth.protocol.contract_types import Account, Role
from troth.protocol.logs import LogMeta
from troth.protocol.state import Scheduler
from troth.protocol.typed_data import address_of
from troth.protocol.types import ZERO_HASH, Hash32

SCHEDULER, NODE = address_of(b"\x11" * 32), address_of(b"\x12" * 32)
TASK, SALT = Hash32(b"t" * 32), Hash32(b"s" * 32)


class Played:
    """A scheduler that answers as the test says, and what it was asked."""

    def __init__(self) -> None:
        self.answer: Response = Response()
        self.chosen: list[tuple[str, Any, str | None]] = []
        self.app = FastAPI()
        self.state: Any = SimpleNamespace(accounts={SCHEDULER: Account(1, 0, 0, Role.SCHEDULER)}, schedulers={})
        self.app.add_api_route("/v1/direct/orders", self._ordered, methods=["POST"], response_model=None)
        self.app.add_api_route("/v1/tasks/{task}/inferencer", self._chosen, methods=["POST"], response_model=None)

    async def _ordered(self) -> Response:
        return self.answer

    async def _chosen(self, task: str, request: Request) -> Response:
        self.chosen.append((task, await request.json(), request.headers.get("troth-salt")))
        return self.answer

    def register(self, endpoint: str, key: bytes) -> None:
        meta = LogMeta(1, 0, ZERO_HASH, ZERO_HASH)
        self.state.schedulers[SCHEDULER] = Scheduler(
            SCHEDULER, SCHEDULER, SCHEDULER, (1, 2), endpoint, Hash32(key), meta
        )


@asynccontextmanager
async def played(folder: Path) -> AsyncIterator[tuple[Played, SchedulerSide]]:
    scheduler, identity = Played(), create_identity(folder)
    server = TlsServer(scheduler.app, identity, "127.0.0.1", 0)
    side = SchedulerSide(lambda: cast(Any, scheduler.state))
    async with serving(server):
        scheduler.register(f"https://127.0.0.1:{server.port}", identity.spki_sha256)
        yield scheduler, side
        await side.close()


async def ordered(side: SchedulerSide) -> list[bytes] | Refused:
    async with side.order(side.bonded(SCHEDULER), b"{}") as answer:
        return answer if isinstance(answer, Refused) else [line async for line in answer]


def streamed(*pieces: bytes) -> StreamingResponse:
    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return StreamingResponse(sent())


async def test_lines_are_cut_where_they_end(tmp_path: Path) -> None:
    async with played(tmp_path) as (scheduler, side):
        scheduler.answer = streamed(b'{"a"', b':1}\n{"b":2}\n\n{"c', b'":3}\n{"unfinished"')
        assert await ordered(side) == [b'{"a":1}', b'{"b":2}', b"", b'{"c":3}']


async def test_an_endless_line_is_not_kept(tmp_path: Path) -> None:
    async with played(tmp_path) as (scheduler, side):
        scheduler.answer = streamed(*[b"x" * 2**16] * (LARGEST_LINE // 2**16 + 2))
        with pytest.raises(SchedulerAway, match="too long"):
            await ordered(side)


@pytest.mark.parametrize("status", [400, 402, 409, 503])
async def test_a_refusal_passes_through(tmp_path: Path, status: int) -> None:
    async with played(tmp_path) as (scheduler, side):
        scheduler.answer = JSONResponse({"error": {"code": "x"}}, status, {"retry-after": "7"})
        assert await ordered(side) == Refused(status, b'{"error":{"code":"x"}}', "7")
        scheduler.answer = JSONResponse({}, status, {"retry-after": "7\t8" if status == 400 else "9" * 50})
        assert await ordered(side) == Refused(status, b"{}", None)


@pytest.mark.parametrize(
    "answer",
    [
        Response(b"<html>", 502),
        Response(b"[]", 400),
        Response(b'{"a":' + b"9" * LARGEST_REFUSAL + b"}", 400),
        Response(b"{}", 302, {"location": "https://127.0.0.1:1/"}),
        Response(b"{}", 201),
    ],
    ids=["no JSON", "no object", "huge", "elsewhere", "another success"],
)
async def test_an_answer_that_is_none(tmp_path: Path, answer: Response) -> None:
    async with played(tmp_path) as (scheduler, side):
        scheduler.answer = answer
        with pytest.raises(SchedulerAway):
            await ordered(side)


async def test_the_choice_and_what_may_become_of_it(tmp_path: Path) -> None:
    async with played(tmp_path) as (scheduler, side):
        scheduler.answer = Response(status_code=204)
        assert await side.choose(side.bonded(SCHEDULER), TASK, SALT, NODE)
        assert scheduler.chosen == [("0x" + TASK.hex(), {"operator": NODE}, "0x" + SALT.hex())]
        for status in (200, 400, 404, 409, 500):
            scheduler.answer = Response(status_code=status)
            assert not await side.choose(side.bonded(SCHEDULER), TASK, SALT, NODE)


async def test_another_key_than_the_registered_one_is_not_spoken_to(tmp_path: Path) -> None:
    async with played(tmp_path) as (scheduler, side):
        scheduler.answer = Response(status_code=204)
        endpoint = side.bonded(SCHEDULER).endpoint
        scheduler.register(endpoint, b"\x01" * 32)
        assert not await side.choose(side.bonded(SCHEDULER), TASK, SALT, NODE)
        with pytest.raises(SchedulerAway):
            await ordered(side)
        scheduler.register("https://127.0.0.1:99999", b"\x01" * 32)
        assert not await side.choose(side.bonded(SCHEDULER), TASK, SALT, NODE)
        with pytest.raises(SchedulerAway):
            await ordered(side)
        assert scheduler.chosen == []


async def test_who_leaves_is_not_served(tmp_path: Path) -> None:
    async with played(tmp_path) as (scheduler, side):
        assert side.bonded(SCHEDULER).operator == SCHEDULER
        for account in (Account(1, 0, 9, Role.SCHEDULER), Account(1, 0, 0, Role.NODE), None):
            scheduler.state.accounts[SCHEDULER] = account
            with pytest.raises(EntryRefused, match="not bonded"):
                side.bonded(SCHEDULER)
        with pytest.raises(EntryRefused):
            side.bonded("0x" + "00" * 19)
