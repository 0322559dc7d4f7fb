"""The deployed Reputation and troth.protocol.reputation say the same: digests, leaders, lists, and every score."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Anvil
from support import contract_reads as reads
from support.reputation_stage import ReputationStage, reputation_stage, vrf_secret

from troth.chain.errors import ChainRejected, WrongChain
from troth.chain.reputation import followed_reputation
from troth.protocol import reputation_calls as calls
from troth.protocol import typed_data, vrf
from troth.protocol.reputation import (
    NOT_SCORED,
    ONE,
    ReputationRules,
    UpdateEvidence,
    leader_alpha,
    leader_by,
    newcomer,
    paper_rules,
    rated,
    shared_scores,
)
from troth.protocol.types import Address, Hash32

pytestmark = pytest.mark.chain

EPOCH, BOND = 12, 10**15


@pytest.fixture
async def stage(anvil: Anvil) -> AsyncIterator[ReputationStage]:
    made = await staged(anvil, paper_rules(EPOCH, BOND))
    yield made
    await made.chain.close()


async def staged(anvil: Anvil, rules: ReputationRules, nodes: int = 4) -> ReputationStage:
    def fund(account: Address, amount: int) -> None:
        anvil.rpc("anvil_setBalance", account, hex(amount))

    return await reputation_stage(anvil.url, anvil.keys[5], anvil.mine, rules, fund, nodes=nodes)


async def test_the_fold_of_all_events_is_what_the_contract_says(stage: ReputationStage, tmp_path: Path) -> None:
    """Random credits, silences and epochs that fail; every score is computed again from the events."""
    source = random.Random(21)
    await stage.to_epoch(1)
    await stage.settle(await stage.update())
    for epoch in range(2, 12):
        await stage.to_epoch(epoch)
        if epoch == 6:
            continue
        choices = (0, ONE, 877_000_000, 947_000_001, source.randrange(ONE), NOT_SCORED)
        credits = {one: source.choice(choices) for one in stage.nodes[:-1]}
        update = await stage.update(credits if epoch != 7 else None)
        await stage.settle(update, reports=[] if epoch == 7 else stage.reports(update, 1 << 3, 3))
    await stage.send(calls.leave(stage.members[1]), stage.keys[1])
    async with followed_reputation(stage.url, stage.contract, tmp_path / "reputation.sqlite") as follower:
        state = follower.state
    assert state.deployed is not None
    assert state.deployed.rules == stage.rules == await stage.chain.read(calls.rules())
    assert state.deployed.start_block == stage.start_block
    assert len(state.standings) == 4
    for one in stage.nodes:
        assert state.standings[one] == await stage.chain.read(reads.standing_of(one))
    for operator in stage.members:
        assert state.raters[operator] == await stage.chain.read(reads.rater_of(operator))
    assert state.through == 12
    assert state.ratings[stage.nodes[3]].silent
    assert set(shared_scores(state.standings)) == set(stage.nodes)


@pytest.mark.parametrize("sensitivity", [2, 3, 5])
@pytest.mark.parametrize("window", [1, 5, 8])
async def test_scores_are_those_of_the_contract(anvil: Anvil, sensitivity: int, window: int) -> None:
    rules = ReputationRules(
        8, 410_000_007, 589_999_993, 900_000_001, 4 * 10**8, 333_333_333, window, sensitivity, 16, 0
    )
    stage = await staged(anvil, rules, nodes=8)
    source = random.Random(sensitivity * 10 + window)
    standings = {one: newcomer(rules, one) for one in stage.nodes}
    await stage.to_epoch(1)
    await stage.settle(await stage.update())
    for epoch in range(2, 8):
        await stage.to_epoch(epoch)
        credits = {one: source.choice((source.randrange(ONE + 1), 900_000_000, 900_000_001)) for one in stage.nodes}
        await stage.settle(await stage.update(credits))
        standings = {one: rated(standings[one], credits[one], epoch, rules) for one in stage.nodes}
    for one, standing in standings.items():
        assert await stage.chain.read(reads.standing_of(one)) == standing
    await stage.chain.close()


async def test_the_last_leader_draws_the_next_by_a_proof_that_python_makes(stage: ReputationStage) -> None:
    await stage.to_epoch(1)
    first = await stage.update()
    await stage.settle(first)
    await stage.to_epoch(2)
    seed = await stage.chain.read(calls.seed_of(2))
    proof = stage.proof(first.leader, 2, seed)
    update = await stage.update({}, proof=proof)
    beta = vrf.verify(
        vrf.public_key(vrf_secret(stage.members.index(first.leader))),
        leader_alpha(stage.chain.domain, 2, seed),
        proof.proof,
    )
    raters = {operator: await stage.chain.read(reads.rater_of(operator)) for operator in stage.members}
    assert update.leader == leader_by(raters, stage.members, 2, beta)
    await stage.settle(update, proof)
    async with followed_reputation(stage.url, stage.contract) as follower:
        assert follower.state.settled is not None
        assert follower.state.settled.drawn
        assert follower.state.settled.digest == typed_data.struct_hash(update.message())
        assert follower.state.leader == update.leader


async def test_a_proof_for_another_epoch_draws_nobody(stage: ReputationStage) -> None:
    await stage.to_epoch(1)
    first = await stage.update()
    await stage.settle(first)
    await stage.to_epoch(2)
    seed = await stage.chain.read(calls.seed_of(2))
    proof = stage.proof(first.leader, 3, seed)
    update = await stage.update({}, proof=proof)
    with pytest.raises(ChainRejected, match="InvalidProof"):
        await stage.settle(update, proof)


async def test_two_signatures_for_one_epoch_cost_the_bond(stage: ReputationStage) -> None:
    await stage.to_epoch(1)
    update = await stage.update()
    message = update.message()
    other = replace(message, next_list=Hash32(bytes(31) + b"\7"))
    key = stage.keys[2]
    evidence = [
        UpdateEvidence.of(one, typed_data.sign(one, stage.chain.domain, key.secret)) for one in (message, other)
    ]
    await stage.send(calls.expel(key.address, 1, update.seed, evidence[0], evidence[1]))
    assert await stage.chain.balance(stage.contract) == 7 * BOND - BOND // 10
    async with followed_reputation(stage.url, stage.contract) as follower:
        assert follower.state.expelled == {key.address}
        assert key.address not in follower.state.raters
    with pytest.raises(ChainRejected, match="is enrolled, or was expelled"):
        await stage.send(calls.enroll(key.address, vrf.public_key(vrf_secret(2)), bytes(65), BOND), key)


async def test_an_account_that_is_no_reputation_is_named(stage: ReputationStage) -> None:
    committee = await followed_committee(stage)
    with pytest.raises(WrongChain, match="says nothing of reputation"):
        async with followed_reputation(stage.url, committee):
            pass


async def followed_committee(stage: ReputationStage) -> Address:
    async with followed_reputation(stage.url, stage.contract) as follower:
        assert follower.state.deployed is not None
        return follower.state.deployed.committee
