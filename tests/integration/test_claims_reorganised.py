"""A chain that takes a scheduler's claim, its answer or its settlement back: each is made again, and paid once.

The scheduler's own duties claim, answer and settle, on a real chain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.client_network import Network, network
from support.tab_scene import history_of
from support.tabs_stage import PARAMETERS

from troth.protocol.market import messages
from troth.protocol.market.parts import Part
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.protocol.market.types import PotKind
from troth.scheduler.tabs.claiming import PATIENCE_LAGS, attend_claims, claim_due

pytestmark = [pytest.mark.chain, pytest.mark.slow]

OTHER_BLOCKS = 3
"""More than any of the calls takes: the other branch is the longer one."""


async def taken_back(scene: Network, act: Callable[[], Awaitable[Any]]) -> None:
    """Something happens, and a reorganisation undoes it."""
    rpc = scene.stage.anvil.rpc
    before = rpc("evm_snapshot")
    await act()
    await scene.ledger.catch_up()
    rpc("evm_revert", before)
    await scene.pass_by(OTHER_BLOCKS)


def record_of(scene: Network) -> TabRecord:
    found: TabRecord = scene.ledger.state.tabs[messages.tab_id(scene.client_tab)]
    return found


def claim_of(scene: Network) -> ClaimRecord:
    claim = record_of(scene).claim
    assert claim is not None
    return claim


async def test_a_claim_and_its_answer_that_were_taken_back_are_made_again_and_paid_once(
    anvil: Any, tmp_path: Path
) -> None:
    async with network(anvil, tmp_path / "network") as scene:
        with scene.still():
            stage, context = scene.stage, scene.context
            fee = history_of(scene, await scene.send(scene.asked())).answered.fee
            await scene.pass_by(PATIENCE_LAGS * PARAMETERS.lag + 1)

            await taken_back(scene, lambda: claim_due(context, 0))
            assert record_of(scene).claim is None
            await claim_due(context, 0)
            await scene.ledger.catch_up()
            claim = claim_of(scene)

            async def object_to_it() -> None:
                await stage.send(stage.client, Part.BANK, "object", scene.client_tab, claim.state, 1)
                await scene.ledger.catch_up()

            await taken_back(scene, object_to_it)
            assert not claim_of(scene).objections
            await attend_claims(context)  # nobody asks any more: nothing is answered
            await object_to_it()
            await taken_back(scene, lambda: attend_claims(context))
            assert len(claim_of(scene).objections) == 1
            await attend_claims(context)
            await scene.ledger.catch_up()
            assert not claim_of(scene).objections

            head = int(stage.anvil.rpc("eth_blockNumber"), 16)
            await scene.pass_by(claim.state.settles_at - head)
            await taken_back(scene, lambda: attend_claims(context))
            assert record_of(scene).redeemed == 0
            credit = scene.ledger.state.pot(PotKind.CREDIT, stage.scheduler.address)
            await attend_claims(context)
            await scene.ledger.catch_up()
            assert (record_of(scene).claim, record_of(scene).redeemed) == (None, fee)
            assert scene.ledger.state.pot(PotKind.CREDIT, stage.scheduler.address) >= credit + fee
            await claim_due(context, 0)
            await scene.ledger.catch_up()
            assert record_of(scene).claim is None, "what was paid is not claimed again"


async def test_a_claim_that_is_filed_in_another_block_after_a_reorganisation_is_the_one_that_is_answered(
    anvil: Any, tmp_path: Path
) -> None:
    """A claim's name holds the block in which it is settled: what was read of the branch that fell is no claim."""
    async with network(anvil, tmp_path / "network") as scene:
        with scene.still():
            stage, context = scene.stage, scene.context
            await scene.send(scene.asked())
            await scene.pass_by(PATIENCE_LAGS * PARAMETERS.lag + 1)
            fallen: list[ClaimRecord] = []

            async def file() -> None:
                await claim_due(context, 0)
                await scene.ledger.catch_up()
                fallen.append(claim_of(scene))

            await taken_back(scene, file)
            await claim_due(context, 0)
            await scene.ledger.catch_up()
            claim = claim_of(scene)
            assert claim.claim_id != fallen[0].claim_id
            await stage.send(stage.client, Part.BANK, "object", scene.client_tab, claim.state, 1)
            await scene.ledger.catch_up()
            await attend_claims(context)
            await scene.ledger.catch_up()
            assert claim_of(scene).answered[1].times == 1
