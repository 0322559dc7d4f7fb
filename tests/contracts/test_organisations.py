"""The deployed Organisations, over a real market and a real Reputation, and the fold of its events say the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Anvil
from support import contract_reads as reads
from support.market_world import LAYERS, PARAMETERS, class_of
from support.organisation_stage import EPOCH, OrganisationStage, organisation_stage, own_class

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected, WrongChain
from troth.chain.organisations import deployments_of, read_organisations
from troth.node.configuration import HostingConsent
from troth.node.organisations.credits import Contributing
from troth.protocol import organisation_calls as calls
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import build
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.views import rules_in
from troth.protocol.organisations import OrganisationsPlace, Presence, cost_of, layer_bytes
from troth.protocol.reputation import ONE
from troth.protocol.types import Address, Segment, address_to_bytes

pytestmark = pytest.mark.chain

SERVED = LAYERS * 12 * 64 * 64 * 4 * EPOCH
"""Of a node that hosts both layers, 64 wide, in float32."""
WHOLE = Segment(0, LAYERS)


@pytest.fixture
async def stage(anvil: Anvil) -> AsyncIterator[OrganisationStage]:
    made = await organisation_stage(anvil)
    yield made
    await made.reputation.chain.close()
    await made.market.close()


async def serving(stage: OrganisationStage) -> None:
    """A node of each organisation serves the public class, and one of Bob's half of it; the epoch has just begun."""
    await stage.register("alice one", stage.alice, class_of())
    await stage.register("bob one", stage.bob, class_of())
    await stage.register("bob half", stage.bob, class_of(), Segment(0, 1))
    await stage.next_epoch()
    await stage.list_nodes("alice one", "bob one", "bob half")
    await stage.next_epoch()


async def deployed(stage: OrganisationStage) -> int:
    """Alice served three epochs and has her own model on one machine for two; what is left is one epoch's."""
    for _ in range(3):
        await stage.serve("alice one")
    alice = stage.nodes["alice one"].address
    await stage.send(calls.deploy(state_hash(own_class()), 1, 2, alice, "own-model"), stage.alice)
    return 1


async def same(stage: OrganisationStage, folder: Path) -> None:
    """Whatever the fold says, the contract's getters say."""
    reading = await stage.reading()
    state = reading.state
    async with deployments_of(stage.anvil.url, stage.place, folder) as followed:
        assert followed() == state
    async with await Chain.connect(stage.anvil.url, stage.place.contract) as chain:
        for owner, balance in state.balances.items():
            assert await chain.read(reads.balance_of(owner)) == balance
        for number, deployment in state.deployments.items():
            found = await chain.read(reads.deployment_of(number))
            assert (found.owner, found.reserve, found.hosted, found.first, found.end) == (
                deployment.owner,
                deployment.reserve,
                deployment.hosted,
                deployment.first,
                deployment.end,
            )
        for node, hosting in state.hostings.items():
            assert await chain.read(reads.hosting_of(node)) == hosting
        for node, through in state.posted.items():
            assert await chain.read(reads.posted_through(node)) == through
        held = sum(state.balances.values()) + sum(one.reserve for one in state.deployments.values())
        assert held == state.total == await chain.read(calls.total())
        rules = rules_in(reading.record.market, state_hash(own_class()))
        assert await chain.read(reads.cost_of(state_hash(own_class()), 3, 7)) == cost_of(rules, 3, 7, EPOCH)


async def test_credits_are_made_by_serving_and_move_to_whoever_hosts(stage: OrganisationStage, tmp_path: Path) -> None:
    await serving(stage)
    number = await deployed(stage)
    reading = await stage.reading()
    assert layer_bytes(rules_in(reading.record.market, state_hash(class_of()))) * LAYERS * EPOCH == SERVED
    assert reading.state.balances == {stage.alice.address: SERVED}
    assert reading.state.deployments[number].reserve == 2 * SERVED
    host = await stage.register("bob own", stage.bob, own_class())
    await stage.send(calls.host(number, host, WHOLE), stage.nodes["bob own"])
    await stage.next_epoch()
    for _ in range(2):
        await stage.next_epoch()
        await stage.post("bob own")
    reading = await stage.reading()
    assert reading.state.balances == {stage.alice.address: SERVED, stage.bob.address: 2 * SERVED}
    assert reading.state.deployments[number].reserve == 0
    await same(stage, tmp_path)


async def test_nobody_earns_by_silence_by_half_an_epoch_or_twice(stage: OrganisationStage, tmp_path: Path) -> None:
    await serving(stage)
    await stage.rate({"alice one": ONE, "bob one": 0})
    late = await stage.register("bob late", stage.bob, class_of())
    await stage.next_epoch()
    reading = await stage.reading()
    assert reading.due(late) is None
    assert reading.due(stage.nodes["bob one"].address) is None
    # Nobody asked it anything in this epoch.
    assert reading.due(stage.nodes["bob half"].address) is None
    due = reading.due(stage.nodes["alice one"].address)
    assert due is not None
    await stage.send(calls.post(due.epoch, [due.presence]), stage.alice)
    await stage.send(calls.post(due.epoch, [due.presence]), stage.nodes["alice one"])
    reading = await stage.reading()
    assert reading.state.total == SERVED
    assert reading.due(stage.nodes["alice one"].address) is None
    await same(stage, tmp_path)


