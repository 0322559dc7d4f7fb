"""What a claimed leaf is worth: the honest leaf its price, and each that lacks something nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.market_leaves import (
    CHECK_LEAF,
    DISAGREEING,
    INFERENCE_LEAF,
    NODE,
    ORDER_LEAF,
    ORDERS,
    PROMISES,
    REJECT_LEAF,
    RESULTS,
    SCENE,
    SCHEDULER,
    STANDING,
    VERIFIER,
    VIEW,
    WORDS,
    checked,
    tab_of,
)
from support.market_scene import BLOCK, Scene

from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.market import leaves, messages, prices
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.leaves import InferenceLeaf
from troth.protocol.market.proceedings import NodeReveal
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import LeafKind, Tab

FEE = prices.fee(SCENE.order, VIEW.rules, 2, ORDER_LEAF.results[-1])


def _worth(leaf: leaves.Leaf, tab: Tab, number: int = 1, **changes: Any) -> int:
    return leaves.worth(leaf, tab, number, replace(STANDING, **changes))


def test_each_leaf_is_worth_what_its_work_costs() -> None:
    assert _worth(ORDER_LEAF, VIEW.tab) == FEE > 0
    assert _worth(ORDER_LEAF, VIEW.tab, block=BLOCK + 20) == FEE
    served = prices.promise_worth(INFERENCE_LEAF.promise, INFERENCE_LEAF.result)
    assert _worth(INFERENCE_LEAF, tab_of(NODE)) == served > 0
    assert _worth(CHECK_LEAF, tab_of(VERIFIER)) == 700
    assert [leaves.kind_of(one) for one in (ORDER_LEAF, INFERENCE_LEAF)] == [LeafKind.ORDER, LeafKind.PROMISE]


def test_a_verifier_that_always_says_yes_is_paid_nothing() -> None:
    with pytest.raises(InvalidClaim, match="does not agree"):
        _worth(checked(SCENE, noise=0.5, seed=9), tab_of(VERIFIER))
    for opinion in (Opinion.NONE, Opinion.MISSING_TRACE):
        with pytest.raises(InvalidClaim, match="no verifier's opinion"):
            _worth(checked(SCENE, opinion), tab_of(VERIFIER), voided=True)


def test_a_node_that_opens_to_nobody_does_not_starve_its_verifiers() -> None:
    blind = checked(SCENE, Opinion.CANNOT_TELL)
    blank = replace(blind, check=replace(blind.check, own=NodeReveal(), judged=NodeReveal()))
    with pytest.raises(InvalidClaim, match="result stands"):
        _worth(blank, tab_of(VERIFIER))
    assert _worth(blank, tab_of(VERIFIER), convicted=frozenset({NODE})) == 700


@pytest.mark.parametrize("opinion", WORDS)
def test_whoever_computed_is_owed_it_whatever_it_says(opinion: Opinion) -> None:
    check = WORDS[opinion].check
    traces = leaves.ShownTraces(check.own, check.judged)
    for standing in ({}, {"voided": True}, {"convicted": frozenset({NODE})}):
        assert _worth(WORDS[opinion], tab_of(VERIFIER), **standing) == 700
    assert leaves.shows_work(check.verdict, check.result, traces, VERIFIER, VIEW.rules)
    assert not leaves.shows_work(check.verdict, check.result, traces, NODE, VIEW.rules)


def test_traces_that_disagree_prove_no_work() -> None:
    check = DISAGREEING.check
    traces = leaves.ShownTraces(check.own, check.judged)
    assert not leaves.shows_work(check.verdict, check.result, traces, VERIFIER, VIEW.rules)
    with pytest.raises(InvalidClaim, match="does not agree"):
        _worth(DISAGREEING, tab_of(VERIFIER), voided=True)


def test_a_rejection_without_traces_is_owed_once_the_result_fell() -> None:
    assert _worth(REJECT_LEAF, tab_of(VERIFIER), voided=True) == 700
    assert _worth(REJECT_LEAF, tab_of(VERIFIER), convicted=frozenset({NODE})) == 700
    for standing in ({}, {"unanswered": True}, {"convicted": frozenset({SCHEDULER})}):
        with pytest.raises(InvalidClaim, match="result stands"):
            _worth(REJECT_LEAF, tab_of(VERIFIER), **standing)
    # Who did not sign the drawn result is not the one that fell.
    other = replace(REJECT_LEAF, check=replace(REJECT_LEAF.check, result_signature=RESULTS[0].signature))
    with pytest.raises(InvalidClaim, match="result stands"):
        _worth(other, tab_of(VERIFIER), convicted=frozenset({NODE}))


def test_only_its_own_conviction_voids_a_check() -> None:
    fallen: tuple[dict[str, Any], ...] = ({"voided": True}, {"unanswered": True})
    for standing in fallen:
        assert _worth(CHECK_LEAF, tab_of(VERIFIER), **standing) == 700
        with pytest.raises(InvalidClaim, match="fell"):
            _worth(INFERENCE_LEAF, tab_of(NODE), **standing)
    for leaf, payee in ((CHECK_LEAF, VERIFIER), (REJECT_LEAF, VERIFIER), (INFERENCE_LEAF, NODE)):
        with pytest.raises(InvalidClaim, match="fell"):
            _worth(leaf, tab_of(payee), convicted=frozenset({payee}))


def test_in_an_exact_class_roots_are_compared() -> None:
    scene = Scene({"exact": True, "tiles": 0}, parts=(6, 12))
    standing = replace(STANDING, rules=scene.view.rules)
    same = checked(scene, seed=0)
    assert not same.check.own.tiles
    assert leaves.worth(same, tab_of(VERIFIER), 1, standing) == 700
    with pytest.raises(InvalidClaim, match="does not agree"):
        leaves.worth(checked(scene), tab_of(VERIFIER), 1, standing)


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_that_lacks_something_is_worth_nothing(name: str) -> None:
    change, standing, error, words = ORDERS[name]
    with pytest.raises(error, match=words):
        _worth(change(ORDER_LEAF), VIEW.tab, **standing)


def test_a_leaf_has_one_number() -> None:
    for leaf, tab in ((ORDER_LEAF, VIEW.tab), (CHECK_LEAF, tab_of(VERIFIER))):
        with pytest.raises(InvalidClaim, match="number 2"):
            _worth(leaf, tab, 2)


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_without_its_work_is_worth_nothing(name: str) -> None:
    leaf, change, error, words = PROMISES[name]
    with pytest.raises(error, match=words):
        _worth(change(leaf), tab_of(NODE if leaf is INFERENCE_LEAF else VERIFIER))


def test_the_opened_tile_follows_from_both_roots() -> None:
    roots = (CHECK_LEAF.check.own.root, CHECK_LEAF.check.judged.root)
    count = -(-41 // 8) * 4
    seed = int.from_bytes(keccak256(keccak256(roots[0] + roots[1]) + (1).to_bytes(32) + bytes(32)))
    assert leaves.tile_of(roots, CHECK_LEAF.check.result, VIEW.rules) == seed % count


def test_leaves_are_encoded_as_arguments() -> None:
    without = replace(CHECK_LEAF, check=replace(CHECK_LEAF.check, own=NodeReveal()))
    for leaf in (ORDER_LEAF, INFERENCE_LEAF, CHECK_LEAF, without):
        whole = messages.abi_type(type(leaf))
        kinds, depth, start = [], 0, 1
        for place, letter in enumerate(whole):
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if (letter == "," and depth == 1) or place == len(whole) - 1:
                kinds.append(whole[start:place])
                start = place + 1
        assert keccak256(leaves.encode(leaf)) == abi_keccak(kinds, list(_plain(leaf)))
    assert isinstance(INFERENCE_LEAF, InferenceLeaf)


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return tuple(_plain(getattr(value, name)) for name in value.__dataclass_fields__)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
