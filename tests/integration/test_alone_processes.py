"""Copies of a home as processes: a node with a tunnel, and a second scheduler in the folder of a running one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

pytest.importorskip("torch")

from support.light_keys import lighten
from support.operated import DEADLINE, PASSWORD, Operated, joined, operated_in, wait_until_ready
from support.tab_scene import descriptor, texts
from support.tabs_stage import TabsStage, execution_class_of, tabs_stage
from support.tiny_llama import tiny_model

from troth.chain.keystore import DEMO_SCRYPT_N, create_account, load_account
from troth.node.models.descriptor import describe
from troth.protocol.market.parts import Part
from troth.scheduler.commands.initialisation import SchedulerInitOptions, init_market
from troth.scheduler.commands.registering import Owner, register_in_market
from troth.testnet import forked
from troth.testnet.forked import Forked
from troth.testnet.ports import free_port
from troth.transport.https import pinned_sync_client
from troth.transport.identity import create_identity, load_identity
from troth.transport.server import TlsServer, serving
from troth.transport.tunnel_server import TUNNEL_PATH

pytestmark = [pytest.mark.chain, pytest.mark.slow]

MONEY = ((1_000_000_000, 100_000_000, 2_000_000_000), 1_000_000_000_000, 0)


@pytest.fixture
def processes() -> Iterator[list[Forked]]:
    started: list[Forked] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


class Lender(FastAPI):
    """A scheduler's server, as far as it hears what nodes ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.tunnels = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == TUNNEL_PATH:
            self.tunnels.set()
        await super().__call__(scope, receive, send)


async def test_a_copy_of_a_node_asks_for_no_tunnel_before_it_has_looked(
    anvil: Any, tmp_path: Path, processes: list[Forked]
) -> None:
    """It would lead the registered endpoint to itself, and away from the node that serves."""
    folder, lender, identity = tiny_model(tmp_path / "model"), Lender(), create_identity(tmp_path / "lender")
    async with (
        tabs_stage(anvil, nodes=1, model=describe(folder, 0), tabs=False) as stage,
        serving(TlsServer(lender, identity, "127.0.0.1", 0)) as server,
    ):
        operated, made = await joined(stage, anvil, tmp_path)
        there = f"https://127.0.0.1:{server.port}", identity.spki_sha256
        owner = stage.owner_of(stage.scheduler)
        await stage.send(owner, Part.REGISTRY, "setEndpoint", stage.scheduler.address, *there)
        anvil.mine(3)
        processes.append(operated.start("--no-verify-weights"))
        await asyncio.to_thread(wait_until_ready, operated, made, processes[-1])
        copy = copied(operated, stage)
        processes.append(copy.start("--no-verify-weights"))
        assert await asyncio.to_thread(processes[-1].wait, DEADLINE) != 0
        assert "Another process serves with this key" in copy.log
        assert not lender.tunnels.is_set()
        processes[0].send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(processes[0].wait, DEADLINE) == 0
        processes.append(copy.start("--no-verify-weights"))
        # Nobody serves any more, so that it takes the way over.
        await asyncio.wait_for(lender.tunnels.wait(), DEADLINE)


def copied(operated: Operated, stage: TabsStage) -> Operated:
    """The same home on another machine, behind a tunnel."""
    copy = Operated(operated.home.parent / "copied", operated.password)
    shutil.copytree(operated.home, copy.home)
    file = copy.home / "node.toml"
    moved = re.sub(r"(?m)^port = \d+$", f"port = {free_port()}", file.read_text())
    file.write_text(moved + f'\n[tunnel]\nscheduler = "{stage.scheduler.address}"\n')
    return copy