async def test_forged_and_late_words_are_refused(stage: OrganisationStage) -> None:
    """Nobody signs credits: what is forged is a place in a group, another's node, or another epoch."""
    await serving(stage)
    await stage.rate({"alice one": ONE, "bob one": 0, "bob half": ONE})
    await stage.next_epoch()
    reading = await stage.reading()
    due = reading.due(stage.nodes["alice one"].address)
    half = reading.due(stage.nodes["bob half"].address)
    assert due is not None
    assert half is not None
    with pytest.raises(ChainRejected, match="NotOwnerOrOperator"):
        await stage.send(calls.post(due.epoch, [due.presence]), stage.bob)
    # Half a model said to be a whole one.
    forged = type(half.presence)(half.presence.node, 0, LAYERS, due.presence.place_before, due.presence.place_after)
    with pytest.raises(ChainRejected, match="NotInGroup"):
        await stage.send(calls.post(half.epoch, [forged]), stage.bob)
    silent = type(due.presence)(stage.nodes["bob one"].address, 0, LAYERS, 1, 1)
    with pytest.raises(ChainRejected, match=r"(AbnormalCredit|BelowBar)"):
        await stage.send(calls.post(due.epoch, [silent]), stage.bob)
    await stage.next_epoch()
    with pytest.raises(ChainRejected, match="posted in the one that follows"):
        await stage.send(calls.post(due.epoch, [due.presence]), stage.alice)
    assert (await stage.reading()).state.total == 0


async def test_no_credit_is_spent_twice_and_unspent_ones_come_back(stage: OrganisationStage, tmp_path: Path) -> None:
    await serving(stage)
    number = await deployed(stage)
    alice = stage.nodes["alice one"].address
    with pytest.raises(ChainRejected, match="fewer replicas"):
        await stage.send(calls.deploy(state_hash(own_class()), 1, 2, alice, ""), stage.alice)
    await stage.next_epoch()
    await stage.send(calls.stop(number), stage.alice)
    await stage.next_epoch()
    with pytest.raises(ChainRejected, match="DeploymentNotOver"):
        await stage.send(calls.reclaim(number), stage.alice)
    await stage.next_epoch()
    await stage.send(calls.reclaim(number), stage.bob)
    await stage.send(calls.reclaim(number), stage.alice)
    reading = await stage.reading()
    assert reading.state.balances == {stage.alice.address: 3 * SERVED}
    await same(stage, tmp_path)


async def test_a_reorganised_epoch_takes_its_credits_along(stage: OrganisationStage) -> None:
    """What was rated on a branch that is gone earned nothing there: no word about it lives outside of the chain."""
    await serving(stage)
    await stage.rate({"alice one": ONE})
    branch = stage.anvil.rpc("evm_snapshot")
    await stage.next_epoch()
    due = (await stage.reading()).due(stage.nodes["alice one"].address)
    assert due is not None
    await stage.send(calls.post(due.epoch, [due.presence]), stage.alice)
    assert (await stage.reading()).state.total == SERVED
    stage.anvil.rpc("evm_revert", branch)
    # On the other branch the node left before the epoch was over.
    leaving = build(stage.market.contracts, Part.REGISTRY, "deregister", stage.nodes["alice one"].address)
    await stage.market.execute(leaving, stage.alice)
    await stage.next_epoch()
    reading = await stage.reading()
    assert reading.state.total == 0
    assert reading.due(stage.nodes["alice one"].address) is None
    with pytest.raises(ChainRejected, match="NotInGroup"):
        await stage.send(calls.post(due.epoch, [due.presence]), stage.alice)


