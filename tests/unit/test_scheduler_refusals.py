"""Orders that a scheduler refuses: each with words, and nothing of it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.market_logs import META, address
from support.market_scene import hash_of
from support.tab_scene import CLIENT_TAB, DOMAIN, TAB_KEY, VRF_SECRET, TabScene, history_of, view_of

from troth.protocol import masks, vrf
from troth.protocol.errors import InvalidGrammar
from troth.protocol.grammar import ANY_OBJECT, Grammar
from troth.protocol.market import canonical, court, messages, tabs
from troth.protocol.market import events as on
from troth.protocol.market.bodies import (
    Acknowledgement,
    Admitted,
    Recovery,
    TabQuery,
    read_part,
)
from troth.protocol.market.checks import candidates
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.proceedings import CaseState
from troth.protocol.market.state import CaseRecord, with_pot
from troth.protocol.market.types import PotKind
from troth.protocol.organisation_events import HostedDeployment, OrganisationsState
from troth.protocol.transforms import Transforms
from troth.protocol.types import ZERO_HASH, Address, Hash32
from troth.scheduler.errors import Busy
from troth.scheduler.orders import admission
from troth.scheduler.orders.http import price_list
from troth.scheduler.orders.stream import Lines
from troth.scheduler.tabs.fallen import overdue


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


def _other_signature(asked: Any) -> Any:
    order = asked.submission.order
    return replace(asked.submission, order=replace(order, signature=order.signature[:-1] + b"\x1d"))


def _by_contract(asked: Any) -> Any:
    """As a smart account signs: two owners' signatures, one after the other."""
    order = asked.submission.order
    return replace(asked.submission, order=replace(order, signature=order.signature * 2))