async def test_a_second_scheduler_in_the_folder_of_a_running_one_ends_and_harms_nothing(
    anvil: Any, tmp_path: Path, processes: list[Forked]
) -> None:
    """As where two containers share a volume: the port is free in each of them. The same with a copy of the folder."""
    model = descriptor()
    async with tabs_stage(anvil, model=model, execution_class=execution_class_of(model), nodes=3) as stage:
        scheduler = await registered(anvil, stage, tmp_path)
        processes.append(scheduler.start())
        scheduler.until(processes[-1], lambda found: found["ready"])
        processes.append(scheduler.start())
        assert processes[-1].wait(DEADLINE) != 0
        before = scheduler.file.read_text()
        scheduler.listen_at(free_port())
        processes.append(scheduler.start())
        assert processes[-1].wait(DEADLINE) != 0
        assert "Stop what runs on this home folder" in scheduler.log
        scheduler.file.write_text(before)
        copy = scheduler.copied(tmp_path / "copied")
        processes.append(copy.start())
        assert processes[-1].wait(DEADLINE) != 0
        assert "Another process serves with this key" in copy.log
        anvil.mine(3)
        scheduler.until(processes[0], lambda found: found["ready"])
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(DEADLINE) == 0
        for name in ("market.sqlite", "market-events.sqlite"):
            with closing(sqlite3.connect(scheduler.home / name)) as database:
                assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        processes.append(scheduler.start())
        scheduler.until(processes[-1], lambda found: found["ready"])


class Process:
    """A scheduler's home, its processes, and what they say of themselves."""

    def __init__(self, home: Path, password: Path, port: int) -> None:
        self.home, self.password, self.port = home, password, port
        self.file = home / "scheduler.toml"

    @property
    def log(self) -> str:
        return (self.home / "log").read_text()

    def listen_at(self, port: int) -> None:
        """Elsewhere than where it is registered."""
        text = self.file.read_text()
        assert f"port = {self.port}\n" in text
        self.file.write_text(text.replace(f"port = {self.port}\n", f"port = {port}\n"))

    def copied(self, home: Path) -> Process:
        """The same home on another machine."""
        shutil.copytree(self.home, home)
        copy = Process(home, self.password, self.port)
        copy.listen_at(free_port())
        return copy

    def start(self) -> Forked:
        main = "from troth.command.main import main; main()"
        words = ("scheduler", "run", "--home", str(self.home), "--password-file", str(self.password))
        return forked.start([sys.executable, "-c", main, *words], os.environ, self.home / "log")

    def until(self, process: Forked, holds: Any) -> None:
        """Wait until what it says of being ready is so."""
        key, give_up, found = load_identity(self.home / "tls").spki_sha256, time.monotonic() + DEADLINE, None
        while time.monotonic() < give_up:
            assert process.poll() is None, self.log
            try:
                with pinned_sync_client(f"https://127.0.0.1:{self.port}", key) as client:
                    found = json.loads(client.get("/readyz").text)
                if holds(found):
                    return
            except Exception as error:  # noqa: BLE001 -- it does not listen yet
                found = error
            time.sleep(0.2)
        raise AssertionError((found, self.log))


async def registered(anvil: Any, stage: TabsStage, folder: Path) -> Process:
    """A scheduler of the stage's class by its commands, besides the stage's own."""
    password, port, home = operated_in(folder).password, free_port(), folder / "scheduler"
    texts(folder / "model")
    options = SchedulerInitOptions(
        rpc=anvil.url,
        class_id="0x" + stage.class_id.hex(),
        model=folder / "model",
        ends="2",
        host="127.0.0.1",
        port=port,
        endpoint=f"https://127.0.0.1:{port}",
        start_block=0,
        operator_keystore=None,
        vrf_keystore=None,
    )
    init_market(home, options, (stage.market.place.factory, stage.market.contracts.bank), MONEY, password)
    lighten(home / "keys", password)
    owner = create_account(folder / "owner.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    for key in (owner, load_account(home / "keys" / "operator.json", PASSWORD)):
        anvil.fund(key)
    asked = Owner(folder / "owner.json", password, None, "")
    assert (await register_in_market(home, asked, password, broadcast=True))["sent"]
    anvil.mine(3)
    return Process(home, password, port)
