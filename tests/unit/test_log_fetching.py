"""Data of schedulers' logs, asked for by auditors, watchers and explorers: one that does not answer holds nobody up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse
from support.explorer_stage import bring_up, stage
from support.market_record import PLACE, SCHEDULER
from support.market_scene import DOMAIN

from troth.audit import running
from troth.audit.evidence.history import History
from troth.audit.subject import AuditSubject
from troth.audit.watching.looks import Watcher
from troth.explorer.index import ExplorerIndex
from troth.explorer.reading import INDEX_FILE, Reader, ReaderSettings
from troth.transport.errors import ChannelTimeout
from troth.transport.identity import load_or_create_identity
from troth.transport.server import TlsServer, serving

AT = 2_060
NOTHING: Any = None


async def test_an_entry_that_comes_byte_by_byte_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "ENTRY_SECONDS", 0.5)
    identity, app = load_or_create_identity(tmp_path / "tls"), FastAPI()

    async def bytes_for_ever() -> AsyncIterator[bytes]:
        while True:
            yield b"{"
            await asyncio.sleep(0.05)

    @app.get("/v1/log/1")
    async def entry() -> StreamingResponse:
        return StreamingResponse(bytes_for_ever())

    async with serving(TlsServer(app, identity, "127.0.0.1", 0)) as server:
        party = SimpleNamespace(endpoint=f"https://127.0.0.1:{server.port}", tls_key_hash=identity.spki_sha256)
        history: Any = SimpleNamespace(state=SimpleNamespace(parties={SCHEDULER: party}))
        began = time.monotonic()
        with pytest.raises(ChannelTimeout, match=r"not sent within 0\.5 s"):
            await asyncio.to_thread(running.from_scheduler(history, SCHEDULER), 1)
        assert time.monotonic() - began < 10


class Asked:
    """A scheduler that fails with an error, and how often it was asked."""

    def __init__(self, error: Exception) -> None:
        self.error, self.times = error, 0

    def __call__(self, _history: History, _scheduler: str, _number: int) -> bytes:
        self.times += 1
        raise self.error


def refused() -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://127.0.0.1/v1/log/1")
    return httpx.HTTPStatusError("404", request=request, response=httpx.Response(404, request=request))


@pytest.mark.parametrize(("error", "times"), [(httpx.ConnectError("refused"), 1), (refused(), 2)])
def test_a_scheduler_that_is_away_is_asked_once_in_a_look(error: Exception, times: int, tmp_path: Path) -> None:
    asked = Asked(error)
    watcher = Watcher(NOTHING, NOTHING, tmp_path, NOTHING, fetch=asked)
    served = watcher.served_by(stage().subject(AT).history, SCHEDULER)
    assert (sorted(served.refusals), asked.times) == ([1, 2], times)


@pytest.mark.parametrize(("error", "times"), [(httpx.ConnectError("refused"), 1), (refused(), 2)])
def test_an_audit_asks_a_scheduler_that_is_away_once(
    error: Exception, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, history = Asked(error), stage().subject(AT).history
    monkeypatch.setattr(running, "from_scheduler", lambda *_: lambda number: asked(history, SCHEDULER, number))
    served = running.served_data(history, SCHEDULER, None, {}, None)
    assert (sorted(served.refusals), asked.times) == ([1, 2], times)


class StagedWatcher(Watcher):
    """One that follows the stage, and no chain."""

    async def subject(self, block: int) -> AuditSubject:
        return stage().subject(block)


async def test_a_scheduler_that_is_away_keeps_no_other_logs_waiting(tmp_path: Path) -> None:
    """All of its entries take their turn in one audit, so that they do not fill the next one's."""
    index = ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE)
    bring_up(index, stage(), AT)
    asked, follower = Asked(httpx.ConnectError("refused")), SimpleNamespace(block=AT)
    watcher = StagedWatcher(NOTHING, follower, tmp_path, NOTHING, fetch=asked)  # type: ignore[arg-type]
    settings = ReaderSettings("http://127.0.0.1:1", PLACE.factory, None, 0, tmp_path)
    await Reader(settings, index, watcher, NOTHING, []).audit()
    assert (index.waiting(), asked.times) == ([], 1)
    states = index.database.execute("SELECT number, state FROM entries ORDER BY number").fetchall()
    assert [tuple(one) for one in states] == [(1, "refused"), (2, "refused")]
    index.close()
