"""Who acknowledges nothing, orders while claims run, and objects as late as it can: it pays for what it was answered.

The scheduler's own duties claim, answer and settle, on a real chain.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.client_network import Network, network
from support.tab_scene import Asked, history_of
from support.tabs_stage import PARAMETERS

from troth.protocol.market import court, messages, tabs
from troth.protocol.market.parts import Part
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.scheduler.tabs.claiming import PATIENCE_LAGS, attend_claims, claim_due

pytestmark = [pytest.mark.chain, pytest.mark.slow]


def record_of(scene: Network) -> TabRecord:
    found: TabRecord = scene.ledger.state.tabs[messages.tab_id(scene.client_tab)]
    return found


def claim_of(scene: Network) -> ClaimRecord:
    claim = record_of(scene).claim
    assert claim is not None
    return claim


def fee_of(scene: Network, asked: Asked) -> int:
    fee: int = history_of(scene, asked).answered.fee
    return fee


async def claimed(scene: Network) -> ClaimRecord:
    """The scheduler claims what is long due."""
    await scene.pass_by(PATIENCE_LAGS * PARAMETERS.lag + 1)
    await claim_due(scene.context, 0)
    await scene.ledger.catch_up()
    return claim_of(scene)


async def until_block(scene: Network, block: int) -> None:
    """The next block is this one."""
    await scene.pass_by(block - 1 - int(scene.stage.anvil.rpc("eth_blockNumber"), 16))


async def settled(scene: Network, claim: ClaimRecord) -> int:
    """The scheduler settles its claim; what was redeemed in all."""
    await until_block(scene, claim.state.settles_at + 1)
    await attend_claims(scene.context)
    await scene.ledger.catch_up()
    record = record_of(scene)
    assert record.claim is None
    return record.redeemed


async def test_late_objections_are_answered_and_nothing_more_is_served_until_claims_are_acknowledged(
    anvil: Any, tmp_path: Path
) -> None:
    async with network(anvil, tmp_path / "network") as scene:
        with scene.still():
            one = await scene.send(scene.asked())
            first = await claimed(scene)
            two = await scene.send(scene.asked())
            assert await settled(scene, first) == fee_of(scene, one)
            status, error = await scene.refused(scene.asked())
            assert (status, error["code"]) == (409, "claims_unacknowledged")
            second = await claimed(scene)
            assert (second.state.claim.first, second.state.claim.last) == (1, 2)
            # As late as it can: the last block in which an objection is taken, and the one before.
            await until_block(scene, second.state.settles_at - PARAMETERS.answer_window - 2)
            for number in (1, 2):
                await scene.stage.send(scene.stage.client, Part.BANK, "object", scene.client_tab, second.state, number)
            await scene.ledger.catch_up()
            assert len(claim_of(scene).objections) == 2
            # The scheduler shows both, with draws of this day, which the court hears for as long as two claims last.
            await attend_claims(scene.context)
            await scene.ledger.catch_up()
            assert not claim_of(scene).objections
            age = scene.ledger.block - one.order.reference_block
            for_one = court.last_opening_block(PARAMETERS.reference_age, PARAMETERS) + PARAMETERS.claim_delay
            assert for_one + PARAMETERS.answer_window < age <= court.answer_age(PARAMETERS)
            both = fee_of(scene, one) + fee_of(scene, two)
            assert await settled(scene, second) == both
            assert (await scene.refused(scene.asked()))[1]["code"] == "claims_unacknowledged"
            for paid in (one, two):
                scene.payer = tabs.acknowledge(scene.payer, paid.order.sequence, fee_of(scene, paid))
            assert (await scene.send(scene.asked())).of("draw")


async def test_a_client_whose_numbers_leap_pays_for_all_that_it_was_answered(anvil: Any, tmp_path: Path) -> None:
    """Owed is the largest sum that was ever shown: a claim that had room for one of two numbers lost the other."""
    async with network(anvil, tmp_path / "network") as scene:
        with scene.still():
            one = await scene.send(scene.asked())
            scene.payer = replace(scene.payer, sequence=299)
            two = await scene.send(scene.asked())
            shown = await claimed(scene)
            assert (shown.state.claim.first, shown.state.claim.last) == (1, 300)
            # Nobody ordered 280, which is too far from the first number to be left out: its place is shown to be empty.
            for number in (280, 300):
                await scene.stage.send(scene.stage.client, Part.BANK, "object", scene.client_tab, shown.state, number)
            await scene.ledger.catch_up()
            assert len(claim_of(scene).objections) == 2
            await attend_claims(scene.context)
            await scene.ledger.catch_up()
            assert not claim_of(scene).objections
            assert {number: leaf.amount for number, leaf in claim_of(scene).answered.items()} == {
                280: 0,
                300: fee_of(scene, two),
            }
            assert await settled(scene, shown) == fee_of(scene, one) + fee_of(scene, two)
