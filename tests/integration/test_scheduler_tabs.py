"""A scheduler on tabs over the real contracts: what it redeems, claims, answers and posts is taken by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chain_scene import ChainScene
from support.summons_duty import worked_off
from support.tabs_stage import PARAMETERS, execution_class_of, following, tabs_stage

from troth.audit.evidence.source import Source
from troth.audit.report import ExitCode
from troth.audit.watching.findings import ShownFindings
from troth.audit.watching.looks import CachingSource, Watcher
from troth.protocol.market import canonical, log_data, messages, tabs
from troth.protocol.market.bodies import Acknowledgement
from troth.protocol.market.calls import view
from troth.protocol.market.messages import sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import SignedOrder
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address
from troth.protocol.wire_market import Recommit
from troth.scheduler.checks.lottery import drawn_verifiers, reveal
from troth.scheduler.checks.summons import SummonsDuty, stuck
from troth.scheduler.tabs.claiming import attend_claims, claim_due
from troth.scheduler.tabs.opening import Deposits, TabOpener
from troth.scheduler.tabs.redeeming import redeem

pytestmark = [pytest.mark.chain, pytest.mark.slow]


class Scene(ChainScene):
    """And what its client and its duties do."""

    async def mine(self, blocks: int = 1) -> None:
        self.stage.anvil.mine(blocks)
        await self.ledger.catch_up()

    async def acknowledged(self, asked: Any) -> int:
        history = self.context.store.get(asked.order_id)
        assert history is not None
        assert history.answered is not None
        fee = history.answered.fee
        self.payer = tabs.acknowledge(self.payer, asked.order.sequence, fee)
        body = Acknowledgement(self.client_tab, sign(self.payer.voucher, self.domain, self.tab_key))
        assert (await self.http.post("/v1/vouchers", content=canonical.encode(body))).status_code == 200
        return fee

    def signed_order(self, asked: Any) -> SignedOrder:
        tab, order = self.client_tab, asked.submission.order
        return SignedOrder(order.message, tab.payer, tab.payee, tab.key, order.signature)

    async def look(self) -> None:
        duty = SummonsDuty(self.orders)
        await duty.look()
        await worked_off(duty)


@asynccontextmanager
async def on_chain(anvil: Any, folder: Path, **stage: Any) -> AsyncIterator[Scene]:
    async with tabs_stage(anvil, **stage) as made, following(made) as follower:
        anvil.fund(made.scheduler)
        scene = Scene(folder, made, follower)
        scene.start(orders=2)
        yield scene
        await scene.stop()


async def test_vouchers_are_redeemed_and_what_is_left_is_claimed_shown_and_paid(anvil: Any, tmp_path: Path) -> None:
    async with on_chain(anvil, tmp_path) as scene:
        stage, bank = scene.stage, Part.BANK
        tab = messages.tab_id(scene.client_tab)
        first = await scene.send(scene.asked())
        fee = await scene.acknowledged(first)
        state = scene.ledger.state.tab_state(tab)
        assert await redeem(scene.context, 0) == 1
        assert scene.ledger.state.tab_state(tab).redeemed == fee
        assert scene.ledger.state.pot(PotKind.CREDIT, stage.scheduler.address) >= fee
        assert await redeem(scene.context, 0) == 0
        # The client closes, and acknowledges nothing more.
        second, third = await scene.send(scene.asked()), await scene.send(scene.asked())
        late = scene.asked()
        await stage.send(stage.client, bank, "close", scene.client_tab)
        await scene.mine()
        status, error = await scene.refused(late)
        assert (status, error["code"]) == (409, "tab_not_open")
        await claim_due(scene.context, 0)
        record = scene.ledger.state.tabs[tab].claim
        assert record is not None
        worth = [scene.context.store.get(one.order_id).answered.fee for one in (second, third)]  # type: ignore[union-attr]
        assert record.state.claim.total == sum(worth)
        await stage.send(
            stage.client, bank, "object", scene.client_tab, record.state, third.order.sequence, value=10**16
        )
        await scene.mine()
        await scene.stop()
        scene.start()
        await attend_claims(scene.context)
        record = scene.ledger.state.tabs[tab].claim
        assert record is not None
        assert not record.objections
        stage.anvil.mine(record.state.settles_at - scene.ledger.block)
        await scene.mine()
        await attend_claims(scene.context)
        assert scene.ledger.state.tabs[tab].claim is None
        assert scene.ledger.state.tab_state(tab).redeemed == fee + sum(worth)
        assert state.redeemed == 0


async def test_summons_are_answered_and_the_log_is_posted(anvil: Any, tmp_path: Path) -> None:
    async with on_chain(anvil, tmp_path) as scene:
        stage = scene.stage
        asked = await scene.send(scene.asked())
        history = scene.context.store.get(asked.order_id)
        assert history is not None
        assert history.drawn is not None
        order, draw = scene.signed_order(asked), history.drawn.draw
        shown = (order, draw.message, draw.signature, 0, asked.secrets.draw)
        await stage.send(
            stage.client, Part.SUMMONS, "summonCheck", *shown, value=await _deposit(scene, SummonsKind.CHECK)
        )
        await scene.mine()
        assert stuck(scene.context)
        await scene.look()
        assert not stuck(scene.context)
        summons_id = messages.summons_id(asked.order_id, SummonsKind.CHECK, 0)
        assert scene.ledger.state.summons[summons_id].answered
        # Results that its client says it never saw.
        other = await scene.send(scene.asked())
        admitted = scene.context.store.get(other.order_id).admitted  # type: ignore[union-attr]
        await scene.mine(PARAMETERS.summons_window + 1)
        words = (scene.signed_order(other), admitted.admission.message, admitted.admission.signature)
        await stage.send(
            stage.client, Part.SUMMONS, "summonResults", *words, value=await _deposit(scene, SummonsKind.RESULTS)
        )
        await scene.mine()
        await scene.look()
        assert scene.ledger.state.summons[messages.summons_id(other.order_id, SummonsKind.RESULTS, 0)].answered
        # Two orders filled an entry; the third one's assignment closes it.
        await scene.send(scene.asked())
        await scene.mine(2 * PARAMETERS.lag + 2)
        await scene.book.post_due()
        entries = scene.ledger.state.logs[stage.scheduler.address]
        assert [one.number for one in entries] == [1]
        assert (await scene.http.get("/v1/log/1")).status_code == 200


async def test_a_veiled_log_is_posted_and_audited_and_names_no_verifier(anvil: Any, tmp_path: Path) -> None:
    veiled = execution_class_of(name="toy float32/veiled")
    async with on_chain(anvil, tmp_path / "scheduler", execution_class=veiled) as scene:
        for _ in range(2):
            asked = await scene.send(scene.asked())
            assert (await scene.show(asked))[-1]["complete"]
        # Two orders filled an entry; the third one's assignment closes it.
        await scene.send(scene.asked())
        await scene.mine(2 * PARAMETERS.lag + 2)
        await scene.book.post_due()
        data = scene.book.data(1)
        assert data is not None
        lines, place = log_data.decode_data(data), scene.stage.market.place
        # Where one node has all three seats, it is named.
        assert all(len(line.verdicts) + len(log_data.ballots_in(line)) == 1 for line in lines)
        assert any(len(one.ballots) >= 2 for line in lines for one in log_data.ballots_in(line))
        shown = ShownFindings(tmp_path / "findings.sqlite")
        async with await Source.connect(anvil.url, place) as source, following(scene.stage) as follower:
            watcher = Watcher(CachingSource.of(source), follower, tmp_path, shown, fetch=lambda *_: data)
            look = await watcher.look()
        shown.close()
        assert look.report.exit_code is ExitCode.CLEAN
        assert {one.number: one.results for one in look.report.checks}["M16"]


async def test_a_silent_verifier_pays_and_the_next_one_is_drawn_on_chain(anvil: Any, tmp_path: Path) -> None:
    async with on_chain(anvil, tmp_path, nodes=14) as scene:
        stage = scene.stage
        asked = await scene.send(scene.asked())
        history = scene.context.store.get(asked.order_id)
        assert history is not None
        assert history.drawn is not None
        draw = history.drawn.draw
        shown = (scene.signed_order(asked), draw.message, draw.signature, 0, asked.secrets.draw)
        await stage.send(
            stage.client, Part.SUMMONS, "summonCheck", *shown, value=await _deposit(scene, SummonsKind.CHECK)
        )
        await scene.mine()
        quiet = await _first_drawn(scene, asked)
        scene.nodes[quiet].faults.refuses = {Recommit}
        await scene.look()
        record = next(iter(scene.ledger.state.summons.values()))
        assert record.state.passed_to == quiet
        await scene.mine(PARAMETERS.summons_window + 1)
        await scene.look()
        assert next(iter(scene.ledger.state.summons.values())).silent == (quiet,)
        await scene.look()
        assert next(iter(scene.ledger.state.summons.values())).answered


async def test_tabs_with_nodes_are_opened_with_deposits(anvil: Any, tmp_path: Path) -> None:
    async with on_chain(anvil, tmp_path, tabs=False, nodes=3) as scene:
        context = scene.context
        opener = TabOpener(
            context.database, context.node_tabs, scene.ledger, context.operator, deposits=Deposits(10**12, 10**9)
        )
        await opener.keep(scene.nodes)
        for node in scene.nodes:
            state = scene.ledger.state.tab_state(messages.tab_id(context.node_tabs.tab(node)))
            assert (state.known, state.balance) == (True, 10**12)
        await opener.ensure(next(iter(scene.nodes)), 2 * 10**12)
        tab = context.node_tabs.tab(next(iter(scene.nodes)))
        assert scene.ledger.state.tab_state(messages.tab_id(tab)).balance == 3 * 10**12


async def _deposit(scene: Scene, kind: SummonsKind) -> int:
    fees = await scene.stage.market.fees()
    base = (fees.maximum - fees.priority) // 2
    asked = view(scene.ledger.contracts, Part.SUMMONS, "depositFor", kind, base * 3 // 2, returns=int)
    return await scene.stage.market.read(asked)


async def _first_drawn(scene: Scene, asked: Any) -> Address:
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    await reveal(scene.context, history, asked.secrets.draw)
    return drawn_verifiers(scene.context, history)[0].operators[0]


async def test_a_reorganisation_below_a_redemption_pays_once(anvil: Any, tmp_path: Path) -> None:
    async with on_chain(anvil, tmp_path) as scene:
        tab = messages.tab_id(scene.client_tab)
        fee = await scene.acknowledged(await scene.send(scene.asked()))
        before = anvil.rpc("evm_snapshot")
        assert await redeem(scene.context, 0) == 1
        credit = scene.ledger.state.pot(PotKind.CREDIT, scene.stage.scheduler.address)
        assert scene.ledger.state.tab_state(tab).redeemed == fee
        anvil.rpc("evm_revert", before)
        await scene.mine(3)
        assert scene.ledger.state.tab_state(tab).redeemed == 0
        assert await redeem(scene.context, 0) == 1
        assert scene.ledger.state.tab_state(tab).redeemed == fee
        assert scene.ledger.state.pot(PotKind.CREDIT, scene.stage.scheduler.address) == credit
        assert await redeem(scene.context, 0) == 0


async def test_a_reorganisation_below_openings_opens_again_and_serves_nobody_meanwhile(
    anvil: Any, tmp_path: Path
) -> None:
    async with on_chain(anvil, tmp_path, tabs=False, nodes=10) as scene:
        stage, context = scene.stage, scene.context
        opener = TabOpener(
            context.database, context.node_tabs, scene.ledger, context.operator, deposits=Deposits(10**12, 10**9)
        )
        before = anvil.rpc("evm_snapshot")
        await stage.open_tab(stage.client, stage.scheduler.address, stage.tab_key)
        await opener.keep(scene.nodes)
        await scene.send(scene.asked())
        late = scene.asked()
        anvil.rpc("evm_revert", before)
        await scene.mine(30)
        status, error = await scene.refused(late)
        assert (status, error["code"]) == (409, "tab_not_open")
        await stage.open_tab(stage.client, stage.scheduler.address, stage.tab_key)
        await scene.mine()
        status, error = await scene.refused(scene.asked())
        assert (status, error["code"]) == (503, "no_paid_node")
        await opener.keep(scene.nodes)
        asked = await scene.send(scene.asked())
        assert [line["type"] for line in asked.lines][-1] == "draw"
        for node in scene.nodes:
            state = scene.ledger.state.tab_state(messages.tab_id(context.node_tabs.tab(node)))
            assert (state.known, state.balance) == (True, 10**12)
