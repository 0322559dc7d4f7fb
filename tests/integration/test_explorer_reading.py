"""The explorer on a real chain: its reader follows a court to a conviction, through a reorganisation, and is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from support.tabs_stage import TabsStage, tabs_stage

from troth.explorer import reading
from troth.explorer.reading import INDEX_FILE, ReaderSettings, read
from troth.explorer.site import Site
from troth.protocol.market.parts import Part
from troth.protocol.types import Hash32
from troth.testnet.ports import free_port

pytestmark = [pytest.mark.chain, pytest.mark.slow]

DEADLINE = 240.0
"""Two processes load all libraries and audit a chain: with a tenth of a processor that takes two minutes."""


@pytest.fixture
async def market(anvil: Any) -> AsyncIterator[TabsStage]:
    async with tabs_stage(anvil) as made:
        yield made


def settings(market: TabsStage, home: Path) -> ReaderSettings:
    place = market.market.place
    return ReaderSettings(market.anvil.url, place.factory, place.contracts.bank, 0, home, 1.0)


def shown(home: Path) -> dict[str, Any]:
    site = Site.open(home / INDEX_FILE)
    try:
        figures = {name: site.figure(name, {}).rows for name in ("nodes", "schedulers", "gas", "groups")}
        return {**figures, "freshness": site.freshness(), "page": site.page("")}
    finally:
        site.close()


async def test_a_reader_follows_prices_audits_and_takes_back_what_a_reorganisation_took(
    market: TabsStage, tmp_path: Path
) -> None:
    told = settings(market, tmp_path)
    node = market.nodes[0]

    def leaving() -> int:
        nodes = {row[0]: row for row in shown(tmp_path)["nodes"]}
        assert len(nodes) == len(market.nodes)
        return int(nodes[node.address][8])

    taken = market.anvil.rpc("evm_snapshot")
    await read(told, once=True)
    found = shown(tmp_path)
    assert found["schedulers"]
    assert found["groups"]
    assert all(row[2] > 21_000 for row in found["gas"])
    assert {"registration", "deployment"} <= {row[0] for row in found["gas"]}
    assert (found["freshness"]["behind"], found["freshness"]["findings"]) == (0, 0)
    assert "No transaction was priced yet" not in found["page"]
    assert leaving() == 0
    await market.send(market.owner_of(node), Part.REGISTRY, "deregister", node.address)
    await read(told, once=True)
    assert leaving() > 0
    market.anvil.rpc("evm_revert", taken)
    market.anvil.mine(2)
    await read(told, once=True)
    assert leaving() == 0
    assert shown(tmp_path)["freshness"]["state"] == "good"


def creation_of(market: TabsStage) -> tuple[str, str]:
    """The transaction that created the factory, and one that created nothing."""
    newest, others = int(market.anvil.rpc("eth_blockNumber"), 16), ""
    for number in range(newest + 1):
        for name in market.anvil.rpc("eth_getBlockByNumber", hex(number), False)["transactions"]:
            made = market.anvil.rpc("eth_getTransactionReceipt", name)["contractAddress"]
            if made is not None and made.lower() == market.market.place.factory.lower():
                return name, others
            others = name
    raise AssertionError("nothing created the factory")


async def test_every_transaction_of_a_deployment_is_counted(market: TabsStage, tmp_path: Path) -> None:
    """The factory's creation left no event: the network's file names it."""
    plain, created, wrong = tmp_path / "plain", tmp_path / "created", tmp_path / "wrong"
    name, another = creation_of(market)
    counted = {}
    for home, told in ((plain, ""), (created, name), (wrong, another)):
        hashed = Hash32(bytes.fromhex(told[2:])) if told else None
        await read(replace(settings(market, home), created_by=hashed), once=True)
        counted[home] = {row[0]: row[1] for row in shown(home)["gas"]}["deployment"]
    # Parameters and each part.
    parts = 1 + len(asdict(market.market.place.contracts))
    assert (counted[plain], counted[wrong], counted[created]) == (parts, parts, parts + 1)
    # Once, however often it is read.
    await read(replace(settings(market, created), created_by=Hash32(bytes.fromhex(name[2:]))), once=True)
    assert {row[0]: row[1] for row in shown(created)["gas"]}["deployment"] == counted[created]


async def test_every_transaction_is_priced_however_many_there_are(
    market: TabsStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "GAS_AT_ONCE", 3)
    await read(settings(market, tmp_path), once=True)
    site = Site.open(tmp_path / INDEX_FILE)
    unpriced, priced = (
        site.database.execute(f"SELECT count(*) FROM transactions WHERE used IS {one}").fetchone()[0]
        for one in ("NULL", "NOT NULL")
    )
    site.close()
    assert priced > 2 * 3
    assert unpriced == 0


async def test_it_serves_goes_on_after_kill_9_and_stops_cleanly(market: TabsStage, tmp_path: Path) -> None:
    place = market.market.place
    port = free_port()
    command = [sys.executable, "-c", "from troth.explorer.command import app; app()", "serve"]
    command += ["--factory", place.factory, "--bank", place.contracts.bank, "--rpc", market.anvil.url]
    command += ["--home", str(tmp_path), "--port", str(port), "--interval", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for ending in (signal.SIGKILL, signal.SIGTERM):
        process = await asyncio.to_thread(subprocess.Popen, command, env=environment, cwd=tmp_path)
        try:
            await until_fresh(port, market.anvil)
            reader = await reader_of(process.pid)
            if ending is signal.SIGKILL:
                # The reader is killed alone first: its keeper starts another, and pages are served meanwhile.
                reader.kill()
                market.anvil.mine(1)
                page = await asyncio.to_thread(httpx.get, f"http://127.0.0.1:{port}/", timeout=DEADLINE)
                assert page.status_code == 200
                await until_fresh(port, market.anvil)
                reader = await reader_of(process.pid)
            process.send_signal(ending)
            await asyncio.to_thread(process.wait, 30)
            await asyncio.to_thread(psutil.wait_procs, [reader], 15)
            assert not reader.is_running() or reader.status() == psutil.STATUS_ZOMBIE
            assert ending is signal.SIGKILL or process.returncode == 0
        finally:
            process.kill()
            process.wait()
        market.anvil.mine(1)


async def reader_of(parent: int) -> psutil.Process:
    """The reader's process, a child that is not Python's tracker of shared resources."""
    give_up = time.monotonic() + DEADLINE
    while time.monotonic() < give_up:
        for child in psutil.Process(parent).children():
            with suppress(psutil.NoSuchProcess):  # it has ended since
                if any("spawn_main" in word for word in child.cmdline()):
                    return child
        await asyncio.sleep(0.1)
    raise AssertionError("no reader runs")


async def until_fresh(port: int, anvil: Any) -> None:
    """Until the served badge is at the chain's newest block."""
    give_up = time.monotonic() + DEADLINE
    said: Any = None
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as client:
        while time.monotonic() < give_up:
            try:
                said = (await client.get(f"http://127.0.0.1:{port}/freshness.json")).json()
                if said["audited"] == int(anvil.rpc("eth_blockNumber"), 16):
                    assert said["findings"] == 0
                    return
            except (httpx.HTTPError, ValueError):
                pass
            await asyncio.sleep(0.2)
    raise AssertionError(f"not fresh in time: {said}")
