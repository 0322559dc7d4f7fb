"""`troth case` as a process: a dry run in words, a whole case under kill -9, convictions, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.court_stage import CourtStage, court_stage, quantised
from typer.testing import CliRunner

from troth.audit import running
from troth.audit.command import app
from troth.audit.evidence.bundle import read_bundle
from troth.cases import evidence as files
from troth.chain.keystore import create_account
from troth.protocol.market import log_data
from troth.protocol.market.messages import sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts, Outcome
from troth.protocol.market.signed import Opinion
from troth.testnet import forked

pytestmark = [pytest.mark.chain, pytest.mark.slow]
PROGRAM = "from troth.cases.command import app; app()"


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path) as made:
        yield made


class Program:
    """`troth case` with a keystore and a home of its own."""

    def __init__(self, court: CourtStage, folder: Path) -> None:
        self.key = court.stage.anvil.keys[6]
        create_account(folder / "key.json", "secret", scrypt_n=2, key=self.key)
        (folder / "password").write_text("secret")
        (folder / "password").chmod(0o600)
        place = court.stage.market.place
        self.options = ["--factory", place.factory, "--bank", place.contracts.bank, "--rpc", court.stage.anvil.url]
        self.options += ["--home", str(folder / "home"), "--json"]
        self.keys = ["--keystore", str(folder / "key.json"), "--password-file", str(folder / "password")]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM, *words, *self.options, *self.keys]

    async def run(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        done = await asyncio.to_thread(forked.run, self.command(*words), os.environ, 60)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode in {0, 4}, done.stderr[-2_000:]
        return done.returncode, lines


async def test_show_says_what_can_be_done_and_sends_nothing(court: CourtStage, tmp_path: Path) -> None:
    program = Program(court, tmp_path)
    evidence = await court.serve(cheat=quantised)
    files.write(tmp_path / "one.evidence", evidence)
    before = court.balance(program.key)
    code, said = await program.run("show", str(tmp_path / "one.evidence"))
    assert code == 0
    assert "rejection" in said[0]["option"]
    assert "it would succeed" in said[0]["option"]
    assert court.balance(program.key) == before
    nothing = replace(evidence, order=None, tab=None)
    files.write(tmp_path / "nothing.evidence", nothing)
    assert (await program.run("show", str(tmp_path / "nothing.evidence")))[0] == 4


async def test_convict_takes_what_two_words_prove(court: CourtStage, tmp_path: Path) -> None:
    program = Program(court, tmp_path)
    held = await court.serve(opinion=Opinion.ACCEPT)
    node = court.key_of(held.nodes[0])
    other = sign(replace(held.results[0].message, written=2), court.stage.market.domain, node.secret)
    files.write(tmp_path / "twice.evidence", replace(held, other_results=(other,)))
    code, said = await program.run("convict", str(tmp_path / "twice.evidence"))
    assert (code, said[0]["convicted"]) == (0, node.address)
    assert (await program.run("convict", str(tmp_path / "twice.evidence")))[0] == 4


async def test_a_case_goes_on_through_kill_9(court: CourtStage, tmp_path: Path) -> None:
    """The process knows nobody's endpoint, and is killed again and again: each start goes on from chain and journal."""
    program = Program(court, tmp_path)
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    court.store.evidence = evidence
    files.write(tmp_path / "one.evidence", evidence)
    log = tmp_path / "log"

    def start(words: tuple[str, ...]) -> forked.Forked:
        return forked.start(program.command(*words), os.environ, log)

    opening = ("open", str(tmp_path / "one.evidence"), "--most-bond", "1ether")
    cases, kills, process = court.follower.state.cases, 0, start(opening)
    for number in range(240):
        await asyncio.sleep(0.2)
        await court.look()
        cases = court.follower.state.cases
        if cases and all(record.outcome for _, record in cases.items()):
            break
        if number % 24 == 23:
            process.kill()
            process.wait()
            kills += 1
            process = start(("carry",) if cases else opening)
        elif cases and number % 3 == 0:
            court.stage.anvil.mine(1)
    process.kill()
    process.wait()
    assert cases, log.read_text()[-2_000:]
    (record,) = [one for _, one in court.follower.state.cases.items()]
    assert record.outcome is Outcome.CONVICTED
    assert kills


async def test_an_export_holds_what_schedulers_serve_of_their_logs(
    court: CourtStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = log_data.encode_data([])
    arguments = (1, log_data.data_root(data), LogCounts(0, 0, 0, 0, 0, 0, 0), log_data.data_hash(data))
    await court.stage.send(court.stage.scheduler, Part.LOG, "post", *arguments)
    monkeypatch.setattr(running, "from_scheduler", lambda history, scheduler: lambda number: data)
    place, file = court.stage.market.place, tmp_path / "bundle"
    given = ["market", "--factory", place.factory, "--bank", place.contracts.bank, "--rpc", court.stage.anvil.url]
    done = await asyncio.to_thread(CliRunner().invoke, app, [*given, "--export", str(file)])
    assert done.exit_code == 0, done.output
    assert "1 entry of logs" in done.stdout
    assert read_bundle(file).served == {(court.stage.scheduler.address, 1): data}