async def test_a_node_credits_itself_and_takes_what_its_owner_allowed(stage: OrganisationStage, tmp_path: Path) -> None:
    """Once for an epoch, whatever happens between; and it does not come back to an owner that sent it away."""
    await serving(stage)
    number = await deployed(stage)
    host = await stage.register("bob own", stage.bob, own_class())
    sent: list[Call] = []

    async def step(name: str, consent: HostingConsent | None, *, auto: bool = True) -> list[str]:
        reading, before = await stage.reading(), len(sent)

        async def submit(call: Call) -> object:
            sent.append(call)
            return await stage.send(call, stage.nodes[name])

        configuration: Any = SimpleNamespace(organisations=consent, rpc=stage.anvil.url)
        node = stage.nodes[name].address
        contracts, market = stage.market.contracts, reading.record.market
        contributing = Contributing(configuration, node, lambda: market, contracts, lambda: reading.block, submit, auto)
        await contributing.step()
        # What was looked at is not looked at again before the next epoch.
        await contributing.step()
        return [call.function for call in sent[before:]]

    everybody, nobody = HostingConsent(stage.place, None), HostingConsent(stage.place)
    assert await step("bob own", None) == []
    assert await step("bob own", nobody) == []
    assert await step("bob own", everybody, auto=False) == []
    assert await step("bob own", everybody) == ["host"]
    assert await step("bob own", everybody) == []
    for _ in range(2):
        await stage.serve("alice one")
    assert await step("bob own", nobody, auto=False) == ["post"]
    assert await step("bob own", nobody, auto=False) == []
    await stage.send(calls.dismiss(host), stage.alice)
    await stage.serve("alice one")
    alice = stage.nodes["alice one"].address
    await stage.send(calls.deploy(state_hash(own_class()), 1, 2, alice, ""), stage.alice)
    await stage.register("bob other", stage.bob, own_class())
    assert await step("bob own", everybody) == []
    assert await step("bob other", everybody) == ["host"]
    assert (await stage.reading()).state.hostings[stage.nodes["bob other"].address].deployment == number + 1
    await same(stage, tmp_path)


async def leave_market(stage: OrganisationStage, name: str) -> None:
    """Bob's node deregisters, and takes its stake when it may."""
    node, registry = stage.nodes[name].address, Part.REGISTRY
    await stage.market.execute(build(stage.market.contracts, registry, "deregister", node), stage.bob)
    stage.anvil.mine(PARAMETERS.unbonding + 1)
    await stage.market.execute(build(stage.market.contracts, registry, "withdrawStake", node), stage.bob)


def forget(stage: OrganisationStage, node: Address, owner: Address) -> None:
    """Have the Registry lose a node's role, as if whoever has left could join again."""
    for slot in range(64):
        place = "0x" + keccak256(bytes(12) + address_to_bytes(node) + slot.to_bytes(32, "big")).hex()
        word = str(stage.anvil.rpc("eth_getStorageAt", stage.market.contracts.registry, place, "latest"))
        if word.endswith(owner[2:].lower()):
            stage.anvil.rpc("anvil_setStorageAt", stage.market.contracts.registry, place, "0x" + bytes(32).hex())
            return
    raise AssertionError(f"no slot of the Registry names {owner}")


@pytest.mark.parametrize("forgets", [False, True], ids=["as it is", "if the Registry forgot who left"])
async def test_no_host_of_a_model_comes_back_with_another_class(stage: OrganisationStage, forgets: bool) -> None:
    """A hosted node is credited for the layers it hosts, whatever its class: an operator has one class for life.

    Else Bob's node would be paid for the public model's layers out of what Alice set aside for her own model.
    """
    await serving(stage)
    epochs = PARAMETERS.unbonding // EPOCH + 4
    for _ in range(epochs):
        await stage.serve("alice one")
    alice = stage.nodes["alice one"].address
    await stage.send(calls.deploy(state_hash(own_class()), 1, epochs, alice, "own-model"), stage.alice)
    host = await stage.register("bob own", stage.bob, own_class())
    await stage.send(calls.host(1, host, WHOLE), stage.nodes["bob own"])
    await leave_market(stage, "bob own")
    if forgets:
        forget(stage, host, stage.bob.address)
        await stage.register("bob own", stage.bob, class_of())
    else:
        for other in (class_of(), own_class()):
            with pytest.raises(ChainRejected, match="OperatorKnown"):
                await stage.register("bob own", stage.bob, other)
    await stage.next_epoch()
    epoch = await stage.next_epoch() - 1
    async with await Chain.connect(stage.anvil.url, stage.place.contract) as chain:
        assert (await chain.read(reads.hosting_of(host))).deployment == 1
    presence = Presence(host, 0, LAYERS, 2, 2)
    if forgets:
        await stage.send(calls.post(epoch, [presence]), stage.bob)
    else:
        with pytest.raises(ChainRejected, match="NotInGroup"):
            await stage.send(calls.post(epoch, [presence]), stage.bob)
    async with await Chain.connect(stage.anvil.url, stage.place.contract) as chain:
        assert await chain.read(reads.balance_of(stage.bob.address)) == (SERVED if forgets else 0)
        assert (await chain.read(reads.deployment_of(1))).reserve == (epochs - forgets) * SERVED


async def test_the_contract_of_another_market_is_refused(stage: OrganisationStage) -> None:
    reading = await stage.reading()
    foreign = stage.market.contracts.bank
    with pytest.raises(WrongChain, match="another market"):
        await read_organisations(stage.anvil.url, stage.place, reading.record.market, foreign)
    later = OrganisationsPlace(stage.place.contract, stage.place.start_block + 1)
    with pytest.raises(WrongChain, match="says nothing of organisations"):
        await read_organisations(stage.anvil.url, later, reading.record.market, stage.market.contracts.registry)
