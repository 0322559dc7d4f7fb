"""A client's cases on real contracts: shown, opened by the command, carried on by whatever of it runs next."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.test_tabs_on_chain import admitted, client
from msgspec import structs
from support.tabs_stage import PARAMETERS, TabsStage, tabs_stage
from support.waiting import eventually

from troth.cases.command import read_evidence
from troth.cases.steps import DRAWN_ALONE
from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.client.configuration import ClientConfiguration
from troth.client.orders import case_terminal
from troth.client.orders.case_terminal import How
from troth.client.orders.court import Court
from troth.client.orders.following import cases_of
from troth.client.orders.journal import OrderJournal
from troth.client.orders.running import Running, running
from troth.client.orders.terminal import print_receipts
from troth.client.tabs.keys import keyfile
from troth.client.tabs.managing import Purse
from troth.client.tabs.store import opened
from troth.protocol import vrf
from troth.protocol.market import messages
from troth.protocol.market.bodies import Admitted
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def doubtful(stage: TabsStage, purse: Purse) -> Hash32:
    """A drawn answer whose check never came, with all that reviewers need."""
    identifier = await admitted(stage, purse, drawn=True)
    proof = vrf.prove(stage.vrf_secret, messages.infer_alpha(identifier))
    with opened(purse.home.tabs) as store:
        journal = OrderJournal(store)
        words = journal.entry(identifier).read("admitted", Admitted)
        assert words is not None
        journal.step(identifier, admitted=replace(words, infer_proof=proof), tokens=b"[7, 8]")
        journal.release(identifier)
    create_account(keyfile(purse.home, stage.tab_key.address), "password", scrypt_n=DEMO_SCRYPT_N, key=stage.tab_key)
    return identifier


def with_bond(configuration: ClientConfiguration, bond: str) -> ClientConfiguration:
    return structs.replace(configuration, market=structs.replace(configuration.market, case=bond))


async def test_a_case_is_shown_opened_by_the_command_and_carried_on_after_a_restart(
    anvil: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with tabs_stage(anvil) as stage, client(tmp_path, stage) as (purse, configuration):
        name = "0x" + (await doubtful(stage, purse)).hex()[:12]
        path = tmp_path / "doubt.evidence"
        told = await case_terminal.show(purse, configuration, name, path)
        text = "\n".join(told.lines)
        assert "Bring segment 0" in text
        assert "it would succeed" in text
        assert read_evidence(path).tab == stage.client_tab
        found = re.search(r"--most-bond (\d+units)", text)
        assert found

        short = await case_terminal.bring(purse, configuration, name, None, How("1units", carry=False))
        assert short.nothing
        done = await case_terminal.bring(purse, configuration, name, None, How(found[1], carry=False))
        (case,) = done.cases
        assert [step for step, _ in case.steps] == ["opened"]

        # Until then reviewers may sign before they are drawn; here nobody does, so they are drawn alone.
        anvil.mine(PARAMETERS.lookahead + 2 + PARAMETERS.draw_window // DRAWN_ALONE)
        lines: list[str] = []
        async with running(
            purse.home, with_bond(configuration, "1ether"), purse.password_file, lambda _entry, line: lines.append(line)
        ) as run:
            assert isinstance(run.session.opener, Court)
            await eventually(lambda: lines and steps_of(run)[-1:] == ["drawn"])
        assert "draw" in lines[0]
        await print_receipts(purse.home, configuration, name, as_json=False)
        assert "drawn in block" in capsys.readouterr().out


def steps_of(run: Running) -> list[str]:
    """How far the case over the only order came."""
    (case,) = cases_of(run.session.journal.all()[0], run.session.state)
    return [step for step, _ in case.steps]


async def test_a_wallet_of_another_password_says_so_in_one_line_and_the_rest_goes_on(
    anvil: Any, tmp_path: Path
) -> None:
    async with tabs_stage(anvil) as stage, client(tmp_path, stage) as (purse, configuration):
        other = tmp_path / "other"
        other.write_text("another\n")
        other.chmod(0o600)
        lines: list[str] = []
        async with running(
            purse.home, with_bond(configuration, "1ether"), other, lambda _entry, line: lines.append(line)
        ) as run:
            assert run.session.opener is None
        assert len(lines) == 1
        assert "by itself" in lines[0]
