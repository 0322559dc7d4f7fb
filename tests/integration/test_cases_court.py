"""Cases from evidence to outcome, against the real contracts: what is brought, by whom, and who pays for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.court_stage import CourtStage, court_stage, quantised

from troth.cases.opening import Wanted
from troth.protocol.market.types import Opinion, Outcome, PotKind

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path) as made:
        yield made


async def test_a_rejected_cheat_is_convicted(court: CourtStage) -> None:
    evidence = await court.serve(cheat=quantised)
    node = evidence.nodes[0]
    court.defend(node)
    stake = court.follower.state.pot(PotKind.STAKE, node)
    watcher = court.stage.anvil.keys[7]
    carrier = court.carrier(watcher)
    said = await carrier.opener.dry_run(evidence)
    assert "rejection" in said[0]
    assert "it would succeed" in said[0]
    case_id = await carrier.opener.bring(evidence, Wanted(0))
    progress = await court.drive(carrier, case_id)
    assert progress.outcome is Outcome.CONVICTED
    state = court.follower.state
    assert state.pot(PotKind.STAKE, node) + court.stage.execution_class.penalty == stake
    # Bond, gas and half of the reward, since neither client nor verifier brought it.
    bond = state.cases[case_id].state.bond
    assert state.pot(PotKind.CREDIT, watcher.address) > bond
    assert carrier.journal.cases() == ()
