"""A watcher on a real chain: it finds what a log leaves out, shows it once, and acts where it was told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.court_logs import line_of, post
from support.court_stage import CourtStage, court_stage, quantised
from typer.testing import CliRunner

from troth.audit.command import app
from troth.audit.evidence.source import Source
from troth.audit.report import ExitCode, FindingKind
from troth.audit.watching.findings import ShownFindings
from troth.audit.watching.looks import CachingSource, Watcher
from troth.cases import evidence as files
from troth.cases.opening import WantedCase
from troth.chain.keystore import create_account
from troth.protocol.errors import InvalidField
from troth.protocol.market import log_data
from troth.protocol.market.log_data import LogLine
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.proceedings import Outcome
from troth.protocol.market.signed import Inclusion, Opinion

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path) as made:
        yield made


def promised(court: CourtStage, line: LogLine, entry: int) -> Signed[Inclusion]:
    leaf = log_data.leaf_of(log_data.encode_line(line))
    message = Inclusion(log_data.read_hash(line.order), leaf, entry)
    return sign(message, court.stage.market.domain, court.stage.scheduler.secret)


class Watching:
    """A watcher whose logs are served by ``data``; a number that is not in it is refused."""

    def __init__(self, court: CourtStage, folder: Path) -> None:
        self.court, self.folder = court, folder
        self.data: dict[int, bytes] = {}
        self.fetched: list[int] = []

    def fetch(self, _history: Any, _scheduler: Any, number: int) -> bytes:
        self.fetched.append(number)
        if number not in self.data:
            raise InvalidField("No such entry is served", number, "Ask again.")
        return self.data[number]

    async def look(self, **changes: Any) -> Any:
        """A watcher that is started, looks once, and is stopped."""
        market = self.court.stage.market
        shown = ShownFindings(self.folder / "findings.sqlite")
        async with await Source.connect(self.court.stage.anvil.url, market.place) as source:
            watcher = Watcher(CachingSource.of(source), self.court.follower, self.folder, shown, fetch=self.fetch)
            for name, value in changes.items():
                setattr(watcher, name, value)
            look = await watcher.look()
            watcher.shown_now(look)
        assert not watcher._served, "logs of months are read from disk again, and not held in memory"
        shown.close()
        return look


async def test_an_honest_deployment_is_clean_and_data_is_fetched_once(court: CourtStage, tmp_path: Path) -> None:
    watching = Watching(court, tmp_path / "watch")
    line = line_of(await court.serve(opinion=Opinion.ACCEPT))
    watching.data[1] = await post(court, 1, [line])
    look = await watching.look(promises=(promised(court, line, 1),))
    assert (look.report.exit_code, look.fresh) == (ExitCode.CLEAN, ())
    await watching.look()
    assert watching.fetched == [1]


async def test_what_a_log_leaves_out_is_found_and_shown_once(court: CourtStage, tmp_path: Path) -> None:
    watching = Watching(court, tmp_path / "watch")
    honest, left_out, unchecked = [await court.serve(opinion=Opinion.ACCEPT) for _ in range(3)]
    promise = promised(court, line_of(left_out), 1)
    watching.data[1] = await post(court, 1, [line_of(honest), line_of(unchecked, checked=False)])
    await post(court, 2, [])
    look = await watching.look(promises=(promise,))
    found = {(one.check, one.kind) for one in look.fresh}
    assert found == {("M13", FindingKind.CHEATED), ("M16", FindingKind.CHEATED), ("M17", FindingKind.CHEATED)}
    assert look.report.exit_code is ExitCode.VIOLATION
    again = await watching.look(promises=(promise,))
    assert again.fresh == ()
    assert again.report.exit_code is ExitCode.VIOLATION
    # What is served later is no longer a finding, and is noticed.
    watching.data[2] = b""
    later = await watching.look(promises=(promise,))
    assert later.fresh == ()
    assert len(later.gone) == 1
    assert "not served" in later.gone[0]


async def test_data_that_is_not_what_was_posted_is_found(court: CourtStage, tmp_path: Path) -> None:
    watching = Watching(court, tmp_path / "watch")
    line = line_of(await court.serve(opinion=Opinion.ACCEPT))
    data = await post(court, 1, [line])
    watching.data[1] = data.replace(b'"node_share":8000', b'"node_share":8001')
    look = await watching.look()
    assert [one.check for one in look.fresh] == ["M13"]


async def test_a_case_on_the_chain_passes_the_checks_of_the_court(court: CourtStage, tmp_path: Path) -> None:
    """What the carrier sent is what the auditor recomputes, and nothing of it is out of order."""
    evidence = await court.serve(cheat=quantised)
    court.defend(evidence.nodes[0])
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(0))
    assert (await court.drive(carrier, case_id)).outcome is Outcome.CONVICTED
    look = await Watching(court, tmp_path / "watch").look()
    assert look.report.findings == ()
    assert all(check.ok for check in look.report.checks if check.number in {"M6", "M7", "M8", "M9"})


async def test_the_command_convicts_and_brings_what_was_handed_in(court: CourtStage, tmp_path: Path) -> None:
    cheated, honest = await court.serve(cheat=quantised), await court.serve(opinion=Opinion.ACCEPT)
    node = court.key_of(honest.nodes[0])
    other = sign(replace(honest.results[0].message, written=5), court.stage.market.domain, node.secret)
    folder = tmp_path / "handed in"
    folder.mkdir()
    files.write(folder / "cheated.evidence", cheated)
    files.write(folder / "twice.evidence", replace(honest, other_results=(other,)))
    (folder / "broken.evidence").write_text("{}")
    watcher, password = court.stage.anvil.keys[9], tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    create_account(tmp_path / "key.json", "secret", scrypt_n=2, key=watcher)
    place = court.stage.market.place
    given = ["watch", "--once", "--json", "--factory", place.factory, "--rpc", court.stage.anvil.url]
    given += ["--evidence", str(folder), "--home", str(tmp_path / "home"), "--bank", place.contracts.bank]
    looked = await run(given)
    assert looked.exit_code == ExitCode.VIOLATION
    said = [json.loads(line) for line in looked.stdout.splitlines()]
    parties = {one["finding"]["party"] for one in said if "finding" in one and one["finding"]["check"] == "M20"}
    assert parties == {None, cheated.nodes[0], honest.nodes[0]}
    assert not court.follower.state.cases
    acting = ["--act", "--keystore", str(tmp_path / "key.json"), "--password-file", str(password)]
    acted = await run([*given, *acting, "--most-bond", "1ether"])
    done = [json.loads(line).get("acted", "") for line in acted.stdout.splitlines()]
    assert any("convicted" in one for one in done)
    assert any("is open" in one for one in done)
    await court.follower.catch_up()
    assert [record.state.node for _, record in court.follower.state.cases.items()] == [cheated.nodes[0]]
    assert honest.nodes[0] in court.follower.state.convictions


async def run(given: list[str]) -> Any:
    """The command in a thread of its own, since it has a loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, given)
