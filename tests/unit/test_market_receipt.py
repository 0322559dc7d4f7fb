"""A receipt says what it says: it round-trips, every change of it is seen, and it shows nobody's words."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from support.market_scene import (
    DOMAIN,
    LAG,
    MODEL,
    SCHEDULER_KEY,
    SEASONING,
    TAB,
    TAB_KEY,
    Scene,
    execution_class,
    hash_of,
    key_of,
)

from troth.protocol.errors import ProtocolError
from troth.protocol.market import messages, prices, receipt
from troth.protocol.market.errors import InvalidCheck, InvalidReceipt, InvalidSecret
from troth.protocol.market.messages import sign
from troth.protocol.market.receipt import CheckedSegment, Receipt
from troth.protocol.market.signed import Opinion

SCENE = Scene()


@cache
def _receipt() -> Receipt:
    journey, view = SCENE.checked(), SCENE.view
    assert journey.results
    assert journey.draw
    assert journey.checks
    drawn = SCENE.verifiers(journey)
    segments = tuple(
        CheckedSegment(seats.operators, tuple(check.commitments.values()), tuple(check.verdicts.values()))
        for seats, check in zip(drawn, journey.checks, strict=True)
    )
    return Receipt(
        version=receipt.VERSION,
        chain_id=DOMAIN.chain_id,
        bank=DOMAIN.contract,
        model=MODEL,
        execution_class=execution_class(),
        tab=TAB,
        vrf_x=view.vrf_key[0],
        vrf_y=view.vrf_key[1],
        order=journey.order,
        admission=journey.admission,
        nodes=journey.nodes,
        infer_proof=journey.infer_proof,
        results=journey.results,
        draw=journey.draw,
        draw_proof=journey.draw_proof,
        secret=SCENE.secrets.draw,
        checks=segments,
    )


def test_a_receipt_proves_fee_draw_and_check_offline() -> None:
    proven = receipt.verify(_receipt())
    last = _receipt().results[-1].message
    assert proven.fee == prices.fee(SCENE.order, SCENE.view.rules, 1, last) > 0
    assert proven.drawn
    assert proven.checked
    assert proven.opinions == (Opinion.ACCEPT,)
    assert "nodes and verifiers were drawn" in proven.unproven
    full = receipt.verify(_receipt(), SCENE.view.groups, SEASONING)
    assert full.checked
    assert "nodes and verifiers were drawn" not in full.unproven
    assert LAG


def test_a_receipt_without_check_says_so() -> None:
    plain = replace(_receipt(), checks=())
    assert receipt.verify(plain).drawn
    assert not receipt.verify(plain).checked
    hidden = receipt.verify(replace(plain, secret=None))
    assert not hidden.drawn
    assert not hidden.checked
    # A check of an answer that was not drawn proves nothing: its verifiers were chosen.
    rare = Scene(check_rate=50_000)
    assert not receipt.verify(replace(_receipt(), secret=None)).checked
    assert rare.order != SCENE.order


def test_bytes_round_trip_and_have_one_form() -> None:
    data = receipt.encode(_receipt())
    assert receipt.decode(data) == _receipt()
    assert receipt.encode(receipt.decode(data)) == data
    assert receipt.decode(receipt.encode(replace(_receipt(), secret=None))).secret is None


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b" ",
        lambda data: data.replace(b'"0x', b'"0X', 1),
        lambda data: data.replace(b":", b": ", 1),
        lambda data: data[:-1],
        lambda data: b"[]",
        lambda data: b"null",
        lambda data: b"\xff",
        lambda data: data.replace(b'"version":"1"', b'"version":1'),
        lambda data: data.replace(b'"version":"1"', b'"version":"01"'),
        lambda data: data.replace(b'"version":"1"', b'"version":"1","zero":"1"'),
        lambda data: data.replace(b'"exact":false', b'"exact":0'),
        lambda data: data + b" " * receipt.SIZE_LIMIT,
        lambda data: b"[" * 100_000,
    ],
)
def test_other_bytes_are_refused(change: Any) -> None:
    with pytest.raises(InvalidReceipt):
        receipt.decode(change(receipt.encode(_receipt())))


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in _leaves(one, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, one in enumerate(value) for leaf in _leaves(one, (*path, index))]
    return [path]


def _changed(text: Any) -> Any:
    if isinstance(text, bool):
        return not text
    if text.startswith("0x") and len(text) > 4:
        middle = len(text) // 2
        return text[:middle] + ("1" if text[middle] == "0" else "0") + text[middle + 1 :]
    return text + "1" if text.isdigit() else text + "x"


@pytest.mark.slow
def test_no_field_can_be_changed_unseen() -> None:
    data = receipt.encode(_receipt())
    leaves = _leaves(json.loads(data))
    assert len(leaves) > 80
    for path in leaves:
        loaded = json.loads(data)
        inner = loaded
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = _changed(inner[path[-1]])
        forged = json.dumps(loaded, sort_keys=True, separators=(",", ":")).encode()
        with pytest.raises(ProtocolError):
            receipt.verify(receipt.decode(forged), SCENE.view.groups, SEASONING)


def test_parts_of_other_parties_are_refused() -> None:
    plain = _receipt()
    order = replace(plain.order.message, max_fee=9)
    cases: list[tuple[Receipt, type[ProtocolError]]] = [
        (replace(plain, version=2), InvalidReceipt),
        (replace(plain, order=sign(order, DOMAIN, TAB_KEY)), InvalidReceipt),
        (replace(plain, order=sign(plain.order.message, DOMAIN, SCHEDULER_KEY)), InvalidReceipt),
        (replace(plain, model=replace(MODEL, layers=13)), InvalidReceipt),
        (replace(plain, secret=hash_of("x")), InvalidSecret),
        (replace(plain, checks=plain.checks * 2), InvalidReceipt),
        (replace(plain, checks=(replace(plain.checks[0], drawn=plain.checks[0].drawn[:2]),)), InvalidReceipt),
        (replace(plain, checks=(replace(plain.checks[0], commitments=()),)), InvalidCheck),
    ]
    for forged, error in cases:
        with pytest.raises(error):
            receipt.verify(forged)


def test_friends_instead_of_the_drawn_are_seen_with_the_groups() -> None:
    plain = _receipt()
    friend = next(one for one in SCENE.view.groups[0].owners if one not in plain.checks[0].drawn)
    result, check = plain.results[0].message, plain.checks[0]
    hidden = sign(replace(check.commitments[0].message, commitment=hash_of("x")), DOMAIN, key_of(friend))
    verdict = sign(SCENE.verdict(result, hash_of("x"), Opinion.ACCEPT), DOMAIN, key_of(friend))
    forged = replace(plain, checks=(CheckedSegment((friend,) * 3, (hidden,), (verdict,)),))
    assert receipt.verify(forged).unproven[-1] == "nodes and verifiers were drawn"
    with pytest.raises(InvalidReceipt, match="Other verifiers"):
        receipt.verify(forged, SCENE.view.groups, SEASONING)


def test_nothing_in_it_shows_prompt_or_answer() -> None:
    text = receipt.encode(_receipt()).decode()
    names = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            names.update(value)
            for one in value.values():
                collect(one)
        elif isinstance(value, list):
            for one in value:
                collect(one)

    collect(json.loads(text))
    assert not {"tokens", "text", "salt", "request", "answer"} & names
    assert SCENE.secrets.tiles.hex() not in text
    assert messages.order_id(SCENE.order, DOMAIN).hex() in text
