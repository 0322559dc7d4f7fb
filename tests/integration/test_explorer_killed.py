"""kill -9 of an explorer's reader and of its Postgres at random moments, while blocks come: the index has no gap.

What grew through all of it is compared, row by row, with an index that was made at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.explorer_stage import tables
from support.postgres import PostgresServer, killable_server
from support.tabs_stage import TabsStage, tabs_stage

from troth.explorer.index import ExplorerIndex
from troth.explorer.reading import INDEX_FILE, ReaderSettings, read
from troth.explorer.site import Site
from troth.protocol.errors import TrothError
from troth.protocol.market.parts import Part

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install -e '.[postgres]'")

pytestmark = [pytest.mark.chain, pytest.mark.network, pytest.mark.slow]

READING = """
import sys
from pathlib import Path
from troth.explorer.reading import ReaderProcess, ReaderSettings
from troth.protocol.types import to_address
rpc, factory, bank, home, database = sys.argv[1:]
ReaderProcess(ReaderSettings(rpc, to_address(factory), to_address(bank), 0, Path(home), 1.0, database=database))._keep()
"""
SEEDS = (1, 2)
KILLS = 8
CALM_SECONDS = 120.0


@pytest.fixture
async def market(anvil: Any) -> AsyncIterator[TabsStage]:
    async with tabs_stage(anvil) as made:
        yield made


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with killable_server() as one:
        yield one


@contextmanager
def reader(told: ReaderSettings) -> Iterator[Readers]:
    begun = Readers(told)
    begun.start()
    try:
        yield begun
    finally:
        begun.kill()


class Readers:
    """The process that reads, with the keeper that starts it again, in a group of their own."""

    def __init__(self, told: ReaderSettings) -> None:
        words = (told.rpc, told.factory, told.bank, told.home, told.database)
        self._command = [sys.executable, "-c", READING, *map(str, words)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(self._command, env=environment, start_new_session=True)

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, 9)
        self._process.wait(timeout=30)


async def until_calm(told: ReaderSettings, market: TabsStage) -> None:
    """Until the index is at the newest block, audited, and all is priced."""
    give_up = time.monotonic() + CALM_SECONDS
    said: Any = None
    while time.monotonic() < give_up:
        try:
            site = await asyncio.to_thread(Site.open, told.index, told.home)
            try:
                said = site.freshness()
                (unpriced,) = site.database.execute("SELECT count(*) FROM transactions WHERE used IS NULL").fetchone()
            finally:
                site.close()
            if said["audited"] == int(market.anvil.rpc("eth_blockNumber"), 16) and not unpriced:
                return
        except TrothError as error:
            said = error
        await asyncio.sleep(0.3)
    raise AssertionError(f"not calm in time: {said}")


async def happening(market: TabsStage, ended: asyncio.Event) -> None:
    """Deposits into a node's stake, each an event in a block of its own, with empty blocks between."""
    node = market.nodes[0]
    while not ended.is_set():
        await market.send(market.owner_of(node), Part.REGISTRY, "topUp", node.address, 1, value=1)
        market.anvil.mine(1)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_index_through_kills_of_reader_and_database_is_one_made_at_once(
    market: TabsStage, postgres: PostgresServer, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with psycopg.connect(f"{postgres.url}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE killed{seed}")
    place = market.market.place
    told = ReaderSettings(market.anvil.url, place.factory, place.contracts.bank, 0, tmp_path / "grown", 1.0)
    told = replace(told, database=f"{postgres.url}/killed{seed}")
    told.home.mkdir()
    ended = asyncio.Event()
    with reader(told) as readers:
        events = asyncio.create_task(happening(market, ended))
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.2, 4.0))
            if chance.random() < 0.5:
                await asyncio.to_thread(readers.kill)
                readers.start()
            else:
                await asyncio.to_thread(postgres.kill)
                await asyncio.sleep(chance.uniform(0.0, 1.5))
                await asyncio.to_thread(postgres.start)
        ended.set()
        await events
        await until_calm(told, market)
    once = replace(told, database="", home=tmp_path / "once")
    await read(once, once=True)
    grown, made = (
        ExplorerIndex.open(one, market.market.chain.chain_id, place) for one in (told.index, once.home / INDEX_FILE)
    )
    try:
        assert tables(grown) == tables(made)
        assert len(tables(made)["blocks"]) > 2 * KILLS
    finally:
        grown.close()
        made.close()
