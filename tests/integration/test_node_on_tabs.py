"""A node's money on a real chain: register, ask, redeem, claim, an objection answered, a summons answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.order_market import FakeGround
from support.order_node import Node
from support.tabs_stage import TabsStage, following, tabs_stage

from troth.chain.keystore import Key
from troth.chain.market_follower import MarketFollower
from troth.node.earning.books import NodeLedger
from troth.node.earning.claims_record import ClaimsRecord
from troth.node.earning.keeper import EarningContext, EarningKeeper
from troth.node.earning.policy import EarningPolicy
from troth.node.orders.duties import NodeDuties
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed, sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import Admission, Order, Promise, Result, SignedOrder, Work
from troth.protocol.market.types import PotKind, Tab, Voucher
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]

CHEAP = EarningPolicy(gas_share=1.0, claim_lags=1)
DEAR = 10**18
"""Asset units per 10^9 positions, so that a short answer is worth more than gas."""


@dataclass
class Paid:
    """One node of a stage with books of its own and a keeper that looks after them."""

    stage: TabsStage
    follower: MarketFollower
    key: Key
    node: Node
    keeper: EarningKeeper

    @property
    def tab(self) -> Tab:
        return self.stage.node_tab(self.key)

    @property
    def credit(self) -> int:
        return self.follower.state.pot(PotKind.CREDIT, self.key.address)

    async def follow(self) -> None:
        await self.follower.catch_up()
        self.node.ground.state, self.node.ground.block = self.follower.state, self.follower.block

    async def step(self) -> None:
        await self.follow()
        await self.keeper.step()
        await self.follow()


@asynccontextmanager
async def paid_node(stage: TabsStage, folder: Path, policy: EarningPolicy = CHEAP) -> AsyncIterator[Paid]:
    async with following(stage) as follower:
        key = stage.nodes[0]
        stage.anvil.fund(key)
        ground = FakeGround(follower.state, follower.block, chain_id=stage.market.chain.chain_id)
        node = Node(key.secret, folder, ground, stage.class_id, domain=stage.market.domain)

        async def reached(block: int) -> None:
            await follower.reach(block, 20)
            ground.state, ground.block = follower.state, follower.block

        def ledger() -> NodeLedger:
            return NodeLedger(follower.state, stage.market.domain, key.address, follower.block)

        stores = node.context.stores
        tools = EarningContext(
            stage.market,
            key,
            ledger,
            stores.books,
            ClaimsRecord(stores.database),
            policy,
            node.context.write,
            reached,
            lambda: node.now,
        )
        yield Paid(stage, follower, key, node, EarningKeeper(tools))


def promised(paid: Paid, number: int, price: int, spent: int = 0, through: int = 0) -> Any:
    """The scheduler's promise of inference and the voucher beside it."""
    from troth.protocol.market.papers import Pay

    stage, tab = paid.stage, paid.tab
    order = Hash32(bytes([number]) * 32)
    reference = paid.follower.block - 1
    promise = Promise(tab_id(tab), number, order, 0, Work.INFERENCE, reference, DEAR, DEAR, DEAR, price)
    owed = price * (number - through)
    voucher = Voucher(tab_id(tab), spent, spent + owed, number, through, 0)
    secret, domain = stage.scheduler.secret, stage.market.domain
    return Pay(tab, sign(promise, domain, secret), sign(voucher, domain, secret))


async def serve(paid: Paid, number: int, price: int = 3 * 10**14) -> int:
    """One promise taken on and finished; its worth."""
    from troth.node.earning.leaf import Stage
    from troth.protocol.market import prices
    from troth.protocol.market.leaves import inference_leaf

    await paid.follow()
    pay, books = promised(paid, number, price), paid.node.context.stores.books
    books.take_on(pay, paid.key.address, paid.node.context.ledger(), limit=10**18, now=1.0)
    blank = Hash32(bytes(32))
    filled = Hash32(b"\x07" * 32)
    result = Result(pay.promise.message.order, 0, filled, filled, 10**6, 0, 10**6, filled, filled)
    signed = sign(result, paid.stage.market.domain, paid.key.secret)
    leaf = books.leaf(pay.promise.message.order, 0, Work.INFERENCE)
    assert leaf is not None
    assert blank != filled
    worth = prices.promise_worth(pay.promise.message, result)
    evidence = canonical.encode(inference_leaf(pay.promise, signed))
    books.done(
        replace(
            leaf,
            stage=Stage.DONE,
            worth=worth,
            evidence=evidence,
            done_at=paid.node.now,
            done_block=paid.follower.block,
        )
    )
    return worth


async def test_vouchers_are_redeemed_when_they_are_worth_the_gas(anvil: Any, tmp_path: Path) -> None:
    async with tabs_stage(anvil, nodes=1) as stage, paid_node(stage, tmp_path) as paid:
        worth = await serve(paid, 1)
        await paid.step()
        assert paid.keeper.sent == {}
        tab, secret = paid.tab, stage.scheduler.secret
        word = sign(Voucher(tab_id(tab), worth, worth, 1, 1, 0), stage.market.domain, secret)
        paid.node.context.stores.books.hear(tab, word, paid.node.context.ledger())
        dear = EarningKeeper(replace(paid.keeper._tools, policy=EarningPolicy(gas_share=1e-9)))
        await dear.step()
        assert dear.sent == {}
        before = paid.credit
        await paid.step()
        assert paid.credit - before == worth
        assert paid.keeper.sent == {"redeem": 1}
        await paid.step()
        assert paid.keeper.sent == {"redeem": 1}


