"""Orders on tabs through the scheduler's HTTP side, with toy nodes: what it sends passes ``life.live``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.market_logs import META
from support.tab_scene import CLIENT_TAB, DOMAIN, REPLY_SECRET, TAB_KEY, VRF_SECRET, TabScene
from support.tabs_stage import PARAMETERS

from troth.protocol import masks, vrf
from troth.protocol.errors import InvalidGrammar
from troth.protocol.grammar import ANY_OBJECT, Grammar
from troth.protocol.market import canonical, life, messages, prices, tabs, views
from troth.protocol.market import events as on
from troth.protocol.market.bodies import (
    Acknowledgement,
    Admitted,
    Committed,
    Lottery,
    OpenOrder,
    Recovery,
    Results,
    ShownSecret,
    TabQuery,
    Verdicts,
    opening_context,
    read_part,
)
from troth.protocol.market.checks import Answer, Opened, candidates
from troth.protocol.market.life import Acknowledged, Check, Journey
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.state import with_pot
from troth.protocol.market.types import PotKind, Voucher
from troth.protocol.request import output_hash
from troth.protocol.transforms import Transforms
from troth.protocol.types import Address, address_to_bytes
from troth.protocol.wire_market import Advance, Conclude
from troth.scheduler.orders import admission
from troth.scheduler.orders.http import price_list
from troth.transport.sealing import unseal


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


def journey_of(scene: TabScene, asked: Any) -> Journey:
    """What the client has of an order, up to its draw."""
    admitted = read_part(Admitted, asked.of("admitted"))
    results = read_part(Results, asked.of("results"))
    draw = read_part(Lottery, asked.of("draw"))
    story = scene.desk.store.get(asked.order_id)
    assert story is not None
    book = tabs.PayeeBook(tabs.first_voucher(asked.order.tab))
    return Journey(
        order=asked.submission.order,
        voucher=asked.submission.voucher,
        book=book,
        admission=admitted.admission,
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        promises=story.admitted.promises,
        results=results.results,
        answer=Answer(
            len(asked.request.prompt_tokens),
            len(asked.tokens),
            output_hash(asked.submission.salt, asked.tokens),
        ),
        draw=draw.draw,
        draw_proof=draw.proof,
        seen_at=scene.ledger.block,
        secret=asked.secrets.draw,
    )


def view_of(scene: TabScene, asked: Any) -> Any:
    return views.view_of(
        scene.ledger.state, asked.order, CLIENT_TAB, chain_id=31337, block=scene.ledger.block, time=scene.now
    )


def checks_of(scene: TabScene, asked: Any, lines: list[dict[str, Any]], segments: list[dict[str, Any]]) -> Any:
    """The checks of a journey, from the lines and the sealed openings."""
    story = scene.desk.store.get(asked.order_id)
    assert story is not None
    made = []
    for segment, sealed in enumerate(segments):
        committed = next(one for one in lines if one["type"] == "committed" and one["segment"] == segment)
        said = next(one for one in lines if one["type"] == "verdicts" and one["segment"] == segment)
        check = story.check_of(segment)
        assert check is not None
        operators = check.operators
        node = story.admitted.nodes[segment]

        def opened(party: Address, raw: str, place: int = segment) -> Opened:
            context = opening_context(asked.order_id, place, address_to_bytes(party))
            return canonical.decode(Opened, unseal(bytes.fromhex(raw[2:]), REPLY_SECRET, context), 1 << 20)

        made.append(
            Check(
                promises=dict(zip(operators, check.promises, strict=True)),
                commitments=dict(zip(operators, read_part(Committed, committed).commitments, strict=True)),
                verdicts=dict(zip(operators, read_part(Verdicts, said).verdicts, strict=True)),
                node=opened(node, sealed["node"]),
                opened={Address(name): opened(Address(name), raw) for name, raw in sealed["opened"].items()},
            )
        )
    return tuple(made)


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_an_honest_order_passes_the_protocol_of_the_whole_life(tmp_path: Path, ends: tuple[int, ...]) -> None:
    scene = TabScene(tmp_path, ends=ends)
    scene.start()
    asked = await scene.send(scene.asked())
    assert [line["type"] for line in asked.lines] == ["admitted", *["token"] * 6, "results", "draw"]
    journey, view = journey_of(scene, asked), view_of(scene, asked)
    rules = view.rules
    fee = prices.fee(asked.order, rules, len(ends), journey.results[-1].message)  # type: ignore[index]
    drawn_at = journey.draw.message.block_number  # type: ignore[union-attr]
    assert life.live(replace(journey, secret=None), view) == Acknowledged(fee, drawn_at + view.lag, checked=False)

    lines = await scene.show(asked)
    assert next(line["type"] for line in lines) == "checking"
    assert lines[-1] == {"type": "end", "complete": True}
    segments = await scene.tiles(asked)
    checked = replace(journey, second_secret=asked.secrets.tiles, checks=checks_of(scene, asked, lines, segments))
    assert life.live(checked, view) == Acknowledged(fee, drawn_at, checked=True)
    # Asked again, everybody hears the same.
    assert sorted(map(str, await scene.show(asked))) == sorted(map(str, lines))
    assert await scene.tiles(asked) == segments
    await scene.stop()


async def test_an_answer_ends_with_an_end_token_or_at_its_length(scene: TabScene) -> None:
    plain = await scene.send(scene.asked(max_tokens=8))
    assert plain.of("results")["reason"] == "length"
    ending = plain.tokens[2]
    first = plain.tokens.index(ending)
    short = await scene.send(scene.asked(max_tokens=8, end_tokens=(ending,)))
    assert short.tokens == plain.tokens[: first + 1]
    assert short.of("results")["reason"] == "end"


async def test_log_probabilities_come_where_they_are_asked_for(scene: TabScene) -> None:
    plain = scene.asked()
    plain.submission = replace(plain.submission, logprobs=2)
    await scene.send(plain)
    told = [line["logprobs"] for line in plain.lines if line["type"] == "token"]
    assert all(one["logprob"] <= 0 and len(one["top"]) == 2 for one in told)


async def test_an_order_that_is_not_drawn_is_told_so(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    least = scene.definition.least_check_rate
    kinds = set()
    for _ in range(12):
        asked = await scene.send(scene.asked(check_rate=least))
        lines = await scene.show(asked)
        kinds.add(lines[0]["type"])
        ending = life.live(journey_of(scene, asked), view_of(scene, asked)) if lines[0]["type"] == "undrawn" else None
        assert ending is None or isinstance(ending, Acknowledged)
    assert "undrawn" in kinds
    await scene.stop()


# -------------------------------------------------------------------------------------------------------- refusals


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
        lambda asked: replace(asked.submission, tab=replace(CLIENT_TAB, payee=CLIENT_TAB.payer)),
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
    assert not scene.desk.store.running()
    assert scene.desk.client_tabs.exposure == 0
    assert not any(held.book.bounds for held in scene.desk.node_tabs)


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
    (offer,) = price_list(scene.desk)["data"]  # type: ignore[misc]
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


# ------------------------------------------------------------------------------------------------ one tab, many orders


async def test_one_tab_serves_many_requests_at_once_in_any_order(scene: TabScene) -> None:
    asked = [scene.asked() for _ in range(24)]
    sent = await asyncio.gather(*[scene.send(one) for one in reversed(asked)])
    assert all(one.lines[-1]["type"] == "draw" for one in sent)
    fees = {}
    for one in asked:
        results = read_part(Results, one.of("results")).results
        rules = view_of(scene, one).rules
        fees[one.order.sequence] = prices.fee(one.order, rules, 1, results[-1].message)
    payer = scene.payer
    for number, fee in fees.items():
        payer = tabs.acknowledge(payer, number, fee)
    body = Acknowledgement(CLIENT_TAB, sign(payer.voucher, DOMAIN, TAB_KEY))
    answer = await scene.http.post("/v1/vouchers", content=canonical.encode(body))
    assert answer.json() == {"spent": str(sum(fees.values())), "acknowledged_through": "24"}
    assert scene.desk.client_tabs.exposure == 0
    # A word that was overtaken says nothing new, and is no fault.
    old = Acknowledgement(CLIENT_TAB, asked[3].submission.voucher)
    again = await scene.http.post("/v1/vouchers", content=canonical.encode(old))
    assert again.json() == answer.json()


async def test_a_lost_tab_is_recovered_by_its_key_alone(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    query = sign(TabQuery(asked.order.tab, scene.now), DOMAIN, TAB_KEY)
    path = f"/v1/tabs/0x{asked.order.tab.hex()}/recover"
    answer = await scene.http.post(path, content=canonical.encode(Recovery(scene.now, query.signature)))
    found = answer.json()
    opened = [read_part(OpenOrder, one) for one in found["orders"]]
    voucher = canonical.from_json(Signed[Voucher], found["voucher"])
    assert tabs.resume(voucher.message, [one.order.message for one in opened]) == scene.payer
    for time, signature in ((scene.now + 301, query.signature), (scene.now, asked.submission.order.signature)):
        refused = await scene.http.post(path, content=canonical.encode(Recovery(time, signature)))
        assert refused.status_code == 400


async def test_who_was_cut_off_hears_everything_again_with_its_salt(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    path = f"/v1/orders/0x{asked.order_id.hex()}"
    answer = await scene.http.get(path, headers={"troth-salt": "0x" + asked.submission.salt.hex()})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == asked.lines
    stranger = await scene.http.get(path, headers={"troth-salt": "0x" + "00" * 32})
    assert stranger.status_code == 404
    # Later the draw comes with a newer block, else its client had to refuse it.
    scene.ledger.block += 5
    again = await scene.http.get(path, headers={"troth-salt": "0x" + asked.submission.salt.hex()})
    draw = read_part(Lottery, json.loads(again.text.splitlines()[-1])).draw.message
    assert draw.block_number == scene.ledger.block
    scene.ledger.block += 10
    late = await scene.http.get(path, headers={"troth-salt": "0x" + asked.submission.salt.hex()})
    assert read_part(Lottery, json.loads(late.text.splitlines()[-1])).draw.message.block_number == draw.block_number


async def test_a_secret_that_is_late_or_wrong_is_refused(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    path = f"/v1/orders/0x{asked.order_id.hex()}/secret"
    wrong = await scene.http.post(path, content=canonical.encode(ShownSecret(asked.secrets.tiles)))
    assert wrong.json()["error"]["code"] == "secret_refused"
    assert asked.secrets.tiles.hex() not in wrong.text
    scene.ledger.block += PARAMETERS.lag // 2 + 1
    late = await scene.http.post(path, content=canonical.encode(ShownSecret(asked.secrets.draw)))
    assert (late.status_code, late.json()["error"]["code"]) == (409, "too_late")
    early = await scene.http.post(
        f"/v1/orders/0x{asked.order_id.hex()}/tiles", content=canonical.encode(ShownSecret(asked.secrets.tiles))
    )
    assert early.json()["error"]["code"] == "not_yet"


# ------------------------------------------------------------------------------------------------------ nodes that fail


@pytest.mark.parametrize(
    ("fault", "value"),
    [
        ("dies_at_position", 4),
        ("dies_at_position", 1),
        ("wrong_signature_at", 3),
        ("wrong_result", {"written": 7}),
        ("wrong_result", {"input_head": b"\x01" * 32}),
        ("silent", {Conclude}),
        ("refuses", {Advance}),
    ],
)
@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_a_node_that_fails_ends_the_order_and_nothing_is_owed(
    tmp_path: Path, ends: tuple[int, ...], fault: str, value: Any
) -> None:
    scene = TabScene(tmp_path, ends=ends)
    scene.start()
    probe = scene.asked()
    last = _last_candidates(scene, probe)
    for node in last:
        setattr(scene.nodes[node].faults, fault, value)
    await scene.send(probe)
    failed = probe.lines[-1]
    assert (failed["type"], failed["code"], failed["retry_free"]) == ("failed", "node_failed", True)
    assert scene.desk.client_tabs.book(probe.order.tab).worth == {1: 0}
    voucher = tabs.acknowledge(scene.payer, 1, 0).voucher
    body = Acknowledgement(CLIENT_TAB, sign(voucher, DOMAIN, TAB_KEY))
    assert (await scene.http.post("/v1/vouchers", content=canonical.encode(body))).status_code == 200
    await scene.orders.drain()
    story = scene.desk.store.get(probe.order_id)
    assert story is not None
    owed = [scene.desk.node_tabs.held(node).owed for node in story.admitted.nodes]
    fees = [next(iter(one.values())).fee for one in owed]
    paid_earlier = len(ends) == 2 and not (fault == "dies_at_position" and value == 1) and fault != "refuses"
    # Who did its part is paid for it; with nothing of the prompt through, nobody has a result to show.
    assert fees[-1] == 0
    if len(ends) == 2 and story.admitted.nodes[0] not in last:
        assert (fees[0] or 0) > 0 if paid_earlier else fees[0] is not None
    await scene.stop()


def _last_candidates(scene: TabScene, asked: Any) -> tuple[Address, ...]:
    proof = vrf.prove(VRF_SECRET, messages.infer_alpha(asked.order_id))
    return candidates(asked.order, proof, view_of(scene, asked))[-1]
