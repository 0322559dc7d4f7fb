"""A query that lasts holds up no other page: the index is read in threads, and the loop goes on."""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from support.explorer_stage import home_of
from support.loop_time import LoopTime

from troth.explorer import pages as served
from troth.explorer.figures import Figure
from troth.explorer.opening import SqliteDatabase
from troth.explorer.pages import application
from troth.explorer.reading import INDEX_FILE
from troth.explorer.site import Site

PATIENCE = 5.0
LOOP_SECONDS = 0.005


class HeldQueries:
    """Queries of one page that last until they are let go."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.begun, self.end = threading.Semaphore(0), threading.Event()
        self.opened = 0

    def open(self) -> Site:
        """A site of which the page /slashes lasts."""
        site = Site.open(self._home / INDEX_FILE)
        database = site.database
        assert isinstance(database, SqliteDatabase)
        connection: sqlite3.Connection = database._connection
        connection.create_function("held", 0, self._hold)
        # The table of this page's figure is hidden by a view whose every read waits.
        connection.execute("PRAGMA query_only=OFF")
        connection.execute("CREATE TEMP VIEW slashes AS SELECT * FROM main.slashes WHERE held() = 0")
        connection.execute("PRAGMA query_only=ON")
        self.opened += 1
        return site

    def _hold(self) -> int:
        self.begun.release()
        return 0 if self.end.wait(PATIENCE) else 1


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_of(tmp_path_factory.mktemp("explorer"))


@asynccontextmanager
async def asked(held: HeldQueries) -> AsyncIterator[httpx.AsyncClient]:
    """A client in the application's own loop, so that whatever blocks it blocks the test."""
    app = application(held.open)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://explorer") as client,
    ):
        try:
            yield client
        finally:
            held.end.set()


async def begun(held: HeldQueries) -> None:
    assert await asyncio.to_thread(held.begun.acquire, timeout=PATIENCE), "the query never began"


async def test_a_slow_query_holds_up_no_other_request(home: Path) -> None:
    held = HeldQueries(home)
    async with asked(held) as client:
        slow = asyncio.create_task(client.get("/slashes"))
        await begun(held)
        for path in ("/nodes", "/figures/tasks.csv", "/freshness.json", "/readyz", "/static/mark.svg"):
            answer = await client.get(path)
            assert answer.status_code < 500 or path == "/readyz"
            assert not slow.done(), f"{path} waited for the slow one"
        held.end.set()
        assert (await slow).status_code == 200


async def test_the_loop_is_never_long_at_one_thing(home: Path) -> None:
    """Of processor time, which does not depend on what else the machine does."""
    held = HeldQueries(home)
    held.end.set()
    async with asked(held) as client:
        for path in ("/", "/figures/tasks.csv"):
            await client.get(path)
        with LoopTime() as at:
            for path in ("/", "/nodes", "/logs", "/figures/tasks.csv", "/figures/tasks.json", "/freshness.json"):
                assert (await client.get(path)).status_code == 200
    assert at.longest < LOOP_SECONDS, at.what


async def test_a_large_file_is_compressed_a_part_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"0x{number * 7919 % 65537:064x},{number},{number * 31}\n" for number in range(20_000))
    monkeypatch.setattr(Figure, "as_csv", lambda _: rows)
    held = HeldQueries(home)
    async with asked(held) as client:
        with LoopTime() as at:
            async with client.stream("GET", "/figures/tasks.csv", headers={"Accept-Encoding": "gzip"}) as answer:
                packed = [part async for part in answer.aiter_raw()]
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(b"".join(packed)) == rows.encode()
    assert at.longest < LOOP_SECONDS, at.what


async def test_all_readers_held_refuse_who_comes_last_and_then_go_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "ASKED_LIMIT", served.READERS + 2)
    held = HeldQueries(home)
    async with asked(held) as client:
        slow = [asyncio.create_task(client.get("/slashes")) for _ in range(served.READERS)]
        for _ in slow:
            await begun(held)
        waiting = [asyncio.create_task(client.get("/nodes")) for _ in range(2)]
        for _ in range(100):
            await asyncio.sleep(0)
        answers = [await client.get(path) for path in ("/cases", "/readyz", "/livez", "/static/mark.svg")]
        assert [one.status_code for one in answers] == [503, 503, 200, 200]
        assert answers[0].headers["retry-after"]
        assert "Too many ask at once" in answers[1].text
        held.end.set()
        assert {one.status_code for one in await asyncio.gather(*slow, *waiting)} == {200}
        assert held.opened == served.READERS, "a connection for each thread"
