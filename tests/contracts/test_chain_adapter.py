"""The adapter against a real node: deploying, sending, reading, following, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.waiting import SECONDS, eventually

from troth.chain.adapter import Chain
from troth.chain.deployment import deploy
from troth.chain.errors import (
    ChainRejected,
    ChainUnavailable,
    EventFileInUse,
    FollowTimeout,
    RpcRefused,
    TransactionDropped,
    TransactionTimeout,
    WrongChain,
)
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.chain.store import WINDOW
from troth.protocol import calls
from troth.protocol.calls import views
from troth.protocol.contract_types import Parameters
from troth.protocol.events import EscrowDeposited
from troth.protocol.types import Address, Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]

NOBODY = Address("0x" + "00" * 19 + "01")
FAST = 0.05


async def deposit(deployed: Any, key: Key, amount: int) -> Any:
    return await deployed.chain.execute(calls.deposit(key.address, amount), key)


async def test_deployment_has_its_parameters(deployed: Any) -> None:
    assert await deployed.chain.read(views.parameters_of()) == deployed.parameters
    assert deployed.chain.domain.contract == deployed.chain.contract


async def test_constructor_refusal_is_decoded(anvil: Any, parameters: Parameters) -> None:
    with pytest.raises(ChainRejected, match="InvalidParameters"):
        await deploy(anvil.url, replace(parameters, sample_window=201), anvil.keys[0])


async def test_receipt_carries_events_gas_and_price(deployed: Any) -> None:
    client = deployed.anvil.keys[1]
    before = await deployed.chain.balance(client.address)
    receipt = await deposit(deployed, client, 5)
    (event,) = receipt.events
    assert isinstance(event, EscrowDeposited)
    assert (event.client, event.amount, event.balance) == (client.address, 5, 5)
    assert (event.meta.block, event.meta.transaction) == (receipt.block, receipt.transaction)
    assert before - await deployed.chain.balance(client.address) == receipt.cost + 5
    assert await deployed.chain.read(views.escrow_of(client.address)) == 5
    assert await deployed.chain.transaction_input(receipt.transaction) == calls.deposit(client.address, 5).data


async def test_rejection_names_the_shortfall_before_anything_is_sent(deployed: Any) -> None:
    client = deployed.anvil.keys[1]
    await deposit(deployed, client, 10**16)
    head = await deployed.chain.block_number()
    with pytest.raises(ChainRejected) as caught:
        await deployed.chain.execute(calls.withdraw_escrow(3 * 10**16), client)
    assert caught.value.name == "InsufficientEscrow"
    assert caught.value.arguments["needed"] == 3 * 10**16
    assert "0.02 ETH" in caught.value.remedy
    assert await deployed.chain.block_number() == head


async def test_failure_in_a_block_is_decoded_too(deployed: Any) -> None:
    client = deployed.anvil.keys[1]
    with pytest.raises(ChainRejected) as caught:
        await deployed.chain.execute(calls.withdraw_escrow(7), client, gas=200_000)
    assert caught.value.name == "InsufficientEscrow"


async def test_empty_account_is_told_to_get_ether(deployed: Any) -> None:
    poor = Key.generate()
    with pytest.raises(ChainRejected) as caught:
        await deployed.chain.execute(calls.deposit(poor.address, 10**18), poor)
    assert caught.value.name == "InsufficientFunds"
    assert "ETH" in caught.value.remedy


async def test_simulation_sends_nothing(deployed: Any) -> None:
    client = deployed.anvil.keys[1]
    head = await deployed.chain.block_number()
    good = await deployed.chain.simulate(calls.deposit(client.address, 9), client.address)
    bad = await deployed.chain.simulate(calls.withdraw_escrow(9), client.address)
    assert good.accepted
    assert (good.value, good.function) == (9, "deposit")
    assert 21_000 < good.gas < 200_000
    assert good.maximum_cost > good.gas
    assert not bad.accepted
    assert bad.rejection is not None
    assert bad.rejection.name == "InsufficientEscrow"
    assert await deployed.chain.block_number() == head


async def test_view_that_reverts_is_decoded(deployed: Any) -> None:
    with pytest.raises(ChainRejected, match="UnknownClass"):
        await deployed.chain.read(views.rules_of(Hash32(b"\x01" * 32)))


async def test_one_key_sends_many_at_once(deployed: Any) -> None:
    client = deployed.anvil.keys[2]
    call = calls.deposit(client.address, 1)
    receipts = await asyncio.gather(*(deployed.chain.execute(call, client) for _ in range(12)))
    assert len({receipt.transaction for receipt in receipts}) == 12
    assert await deployed.chain.read(views.escrow_of(client.address)) == 12


async def test_two_programs_with_one_key_both_get_through(deployed: Any) -> None:
    client = deployed.anvil.keys[3]
    other = await Chain.connect(deployed.anvil.url, deployed.chain.contract)
    async with other:
        sent = [deployed.chain.execute(calls.deposit(client.address, 1), client) for _ in range(6)]
        sent += [other.execute(calls.deposit(client.address, 100), client) for _ in range(6)]
        await asyncio.gather(*sent)
    assert await deployed.chain.read(views.escrow_of(client.address)) == 606


async def test_failed_send_burns_no_nonce(deployed: Any) -> None:
    client = deployed.anvil.keys[4]
    with pytest.raises(ChainRejected):
        await deployed.chain.execute(calls.withdraw_escrow(1), client)
    receipt = await deposit(deployed, client, 1)
    assert receipt.events


async def test_receipt_timeout_keeps_the_transaction(start_anvil: Callable[..., Any], parameters: Parameters) -> None:
    node = start_anvil()
    chain, _ = await deploy(node.url, parameters, node.keys[0])
    async with chain:
        node.rpc("evm_setAutomine", False)
        transaction = await chain.send(calls.deposit(node.keys[1].address, 1), node.keys[1])
        with pytest.raises(TransactionTimeout) as caught:
            await chain.wait_for_receipt(transaction, timeout=0.3)
        assert caught.value.transaction == transaction
        node.mine()
        first = await chain.wait_for_receipt(transaction, timeout=SECONDS)
        with pytest.raises(TransactionTimeout):
            await chain.wait_for_receipt(transaction, confirmations=3, timeout=0.3)
        node.mine(2)
        assert await chain.wait_for_receipt(transaction, confirmations=3, timeout=SECONDS) == first


async def test_a_transaction_that_the_node_forgets_is_handed_in_again(
    start_anvil: Callable[..., Any], parameters: Parameters
) -> None:
    """Its own bytes, so that it counts once; if its nonce is taken meanwhile, that is said instead of waited for."""
    node = start_anvil()
    chain, _ = await deploy(node.url, parameters, node.keys[0])
    sender = node.keys[1]
    async with chain:
        node.rpc("evm_setAutomine", False)
        forgotten = await chain.send(calls.deposit(sender.address, 1), sender)
        node.rpc("anvil_dropTransaction", "0x" + forgotten.hex())
        waiting = asyncio.create_task(chain.wait_for_receipt(forgotten, timeout=SECONDS))
        async with asyncio.timeout(SECONDS):
            while node.rpc("eth_getTransactionByHash", "0x" + forgotten.hex()) is None:  # noqa: ASYNC110 - a pool tells nobody
                await asyncio.sleep(0.1)
        node.mine()
        assert (await waiting).transaction == forgotten
        dropped = await chain.send(calls.deposit(sender.address, 2), sender)
        node.rpc("anvil_dropTransaction", "0x" + dropped.hex())
        await chain.send(calls.deposit(sender.address, 3), sender)
        node.mine()
        with pytest.raises(TransactionDropped, match="0x" + dropped.hex()):
            await chain.wait_for_receipt(dropped, timeout=SECONDS)
        assert await chain.read(views.escrow_of(sender.address)) == 4


async def test_node_that_is_not_there(deployed: Any) -> None:
    with pytest.raises(ChainUnavailable) as caught:
        await Chain.connect("http://user:secret@127.0.0.1:9/v3/apikey", deployed.chain.contract, attempts=2)
    assert "127.0.0.1:9" in str(caught.value)
    for hidden in ("secret", "apikey", "user"):
        assert hidden not in str(caught.value)


async def test_wrong_chain_contract_and_scheme(deployed: Any) -> None:
    url = deployed.anvil.url
    with pytest.raises(WrongChain, match="chain 31337, not 1"):
        await Chain.connect(url, deployed.chain.contract, chain_id=1)
    with pytest.raises(WrongChain, match="No contract"):
        await Chain.connect(url, NOBODY)
    with pytest.raises(ChainUnavailable, match="http"):
        await Chain.connect("ws://127.0.0.1:1", NOBODY)


async def test_unknown_method_is_refused_by_name(deployed: Any) -> None:
    with pytest.raises(RpcRefused, match="eth_nothing"):
        await deployed.chain._rpc.request("eth_nothing")


async def test_follower_folds_what_happens(deployed: Any, tmp_path: Path) -> None:
    client = deployed.anvil.keys[1]
    async with EventFollower(
        deployed.chain, tmp_path / "events", start_block=deployed.block, poll_interval=FAST
    ) as seen:
        await deposit(deployed, client, 5)
        state = await seen.wait_until(lambda state: state.escrow_of(client.address) == 5, timeout=SECONDS)
        assert state is seen.state
        receipt = await deposit(deployed, client, 2)
        assert (await seen.reach(receipt.block, timeout=SECONDS)).escrow_of(client.address) == 7
        with pytest.raises(FollowTimeout, match="block"):
            await seen.wait_until(lambda state: state.escrow_of(client.address) == 8, timeout=0.1)


async def test_follower_resumes_from_its_file(deployed: Any, tmp_path: Path) -> None:
    client, path = deployed.anvil.keys[1], tmp_path / "events"
    first = EventFollower(deployed.chain, path, start_block=deployed.block)
    await deposit(deployed, client, 5)
    await first.catch_up()
    await first.close()
    deployed.anvil.mine(2 * WINDOW)
    await deposit(deployed, client, 1)
    second = EventFollower(deployed.chain, path, start_block=deployed.block)
    assert second.state.escrow_of(client.address) == 5
    assert (await second.catch_up()).escrow_of(client.address) == 6
    assert second.block == await deployed.chain.block_number()
    await second.close()


async def test_two_followers_never_share_a_file(deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("troth.chain.store.PATIENCE", 0.05)
    first = EventFollower(deployed.chain, tmp_path / "events", start_block=deployed.block)
    with pytest.raises(EventFileInUse, match="own home folder"):
        EventFollower(deployed.chain, tmp_path / "events", start_block=deployed.block)
    await first.catch_up()
    await first.close()
    second = EventFollower(deployed.chain, tmp_path / "events", start_block=deployed.block)
    assert second.block == first.block
    await second.close()


async def test_event_file_of_another_contract_is_refused(deployed: Any, tmp_path: Path) -> None:
    first = EventFollower(deployed.chain, tmp_path / "events", start_block=deployed.block)
    await first.close()
    other, _ = await deploy(deployed.anvil.url, deployed.parameters, deployed.deployer)
    async with other:
        with pytest.raises(WrongChain, match=deployed.chain.contract):
            EventFollower(other, tmp_path / "events")


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
async def test_reorganisation_is_taken_back(deployed: Any, tmp_path: Path, restart: bool) -> None:
    client, other, node = deployed.anvil.keys[1], deployed.anvil.keys[5], deployed.anvil
    follower = EventFollower(deployed.chain, tmp_path / "events", start_block=deployed.block)
    await deposit(deployed, client, 5)
    await follower.catch_up()
    snapshot = node.rpc("evm_snapshot")
    await deposit(deployed, client, 100)
    node.mine(2)
    assert (await follower.catch_up()).escrow_of(client.address) == 105
    if restart:
        await follower.close()
    assert node.rpc("evm_revert", snapshot)
    await deposit(deployed, other, 7)
    node.mine(4)
    if restart:
        follower = EventFollower(deployed.chain, tmp_path / "events", start_block=deployed.block)
    state = await follower.catch_up()
    assert state.escrow_of(client.address) == 5
    assert state.escrow_of(other.address) == 7
    assert follower.block == await deployed.chain.block_number()
    await follower.close()


async def test_shorter_chain_is_followed_too(deployed: Any) -> None:
    client, node = deployed.anvil.keys[1], deployed.anvil
    follower = EventFollower(deployed.chain, start_block=deployed.block)
    snapshot = node.rpc("evm_snapshot")
    await deposit(deployed, client, 100)
    node.mine(3)
    await follower.catch_up()
    assert node.rpc("evm_revert", snapshot)
    assert (await follower.catch_up()).escrow_of(client.address) == 0
    assert follower.block == await deployed.chain.block_number()
    await follower.close()


async def test_follower_survives_a_node_that_goes_away(
    start_anvil: Callable[..., Any], parameters: Parameters, tmp_path: Path
) -> None:
    node = start_anvil()
    chain, receipt = await deploy(node.url, parameters, node.keys[0])
    client = node.keys[1]
    async with chain, EventFollower(chain, tmp_path / "events", start_block=receipt.block, poll_interval=FAST) as seen:
        await chain.execute(calls.deposit(client.address, 5), client)
        await seen.wait_until(lambda state: state.escrow_of(client.address) == 5, timeout=SECONDS)
        node.stop()
        with pytest.raises(ChainUnavailable):
            await chain.block_number()
        await eventually(lambda: seen.failure is not None)
        with pytest.raises(FollowTimeout, match="cannot be reached"):
            await seen.wait_until(lambda state: state.escrow_of(client.address) == 6, timeout=0.3)
        assert isinstance(seen.failure, ChainUnavailable)
        again = start_anvil(node.port)
        rebuilt, _ = await deploy(again.url, parameters, node.keys[0])
        assert rebuilt.contract == chain.contract
        await rebuilt.execute(calls.deposit(client.address, 6), client)
        await seen.wait_until(lambda state: state.escrow_of(client.address) == 6, timeout=SECONDS)
        assert seen.failure is None
        await rebuilt.close()