async def test_unacknowledged_work_is_claimed_defended_and_paid(anvil: Any, tmp_path: Path) -> None:
    async with tabs_stage(anvil, nodes=1) as stage, paid_node(stage, tmp_path) as paid:
        total = 0
        for number in (1, 2, 3):
            total += await serve(paid, number, price=3 * 10**14)
        await paid.step()
        assert "claim" not in paid.keeper.sent
        anvil.mine(25)
        await paid.step()
        assert paid.keeper.sent == {"claim": 1}
        record = paid.follower.state.tabs[tab_id(paid.tab)]
        assert record.claim is not None
        # The payer asks to see a leaf, and the empty place beside the last.
        for number in (2, 4):
            await stage.send(stage.scheduler, Part.BANK, "object", paid.tab, record.claim.state, number, value=10**15)
        # The node was down meanwhile; everything it needs is on its disk.
        await paid.node.restart()
        paid.keeper._tools = replace(
            paid.keeper._tools,
            books=paid.node.context.stores.books,
            claims=ClaimsRecord(paid.node.context.stores.database),
            write=paid.node.context.write,
        )
        await paid.step()
        assert paid.keeper.sent["answer"] == 2
        record = paid.follower.state.tabs[tab_id(paid.tab)]
        assert record.claim is not None
        assert not record.claim.objections
        anvil.mine(record.claim.state.settles_at - paid.follower.block)
        before = paid.credit
        await paid.step()
        assert paid.keeper.sent["settle"] == 1
        assert paid.credit - before >= total
        assert paid.follower.state.tabs[tab_id(paid.tab)].redeemed == total
        await paid.step()
        assert paid.node.context.stores.books.voucher(tab_id(paid.tab)) is not None
        assert ClaimsRecord(paid.node.context.stores.database).of(tab_id(paid.tab)) == ()


async def test_a_summons_that_was_passed_on_is_answered_with_what_was_signed(anvil: Any, tmp_path: Path) -> None:
    async with tabs_stage(anvil, nodes=1) as stage, paid_node(stage, tmp_path) as paid:
        order, admission = await summoned_order(paid)
        context, market = paid.node.context, stage.market
        filled = Hash32(b"\x07" * 32)
        digest = admission.message.order
        result = Result(digest, 0, filled, filled, 3, 0, 2, filled, filled)
        word = context.stores.words.sign_once((digest, 0), "result", result, lambda: paid.node.operator.sign(result))
        await paid.follow()
        (summons_id,) = (one for one, record in paid.follower.state.summons.items() if record.answered is None)
        state = paid.follower.state.summons[summons_id].state
        assert state.kind is SummonsKind.RESULTS
        reference = order.reference_block
        promise = Promise(tab_id(paid.tab), 1, digest, 0, Work.INFERENCE, reference, 0, 0, 0, 100)
        signed = sign(promise, market.domain, stage.scheduler.secret)
        arguments = (summons_id, state, [paid.key.address], paid.tab, promise, signed.signature)
        await stage.send(stage.scheduler, Part.SUMMONS, "passOnResults", *arguments, value=await deposit(stage, "pass"))
        await paid.follow()
        wallet, nobody = market, cast("Any", None)
        duties = NodeDuties(context, wallet, paid.key, nobody, lambda block: paid.follower.reach(block, 20))
        await duties.answer_summons()
        assert duties.responded == 1
        await paid.follow()
        record = paid.follower.state.summons[summons_id]
        assert record.responded == (paid.key.address,)
        assert canonical.decode(Signed[Result], word, 1 << 16).message == result
        assert record.events[-1].word == word
        await duties.answer_summons()
        assert duties.responded == 1


async def summoned_order(paid: Paid) -> tuple[Order, Signed[Admission]]:
    """An order that its scheduler admitted and never answered, summoned by its client."""
    from troth.protocol.market import messages
    from troth.protocol.types import pack_ends

    stage = paid.stage
    await paid.follow()
    filled, domain = Hash32(b"\x06" * 32), stage.market.domain
    order = Order(
        tab_id(stage.client_tab), 1, stage.class_id, filled, pack_ends((2,)), 10**9, 10**8, 2 * 10**9, 8000, 10_000,
        10**6, 2_000_000_000, paid.follower.block - 1, filled, Hash32(b"\x08" * 32), filled,
    )  # fmt: skip
    signed = sign(order, domain, stage.tab_key.secret)
    digest = messages.order_id(order, domain)
    nodes = messages.nodes_hash([paid.key.address])
    admission = sign(Admission(digest, nodes, paid.follower.block), domain, stage.scheduler.secret)
    stage.anvil.mine(8)
    shown = SignedOrder(order, stage.client.address, stage.scheduler.address, stage.tab_key.address, signed.signature)
    words = (shown, admission.message, admission.signature)
    await stage.send(stage.client, Part.SUMMONS, "summonResults", *words, value=await deposit(stage, "summons"))
    return order, admission


async def deposit(stage: TabsStage, kind: str) -> int:
    from troth.protocol.market.calls import view

    fee = int(stage.anvil.rpc("eth_getBlockByNumber", "latest", False)["baseFeePerGas"], 16)
    name, words = ("passDepositFor", (fee,)) if kind == "pass" else ("depositFor", (SummonsKind.RESULTS, fee))
    least: int = await stage.market.read(view(stage.market.contracts, Part.SUMMONS, name, *words, returns=int))
    return least * 3 // 2
