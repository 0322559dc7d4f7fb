"""Reading and sending against a real node, following what happens, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import SECONDS, eventually

from troth.chain.adapter import Chain
from troth.chain.deployment import deploy_market, submit
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
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.store import WINDOW
from troth.chain.transactions import FEE_CAP_VARIABLE, Transactions
from troth.protocol.calls import Call
from troth.protocol.market.calls import PartCall, build, view
from troth.protocol.market.events import Collected
from troth.protocol.market.parts import Part
from troth.protocol.market.state import State
from troth.protocol.market.types import Parameters, PotKind, Rules
from troth.protocol.types import Address, Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]

NOBODY = Address("0x" + "00" * 19 + "01")
FAST = 0.05


def credit(market: Market, account: Address, amount: int) -> PartCall:
    return build(market.contracts, Part.BANK, "credit", account, amount, value=amount)


def withdraw(market: Market, account: Address) -> PartCall:
    return build(market.contracts, Part.BANK, "withdraw", account)


def held(state: State, key: Key) -> int:
    return state.pot(PotKind.CREDIT, key.address)


async def credit_of(market: Market, key: Key) -> int:
    account = Hash32(bytes(12) + bytes.fromhex(key.address[2:]))
    return await market.read(view(market.contracts, Part.BANK, "balanceOf", PotKind.CREDIT, account, returns=int))


async def deposit(deployed: Any, key: Key, amount: int) -> Any:
    return await deployed.market.execute(credit(deployed.market, key.address, amount), key)


async def test_receipt_carries_events_gas_and_price(deployed: Any) -> None:
    client, market = deployed.anvil.keys[1], deployed.market
    before = await market.chain.balance(client.address)
    receipt = await deposit(deployed, client, 5)
    (event,) = [market.parse(log) for log in receipt.logs if log.address in market.addresses]
    assert isinstance(event, Collected)
    assert (event.kind, event.amount) == (PotKind.CREDIT, 5)
    assert (event.meta.block, event.meta.transaction) == (receipt.block, receipt.transaction)
    assert before - await market.chain.balance(client.address) == receipt.cost + 5
    assert await credit_of(market, client) == 5
    sent = await market.chain.transaction_input(receipt.transaction)
    assert sent == credit(market, client.address, 5).call.data


async def test_rejection_is_told_before_anything_is_sent(deployed: Any) -> None:
    client, market = deployed.anvil.keys[1], deployed.market
    head = await market.chain.block_number()
    with pytest.raises(ChainRejected) as caught:
        await market.execute(withdraw(market, client.address), client)
    assert caught.value.name == "NothingToWithdraw"
    assert caught.value.arguments["account"].lower() == client.address.lower()
    assert client.address.lower() in caught.value.remedy.lower()
    assert await market.chain.block_number() == head


async def test_failure_in_a_block_is_decoded_too(deployed: Any) -> None:
    client, market = deployed.anvil.keys[1], deployed.market
    with pytest.raises(ChainRejected) as caught:
        await market.execute(withdraw(market, client.address), client, gas=200_000)
    assert caught.value.name == "NothingToWithdraw"


async def test_empty_account_is_told_to_get_ether(deployed: Any) -> None:
    poor = Key.generate()
    with pytest.raises(ChainRejected) as caught:
        await deployed.market.execute(credit(deployed.market, poor.address, 10**18), poor)
    assert caught.value.name == "InsufficientFunds"
    assert caught.value.remedy == f"Send 1 ether, and some coins for gas, to {poor.address}."


async def test_an_account_without_gas_is_told_so_where_only_sending_shows_it(deployed: Any) -> None:
    poor = Key.generate()
    with pytest.raises(ChainRejected) as caught:
        await deployed.market.execute(withdraw(deployed.market, poor.address), poor, gas=200_000)
    assert caught.value.name == "InsufficientFunds"
    assert caught.value.remedy == f"Send coins for gas to {poor.address}."


async def test_simulation_sends_nothing(deployed: Any) -> None:
    client = deployed.anvil.keys[1]
    head = await deployed.market.chain.block_number()
    good = await deployed.market.simulate(credit(deployed.market, client.address, 9), client.address)
    bad = await deployed.market.simulate(withdraw(deployed.market, client.address), client.address)
    assert good.accepted
    assert (good.value, good.function) == (9, "credit")
    assert 21_000 < good.gas < 200_000
    assert good.maximum_cost > good.gas
    assert not bad.accepted
    assert bad.rejection is not None
    assert bad.rejection.name == "NothingToWithdraw"
    assert await deployed.market.chain.block_number() == head


async def test_view_that_reverts_is_decoded(deployed: Any) -> None:
    contracts = deployed.market.contracts
    with pytest.raises(ChainRejected, match="UnknownClass"):
        await deployed.market.read(view(contracts, Part.REGISTRY, "rulesOf", Hash32(b"\x01" * 32), returns=Rules))


async def test_one_key_sends_many_at_once(deployed: Any) -> None:
    client = deployed.anvil.keys[2]
    call = credit(deployed.market, client.address, 1)
    receipts = await asyncio.gather(*(deployed.market.execute(call, client) for _ in range(12)))
    assert len({receipt.transaction for receipt in receipts}) == 12
    assert await credit_of(deployed.market, client) == 12


async def test_two_programs_with_one_key_both_get_through(deployed: Any) -> None:
    client = deployed.anvil.keys[3]
    other = await Market.connect(deployed.anvil.url, deployed.market.place)
    async with other:
        sent = [deployed.market.execute(credit(other, client.address, 1), client) for _ in range(6)]
        sent += [other.execute(credit(other, client.address, 100), client) for _ in range(6)]
        await asyncio.gather(*sent)
    assert await credit_of(deployed.market, client) == 606


async def test_failed_send_burns_no_nonce(deployed: Any) -> None:
    client = deployed.anvil.keys[4]
    with pytest.raises(ChainRejected):
        await deployed.market.execute(withdraw(deployed.market, client.address), client)
    receipt = await deposit(deployed, client, 1)
    assert receipt.logs


async def test_a_transaction_that_the_base_fee_outgrew_is_signed_again_with_higher_fees(
    start_anvil: Callable[..., Any], parameters: Parameters
) -> None:
    """Under its nonce, so that it counts once: all later calls of its key would wait behind it, beyond deadlines."""
    node = start_anvil()
    market, _ = await deploy_market(node.url, parameters, node.keys[0])
    sender = node.keys[1]
    async with market:
        node.rpc("evm_setAutomine", False)
        stuck = await market.send(credit(market, sender.address, 1), sender)
        behind = await market.send(credit(market, sender.address, 2), sender)
        dear = 10 * int(node.rpc("eth_getTransactionByHash", "0x" + stuck.hex())["maxFeePerGas"], 16)
        waiting = [asyncio.create_task(market.wait_for_receipt(one, timeout=SECONDS)) for one in (stuck, behind)]
        async with asyncio.timeout(SECONDS):
            while not all(one.done() for one in waiting):
                node.rpc("anvil_setNextBlockBaseFeePerGas", hex(dear))
                node.mine()
                await asyncio.sleep(0.3)
        assert not {one.result().transaction for one in waiting} & {stuck, behind}
        assert await credit_of(market, sender) == 3


async def test_no_more_than_the_cap_is_offered_for_a_transaction_that_waits(
    start_anvil: Callable[..., Any], parameters: Parameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start_anvil()
    market, _ = await deploy_market(node.url, parameters, node.keys[0])
    sender = node.keys[1]
    async with market:
        node.rpc("evm_setAutomine", False)
        waits = await market.send(credit(market, sender.address, 1), sender)
        offered = int(node.rpc("eth_getTransactionByHash", "0x" + waits.hex())["maxFeePerGas"], 16)
        monkeypatch.setenv(FEE_CAP_VARIABLE, f"{2 * offered}wei")
        node.rpc("anvil_setNextBlockBaseFeePerGas", hex(10 * offered))
        node.mine()
        with pytest.raises(TransactionTimeout):
            await market.wait_for_receipt(waits, timeout=5)
        # The base fee falls again, and the very transaction is mined.
        node.rpc("anvil_setNextBlockBaseFeePerGas", hex(offered // 2))
        node.mine()
        waiting = asyncio.create_task(market.wait_for_receipt(waits, timeout=SECONDS))
        async with asyncio.timeout(SECONDS):
            while not waiting.done():
                node.rpc("anvil_setNextBlockBaseFeePerGas", hex(offered // 2))
                node.mine()
                await asyncio.sleep(0.3)
        assert waiting.result().transaction == waits


async def test_receipt_timeout_keeps_the_transaction(start_anvil: Callable[..., Any], parameters: Parameters) -> None:
    node = start_anvil()
    market, _ = await deploy_market(node.url, parameters, node.keys[0])
    async with market:
        node.rpc("evm_setAutomine", False)
        transaction = await market.send(credit(market, node.keys[1].address, 1), node.keys[1])
        with pytest.raises(TransactionTimeout) as caught:
            await market.wait_for_receipt(transaction, timeout=0.3)
        assert caught.value.transaction == transaction
        node.mine()
        first = await market.wait_for_receipt(transaction, timeout=SECONDS)
        with pytest.raises(TransactionTimeout):
            await market.wait_for_receipt(transaction, confirmations=3, timeout=0.3)
        node.mine(2)
        assert await market.wait_for_receipt(transaction, confirmations=3, timeout=SECONDS) == first


async def test_a_transaction_that_the_node_forgets_is_handed_in_again(
    start_anvil: Callable[..., Any], parameters: Parameters
) -> None:
    """Its own bytes, so that it counts once; if its nonce is taken meanwhile, that is said instead of waited for."""
    node = start_anvil()
    market, _ = await deploy_market(node.url, parameters, node.keys[0])
    sender = node.keys[1]
    async with market:
        node.rpc("evm_setAutomine", False)
        forgotten = await market.send(credit(market, sender.address, 1), sender)
        node.rpc("anvil_dropTransaction", "0x" + forgotten.hex())
        waiting = asyncio.create_task(market.wait_for_receipt(forgotten, timeout=SECONDS))
        async with asyncio.timeout(SECONDS):
            while node.rpc("eth_getTransactionByHash", "0x" + forgotten.hex()) is None:  # noqa: ASYNC110 - a pool tells nobody
                await asyncio.sleep(0.1)
        node.mine()
        assert (await waiting).transaction == forgotten
        dropped = await market.send(credit(market, sender.address, 2), sender)
        node.rpc("anvil_dropTransaction", "0x" + dropped.hex())
        await market.send(credit(market, sender.address, 3), sender)
        node.mine()
        with pytest.raises(TransactionDropped, match="0x" + dropped.hex()):
            await market.wait_for_receipt(dropped, timeout=SECONDS)
        assert await credit_of(market, sender) == 4


@pytest.mark.parametrize("how", ["of the market", "of any contract"])
async def test_a_call_whose_nonce_another_program_took_is_sent_again(
    start_anvil: Callable[..., Any], parameters: Parameters, how: str
) -> None:
    node = start_anvil()
    market, _ = await deploy_market(node.url, parameters, node.keys[0])
    sender, another = node.keys[1], Transactions(market._rpc, market.chain.chain_id)
    call = credit(market, sender.address, 7)
    async with market:
        node.rpc("evm_setAutomine", False)
        sending = asyncio.create_task(
            market.execute(call, sender) if how == "of the market" else submit(node.url, call.call, sender, call.to)
        )
        before = await in_pool(node)
        node.rpc("anvil_dropTransaction", before)
        await another.send(Call("nothing", b""), sender, sender.address, 21_000)
        node.mine()
        after = await in_pool(node)
        node.mine()
        assert "0x" + (await sending).transaction.hex() == after != before
        assert await credit_of(market, sender) == 7


async def in_pool(node: Any) -> str:
    """The one transaction that waits for a block, once there is one."""
    async with asyncio.timeout(SECONDS):
        while not (waiting := node.rpc("eth_getBlockByNumber", "pending", False)["transactions"]):  # noqa: ASYNC110 - a pool tells nobody
            await asyncio.sleep(FAST)
    (transaction,) = waiting
    return str(transaction)


async def test_node_that_is_not_there(deployed: Any) -> None:
    with pytest.raises(ChainUnavailable) as caught:
        await Chain.connect("http://user:secret@127.0.0.1:9/v3/apikey", deployed.market.contracts.bank, attempts=2)
    assert "127.0.0.1:9" in str(caught.value)
    for hidden in ("secret", "apikey", "user"):
        assert hidden not in str(caught.value)


async def test_wrong_chain_contract_and_scheme(deployed: Any) -> None:
    url = deployed.anvil.url
    with pytest.raises(WrongChain, match="chain 31337, not 1"):
        await Chain.connect(url, deployed.market.contracts.bank, chain_id=1)
    async with await Chain.connect(url, deployed.market.contracts.bank) as chain:
        assert await chain.counted_chain() == chain.chain_id
        await chain.require_chain()
    with pytest.raises(WrongChain, match="No contract"):
        await Chain.connect(url, NOBODY)
    with pytest.raises(ChainUnavailable, match="http"):
        await Chain.connect("ws://127.0.0.1:1", NOBODY)


async def test_unknown_method_is_refused_by_name(deployed: Any) -> None:
    with pytest.raises(RpcRefused, match="eth_nothing"):
        await deployed.market._rpc.request("eth_nothing")


async def test_follower_folds_what_happens(deployed: Any, tmp_path: Path) -> None:
    client = deployed.anvil.keys[1]
    async with MarketFollower(deployed.market, tmp_path / "events", poll_interval=FAST) as seen:
        await deposit(deployed, client, 5)
        state = await seen.wait_until(lambda state: held(state, client) == 5, timeout=SECONDS)
        assert state is seen.state
        receipt = await deposit(deployed, client, 2)
        assert held(await seen.reach(receipt.block, timeout=SECONDS), client) == 7
        with pytest.raises(FollowTimeout, match="block"):
            await seen.wait_until(lambda state: held(state, client) == 8, timeout=0.1)


async def test_follower_resumes_from_its_file(deployed: Any, tmp_path: Path) -> None:
    client, path = deployed.anvil.keys[1], tmp_path / "events"
    first = MarketFollower(deployed.market, path)
    await deposit(deployed, client, 5)
    await first.catch_up()
    await first.close()
    deployed.anvil.mine(2 * WINDOW)
    await deposit(deployed, client, 1)
    second = MarketFollower(deployed.market, path)
    assert held(second.state, client) == 5
    assert held(await second.catch_up(), client) == 6
    assert second.block == await deployed.market.chain.block_number()
    await second.close()


async def test_two_followers_never_share_a_file(deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("troth.chain.store.PATIENCE", 0.05)
    first = MarketFollower(deployed.market, tmp_path / "events")
    with pytest.raises(EventFileInUse, match="own home folder"):
        MarketFollower(deployed.market, tmp_path / "events")
    await first.catch_up()
    await first.close()
    second = MarketFollower(deployed.market, tmp_path / "events")
    assert second.block == first.block
    await second.close()


async def test_event_file_of_another_contract_is_refused(deployed: Any, tmp_path: Path) -> None:
    first = MarketFollower(deployed.market, tmp_path / "events")
    await first.close()
    other, _ = await deploy_market(deployed.anvil.url, deployed.parameters, deployed.deployer)
    async with other:
        with pytest.raises(WrongChain, match=deployed.market.contracts.bank):
            MarketFollower(other, tmp_path / "events")


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
async def test_reorganisation_is_taken_back(deployed: Any, tmp_path: Path, restart: bool) -> None:
    client, other, node = deployed.anvil.keys[1], deployed.anvil.keys[5], deployed.anvil
    follower = MarketFollower(deployed.market, tmp_path / "events")
    await deposit(deployed, client, 5)
    await follower.catch_up()
    snapshot = node.rpc("evm_snapshot")
    await deposit(deployed, client, 100)
    node.mine(2)
    assert held(await follower.catch_up(), client) == 105
    if restart:
        await follower.close()
    assert node.rpc("evm_revert", snapshot)
    await deposit(deployed, other, 7)
    node.mine(4)
    if restart:
        follower = MarketFollower(deployed.market, tmp_path / "events")
    state = await follower.catch_up()
    assert held(state, client) == 5
    assert held(state, other) == 7
    assert follower.block == await deployed.market.chain.block_number()
    await follower.close()


async def test_shorter_chain_is_followed_too(deployed: Any) -> None:
    client, node = deployed.anvil.keys[1], deployed.anvil
    follower = MarketFollower(deployed.market)
    snapshot = node.rpc("evm_snapshot")
    await deposit(deployed, client, 100)
    node.mine(3)
    await follower.catch_up()
    assert node.rpc("evm_revert", snapshot)
    assert held(await follower.catch_up(), client) == 0
    assert follower.block == await deployed.market.chain.block_number()
    await follower.close()


async def test_follower_survives_a_node_that_goes_away(
    start_anvil: Callable[..., Any], parameters: Parameters, tmp_path: Path
) -> None:
    node = start_anvil()
    market, _ = await deploy_market(node.url, parameters, node.keys[0])
    client = node.keys[1]
    async with market, MarketFollower(market, tmp_path / "events", poll_interval=FAST) as seen:
        await market.execute(credit(market, client.address, 5), client)
        await seen.wait_until(lambda state: held(state, client) == 5, timeout=SECONDS)
        node.stop()
        with pytest.raises(ChainUnavailable):
            await market.chain.block_number()
        await eventually(lambda: seen.failure is not None)
        with pytest.raises(FollowTimeout, match="cannot be reached"):
            await seen.wait_until(lambda state: held(state, client) == 6, timeout=0.3)
        assert isinstance(seen.failure, ChainUnavailable)
        again = start_anvil(node.port)
        rebuilt, _ = await deploy_market(again.url, parameters, node.keys[0])
        assert rebuilt.contracts == market.contracts
        await rebuilt.execute(credit(rebuilt, client.address, 6), client)
        await seen.wait_until(lambda state: held(state, client) == 6, timeout=SECONDS)
        assert seen.failure is None
        await rebuilt.close()
