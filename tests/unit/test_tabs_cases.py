"""Answers that go to the court: within the bond, beyond it, after a restart; and what receipts and files say of it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.market_case import CaseScene
from support.market_scene import TAB
from support.scripted_court import ScriptedCourt, ScriptedParties
from support.toy_court import USDC, ToyCourtroom, court_of
from support.toy_market import CONTRACTS, DOMAIN
from support.toy_tab_gateway import tab_gateway
from support.toy_tab_stage import Stage, toy_stage
from unit.test_tabs_asking import SELDOM, asked, ended
from unit.test_tabs_lies import draw_with, other_nodes

from troth.cases import evidence as files
from troth.cases.assessing import assess
from troth.cases.carrying import Carrier
from troth.cases.command import read_evidence
from troth.cases.journal import CaseJournal
from troth.cases.office import Office
from troth.cases.opening import Opener
from troth.chain.keystore import Key
from troth.client.errors import AnswerUnavailable, ReceiptNotFound
from troth.client.home import Home
from troth.client.orders.case_files import case_file
from troth.client.orders.case_terminal import How, brought, ways
from troth.client.orders.court import Court
from troth.client.orders.failing import OrderContradicted, OrderStalled
from troth.client.orders.journal import OrderRecord
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.receipts import shown
from troth.client.orders.running import wallet_of
from troth.client.orders.updates import OrderOutcome
from troth.client.orders.wishes import CheckWish
from troth.protocol.market import messages
from troth.protocol.market.proceedings import CaseKind, Fault
from troth.protocol.market.proceedings import Outcome as Decision
from troth.protocol.market.signed import Opinion
from troth.protocol.request import tokens_to_words
from troth.protocol.types import Hash32

ENOUGH = 10**18
COURT = replace(SELDOM, check=CheckWish("court", 1))


@dataclass
class Case:
    """A client whose answers are rejected, and the court it goes to."""

    stage: Stage
    room: ToyCourtroom
    folder: Path
    court: Court
    heard: list[str]

    @property
    def entry(self) -> OrderRecord:
        return self.stage.session.journal.all()[0]

    @property
    def case_id(self) -> Hash32:
        return messages.case_id(self.entry.identifier, 0)

    def restart(self, most: int = ENOUGH) -> Court:
        """kill -9: only the journals and the chain are left."""
        self.court.office.journal.close()
        self.court = court_of(self.stage, self.room, self.folder, most, lambda _entry, line: self.heard.append(line))
        self.stage.session.opener = self.court
        return self.court


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Case]:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        room, heard = ToyCourtroom(stage.world), list[str]()
        court = court_of(stage, room, tmp_path, ENOUGH, lambda _entry, line: heard.append(line))
        stage.session.opener = court
        made = Case(stage, room, tmp_path, court, heard)
        yield made
        made.court.office.journal.close()


async def test_a_rejected_check_opens_a_case_within_the_bond_and_nothing_is_paid(client: Case) -> None:
    told = ended(await asked(client.stage))
    assert told.outcome is OrderOutcome.REJECTED
    assert f"case 0x{client.case_id.hex()}" in told.advice
    assert told.advice.endswith(": opened")
    assert client.room.sent == ["open"]
    assert client.stage.world.state.cases[client.case_id].live
    await OrderKeeper(client.stage.session).once()
    await client.court.look()
    assert client.room.sent.count("open") == 1


async def test_beyond_the_bond_nothing_is_sent_and_the_line_names_the_command(client: Case) -> None:
    client.restart(most=5)
    told = ended(await asked(client.stage))
    found = re.search(r"`troth client case (0x[0-9a-f]{10}) --open --segment 0 --most-bond (\d+)units`", told.advice)
    assert found
    (bring,) = assess(case_file(client.entry, DOMAIN), client.stage.world.state, client.stage.world.block).cases
    assert int(found[2]) == bring.bond
    assert client.entry.name.startswith(found[1])
    await OrderKeeper(client.stage.session).once()
    assert (client.room.sent, client.court.office.journal.cases()) == ([], ())
    client.restart(most=bring.bond)
    file = case_file(client.entry, DOMAIN)
    await brought(client.court, client.stage.session.journal, client.entry, file, How(carry=False))
    assert client.room.sent == ["open"]


@pytest.mark.slow
async def test_the_bonds_of_all_open_cases_are_bounded_together(client: Case) -> None:
    await asked(client.stage)
    assert client.room.sent == ["open"]
    at_stake = await client.court.at_stake()
    assert at_stake == client.stage.world.state.cases[client.case_id].state.bond > 0
    client.court.together = at_stake
    told = ended(await asked(client.stage))
    assert f"{USDC.show(at_stake)} are at stake in open cases" in told.advice
    found = re.search(r"--most-bond (\d+)units", told.advice)
    assert found
    assert client.room.sent == ["open"]
    client.court.together = at_stake + int(found[1])
    assert ended(await asked(client.stage)).advice.endswith(": opened")
    assert await client.court.at_stake() > at_stake


async def test_a_restart_opens_what_was_wanted_and_carries_it_on(client: Case) -> None:
    client.room.refusing = True
    told = ended(await asked(client.stage))
    assert "not opened yet" in told.advice
    assert "not opened yet" in client.entry.evidence["court"].decode()
    client.room.refusing = False
    await client.restart().look()
    assert client.room.sent == ["open"]
    client.stage.world.block += 30
    await client.restart().look()
    assert client.room.sent == ["open", "draw"]
    assert any("draw" in line for line in client.heard)


async def test_a_chain_that_is_away_hides_no_rejection_and_the_keeper_brings_it_later(client: Case) -> None:
    client.room.away = True
    told = ended(await asked(client.stage))
    assert told.outcome is OrderOutcome.REJECTED
    assert f"troth client case {client.entry.name[:12]} --open" in told.advice
    keeper = OrderKeeper(client.stage.session)
    await keeper.once()
    assert "court" not in client.entry.evidence
    client.room.away = False
    await OrderKeeper(client.stage.session).once()
    assert client.room.sent == ["open"]


async def test_who_allows_a_bond_after_a_rejection_still_has_it_brought(client: Case) -> None:
    client.stage.session.opener = None
    assert "troth client case" in ended(await asked(client.stage)).advice
    await OrderKeeper(client.stage.session).once()
    told = shown(client.entry, client.stage.world.state).to_json()
    assert f"troth client case {client.entry.name[:12]} --open" in told["case"]
    client.stage.session.opener = client.court
    await OrderKeeper(client.stage.session).once()
    assert client.room.sent == ["open"]


async def test_a_case_that_can_never_be_opened_is_told_and_given_up(client: Case) -> None:
    client.room.refusing = True
    await asked(client.stage)
    client.stage.world.block += 100_000
    await client.restart().look()
    assert client.court.office.journal.cases() == ()
    assert client.entry.evidence["court"].startswith(b"not opened")
    assert "not opened" in client.heard[-1]


async def test_only_the_wallet_that_pays_the_tab_opens_a_doubt(client: Case) -> None:
    client.stage.scheduler.node_noise, client.stage.scheduler.opinion = 0.0, Opinion.ACCEPT
    # A draw that hits makes another kind of case.
    while ended(await asked(client.stage, COURT)).outcome is not OrderOutcome.UNDRAWN:
        client.room.sent.clear()
    assert client.room.sent == ["open"]
    record = client.stage.world.state.cases[messages.case_id(client.entry.identifier, messages.DOUBTS)]
    assert record.state.kind is CaseKind.DOUBT
    client.room.account = Key.from_secret(b"\x09" * 32).address
    while (told := ended(await asked(client.stage, COURT))).outcome is not OrderOutcome.UNDRAWN:
        continue
    assert "only 0x" in told.advice
    assert client.room.sent == ["open"]


async def test_a_token_is_approved_once_before_the_case_is_wanted(client: Case) -> None:
    approved: list[int] = []

    async def approve(bond: int) -> None:
        assert client.court.office.journal.cases() == ()
        approved.append(bond)

    client.court.approve = approve
    client.room.refusing = True
    await asked(client.stage)
    await client.court.look()
    assert len(approved) == 1


async def test_a_court_carries_a_case_from_opening_to_outcome_across_restarts(tmp_path: Path) -> None:
    scene = CaseScene()
    room, told = ScriptedCourt(scene, TAB.payer), list[str]()
    parties = ScriptedParties(scene, room)
    for _ in range(80):
        journal = CaseJournal(tmp_path / "cases.sqlite")
        journal.follow(room.case_id, None)
        carrier = Carrier(room, parties, journal)
        court = Court(Office(room, journal, Opener(room, journal), carrier), USDC, 0)
        await court.look()
        journal.close()
        room.mine()
        told.append(room.record.outcome.name if room.record.outcome else "")
        if told[-1]:
            break
    assert told[-1] == "CONVICTED"
    assert room.sent == ["draw", "commit", "decide"]


async def test_the_file_is_what_the_cases_command_reads_and_reviewers_lack_nothing(client: Case) -> None:
    await asked(client.stage)
    entry = client.entry
    key = client.stage.session.keyring.key(entry.submission.tab.key)  # type: ignore[union-attr]
    path = client.folder / "answer.evidence"
    files.write(path, case_file(entry, DOMAIN, key))
    found = read_evidence(path)
    assert found.answer == tokens_to_words(client.stage.scheduler.answer)
    assert found.request == entry.submission.request  # type: ignore[union-attr]
    assert len(found.shown) == len(found.verdicts) + 1
    assert (found.order_id, found.bank) == (entry.identifier, CONTRACTS.bank)
    world = client.stage.world
    world.state = replace(world.state, cases=type(world.state)().cases)
    option = assess(found, world.state, world.block)
    (bring,) = option.cases
    assert (bring.kind, bring.lacks) == (CaseKind.REJECTION, ())
    (way,) = (line for line in ways(option, entry) if "court" in line)
    assert f"--most-bond {bring.bond}units" in way


async def test_without_the_tab_key_only_the_openings_are_left_out(client: Case) -> None:
    await asked(client.stage)
    key = client.stage.session.keyring.key(client.entry.submission.tab.key)  # type: ignore[union-attr]
    bare, whole = case_file(client.entry, DOMAIN), case_file(client.entry, DOMAIN, key)
    assert (bare.shown, replace(whole, shown=())) == ((), bare)
    assert whole.secret is not None


async def test_an_order_without_results_gives_a_file_that_summons(client: Case) -> None:
    client.stage.scheduler.tamper = lambda _one, lines: lines[:4]
    with pytest.raises(OrderStalled):
        await asked(client.stage)
    file = case_file(client.entry, DOMAIN)
    assert (file.results, file.secret, file.answer) == ((), None, None)
    found = assess(file, client.stage.world.state, client.stage.world.block)
    assert (len(found.summons), found.cases) == (1, ())
    assert "troth client summon" in ways(found, client.entry)[0]


@pytest.mark.parametrize(
    ("lie", "fault"),
    [(other_nodes, Fault.WRONG_NODES), (lambda toy: draw_with(toy, beta=Hash32(b"\2" * 32)), Fault.WRONG_BETA)],
)
async def test_a_scheduler_that_lied_is_convicted_by_the_file(lie: Any, fault: Fault, client: Case) -> None:
    client.stage.scheduler.tamper = lie(client.stage.scheduler)
    with pytest.raises(OrderContradicted):
        await asked(client.stage)
    found = assess(case_file(client.entry, DOMAIN), client.stage.world.state, client.stage.world.block)
    (proof,) = found.convictions
    assert (proof.conviction.fault, proof.conviction.convict) == (fault, client.stage.scheduler.key.address)
    assert "troth case convict" in ways(found, client.entry)[0]
    assert "secret" not in client.entry.evidence


async def test_an_unknown_order_and_one_that_nobody_admitted_are_named(client: Case) -> None:
    with pytest.raises(ReceiptNotFound, match="no such order"):
        client.stage.session.journal.find("0x1234")
    client.stage.scheduler.refusing = {"code": "busy", "message": "busy", "remedy": "later", "status": 503}
    with pytest.raises(Exception, match="busy"):
        await asked(client.stage)
    with pytest.raises(AnswerUnavailable, match="Nothing that its scheduler signed"):
        case_file(client.entry, DOMAIN)


async def test_receipts_follow_a_case_to_the_refund(client: Case) -> None:
    await asked(client.stage)
    client.stage.world.block += 30
    await client.court.look()
    one = shown(client.entry, client.stage.world.state)
    (told,) = one.to_json()["cases"]
    assert [step["step"] for step in told["steps"]] == ["opened", "drawn"]
    assert (told["kind"], told["outcome"], one.to_json()["refund_units"]) == ("rejection", None, None)
    assert "drawn in block" in "\n".join(one.lines(USDC))
    client.room.decide(client.case_id, Decision.CONVICTED)
    await client.court.look()
    await OrderKeeper(client.stage.session).once()
    one = shown(client.entry, client.stage.world.state)
    (told,) = one.to_json()["cases"]
    assert (told["outcome"], told["steps"][-1]["step"]) == ("convicted", "decided")
    assert (one.to_json()["paid_units"], one.to_json()["refund_units"]) == ("0", str(client.entry.fee))
    text = "\n".join(one.lines(USDC))
    assert "convicted" in text
    assert "refund" in text
    assert client.court.office.journal.cases() == ()
    assert "ended: convicted" in client.heard[-1]


async def test_an_upheld_answer_is_paid_and_no_refund_is_shown(client: Case) -> None:
    told = ended(await asked(client.stage))
    client.room.decide(client.case_id, Decision.UPHELD)
    client.stage.world.block = told.due
    await OrderKeeper(client.stage.session).once()
    one = shown(client.entry, client.stage.world.state).to_json()
    assert (one["paid_units"], one["refund_units"], one["case"]) == (str(told.fee), None, "upheld")


async def test_without_a_wallet_that_opens_one_line_says_so(client: Case) -> None:
    lines: list[str] = []
    assert wallet_of(client.stage.home, "password", lambda _entry, line: lines.append(line)) is None
    (line,) = lines
    assert "by itself" in line
    assert "\n" not in line


async def test_the_gateways_receipt_follows_the_case(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, check="always") as gateway:
        stage = gateway.stage
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        room = ToyCourtroom(stage.world)
        stage.session.opener = court = court_of(stage, room, tmp_path, ENOUGH)
        await gateway.post(troth={"wait": "verdict"})
        identifier = stage_receipts(tmp_path)
        (task,) = (await gateway.get(f"/v1/receipts/{identifier}")).json()["tasks"]
        assert [step["step"] for step in task["cases"][0]["steps"]] == ["opened"]
        room.decide(messages.case_id(stage.session.journal.all()[0].identifier, 0), Decision.CONVICTED)
        (task,) = (await gateway.get(f"/v1/receipts/{identifier}")).json()["tasks"]
        assert (task["cases"][0]["outcome"], task["refund_units"]) == ("convicted", task["fee_units"])
        court.office.journal.close()


def stage_receipts(folder: Path) -> str:
    """The only completion that the gateway made."""
    ledger = sqlite3.connect(Home(folder).gateway_ledger)
    ((identifier,),) = ledger.execute("SELECT id FROM completions").fetchall()
    ledger.close()
    return str(identifier)
