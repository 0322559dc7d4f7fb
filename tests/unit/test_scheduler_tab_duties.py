"""What a scheduler does by itself: acknowledging nodes, redeeming, claiming, answering summons, keeping, logging."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.market_logs import META
from support.tab_scene import CLIENT_TAB, DOMAIN, TAB_KEY, TabScene, called, history_of
from support.tabs_stage import PARAMETERS

from troth.chain.errors import ChainError, ChainRejected, ChainUnavailable, TransactionTimeout
from troth.protocol.contract_errors import ContractError
from troth.protocol.market import canonical, claims, messages, prices, tabs
from troth.protocol.market import events as on
from troth.protocol.market.bodies import Acknowledgement
from troth.protocol.market.calls import argument, read_call
from troth.protocol.market.leaves import NO_TRACE, ShownTraces
from troth.protocol.market.messages import sign, state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, Fault
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import account_id
from troth.protocol.market.types import Claim, ClaimState, PotKind
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import TRACES_LIMIT
from troth.scheduler.duties import acknowledge_nodes
from troth.scheduler.tabs.claiming import attend_claims, claim_due
from troth.scheduler.tabs.opening import PENDING_BLOCKS, Deposits, TabOpener
from troth.scheduler.tabs.redeeming import redeem


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


async def test_nodes_are_acknowledged_after_the_same_lag_as_clients_have(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    history = history_of(scene, asked)
    node = history.admitted.nodes[0]
    fee = prices.promise_worth(history.admitted.promises[0].message, history.results[0])
    scene.ledger.block = history.drawn.draw.message.block_number + PARAMETERS.lag - 1
    await acknowledge_nodes(scene.context)
    assert scene.context.node_tabs.held(node).book.spent == 0
    scene.ledger.block += 1
    await acknowledge_nodes(scene.context)
    assert scene.context.node_tabs.held(node).book.spent == fee
    tab = messages.tab_id(scene.context.node_tabs.tab(node))
    assert scene.nodes[node].vouchers[tab].message.spent == fee


async def test_a_check_that_agrees_is_acknowledged_at_once_to_all(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    await acknowledge_nodes(scene.context)
    history = history_of(scene, asked)
    check = history.check_of(0)
    for operator, promised in zip(check.operators, check.promises, strict=True):
        held = scene.context.node_tabs.held(operator)
        assert held.book.spent >= promised.message.price
        assert not held.owed
    assert not scene.context.node_tabs.held(history.admitted.nodes[0]).owed


async def test_only_a_case_that_suspends_withholds_and_a_conviction_voids(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    history = history_of(scene, asked)
    node = history.admitted.nodes[0]
    case = CaseState(CaseKind.REJECTION, CasePhase.OPENED, suspends=True, order=asked.order_id, node=node)
    case_id = messages.case_id(asked.order_id, 0)
    scene.ledger.fold(on.CaseOpened(case_id, asked.order_id, node, case, META))
    scene.ledger.block += PARAMETERS.lag + 1
    await acknowledge_nodes(scene.context)
    assert scene.context.node_tabs.held(node).owed
    reference = asked.order.reference_block
    scene.ledger.fold(on.Convicted(node, Fault.FALSE_RESULT, case_id, reference - 1, reference + 1, 0, META))
    await acknowledge_nodes(scene.context)
    held = scene.context.node_tabs.held(node)
    assert (held.owed, held.book.spent) == ({}, 0)


async def test_a_no_is_paid_once_the_result_fell_and_not_before(scene: TabScene) -> None:
    for node in scene.nodes.values():
        node.faults.opinion = Opinion.REJECT
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    history = history_of(scene, asked)
    check = history.check_of(0)
    await acknowledge_nodes(scene.context)
    assert all(scene.context.node_tabs.held(one).owed for one in check.operators)
    scene.ledger.fold(on.LeafVoided(asked.order_id, 0, messages.case_id(asked.order_id, 0), META))
    await acknowledge_nodes(scene.context)
    for operator, promised in zip(check.operators, check.promises, strict=True):
        assert scene.context.node_tabs.held(operator).book.spent == promised.message.price


@pytest.mark.parametrize("opinion", [Opinion.REJECT, Opinion.CANNOT_TELL])
async def test_whoever_proves_its_work_is_paid_at_once_whatever_it_says(scene: TabScene, opinion: Opinion) -> None:
    for node in scene.nodes.values():
        node.faults.opinion, node.faults.proof = opinion, bytes
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    check = history_of(scene, asked).check_of(0)
    await acknowledge_nodes(scene.context)
    for operator, promised in zip(check.operators, check.promises, strict=True):
        assert scene.context.node_tabs.held(operator).book.spent == promised.message.price


def _swapped(traces: bytes) -> bytes:
    shown = canonical.decode(ShownTraces, traces, TRACES_LIMIT)
    return canonical.encode(ShownTraces(shown.judged, shown.own))


def _bent(traces: bytes) -> bytes:
    """A tile that the root does not have."""
    shown = canonical.decode(ShownTraces, traces, TRACES_LIMIT)
    tiles = bytes([shown.own.tiles[0] ^ 1]) + shown.own.tiles[1:]
    return canonical.encode(ShownTraces(replace(shown.own, tiles=tiles), shown.judged))


def _of_nobody(traces: bytes) -> bytes:
    """Traces that a node of no class could show."""
    return canonical.encode(ShownTraces(NO_TRACE, NO_TRACE))


@pytest.mark.parametrize(
    "proof",
    [
        lambda traces: traces.replace(b'"salt":"0x', b'"salt":"0xff', 1),
        lambda traces: traces[:-40],
        lambda traces: bytes(len(traces)),
        lambda traces: b"{}",
        _of_nobody,
        _swapped,
        _bent,
    ],
)
async def test_what_proves_no_work_is_not_paid_and_the_word_counts_all_the_same(scene: TabScene, proof: Any) -> None:
    for node in scene.nodes.values():
        node.faults.opinion, node.faults.proof = Opinion.REJECT, proof
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    history = history_of(scene, asked)
    assert {one.message.opinion for one in history.verdicts.values()} == {Opinion.REJECT}
    await acknowledge_nodes(scene.context)
    for operator in history.check_of(0).operators:
        held = scene.context.node_tabs.held(operator)
        assert held.owed
        assert held.book.spent == 0


async def test_tabs_with_nodes_are_opened_and_topped_up_once(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, unpaid=2)
    scene.start()
    context = scene.context
    opener = TabOpener(
        context.database, context.node_tabs, scene.ledger, context.operator, deposits=Deposits(1_000, 10)
    )
    missing = next(iter(scene.nodes))

    def react(call: Any) -> list[Any]:
        read = read_call(Part.BANK, call.call.data)
        if read.entry.name == "topUp":
            return [on.TabToppedUp(read.value("tab"), 1_000, 0, META)]
        tab = context.node_tabs.tab(missing)
        return [on.TabOpened(messages.tab_id(tab), tab.payer, tab.payee, tab.key, 1_000, META)]

    scene.ledger.react = react
    await opener.keep([missing])
    read = called(scene, Part.BANK, "openTab")
    assert (argument(read, "payee", Address), argument(read, "amount", int)) == (missing, 1_000)
    assert scene.ledger.sent[-1].call.value == 1_000
    await opener.keep([missing])
    assert len(scene.ledger.sent) == 1
    # Sent before a restart, and not mined yet: it is waited for.
    other = list(scene.nodes)[1]
    row = (f"open {other}", scene.ledger.block, 0.0)
    await context.database.commit(("INSERT INTO transactions (purpose, block, at) VALUES (?, ?, ?)", row))
    await opener.keep([other])
    assert len(scene.ledger.sent) == 1
    await scene.stop()


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (TransactionTimeout(Hash32(bytes(32)), 120), True),
        (ChainUnavailable("The answer was lost", "x", "Wait."), True),
        (ChainRejected("openTab", ContractError("Paused", {}, "Wait.")), False),
    ],
)
async def test_a_deposit_that_may_still_be_mined_is_not_made_twice(
    tmp_path: Path, error: ChainError, waits: bool
) -> None:
    scene = TabScene(tmp_path, unpaid=1)
    scene.start()
    context, missing = scene.context, next(iter(scene.nodes))
    sent = list[int]()

    class LosingLedger:
        def __getattr__(self, name: str) -> Any:
            return getattr(scene.ledger, name)

        async def execute(self, _call: Any, _spends: int = 0) -> int:
            sent.append(scene.ledger.block)
            raise error

    ledger: Any = LosingLedger()
    opener = TabOpener(context.database, context.node_tabs, ledger, context.operator, deposits=Deposits(1_000, 10))
    first = scene.ledger.block
    await opener.keep([missing])
    await opener.keep([missing])
    assert sent == ([first] if waits else [first, first])
    scene.ledger.block += PENDING_BLOCKS
    await opener.keep([missing])
    assert sent[-1] == first + PENDING_BLOCKS
    await scene.stop()


@pytest.mark.parametrize("leaving", [False, True])
async def test_what_gas_took_of_what_covers_promises_is_put_back(scene: TabScene, leaving: bool) -> None:
    """A claim by an old voucher is paid its gas out of what only the newest voucher authorises. Whoever left the
    groups is drawn no more, and a scheduler that leaves takes no orders: both promises stand."""
    history = history_of(scene, await scene.send(scene.asked()))
    node, context = history.admitted.nodes[0], scene.context
    held = context.node_tabs.held(node)
    tab = held.book.tab
    left = held.book.authorised - 2
    spared = scene.ledger.state.tab_state(tab).balance - left
    pots = (PotKind.TAB, tab, PotKind.CREDIT, account_id(node))
    scene.ledger.fold(on.Moved(tab, *pots, spared, left, spared, META))
    scene.ledger.fold(*([on.Deregistered(context.operator.address, 10**6, META)] if leaving else []))
    opener = TabOpener(
        context.database, context.node_tabs, scene.ledger, context.operator, deposits=Deposits(1_000, 10)
    )
    scene.ledger.react = lambda _: [on.TabToppedUp(tab, 2, left + 2, META)]
    sent = len(scene.ledger.sent)
    await opener.keep([])
    (call,) = scene.ledger.sent[sent:]
    read = read_call(Part.BANK, call.call.data)
    assert (read.entry.name, read.value("tab"), read.value("amount")) == ("topUp", tab, 2)
    await opener.keep([])
    assert len(scene.ledger.sent) == sent + 1


async def test_tabs_with_many_nodes_are_opened_side_by_side_and_a_failure_keeps_nobody_waiting(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, unpaid=4)
    scene.start()
    context, missing = scene.context, list(scene.nodes)[:4]
    waiting: list[Address] = []
    all_sent = asyncio.Event()

    def payee(call: Any) -> Address:
        return argument(read_call(Part.BANK, call.call.data), "payee", Address)

    class BlockLedger:
        """Nothing is mined before four deposits are in the pool; the first of them is lost."""

        def __getattr__(self, name: str) -> Any:
            return getattr(scene.ledger, name)

        async def execute(self, call: Any, spends: int = 0) -> int:
            waiting.append(payee(call))
            if len(waiting) == len(missing):
                all_sent.set()
            await asyncio.wait_for(all_sent.wait(), 5)
            if payee(call) == waiting[0]:
                raise ChainUnavailable("the node went away", None, "")
            return await scene.ledger.execute(call, spends)

    def opened(call: Any) -> list[Any]:
        tab = context.node_tabs.tab(payee(call))
        return [on.TabOpened(messages.tab_id(tab), tab.payer, tab.payee, tab.key, 1_000, META)]

    scene.ledger.react = opened
    ledger: Any = BlockLedger()
    deposits = Deposits(1_000, 10)
    await TabOpener(context.database, context.node_tabs, ledger, context.operator, deposits=deposits).keep(missing)
    tabs_of = {node: messages.tab_id(context.node_tabs.tab(node)) for node in missing}
    known = {node for node, tab in tabs_of.items() if scene.ledger.state.tab_state(tab).known}
    assert known == set(missing) - {waiting[0]}
    await scene.stop()


async def acknowledged(scene: TabScene, asked: Any) -> int:
    fee = history_of(scene, asked).answered.fee
    scene.payer = tabs.acknowledge(scene.payer, asked.order.sequence, fee)
    body = Acknowledgement(CLIENT_TAB, sign(scene.payer.voucher, DOMAIN, TAB_KEY))
    assert (await scene.http.post("/v1/vouchers", content=canonical.encode(body))).status_code == 200
    return int(fee)


async def test_vouchers_are_redeemed_when_they_are_worth_their_gas(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    assert await redeem(scene.context, 1) == 0
    fee = await acknowledged(scene, asked)
    scene.ledger.parameters = replace(PARAMETERS, gas_price=10**9)
    assert await redeem(scene.context, 10**9) == 0
    scene.ledger.parameters = replace(PARAMETERS, gas_price=0)
    tab = messages.tab_id(CLIENT_TAB)
    scene.ledger.react = lambda _call: [on.TabRedeemed(tab, fee, META)]
    assert await redeem(scene.context, 20) == 1
    called(scene, Part.BANK, "redeemMany")


async def test_what_is_not_acknowledged_is_claimed_before_the_tab_closes_and_shown(scene: TabScene) -> None:
    served = [await scene.send(scene.asked()) for _ in range(3)]
    await acknowledged(scene, served[1])
    scene.ledger.parameters = replace(PARAMETERS, gas_price=0)
    await claim_due(scene.context, 1)
    assert not scene.ledger.sent
    tab = messages.tab_id(CLIENT_TAB)
    scene.ledger.fold(on.TabClosing(tab, scene.ledger.block + 500, META))
    await claim_due(scene.context, 1)
    read = called(scene, Part.BANK, "claim")
    claim, voucher = argument(read, "claim_", Claim), scene.context.client_tabs.get(tab).best.message  # type: ignore[union-attr]
    fees = {number: history_of(scene, served[number - 1]).answered.fee for number in (1, 3)}
    assert (claim.first, claim.last, claim.total) == (1, 3, sum(fees.values()))
    assert claims.owed(voucher, claim) == voucher.spent + claim.total
    # After a restart its objections are answered from the disk.
    state = ClaimState(claim, voucher, claims.owed(voucher, claim), scene.ledger.block + 300, CLIENT_TAB.payee)
    claim_id = state_hash(state)
    await scene.stop()
    scene.start()
    scene.ledger.fold(on.Claimed(tab, claim_id, state, META))
    for number, amount in ((3, fees[3]), (2, 0)):
        deadline = scene.ledger.block + 50
        scene.ledger.fold(on.Objected(tab, claim_id, number, CLIENT_TAB.payer, 5, deadline, META))
        answered = on.ObjectionAnswered(tab, claim_id, number, amount, META)
        scene.ledger.react = lambda _call, event=answered: [event]
        await attend_claims(scene.context)
        answer = called(scene, Part.BANK, "answer")
        path = claims.LeafPath(
            argument(answer, "siblings", tuple[Hash32, ...]), argument(answer, "sums", tuple[int, ...])
        )
        claims.verify_path(claim, number, argument(answer, "amount", int), path)
        assert argument(answer, "amount", int) == amount
    sent = len(scene.ledger.sent)
    scene.ledger.react = lambda _call: []
    scene.ledger.block = state.settles_at
    await attend_claims(scene.context)
    called(scene, Part.BANK, "settle")
    assert len(scene.ledger.sent) == sent + 1
    # What the claim paid is not claimed again, though its client never acknowledges it.
    scene.ledger.fold(on.TabRedeemed(tab, state.owed, META))
    scene.ledger.fold(on.ClaimSettled(tab, claim_id, state.owed, state.owed, 0, META))
    await claim_due(scene.context, 1)
    assert len(scene.ledger.sent) == sent + 1


async def test_an_answer_that_the_chain_refuses_keeps_no_other_answer_waiting(scene: TabScene) -> None:
    served = [await scene.send(scene.asked()) for _ in range(2)]
    scene.ledger.parameters = replace(PARAMETERS, gas_price=0)
    tab = messages.tab_id(CLIENT_TAB)
    scene.ledger.fold(on.TabClosing(tab, scene.ledger.block + 500, META))

    def under_way(_call: Any) -> list[Any]:
        raise ChainRejected("claim", ContractError("ClaimUnderWay", {}, ""))

    scene.ledger.react = under_way
    await claim_due(scene.context, 1)
    scene.ledger.react = lambda _call: []
    await claim_due(scene.context, 1)
    claim = argument(called(scene, Part.BANK, "claim"), "claim_", Claim)
    voucher = scene.context.client_tabs.get(tab).best.message  # type: ignore[union-attr]
    state = ClaimState(claim, voucher, claims.owed(voucher, claim), scene.ledger.block + 300, CLIENT_TAB.payee)
    claim_id = state_hash(state)
    scene.ledger.fold(on.Claimed(tab, claim_id, state, META))
    for number in range(1, len(served) + 1):
        scene.ledger.fold(on.Objected(tab, claim_id, number, CLIENT_TAB.payer, 5, scene.ledger.block + 50, META))
    sent = len(scene.ledger.sent)

    def refusing(_call: Any) -> list[Any]:
        raise ChainRejected("answer", ContractError("LeafWorthLess", {}, ""))

    scene.ledger.react = refusing
    await attend_claims(scene.context)
    asked = [read_call(Part.BANK, call.call.data).value("sequence") for call in scene.ledger.sent[sent:]]
    assert asked == [1, 2]
    # Nor does an order that is not here any more.
    scene.context.store.by_number = lambda _tab, _number: None  # type: ignore[method-assign]
    await attend_claims(scene.context)
    assert len(scene.ledger.sent) == sent + 2
