"""Convictions in a token that keeps a part of each transfer: provers pay what arrived, and out of nobody else's money.

The fee is switched on after the bonds were put up: with it nobody opens a dispute.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.dispute_stage import DisputeStage, Played, dispute_stage
from support.imprint_scene import imprint_scene, test_key
from support.tabs_stage import MODEL, PARAMETERS
from support.token_asset import TokenAsset, Vice, bad_token
from support.toy_disputes import ROWS, TENSORS, refused, trace
from support.toy_steps import shape_of, toy_steps
from support.wrong_token_scene import Wording, write_model

from troth.chain.keystore import Key
from troth.protocol.disputes import calls, game
from troth.protocol.hashing import keccak256
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address

pytestmark = [pytest.mark.chain]

COLUMNS = 128
FEE = 100
"""One of so many units is kept, of each transfer."""


def arrives(amount: int) -> int:
    """Of a transfer."""
    return amount - amount // FEE


def paid_out(anvil: Any, bank: Address) -> int:
    """What the Bank sent to an account in the newest block."""
    topic = "0x" + keccak256(b"Withdrawn(address,address,uint96)").hex()
    newest = {"fromBlock": "latest", "toBlock": "latest", "address": bank, "topics": [topic]}
    (log,) = anvil.rpc("eth_getLogs", newest)
    return int(log["data"][-64:], 16)


@pytest.fixture
async def stage(anvil: Any) -> AsyncIterator[DisputeStage]:
    token = await bad_token(anvil)
    parameters = replace(PARAMETERS, asset=token.address)
    async with dispute_stage(anvil, toy_steps(), shape_of(TENSORS), MODEL, parameters) as made:
        yield made


def token_of(stage: DisputeStage) -> TokenAsset:
    assert stage.stage.asset is not None
    return stage.stage.asset


async def open_by(stage: DisputeStage, accuser: Key) -> Played:
    """A dispute over an answer of its own."""
    _, head = trace().signed()
    return await stage.open(stage.accusation(head, ROWS - 1, ROWS), accuser)


async def test_a_fee_that_is_switched_on_takes_no_other_disputes_bond(stage: DisputeStage) -> None:
    token, keys = token_of(stage), stage.stage.anvil.keys
    accusers = keys[6:9]
    played = [await open_by(stage, accuser) for accuser in accusers]
    assert token.balance(stage.chain.contract) == 3 * stage.bond
    await token.turn(Vice.TAKES_FEE)
    stage.stage.anvil.mine(stage.turn + 1)
    for closed, (one, accuser) in enumerate(zip(played, accusers, strict=True), 1):
        stake = stage.pot(PotKind.STAKE, stage.node.address)
        await stage.move(one, calls.silent(one.id, one.state), accuser)
        taken = stake - stage.pot(PotKind.STAKE, stage.node.address)
        assert taken == stage.stage.execution_class.penalty
        # Out of the contract came this dispute's bond and what its own conviction brought: the others' are whole.
        assert token.balance(stage.chain.contract) == (3 - closed) * stage.bond
        reward = paid_out(stage.stage.anvil, stage.stage.market.contracts.bank)
        assert reward >= taken // 10
        assert stage.pot(PotKind.CREDIT, accuser.address) == arrives(stage.bond + arrives(reward))
        assert await stage.chain.read(calls.dispute_of(one.id)) == game.ENDED


async def test_the_last_dispute_is_closed_for_whoever_won_it(stage: DisputeStage) -> None:
    """An accuser who wins leaves the bond of one who loses where it is."""
    token, keys = token_of(stage), stage.stage.anvil.keys
    won = await open_by(stage, stage.accuser)
    own = trace()
    lost = await open_by(stage, keys[7])
    await stage.show(lost, game.nodes_to_show(lost.state, own))
    await token.turn(Vice.TAKES_FEE)
    stage.stage.anvil.mine(stage.turn + 1)
    await stage.move(won, calls.silent(won.id, won.state), stage.accuser)
    before = stage.pot(PotKind.CREDIT, stage.node.address)
    await stage.move(lost, calls.close(lost.id, lost.state), stage.node)
    assert stage.pot(PotKind.CREDIT, stage.node.address) == before + arrives(stage.bond)
    assert token.balance(stage.chain.contract) == 0


async def test_a_token_that_takes_more_than_it_is_told_to_takes_no_other_bond(stage: DisputeStage) -> None:
    token, keys = token_of(stage), stage.stage.anvil.keys
    played = [await open_by(stage, accuser) for accuser in keys[6:8]]
    for one in played:
        await stage.show(one, game.nodes_to_show(one.state, trace()))
    await token.turn(Vice.TAKES_FROM_SENDER)
    stage.stage.anvil.mine(stage.turn + 1)
    for one in played:
        await refused(stage, calls.close(one.id, one.state), stage.node, "TokenTookMore")
    assert token.balance(stage.chain.contract) == 2 * stage.bond
    await token.turn(Vice.NONE)
    for one in played:
        await stage.move(one, calls.close(one.id, one.state), stage.node)
    assert token.balance(stage.chain.contract) == 0


async def test_with_a_fee_on_transfers_no_dispute_is_opened(stage: DisputeStage) -> None:
    _, head = trace().signed()
    accusation = stage.accusation(head, ROWS - 1, ROWS)
    token = token_of(stage)
    await token.provide(stage.accuser, stage.chain.contract)
    for vice in (Vice.TAKES_FEE, Vice.TAKES_UNIT):
        await token.turn(vice)
        await refused(stage, calls.open_dispute(accusation, 0), stage.accuser, "BondMismatch")
    assert token.balance(stage.chain.contract) == 0


async def test_an_imprint_convicts_in_a_token_with_a_fee_on_transfers(anvil: Any, tmp_path: Path) -> None:
    token = await bad_token(anvil)
    folder = write_model(tmp_path / "model", columns=COLUMNS)
    async with imprint_scene(anvil, folder, test_key(COLUMNS), asset=token.address) as scene:
        accuser, node = anvil.keys[6], scene.stage.nodes[0].address
        proof = await scene.prove(scene.scene.answer(Wording(forged=2, rank=9)), accuser.address)
        await token.turn(Vice.TAKES_FEE)
        stake = scene.follower.state.pot(PotKind.STAKE, node)
        await scene.convict(proof, accuser.address, accuser)
        taken = stake - scene.follower.state.pot(PotKind.STAKE, node)
        assert taken == scene.stage.execution_class.penalty
        reward = paid_out(anvil, scene.stage.market.contracts.bank)
        assert reward >= taken // 10
        assert scene.follower.state.pot(PotKind.CREDIT, accuser.address) == arrives(arrives(reward))
        assert token.balance(scene.contract) == scene.follower.state.pot(PotKind.CREDIT, scene.contract) == 0


async def test_whoever_gave_the_imprints_contract_tokens_pays_nobodys_reward(anvil: Any, tmp_path: Path) -> None:
    """What lies there already is no part of what the Bank paid."""
    token = await bad_token(anvil)
    folder = write_model(tmp_path / "model", columns=COLUMNS)
    async with imprint_scene(anvil, folder, test_key(COLUMNS), asset=token.address) as scene:
        accuser = anvil.keys[6]
        await token.give(scene.contract, 10**20)
        proof = await scene.prove(scene.scene.answer(Wording(forged=2, rank=9)), accuser.address)
        await token.turn(Vice.TAKES_FEE)
        await scene.convict(proof, accuser.address, accuser)
        assert token.balance(scene.contract) == 10**20
