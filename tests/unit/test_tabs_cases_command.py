"""`troth client case`: what can be done with a rejected order, opened and carried on from a shell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.toy_court import USDC, ToyCourtroom, court_over
from support.toy_market import CONTRACTS, DOMAIN, FACTORY, PAYER, World
from support.toy_tab_stage import toy_stage
from typer.testing import CliRunner
from unit.test_tabs_asking import asked

from troth.cases.assessing import assess
from troth.cases.command import read_evidence
from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.chain.records import Simulation
from troth.client.command import app
from troth.client.errors import ConfigurationError, ReceiptNotFound
from troth.client.home import Home
from troth.client.orders import case_terminal
from troth.client.orders.case_files import case_file
from troth.client.orders.case_terminal import chosen
from troth.client.orders.court import ClientDeployment, Court
from troth.protocol.market.proceedings import CaseKind
from troth.protocol.market.proceedings import Outcome as Decision
from troth.protocol.market.signed import Opinion


def test_several_segments_are_not_chosen_among() -> None:
    one = type("One", (), {"segment": 0, "kind": CaseKind.DOUBT})
    other = type("Other", (), {"segment": 1, "kind": CaseKind.DOUBT})
    rejected = type("Rejected", (), {"segment": 1, "kind": CaseKind.REJECTION})
    found: Any = type("Found", (), {"cases": (one, other)})
    with pytest.raises(ConfigurationError, match="one segment"):
        chosen(found)
    found.cases = (one, rejected)
    assert chosen(found) == (1,)


class ToyMarket:
    """A deployment for a command that only looks: every call would succeed."""

    domain, contracts = DOMAIN, CONTRACTS

    async def simulate(self, call: Any, sender: Any) -> Simulation:
        return Simulation(call.call.function, sender, call.call.value, 1, 7, None)

    async def drawn(self, _request: Any) -> tuple[None, bytes]:
        return None, b""


@dataclass
class Shell:
    """`troth client` on a home whose only answer was rejected; the chain is the toy's."""

    folder: Path
    room: ToyCourtroom
    name: str
    bond: int

    def __call__(self, *arguments: str, password: bool = False) -> Any:
        options = ["--factory", FACTORY, "--home", str(self.folder), "--json"]
        options += ["--password-file", str(self.folder / "password")] if password else []
        return CliRunner().invoke(app, ["case", *arguments, *options])


async def rejected(folder: Path) -> tuple[World, str, int]:
    """A home with a rejected answer, after its client has ended."""
    async with toy_stage(folder) as stage:
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        await asked(stage)
        entry = stage.session.journal.all()[0]
        (bring,) = assess(case_file(entry, DOMAIN), stage.world.state, stage.world.block).cases
        return stage.world, entry.name, bring.bond


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    world, name, bond = asyncio.run(rejected(tmp_path))
    room = ToyCourtroom(world)

    @asynccontextmanager
    async def following(*_named: Any) -> AsyncIterator[Any]:
        yield ToyMarket(), world

    @asynccontextmanager
    async def open_court(
        place: ClientDeployment, wallet: Key, _asset: Any, most: int, report: Any
    ) -> AsyncIterator[Court]:
        assert wallet.address == PAYER.address
        court = court_over(place.orders, room, place.home.cases, most, report)
        yield court
        court.office.journal.close()

    async def read_asset(*_named: Any) -> Any:
        return USDC

    monkeypatch.setattr(case_terminal, "following", following)
    monkeypatch.setattr(case_terminal, "open_court", open_court)
    monkeypatch.setattr(case_terminal, "read_asset", read_asset)
    monkeypatch.delenv("TROTH_PASSWORD_FILE", raising=False)
    password = tmp_path / "password"
    password.write_text("password\n")
    password.chmod(0o600)
    create_account(Home(tmp_path).keystore, "password", scrypt_n=DEMO_SCRYPT_N, key=PAYER)
    return Shell(tmp_path, room, name, bond)


@pytest.mark.slow
def test_the_command_says_what_can_be_done_and_sends_nothing(shell: Shell) -> None:
    path = shell.folder / "my.evidence"
    done = shell(shell.name[:14], "--write", str(path))
    assert done.stdout, done.exception
    told = json.loads(done.stdout)
    text = "\n".join(told["said"])
    assert "Bring segment 0" in text
    assert f"From {PAYER.address} it would succeed" in text
    assert f"`troth client case {shell.name[:12]} --open --most-bond {shell.bond}units`" in text
    assert case_terminal.WITHOUT_OPENINGS in told["said"]
    assert (told["order"], told["written"], shell.room.sent) == (shell.name, str(path), [])
    assert read_evidence(path).shown == ()
    told = json.loads(shell(shell.name[:14], "--write", str(path), password=True).stdout)
    assert case_terminal.WITHOUT_OPENINGS not in told["said"]
    assert read_evidence(path).shown
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_command_opens_within_the_bond_that_it_is_given(shell: Shell) -> None:
    short = shell(shell.name, "--open", "--most-bond", "7units", password=True)
    assert (short.exit_code, shell.room.sent) == (4, [])
    assert f"--most-bond {shell.bond}units" in short.stdout
    unsaid = shell(shell.name, "--open", password=True)
    assert isinstance(unsaid.exception, ConfigurationError)
    done = shell(shell.name, "--open", "--most-bond", f"{shell.bond}units", "--no-carry", password=True)
    assert (done.exit_code, shell.room.sent) == (0, ["open"])
    (case,) = json.loads(done.stdout.splitlines()[-1])["cases"]
    assert case["steps"][0]["step"] == "opened"


@pytest.mark.slow
def test_the_command_carries_a_case_that_stands_to_its_end(shell: Shell) -> None:
    shell(shell.name, "--open", "--most-bond", f"{shell.bond}units", "--no-carry", password=True)
    (case_id,) = shell.room.world.state.cases
    shell.room.until = lambda: shell.room.decide(case_id, Decision.CONVICTED)
    done = shell(shell.name, "--open", "--most-bond", "1units", password=True)
    assert (done.exit_code, shell.room.sent) == (0, ["open"])
    told = json.loads(done.stdout.splitlines()[-1])
    assert "stands already" in told["said"][0]
    assert told["cases"][0]["outcome"] == "convicted"


def test_an_unknown_id_is_named(shell: Shell) -> None:
    found = shell("0x" + "00" * 32)  # whole: one order in 256 begins with a zero
    assert isinstance(found.exception, ReceiptNotFound)
    assert "troth client receipts" in found.exception.remedy
