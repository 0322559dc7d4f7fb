"""What a client makes of its scheduler's claims: which show more than is owed, and what is asked for first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.toy_market import META, PARAMETERS
from support.toy_tab_scheduler import ToyOrder
from support.toy_tab_stage import Stage, toy_stage
from unit.test_tabs_asking import SELDOM, asked

from troth.client.orders.claimed import Overclaim, overclaim
from troth.client.orders.failing import OrderContradicted, OrderFailed, OrderStalled
from troth.client.orders.journal import Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.objecting import overdue
from troth.protocol.market import claims, lottery
from troth.protocol.market.events import Claimed, Objected, ObjectionAnswered
from troth.protocol.market.fold import apply
from troth.protocol.market.types import ClaimState, Voucher
from troth.protocol.types import Hash32

CLAIM_ID = Hash32(b"\x0c" * 32)
WHOLE = 10_000
"""More than any answer of the toy costs."""


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is paid at once, and nothing of it can be claimed."""
    monkeypatch.setattr(lottery, "is_drawn", lambda *_arguments: False)


def first_word(stage: Stage) -> Voucher:
    """The oldest word on the tab: it came with the first order."""
    submission = min(stage.session.journal.all(), key=lambda one: one.sequence).submission
    assert submission is not None
    return submission.voucher.message


