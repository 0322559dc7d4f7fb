"""Orders on tabs through the scheduler's HTTP side, with toy nodes: what it sends passes ``life.live``."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tab_scene import (
    CLIENT_TAB,
    CONTEXT,
    DOMAIN,
    REPLY_SECRET,
    TAB_KEY,
    VRF_SECRET,
    TabScene,
    history_of,
    view_of,
)
from support.tabs_stage import PARAMETERS

from troth.client.https_calls import Calls
from troth.client.orders.calls import MarketCalls
from troth.protocol import typed_data, vrf
from troth.protocol.imprints.naming import Imprints, with_imprints
from troth.protocol.market import canonical, life, messages, prices, tabs
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
from troth.protocol.market.heads import with_head
from troth.protocol.market.last_row import LastRow, require_last_row
from troth.protocol.market.life import Acknowledged, Check, Journey
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.rows import HASH_BYTES
from troth.protocol.market.types import Voucher
from troth.protocol.request import from_canonical_bytes, output_hash
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Advance, Conclude
from troth.scheduler.court.holding import OrderHoldings
from troth.scheduler.orders import concluding, service
from troth.scheduler.orders.service import FINALITY_BLOCKS
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
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    book = tabs.PayeeBook(tabs.first_voucher(asked.order.tab))
    return Journey(
        order=asked.submission.order,
        voucher=asked.submission.voucher,
        book=book,
        admission=admitted.admission,
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        promises=history.admitted.promises,
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


def checks_of(scene: TabScene, asked: Any, lines: list[dict[str, Any]], segments: list[dict[str, Any]]) -> Any:
    """The checks of a journey, from the lines and the sealed openings."""
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    made = []
    for segment, sealed in enumerate(segments):
        committed = next(one for one in lines if one["type"] == "committed" and one["segment"] == segment)
        said = next(one for one in lines if one["type"] == "verdicts" and one["segment"] == segment)
        check = history.check_of(segment)
        assert check is not None
        operators = check.operators
        node = history.admitted.nodes[segment]

        def opened(party: Address, raw: str, place: int = segment) -> Opened:
            context = opening_context(asked.order_id, place, party)
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


EXACT: dict[str, Any] = {"exact": True, "tiles": 0}


@pytest.mark.parametrize("changes", [{}, EXACT], ids=["tolerant", "exact"])
@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_an_honest_order_passes_the_protocol_of_the_whole_life(
    tmp_path: Path, ends: tuple[int, ...], changes: dict[str, Any]
) -> None:
    scene = TabScene(tmp_path, ends=ends, **changes)
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
    rows = len(asked.request.prompt_tokens) + len(asked.tokens) - 1
    holds = await OrderHoldings(scene.context).rows_of(asked.order_id, 0)
    if changes and len(ends) == 1:
        assert holds is None
        kept = scene.context.rows.open(asked.order_id, HASH_BYTES)
        assert len(kept.rows(0, 0, rows)) == rows * HASH_BYTES
        with pytest.raises(EOFError):
            kept.rows(0, rows, 1)
    else:
        assert holds is not None
        assert len(holds) == 32 + rows * 4 * 32
    await scene.stop()


@pytest.mark.parametrize(("fault", "value"), [("sends_rows", True), ("wrong_signature_at", 3)])
async def test_a_whole_model_of_an_exact_class_that_sends_anything_but_signed_hashes_fails_its_order(
    tmp_path: Path, fault: str, value: Any
) -> None:
    scene = TabScene(tmp_path, **EXACT)
    scene.start()
    for node in scene.nodes.values():
        setattr(node.faults, fault, value)
    asked = await scene.send(scene.asked())
    assert (asked.lines[-1]["type"], asked.lines[-1]["code"]) == ("failed", "node_failed")
    await scene.stop()


async def test_one_that_is_to_stop_has_the_answer_that_it_drew_checked(scene: TabScene) -> None:
    """Between the draw and the first secret nothing runs, and between the verdicts and the second one."""
    asked = await scene.send(scene.asked())
    stopping = asyncio.create_task(scene.orders.drain())
    await asyncio.sleep(0.2)
    assert not stopping.done()
    assert (await scene.show(asked))[-1]["complete"]
    await asyncio.sleep(0.2)
    assert not stopping.done()
    assert await scene.tiles(asked)
    async with asyncio.timeout(service.CLIENT_SECONDS / 2):
        await stopping


async def test_one_that_is_to_stop_waits_for_no_client_that_stays_away(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CLIENT_SECONDS", 0.3)
    await scene.send(scene.asked())
    async with asyncio.timeout(20):
        await scene.orders.drain()


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert scene.context.client_tabs.exposure == 0
    # A word that was overtaken says nothing new, and is no fault.
    old = Acknowledgement(CLIENT_TAB, asked[3].submission.voucher)
    again = await scene.http.post("/v1/vouchers", content=canonical.encode(old))
    assert again.json() == answer.json()


async def test_a_lost_tab_goes_on_though_its_scheduler_refused_an_order(scene: TabScene) -> None:
    """Of two orders that were sent together one was refused. The other's word authorises both, and no payee can show
    an order that it never took: an honest scheduler was called false for it, and its tab could only be closed."""
    refused, served = scene.asked(prompt=(1,) * CONTEXT), scene.asked()
    assert (await scene.refused(refused))[1]["code"] == "prompt_too_long"
    await scene.send(served)
    body = canonical.encode(Recovery(scene.now, sign(TabQuery(served.order.tab, scene.now), DOMAIN, TAB_KEY).signature))
    found = (await scene.http.post(f"/v1/tabs/0x{served.order.tab.hex()}/recover", content=body)).json()
    shown = [read_part(OpenOrder, one).order.message for one in found["orders"]]
    voucher = canonical.from_json(Signed[Voucher], found["voucher"]).message
    assert tabs.outstanding(voucher) == (1, 2)
    assert [order.sequence for order in shown] == [2]
    scene.payer = tabs.resume(voucher, shown)
    assert scene.payer.bounds == {2: served.order.max_fee}
    await scene.send(scene.asked())
    fee = history_of(scene, served).answered.fee
    scene.payer = tabs.acknowledge(scene.payer, 2, fee)
    await scene.send(scene.asked())
    assert scene.context.client_tabs.book(served.order.tab).payable == fee


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


@pytest.mark.parametrize("changes", [{}, EXACT], ids=["tolerant", "exact"])
@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_the_last_row_is_shown_to_who_has_the_salt_after_a_restart_too(
    tmp_path: Path, ends: tuple[int, ...], changes: dict[str, Any]
) -> None:
    scene = TabScene(tmp_path, ends=ends, **changes)
    scene.start()
    asked = await scene.send(scene.asked())
    path, own = f"/v1/orders/0x{asked.order_id.hex()}/last-row", {"troth-salt": "0x" + asked.submission.salt.hex()}
    said = read_part(Results, next(line for line in asked.lines if line["type"] == "results"))
    tokens = [line["id"] for line in asked.lines if line["type"] == "token"]
    prompt, rules = from_canonical_bytes(asked.submission.request).prompt_tokens, view_of(scene, asked).rules

    async def shown() -> Any:
        row = read_part(LastRow, (await scene.http.get(path, headers=own)).json())
        return require_last_row(row, said.results[-1].message, rules, prompt, tokens)

    first = await shown()
    for salt in ("0x" + "00" * 32, ""):
        assert (await scene.http.get(path, headers={"troth-salt": salt})).status_code in {400, 404}
    await scene.stop()
    scene.start()
    assert np.array_equal(await shown(), first)
    await scene.context.database.commit(("DELETE FROM private WHERE name LIKE 'links-%'", ()))
    gone = await scene.http.get(path, headers=own)
    assert (gone.status_code, gone.json()["error"]["code"]) == (409, "too_late")


IMPRINTS = with_imprints(with_head("toy", "lm_head.weight"), 77)


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_imprints_are_kept_with_the_rows_and_shown_after_a_restart_too(
    tmp_path: Path, ends: tuple[int, ...]
) -> None:
    scene = TabScene(tmp_path, ends=ends, name=IMPRINTS)
    scene.start()
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    await scene.stop()
    scene.start()
    last, salt = len(ends) - 1, asked.submission.salt
    calls = MarketCalls(Calls(scene.http, "http://scheduler"))
    result = read_part(Results, next(line for line in asked.lines if line["type"] == "results")).results[-1].message
    signed = canonical.decode(Signed[Imprints], (await calls.rows(asked.order_id, salt, last, 0)).imprints, 1 << 10)
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    node = history.admitted.nodes[last]
    assert signed.require(DOMAIN, node).result == typed_data.struct_hash(result)
    if last:
        assert not (await calls.rows(asked.order_id, salt, 0, 0)).imprints
    await scene.stop()


@pytest.mark.parametrize(
    ("fault", "value"), [("no_imprints", True), ("wrong_imprints", {"result": Hash32(b"\x01" * 32)})]
)
async def test_a_result_without_its_imprints_ends_the_order(tmp_path: Path, fault: str, value: Any) -> None:
    scene = TabScene(tmp_path, name=IMPRINTS)
    scene.start()
    for node in scene.nodes.values():
        setattr(node.faults, fault, value)
    asked = await scene.send(scene.asked())
    failed = asked.lines[-1]
    assert (failed["type"], failed["code"]) == ("failed", "node_failed")
    await scene.stop()


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
    tmp_path: Path, ends: tuple[int, ...], fault: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concluding, "AWAY_SECONDS", 0.2)
    monkeypatch.setattr(concluding, "AGAIN_SECONDS", 0.1)
    scene = TabScene(tmp_path, ends=ends)
    scene.start()
    probe = scene.asked()
    last = _last_candidates(scene, probe)
    for node in last:
        setattr(scene.nodes[node].faults, fault, value)
    await scene.send(probe)
    failed = probe.lines[-1]
    assert (failed["type"], failed["code"]) == ("failed", "node_failed")
    # Its client hears what its scheduler knows: a node that is silent is another thing than one that refuses.
    assert re.fullmatch(r"The node of segment \d failed: \S.+", failed["message"], re.DOTALL)
    assert scene.context.client_tabs.book(probe.order.tab).worth == {1: 0}
    voucher = tabs.acknowledge(scene.payer, 1, 0).voucher
    body = Acknowledgement(CLIENT_TAB, sign(voucher, DOMAIN, TAB_KEY))
    assert (await scene.http.post("/v1/vouchers", content=canonical.encode(body))).status_code == 200
    await scene.orders.drain()
    history = scene.context.store.get(probe.order_id)
    assert history is not None
    owed = [scene.context.node_tabs.held(node).owed for node in history.admitted.nodes]
    fees = [next(iter(one.values())).fee for one in owed]
    paid_earlier = len(ends) == 2 and not (fault == "dies_at_position" and value == 1) and fault != "refuses"
    # Who did its part is paid for it; with nothing of the prompt through, nobody has a result to show.
    assert fees[-1] == 0
    if len(ends) == 2 and history.admitted.nodes[0] not in last:
        assert (fees[0] or 0) > 0 if paid_earlier else fees[0] is not None
    # A client that was away until its prompt is forgotten still hears that it owes nothing, without the salt.
    scene.ledger.block += PARAMETERS.lag + FINALITY_BLOCKS + 1
    await scene.orders.forget_old()
    assert history.salt is None
    left = await scene.orders.again(probe.order_id, Hash32(bytes(32)))
    ((line,),) = [fresh async for fresh, _ in left.follow()]
    assert (line["type"], line["code"]) == ("failed", "node_failed")
    await scene.stop()


def _last_candidates(scene: TabScene, asked: Any) -> tuple[Address, ...]:
    proof = vrf.prove(VRF_SECRET, messages.infer_alpha(asked.order_id))
    return candidates(asked.order, proof, view_of(scene, asked))[-1]
