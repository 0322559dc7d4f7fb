"""kill -9 of `troth audit watch --act` before and after each step of one case: it is carried on to its end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.court_stage import CourtStage, court_stage, quantised
from support.crash_points import Plan
from support.waiting import SECONDS

from troth.cases import evidence as files
from troth.chain.keystore import create_account
from troth.protocol.market.proceedings import Outcome
from troth.protocol.market.types import PotKind
from troth.testnet import forked

pytestmark = [pytest.mark.chain, pytest.mark.slow, pytest.mark.timeout(900)]
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop(1))
from support.crash_points import Plan, arm
from troth.audit.command import app
arm("watcher", Plan(Path(sys.argv[1])))
app(sys.argv[2:])
"""
TESTS = Path(__file__).parents[1]
STEPS = ("shown", "case_follow", "case_send", "case_end")
"""What a watcher does in turn: it writes down a finding it told and a case it takes on, sends a call, and writes down
the end."""
PLACES = [(moment, step) for step in STEPS for moment in ("before", "after")]


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path) as made:
        yield made


class Watch:
    """The command as a process; ``start`` it again after it died."""

    def __init__(self, court: CourtStage, folder: Path, evidence: Path) -> None:
        self.court, self.folder = court, folder
        self.plan = Plan(folder / "plan")
        self.key = court.stage.anvil.keys[9]
        self.process: forked.Forked | None = None
        password = folder / "password"
        password.write_text("secret")
        password.chmod(0o600)
        create_account(folder / "key.json", "secret", scrypt_n=2, key=self.key)
        place = court.stage.market.place
        self.words = ["watch", "--json", "--factory", place.factory, "--bank", place.contracts.bank]
        self.words += ["--rpc", court.stage.anvil.url, "--home", str(folder / "home"), "--evidence", str(evidence)]
        self.words += ["--act", "--keystore", str(folder / "key.json"), "--password-file", str(password)]
        self.words += ["--most-bond", "1ether"]

    def start(self) -> None:
        given = [sys.executable, "-c", PROGRAM, str(TESTS), str(self.plan.path), *self.words]
        self.process = forked.start(given, os.environ, self.folder / "log")

    @property
    def is_dead(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def stop(self) -> None:
        self.plan.clear()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def died(self, what: str) -> None:
        """Let reviewers work until the plan is carried out. A block comes once the watcher has looked at the last one:
        windows are counted in blocks, and starting a process takes as long as the machine likes."""
        log, seen = self.folder / "log", (self.folder / "log").stat().st_size
        async with asyncio.timeout(SECONDS):
            while not self.is_dead:
                await self.court.look()
                written = log.stat().st_size
                if self.court.follower.state.cases and written > seen:
                    seen = written
                    await asyncio.to_thread(self.court.stage.anvil.mine, 1)
                await asyncio.sleep(0.1)
        assert not self.plan.waits, f"it ended before {what}:\n{log.read_text()[-3_000:]}"


async def test_a_watcher_that_is_killed_at_every_step_brings_its_case_to_the_end(
    court: CourtStage, tmp_path: Path
) -> None:
    cheated = await court.serve(cheat=quantised)
    court.defend(cheated.nodes[0])
    court.store.evidence = cheated
    folder = tmp_path / "handed in"
    folder.mkdir()
    files.write(folder / "cheated.evidence", cheated)
    watch = Watch(court, tmp_path, folder)
    before = court.balance(watch.key)
    try:
        for moment, step in PLACES:
            watch.plan.set("watcher", moment, step)
            watch.start()
            await watch.died(f"{moment} {step}")
    finally:
        watch.stop()
    ((_, record),) = court.follower.state.cases.items()
    assert record.outcome is Outcome.CONVICTED
    assert record.state.opener == watch.key.address
    # One bond was put up, and came back with the reward; what is left is gas.
    assert court.follower.state.pot(PotKind.CREDIT, watch.key.address) > record.state.bond
    assert before - court.balance(watch.key) < 2 * record.state.bond