def given_up(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [lines[0], {"type": "failed", "code": "node_failed", "message": "a node is gone", "remedy": ""}]


def broken_off(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return lines[:2]


def contradicted(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [*lines[:3], lines[-2], *lines[3:]]


async def ask(stage: Stage, tamper: Any = None) -> None:
    """One question, however it ends; it is not asked again."""
    if tamper is not None:
        stage.scheduler.tamper = tamper
    with suppress(OrderFailed, OrderStalled, OrderContradicted):
        await asked(stage, SELDOM)


def file_claim(stage: Stage, amounts: Mapping[int, int], voucher: Voucher | None = None) -> ClaimState:
    """The scheduler files a claim, under the best voucher or an older one."""
    word = voucher or stage.book().voucher
    claim, _ = claims.claim_of(word, amounts)
    settles_at = stage.world.block + PARAMETERS.claim_delay
    state = ClaimState(claim, word, claims.owed(word, claim), settles_at, stage.scheduler.key.address)
    stage.world.state = apply(Claimed(stage.tab, CLAIM_ID, state, META), stage.world.state)
    return state


def found(stage: Stage) -> Overclaim | None:
    return overclaim(stage.world.state, stage.session.journal, stage.session.books.record(stage.tab))


def objected(stage: Stage, number: int, deadline: int = 2_000) -> None:
    event = Objected(stage.tab, CLAIM_ID, number, stage.session.books.record(stage.tab).tab.payer, 5, deadline, META)
    stage.world.state = apply(event, stage.world.state)


def answered(stage: Stage, number: int, amount: int) -> None:
    objected(stage, number)
    stage.world.state = apply(ObjectionAnswered(stage.tab, CLAIM_ID, number, amount, META), stage.world.state)


async def test_what_is_owed_may_be_claimed(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await ask(stage)
        await ask(stage)
        fees = {entry.sequence: entry.fee or 0 for entry in stage.session.journal.all()}
        file_claim(stage, fees)
        assert found(stage) is None


async def test_an_old_word_claims_no_more_than_was_paid_since(tmp_path: Path) -> None:
    """Owed is the largest sum, never a sum of two: a number that is claimed and paid costs nothing more."""
    async with toy_stage(tmp_path) as stage:
        await ask(stage)
        first = first_word(stage)
        stage.world.block += PARAMETERS.lag
        await OrderKeeper(stage.session).once()
        (entry,) = stage.session.journal.all()
        assert entry.paid == entry.fee
        file_claim(stage, {1: entry.fee or 0}, first)
        assert found(stage) is None


async def test_what_was_refunded_is_asked_for_first(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await ask(stage, given_up)
        refunded = min(stage.session.journal.all(), key=lambda one: one.sequence)
        assert (refunded.sequence, refunded.phase, refunded.paid) == (1, Phase.FAILED, 0)
        old = first_word(stage)
        stage.scheduler.tamper = lambda _one, lines: lines
        await ask(stage)
        served = max(stage.session.journal.all(), key=lambda one: one.sequence)
        assert served.fee
        file_claim(stage, {refunded.sequence: old.authorised}, old)
        over = found(stage)
        assert over is not None
        assert (over.excess, over.number()) == (old.authorised, refunded.sequence)
        # What is shown on chain is owed after all; it is not asked for twice.
        answered(stage, refunded.sequence, old.authorised)
        assert found(stage) is None


async def test_a_sum_that_hides_beside_what_is_owed_is_looked_for_everywhere(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        for _ in range(3):
            await ask(stage)
        fees = {entry.sequence: entry.fee or 0 for entry in stage.session.journal.all()}
        most = stage.book().authorised - sum(fees.values())
        file_claim(stage, fees | {2: fees[2] + most})
        over = found(stage)
        assert over is not None
        assert over.excess == most
        seen = []
        while (number := found(stage).number()) is not None:  # type: ignore[union-attr]
            seen.append(number)
            answered(stage, number, fees.get(number, 0))
        # The three that are claimed, and the one place of the tree that must be empty.
        assert sorted(seen) == [1, 2, 3, 4]
        assert seen[-1] == 4


async def test_an_order_that_is_still_asked_after_has_half_of_the_time(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await ask(stage, broken_off)
        (entry, *_) = sorted(stage.session.journal.all(), key=lambda one: one.sequence)
        state = file_claim(stage, {entry.sequence: entry.most})
        over = found(stage)
        assert over is not None
        assert (over.excess, over.asked_after) == (entry.most, True)
        filed, last = stage.world.block, state.settles_at - PARAMETERS.answer_window - 1
        assert (over.first(PARAMETERS), over.last(PARAMETERS)) == ((filed + last) // 2, last)


async def test_what_contradicts_itself_is_worth_nothing(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await ask(stage, contradicted)
        (entry,) = [one for one in stage.session.journal.all() if one.phase is Phase.CONTRADICTED]
        file_claim(stage, {entry.sequence: entry.most})
        over = found(stage)
        assert over is not None
        assert (over.excess, over.number(), over.asked_after) == (entry.most, entry.sequence, False)


async def test_what_fell_is_asked_for_again_though_it_was_shown_before(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await ask(stage)
        (entry,) = stage.session.journal.all()
        file_claim(stage, {1: entry.fee or 0})
        answered(stage, 1, entry.fee or 0)
        assert found(stage) is None
        voided = stage.world.state.voided.set((entry.identifier, 0), CLAIM_ID)
        stage.world.state = replace(stage.world.state, voided=voided)
        over = found(stage)
        assert over is not None
        assert (over.excess, over.number(), over.count()) == (entry.fee, 1, 1)
        # Once: where the chain takes it for owed all the same, asking on only costs gas.
        answered(stage, 1, entry.fee or 0)
        over = found(stage)
        assert over is not None
        assert (over.number(), over.count()) == (None, 2)


async def test_a_word_that_this_client_does_not_know_is_found_out_first(tmp_path: Path) -> None:
    """Restored from a backup: what its newer words paid is not objected to."""
    async with toy_stage(tmp_path) as stage:
        await ask(stage)
        book = stage.book()
        newer = replace(book.voucher, sequence=2, authorised=book.authorised + WHOLE)
        file_claim(stage, {2: WHOLE}, newer)
        over = found(stage)
        assert over is not None
        assert (over.number(), over.asked_after) == (2, True)


async def test_with_the_first_that_is_late_all_that_is_open_falls(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        for _ in range(2):
            await ask(stage)
        file_claim(stage, {1: 1, 2: 1})
        record = stage.session.books.record(stage.tab)
        objected(stage, 1, deadline=stage.world.block + 9)
        objected(stage, 2, deadline=stage.world.block + 5)
        assert overdue(stage.world.state, record, stage.world.block + 5) == ()
        late = overdue(stage.world.state, record, stage.world.block + 6)
        assert [number for _, number in late] == [2, 1]


@pytest.mark.parametrize("phase", [Phase.UNDRAWN, Phase.REJECTED, Phase.UNCLEAR, Phase.REFUSED_CHECK])
async def test_what_only_a_case_or_a_summons_can_void_is_owed_until_then(phase: Phase, tmp_path: Path) -> None:
    """The chain would take the leaf: objecting would only pay the gas of showing it."""
    async with toy_stage(tmp_path) as stage:
        await ask(stage)
        (entry,) = stage.session.journal.all()
        stage.session.journal.step(entry.identifier, phase)
        file_claim(stage, {1: entry.fee or 0})
        assert found(stage) is None
