"""Cases over parts of a model, and in exact classes: who owes what to the reviewers, and what withholding it costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.court_stage import HEAD_SALT, CourtStage, court_stage, quantised
from support.tabs_stage import execution_class_of

from troth.cases.opening import WantedCase
from troth.protocol.market.proceedings import Outcome
from troth.protocol.market.types import PotKind
from troth.protocol.types import Segment

pytestmark = [pytest.mark.chain, pytest.mark.slow]
HALVES = (Segment(0, 1), Segment(1, 2))


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path, segments=lambda _: HALVES) as made:
        yield made


async def outcome_of(court: CourtStage, evidence: Any, segment: int = 1) -> Outcome | None:
    for node in evidence.nodes:
        court.defend(node)
    carrier = court.carrier(court.stage.client)
    case_id = await carrier.opener.bring(evidence, WantedCase(segment))
    return (await court.drive(carrier, case_id)).outcome


async def test_the_second_half_is_judged_from_rows_that_the_scheduler_kept(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised, parts=(1, 2))
    assert await outcome_of(court, evidence) is Outcome.CONVICTED
    assert set(court.follower.state.convictions) == {evidence.nodes[1]}


async def test_the_second_half_is_judged_from_rows_that_the_opener_hands_on(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised, parts=(1, 2))
    evidence = replace(evidence, rows=court.rows(), head_salt=HEAD_SALT)
    court.deaf.add(court.stage.scheduler.address)
    court.store.rows = {1: court.store.rows[1]}  # nobody else has the first half's
    assert await outcome_of(court, evidence) is Outcome.CONVICTED


async def test_a_scheduler_that_keeps_no_rows_is_convicted(court: CourtStage) -> None:
    evidence = await court.serve(parts=(1, 2))
    court.store.rows.pop(0)
    assert await outcome_of(court, evidence) is Outcome.SCHEDULER_MISSING
    assert set(court.follower.state.convictions) == {court.stage.scheduler.address}


async def test_a_node_that_keeps_its_rows_back_is_convicted(court: CourtStage) -> None:
    evidence = await court.serve(parts=(1, 2))
    court.store.rows.pop(1)
    assert await outcome_of(court, evidence) is Outcome.NODE_MISSING
    assert set(court.follower.state.convictions) == {evidence.nodes[1]}


async def test_a_node_that_sends_other_rows_than_it_signed_kept_them_back(court: CourtStage) -> None:
    evidence = await court.serve(parts=(1, 2))
    court.store.rows[1] = bytes(len(court.store.rows[1]))
    assert await outcome_of(court, evidence) is Outcome.NODE_MISSING


async def test_an_honest_first_half_is_not_harmed_by_a_false_second_one(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised, parts=(1, 2))
    client = court.stage.client
    bond = court.follower.state.pot(PotKind.CREDIT, client.address)
    assert await outcome_of(court, evidence, segment=0) is Outcome.UPHELD
    assert court.follower.state.pot(PotKind.CREDIT, client.address) - bond < 10**15


async def test_two_rounds_without_a_committee_leave_it_undecided(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised, parts=(1, 2))
    for node in court.stage.nodes:
        court.asleep.add(node.address)
        court.deaf.add(node.address)
    stakes = {node.address: court.follower.state.pot(PotKind.STAKE, node.address) for node in court.stage.nodes}
    assert await outcome_of(court, evidence) is Outcome.UNDECIDED
    state = court.follower.state
    (record,) = [one for _, one in state.cases.items()]
    assert all(state.pot(PotKind.STAKE, one) < stakes[one] for one in record.state.reviewers)
    assert state.is_voided(evidence.order_id, 1)


@pytest.mark.parametrize("honest", [True, False])
async def test_an_exact_class_compares_roots(anvil: Any, tmp_path: Path, honest: bool) -> None:
    exact = execution_class_of(exact=True, tiles=0)
    async with court_stage(anvil, tmp_path, execution_class=exact) as court:
        evidence = await court.serve(cheat=None if honest else quantised)
        outcome = await outcome_of(court, evidence, segment=0)
        assert outcome is (Outcome.UPHELD if honest else Outcome.CONVICTED)
