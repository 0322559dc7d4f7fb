"""Answers that ended without their check: paid by hand, or by a claim, and what their user is told meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.toy_market import META, PARAMETERS
from support.toy_tab_stage import Stage, restarted, toy_stage
from unit.test_tabs_asking import ALWAYS, asked, ended
from unit.test_tabs_faults import Killed, killing, paid_by_hand

from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.receipts import shown
from troth.client.orders.updates import OrderOutcome
from troth.client.tabs import managing
from troth.client.tabs.errors import TabBehind
from troth.protocol.amounts import Asset
from troth.protocol.market import claims
from troth.protocol.market.events import Claimed, ClaimSettled
from troth.protocol.market.fold import apply
from troth.protocol.market.types import NO_ADDRESS, ClaimState
from troth.protocol.types import Hash32

CLAIM_ID = Hash32(b"\x0c" * 32)


async def unchecked(stage: Stage) -> OrderRecord:
    """An answer whose client was away until no secret of it counts."""
    stage.session.journal.step = type(stage.session.journal).step.__get__(stage.session.journal)  # type: ignore[method-assign]
    killing(stage.session.journal, Phase.DRAWN_OVER, before=True)
    with pytest.raises(Killed):
        await asked(stage)
    stage.world.block += PARAMETERS.lag + 1
    session = await restarted(stage, rounds=2)
    entry = session.journal.all()[0]
    assert (entry.phase, entry.paid) == (Phase.REFUSED_CHECK, None)
    return entry


def claimed_and_settled(stage: Stage, amounts: dict[int, int]) -> int:
    """The scheduler claims these numbers, nobody objects, and the tab pays; what was redeemed in all."""
    word = stage.scheduler.vouchers[stage.tab].message
    claim, _ = claims.claim_of(word, amounts)
    state = ClaimState(claim, word, claims.owed(word, claim), stage.world.block + 1, stage.scheduler.key.address)
    stage.world.state = apply(Claimed(stage.tab, CLAIM_ID, state, META), stage.world.state)
    paid = stage.world.redeem(stage.tab, state.owed)
    stage.world.state = apply(ClaimSettled(stage.tab, CLAIM_ID, state.owed, paid, 0, META), stage.world.state)
    return state.owed


async def test_what_a_settled_claim_paid_is_acknowledged_and_its_tab_goes_on(tmp_path: Path) -> None:
    """The tab was called older than the chain, and its scheduler took no more orders."""
    async with toy_stage(tmp_path) as stage:
        entries = [await unchecked(stage), await unchecked(stage)]
        redeemed = claimed_and_settled(stage, {one.sequence: one.fee or 0 for one in entries})
        await OrderKeeper(stage.session).once()
        assert [stage.session.journal.entry(one.identifier).paid for one in entries] == [one.fee for one in entries]
        assert stage.book().spent == redeemed == sum(one.fee or 0 for one in entries)
        book = stage.scheduler.books[stage.tab]
        assert (book.exposure, book.payable) == (0, redeemed), "its scheduler was told"
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        assert stage.world.redeem(stage.tab, redeemed) == 0, "nothing was paid twice"


async def test_who_starts_after_a_claim_was_settled_orders_at_once(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        entry = await unchecked(stage)
        redeemed = claimed_and_settled(stage, {entry.sequence: entry.fee or 0})
        stage.session, store = stage.another()
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        assert stage.session.journal.entry(entry.identifier).paid == entry.fee == redeemed
        store.close()


async def test_an_answer_whose_price_only_its_scheduler_knew_is_paid_what_the_claim_says(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        entry = await unchecked(stage)
        stage.store.execute("UPDATE orders SET fee = NULL")
        claimed_and_settled(stage, {entry.sequence: entry.fee or 0})
        await OrderKeeper(stage.session).once()
        assert stage.session.journal.entry(entry.identifier).paid == entry.fee
        assert stage.scheduler.books[stage.tab].exposure == 0


async def test_no_more_is_acknowledged_than_the_chain_has_paid(tmp_path: Path) -> None:
    """A tab that did not cover its claim, and one that paid for what this machine does not know."""
    async with toy_stage(tmp_path) as stage:
        entries = [await unchecked(stage), await unchecked(stage)]
        claimed_and_settled(stage, {one.sequence: one.fee or 0 for one in entries})
        record = stage.world.state.tabs[stage.tab]
        tabs, least = stage.world.state.tabs, (entries[0].fee or 0) + 1
        stage.world.state = replace(stage.world.state, tabs=tabs.set(stage.tab, replace(record, redeemed=least)))
        await OrderKeeper(stage.session).once()
        assert stage.book().spent == entries[0].fee
        assert stage.session.journal.entry(entries[1].identifier).paid is None
        paid_more = replace(record, redeemed=record.redeemed + (entries[0].most + entries[1].most))
        stage.world.state = replace(stage.world.state, tabs=tabs.set(stage.tab, paid_more))
        stage.session, store = stage.another()
        with pytest.raises(TabBehind, match="this machine knows"):
            await asked(stage, ALWAYS)
        store.close()


async def test_all_answers_that_wait_are_listed_and_paid_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six of them were one command each. What the client counts as unacknowledged is what its scheduler counts."""
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, lines: lines[:1]
        for _ in range(3):
            assert ended(await asked(stage)).outcome is OrderOutcome.REFUSED_CHECK
            stage.world.block += 10
        first = stage.session.journal.all()[-1]
        stage.world.block += PARAMETERS.lag // 2 - 30 + 1
        journal, record = stage.session.journal, stage.session.books.record(stage.tab)
        counted = managing._told(record, journal.unpaid(stage.tab))
        exposure = stage.scheduler.books[stage.tab].exposure
        assert (int(counted["unacknowledged_units"]), len(counted["unchecked"])) == (exposure, 3)
        assert int(counted["outstanding_units"]) > exposure, "what they might have cost at most"
        told = await paid_by_hand(stage, monkeypatch, "", yes=False)
        assert [one["order"] for one in told] == [one.name for one in reversed(journal.all())]
        assert [one["fee_units"] is None for one in told] == [False, True, True]
        assert "until block" in told[1]["waits"]
        await paid_by_hand(stage, monkeypatch, "", yes=True)
        assert [one.paid for one in journal.all()] == [None, None, first.fee]


async def test_a_receipt_says_who_may_end_what_nothing_pays_by_itself(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        killing(stage.session.journal, Phase.DRAWN_OVER, before=True)
        with pytest.raises(Killed):
            await asked(stage)
        stage.world.block += PARAMETERS.lag + 1
        session = await restarted(stage, rounds=2)
        (entry,) = session.journal.all()
        receipt = shown(entry, stage.world.state)
        assert receipt.waits.startswith("it can be checked no more: its scheduler may claim it on chain")
        assert f"`troth client pay {entry.name[:12]}`" in receipt.waits
        assert f"  waits      {receipt.waits}" in receipt.lines(Asset(NO_ADDRESS, "usdc", 6))
        assert receipt.to_json()["waits"] == receipt.waits
        session.journal.paid(entry.identifier, 1)
        assert shown(session.journal.entry(entry.identifier), stage.world.state).to_json()["waits"] is None