REFUSALS: dict[str, tuple[dict[str, Any], Any, int, str]] = {
    "price": ({"prompt_price": 999_999_999}, None, 402, "price_too_low"),
    "written price": ({"written_price": 1}, None, 402, "price_too_low"),
    "share": ({"node_share": 7_999}, None, 402, "price_too_low"),
    "bound": ({"max_fee": 1}, None, 402, "price_too_low"),
    "rate": ({"check_rate": 1}, None, 400, "invalid_order"),
    "late": ({"deadline": 1}, None, 400, "invalid_order"),
    "to come": ({"reference_block": 99}, None, 400, "invalid_order"),
    "same secrets": ({"draw_hash": b"\x01" * 32, "tiles_hash": b"\x01" * 32}, None, 400, "invalid_order"),
    "split": ({"ends": b"\x01\x02" + bytes(30)}, None, 409, "other_split"),
    "class": ({"execution_class": b"\x09" * 32}, None, 404, "unknown_class"),
    "signature": ({}, _other_signature, 400, "bad_signature"),
    "signature of a contract": ({}, _by_contract, 400, "bad_signature"),
    "salt": ({}, lambda asked: replace(asked.submission, salt=b"\x01" * 32), 400, "bad_request"),
    "request": ({}, lambda asked: replace(asked.submission, request=b"\x01"), 400, "bad_request"),
    "other scheduler": (
        {},
        lambda asked: replace(asked.submission, tab=replace(CLIENT_TAB, payee=address(70))),
        400,
        "bad_request",
    ),
    "another tab": (
        {},
        lambda asked: replace(asked.submission, tab=replace(CLIENT_TAB, payer=CLIENT_TAB.payee)),
        400,
        "invalid_order",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_each_refusal_has_words_and_keeps_nothing(scene: TabScene, name: str) -> None:
    changes, change, status, code = REFUSALS[name]
    asked = scene.asked(**changes)
    if change is not None:
        asked.submission = change(asked)
    found, error = await scene.refused(asked)
    assert (found, error["code"]) == (status, code), error
    assert error["message"]
    assert error["remedy"]
    assert not scene.context.store.running()
    assert scene.context.client_tabs.exposure == 0
    assert not any(held.book.bounds for held in scene.context.node_tabs)


async def test_an_order_of_a_slow_chain_node_is_told_how_old_its_block_is(scene: TabScene) -> None:
    asked = scene.asked()
    scene.ledger.block = asked.order.reference_block + scene.ledger.parameters.reference_age
    assert (await scene.send(asked)).of("admitted"), "as old as it may be"
    late = scene.asked()
    scene.ledger.block = late.order.reference_block + scene.ledger.parameters.reference_age + 1
    status, error = await scene.refused(late)
    assert (status, error["code"]) == (409, "old_block")
    assert f"{scene.ledger.parameters.reference_age + 1} blocks old" in error["message"]


async def test_a_prompt_that_does_not_fit_is_refused(scene: TabScene) -> None:
    assert (await scene.refused(scene.asked(max_tokens=254)))[0] == 413
    assert (await scene.refused(scene.asked((1, 64))))[1]["code"] == "token_out_of_vocabulary"


async def test_a_grammar_that_nodes_would_refuse_is_refused_before_they_are_drawn(scene: TabScene) -> None:
    """This scene's model has no tokenizer that masks could be computed with."""
    asked = scene.asked(end_tokens=(0,), transforms=Transforms(grammar=Grammar(ANY_OBJECT)))
    status, error = await scene.refused(asked)
    assert (status, error["code"]) == (400, "bad_request")
    assert "Masks cannot be computed" in error["message"]
    beyond = scene.asked(transforms=Transforms(biases=((64, 1),)))
    assert (await scene.refused(beyond))[1]["code"] == "token_out_of_vocabulary"


async def test_no_grammar_is_compiled_for_who_cannot_pay_and_nothing_written_is_masked(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an order that nobody signed would have a scheduler compile, and mask each token of a long prompt."""
    asked_for: list[Any] = []

    def compiled(*of: Any) -> None:
        asked_for.append(of)
        raise InvalidGrammar("It was compiled", "", "Ask without one.")

    monkeypatch.setattr(admission, "compiled", compiled, raising=False)
    monkeypatch.setattr(masks, "compiled", compiled)
    masked = Transforms(grammar=Grammar(ANY_OBJECT), written=3)
    forged = scene.asked(end_tokens=(0,), transforms=masked)
    forged.submission = replace(forged.submission, order=Signed(forged.submission.order.message, b"\x01" * 65))
    assert (await scene.refused(forged))[1]["code"] == "bad_signature"
    assert not asked_for
    monkeypatch.setattr(masks.TextRules, "take", lambda *of: pytest.fail("a token was masked"))
    assert "It was compiled" in (await scene.refused(scene.asked(end_tokens=(0,), transforms=masked)))[1]["message"]
    assert len(asked_for) == 1
    # A tokenizer is read for each first end token.
    for ends in ((1,), (0, 1)):
        assert "own end tokens" in (await scene.refused(scene.asked(end_tokens=ends, transforms=masked)))[1]["message"]
    assert len(asked_for) == 1


async def test_who_signs_by_a_contract_is_told_that_keys_are_accounts(scene: TabScene) -> None:
    asked = scene.asked()
    asked.submission = _by_contract(asked)
    error = (await scene.refused(asked))[1]
    assert "has to be an account" in error["remedy"]
    done = await scene.send(scene.asked())
    body = Acknowledgement(CLIENT_TAB, replace(done.submission.voucher, signature=b"\x01" * 130))
    answer = await scene.http.post("/v1/vouchers", content=canonical.encode(body))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "voucher_refused")
    assert "has to be an account" in answer.json()["error"]["remedy"]


async def test_money_that_is_short_is_named(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    asked = scene.asked()
    tab = messages.tab_id(CLIENT_TAB)
    scene.ledger.state = with_pot(scene.ledger.state, PotKind.TAB, tab, asked.order.max_fee - 7)
    status, error = await scene.refused(asked)
    assert (status, error["code"], error["shortfall"]) == (402, "payment_required", "7")
    await scene.stop()


async def test_what_claims_were_paid_is_acknowledged_before_anything_is_ordered(scene: TabScene) -> None:
    """A payer that never did would have all its later answers for nothing: a claim shows the old ones again, and their
    draws are too old then.
    """
    done = await scene.send(scene.asked())
    fee = history_of(scene, done).answered.fee
    scene.ledger.fold(on.TabRedeemed(done.order.tab, fee, META))
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (409, "claims_unacknowledged")
    assert f"{fee} in all, and the voucher acknowledges 0" in error["message"]
    scene.payer = tabs.acknowledge(scene.payer, done.order.sequence, fee)
    assert (await scene.send(scene.asked())).of("draw")


def beyond_all_cases(scene: TabScene, done: Any) -> int:
    """The first block in which no case over this answer can begin any more."""
    leaf = scene.context.client_tabs.get(done.order.tab).leaves[done.order.sequence]
    return court.last_opening_block(leaf.block, scene.ledger.parameters) + 1


async def test_what_was_answered_long_ago_is_acknowledged_before_anything_is_ordered(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payer that never did would be served for as long as its claims run and fall (attack 162)."""
    monkeypatch.setattr(admission, "TOLERATED_CAPS", 0)
    done = await scene.send(scene.asked())
    fee = history_of(scene, done).answered.fee
    scene.ledger.block = beyond_all_cases(scene, done) - 1
    assert (await scene.send(scene.asked())).of("draw")
    scene.ledger.block += 1
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (409, "answers_unacknowledged")
    assert f"worth {fee}" in error["message"]
    scene.payer = tabs.acknowledge(scene.payer, done.order.sequence, fee)
    assert (await scene.send(scene.asked())).of("draw")


async def test_a_client_that_forgot_an_answer_may_order(scene: TabScene) -> None:
    scene.ledger.block = beyond_all_cases(scene, await scene.send(scene.asked()))
    assert (await scene.send(scene.asked())).of("draw")


async def test_small_answers_that_are_long_due_are_not_read_again_at_each_order(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may leave thousands of them below what is tolerated (attack 186)."""
    for _ in range(3):
        done = await scene.send(scene.asked())
    scene.ledger.block = beyond_all_cases(scene, done)
    read, get = [], scene.context.store.get

    def counted(order_id: Hash32) -> Any:
        read.append(order_id)
        return get(order_id)

    monkeypatch.setattr(scene.context.store, "get", counted)
    assert overdue(scene.context, scene.payer.voucher, tolerated=10**12) <= 10**12
    assert not read
    fees = 3 * history_of(scene, done).answered.fee
    read.clear()
    assert overdue(scene.context, scene.payer.voucher, tolerated=fees - 1) == fees
    assert len(read) == 3
    assert overdue(scene.context, scene.payer.voucher, tolerated=0) > 0
    assert len(read) == 4, "one of them says enough"


async def test_what_a_case_runs_over_or_what_fell_keeps_nobody_from_ordering(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "TOLERATED_CAPS", 0)
    done = await scene.send(scene.asked())
    scene.ledger.block = beyond_all_cases(scene, done)
    assert (await scene.refused(scene.asked()))[0] == 409
    before, live = scene.ledger.state, CaseRecord(hash_of("case"), CaseState(order=done.order_id), None, ())
    scene.ledger.state = replace(before, cases=before.cases.set(live.case_id, live))
    assert (await scene.send(scene.asked())).of("draw")
    scene.ledger.state = replace(before, voided=before.voided.set((done.order_id, 0), live.case_id))
    assert (await scene.send(scene.asked())).of("draw")


async def test_what_a_struck_claim_cost_its_payer_is_no_payment(scene: TabScene) -> None:
    scene.ledger.fold(on.TabForgiven(messages.tab_id(CLIENT_TAB), 5, 5, META))
    assert (await scene.send(scene.asked())).of("draw")


async def test_a_closing_tab_takes_no_order_and_those_that_run_end(scene: TabScene) -> None:
    first, second = scene.asked(), scene.asked()
    sending = asyncio.create_task(scene.send(first))
    async with asyncio.timeout(5):
        while not scene.orders.running:  # noqa: ASYNC110 -- turns of the loop, not time
            await asyncio.sleep(0)
    scene.ledger.fold(on.TabClosing(messages.tab_id(CLIENT_TAB), 500, META))
    assert (await scene.refused(second))[1]["code"] == "tab_not_open"
    assert (await sending).of("draw")


async def test_a_leaving_scheduler_takes_no_order_and_serves_what_it_owes(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    scene.ledger.fold(on.Deregistered(CLIENT_TAB.payee, 100_000, META))
    status, told = await scene.refused(scene.asked())
    assert (status, told["code"]) == (400, "invalid_order")
    assert "is leaving" in told["message"]
    assert (await scene.show(asked))[-1] == {"type": "end", "complete": True}
    assert [segment["node"] for segment in await scene.tiles(asked)]
    query = sign(TabQuery(asked.order.tab, scene.now), DOMAIN, TAB_KEY)
    path = f"/v1/tabs/0x{asked.order.tab.hex()}/recover"
    answer = await scene.http.post(path, content=canonical.encode(Recovery(scene.now, query.signature)))
    assert answer.json()["voucher"] is not None


async def test_work_beyond_the_stake_is_refused(tmp_path: Path) -> None:
    probe = TabScene(tmp_path / "probe")
    most = probe.asked().order.max_fee
    scene = TabScene(tmp_path, stake=2 * most)
    scene.start()
    await scene.send(scene.asked())
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (503, "stake_exhausted")
    await scene.stop()


async def test_an_order_that_no_paid_node_was_drawn_for_is_refused(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, unpaid=14)
    scene.start()
    assert (await scene.refused(scene.asked()))[1]["code"] == "no_paid_node"
    await scene.stop()


async def test_nodes_below_the_committees_bar_get_no_order_until_they_climb(scene: TabScene) -> None:
    bad = list(scene.nodes)[:9]
    scene.reputations = dict.fromkeys(bad, 0.0)
    (offer,) = price_list(scene.context)["data"]  # type: ignore[misc]
    count = len(scene.nodes)
    assert offer["troth"]["reputation"] == {"nodes": count, "trusted": count - 9, "mean_thousandths": 1000}
    served: set[Address] = set()
    codes: set[str] = set()
    for _ in range(12):
        asked = scene.asked()
        drawn = candidates(asked.order, proof_of(asked), view_of(scene, asked))[0]
        if set(drawn) <= set(bad):
            codes.add((await scene.refused(asked))[1]["code"])
        else:
            served |= set(read_part(Admitted, (await scene.send(asked)).of("admitted")).nodes)
    assert codes == {"no_trusted_node"}
    assert served
    assert not served & set(bad)
    scene.reputations = dict.fromkeys(bad, 0.4)
    assert (await scene.send(scene.asked())).of("admitted")


async def test_prices_say_which_organisation_brought_a_class(scene: TabScene) -> None:
    (offer,) = price_list(scene.context)["data"]  # type: ignore[misc]
    assert "deployed_by" not in offer["troth"]
    served = scene.context.offers.ids()[0]
    paying = HostedDeployment(1, address(70), served, 2, 5, 9, 10**12, "own/model", 2)
    spent, foreign = replace(paying, number=2, reserve=0), replace(paying, number=3, execution_class=ZERO_HASH)
    state = OrganisationsState(deployments={one.number: one for one in (paying, spent, foreign)})
    (offer,) = price_list(replace(scene.context, organisations=lambda: state))["data"]  # type: ignore[misc]
    (told,) = offer["troth"]["deployed_by"]
    assert (told["deployment"], told["owner"], told["last_epoch"]) == (1, address(70), 8)


def proof_of(asked: Any) -> bytes:
    return vrf.prove(VRF_SECRET, messages.infer_alpha(asked.order_id))


async def test_a_forged_or_backward_voucher_is_refused(scene: TabScene) -> None:
    asked = scene.asked()
    forged = replace(asked.submission.voucher, signature=asked.submission.order.signature)
    asked.submission = replace(asked.submission, voucher=forged)
    assert (await scene.refused(asked))[1]["code"] == "bad_signature"
    done = await scene.send(scene.asked())
    claim = replace(done.submission.voucher.message, acknowledged_through=2)
    body = Acknowledgement(CLIENT_TAB, sign(claim, DOMAIN, TAB_KEY))
    answer = await scene.http.post("/v1/vouchers", content=canonical.encode(body))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "voucher_refused")


async def test_an_order_is_taken_once(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    assert (await scene.refused(asked))[1]["code"] == "already_ordered"


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b'{"order": 1}', b"\xff\xfe", b"x" * (2**21 + 1)])
async def test_malformed_and_huge_bodies_are_refused_with_words(scene: TabScene, body: bytes) -> None:
    for path in ("/v1/orders", "/v1/vouchers", f"/v1/orders/0x{'11' * 32}/secret", f"/v1/tabs/0x{'11' * 32}/recover"):
        answer = await scene.http.post(path, content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]


async def test_orders_that_come_at_once_take_no_more_places_than_there_are(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    orders = scene.start(concurrent=2)
    sent = [scene.asked().submission for _ in range(5)]
    answers = await asyncio.gather(*map(orders.submit, sent), return_exceptions=True)
    assert sum(isinstance(one, Lines) for one in answers) == 2, answers
    assert sum(isinstance(one, Busy) for one in answers) == 3, answers
    # Nothing of those that were refused is kept: the same order is taken once there is a place.
    await asyncio.gather(*orders._tasks)
    assert isinstance(await orders.submit(sent[-1]), Lines)
    await asyncio.gather(*orders._tasks)
    await scene.stop()
