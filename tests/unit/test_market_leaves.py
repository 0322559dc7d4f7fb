"""What a claimed leaf is worth: the honest leaf its price, and each that lacks something nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.market_scene import BLOCK, DOMAIN, SCHEDULER_KEY, TAB_KEY, Scene, hash_of, key_of

from troth.protocol.errors import InvalidSignature
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.market import leaves, messages, prices
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.leaves import CheckLeaf, InferenceLeaf, OrderLeaf, Standing
from troth.protocol.market.messages import sign
from troth.protocol.market.types import LeafKind, NodeReveal, Opinion, Tab, Work
from troth.protocol.types import Hash32

SCENE = Scene(parts=(6, 12))
JOURNEY, VIEW = SCENE.served(), SCENE.view
assert JOURNEY.results
assert JOURNEY.draw
RESULTS, DRAW = JOURNEY.results, JOURNEY.draw
NODE = JOURNEY.nodes[1]
VERIFIER = next(one for one in VIEW.groups[0].owners if one not in JOURNEY.nodes)
SCHEDULER = VIEW.tab.payee
FEE = prices.fee(SCENE.order, VIEW.rules, 2, RESULTS[-1].message)
STANDING = Standing(DOMAIN, BLOCK, 20, VIEW.rules, dict.fromkeys(JOURNEY.nodes, VIEW.rules.penalty))
ORDER_LEAF = leaves.order_leaf(JOURNEY.order, VIEW.tab, RESULTS, DRAW)


def _tab_of(node: str) -> Tab:
    """The scheduler's tab with a node; the scheduler is its key."""
    return Tab(SCHEDULER, node, SCHEDULER)  # type: ignore[arg-type]


def _promised(node: str, work: Work) -> Any:
    promised = SCENE.promise(1, work, 5_000).message
    return sign(replace(promised, tab=messages.tab_id(_tab_of(node))), DOMAIN, SCHEDULER_KEY)


INFERENCE_LEAF = leaves.inference_leaf(_promised(NODE, Work.INFERENCE), RESULTS[1])


def checked(scene: Scene, opinion: Opinion = Opinion.ACCEPT, *, noise: float = 1e-7, seed: int = 5) -> CheckLeaf:
    """The leaf of a verifier whose own trace is the node's with some noise."""
    result, rules = scene.result(1, scene.trace()), scene.view.rules
    node, own = scene.trace(), scene.trace(noise, seed)
    if rules.exact and not seed:
        own = node
    roots, salt = (Hash32(own.root), Hash32(node.root)), hash_of("own salt")
    hidden = messages.verifier_commitment(scene.order_id, 1, VERIFIER, root=roots[0], salt=salt)
    verdict = sign(scene.verdict(result, hidden, opinion), DOMAIN, key_of(VERIFIER))
    promised = scene.promise(1, Work.CHECK, 700).message
    signed = sign(replace(promised, tab=messages.tab_id(_tab_of(VERIFIER))), DOMAIN, SCHEDULER_KEY)
    return leaves.check_leaf(
        signed,
        verdict,
        result,
        leaves.shown(own, salt, roots, result, rules),
        leaves.shown(node, hash_of("node salt"), roots, result, rules),
    )


CHECK_LEAF = checked(SCENE)


def _worth(leaf: leaves.Leaf, tab: Tab, number: int = 1, **changes: Any) -> int:
    return leaves.worth(leaf, tab, number, replace(STANDING, **changes))


def test_each_leaf_is_worth_what_its_work_costs() -> None:
    assert _worth(ORDER_LEAF, VIEW.tab) == FEE > 0
    assert _worth(ORDER_LEAF, VIEW.tab, block=BLOCK + 20) == FEE
    served = prices.promise_worth(INFERENCE_LEAF.promise, INFERENCE_LEAF.result)
    assert _worth(INFERENCE_LEAF, _tab_of(NODE)) == served > 0
    assert _worth(CHECK_LEAF, _tab_of(VERIFIER)) == 700
    assert [leaves.kind_of(one) for one in (ORDER_LEAF, INFERENCE_LEAF)] == [LeafKind.ORDER, LeafKind.PROMISE]


def test_a_verifier_that_always_says_yes_is_paid_nothing() -> None:
    far = {"noise": 0.5, "seed": 9}
    assert _worth(checked(SCENE, Opinion.REJECT, **far), _tab_of(VERIFIER)) == 700
    with pytest.raises(InvalidClaim, match="contradicts"):
        _worth(checked(SCENE, **far), _tab_of(VERIFIER))
    with pytest.raises(InvalidClaim, match="cannot tell"):
        _worth(checked(SCENE, Opinion.CANNOT_TELL), _tab_of(VERIFIER))


def test_in_an_exact_class_roots_are_compared() -> None:
    scene = Scene({"exact": True, "tiles": 0}, parts=(6, 12))
    standing = replace(STANDING, rules=scene.view.rules)
    same = checked(scene, seed=0)
    assert not same.own.tiles
    assert leaves.worth(same, _tab_of(VERIFIER), 1, standing) == 700
    with pytest.raises(InvalidClaim, match="contradicts"):
        leaves.worth(checked(scene), _tab_of(VERIFIER), 1, standing)


def _other(name: str, **changes: Any) -> Callable[[Any], Any]:
    return lambda leaf: replace(leaf, **{name: replace(getattr(leaf, name), **changes)})


def _again(name: str, key: bytes, signature: str = "", **changes: Any) -> Callable[[Any], Any]:
    """The same with another message, signed again."""

    def change(leaf: Any) -> Any:
        made = sign(replace(getattr(leaf, name), **changes), DOMAIN, key)
        return replace(leaf, **{name: made.message, (signature or f"{name}_signature"): made.signature})

    return change


def _results(**changes: Any) -> Callable[[OrderLeaf], OrderLeaf]:
    """The second result is another one, and the draw is over it."""

    def change(leaf: OrderLeaf) -> OrderLeaf:
        second = sign(replace(leaf.results[1], **changes), DOMAIN, key_of(NODE))
        results = (leaf.results[0], second.message)
        drawn = sign(replace(leaf.draw, results=messages.results_hash(results)), DOMAIN, SCHEDULER_KEY)
        signatures = (leaf.result_signatures[0], second.signature)
        return OrderLeaf(leaf.order, results, signatures, drawn.message, drawn.signature)

    return change


ORDERS: dict[str, tuple[Callable[[Any], Any], dict[str, Any], type[Exception], str]] = {
    "another tab": (_other("order", order=replace(SCENE.order, tab=hash_of("x"))), {}, InvalidClaim, "another tab"),
    "not signed": (_other("order", signature=b""), {}, InvalidClaim, "did not sign"),
    "one result": (lambda leaf: replace(leaf, results=leaf.results[:1]), {}, InvalidClaim, "2 segments"),
    "another place": (_results(segment=0), {}, InvalidClaim, "another place"),
    "heads apart": (_results(input_head=hash_of("x")), {}, InvalidClaim, "do not meet"),
    "positions apart": (_results(written=11), {}, InvalidClaim, "do not meet"),
    "another draw": (_again("draw", SCHEDULER_KEY, results=hash_of("x")), {}, InvalidClaim, "other results"),
    "draw of another order": (_again("draw", SCHEDULER_KEY, order=hash_of("x")), {}, InvalidClaim, "other results"),
    "stale": (lambda leaf: leaf, {"block": BLOCK + 21}, InvalidClaim, "not of the last 20"),
    "block to come": (lambda leaf: leaf, {"block": BLOCK - 1}, InvalidClaim, "not of the last 20"),
    "draw of a stranger": (_again("draw", TAB_KEY), {}, InvalidSignature, "Draw"),
    "a node without stake": (
        lambda leaf: leaf,
        {"bonded": {JOURNEY.nodes[0]: VIEW.rules.penalty, NODE: VIEW.rules.penalty - 1}},
        InvalidClaim,
        "at stake",
    ),
    "a node of no class": (lambda leaf: leaf, {"bonded": {}}, InvalidClaim, "at stake"),
    "void": (lambda leaf: leaf, {"void": True}, InvalidClaim, "fell"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_that_lacks_something_is_worth_nothing(name: str) -> None:
    change, standing, error, words = ORDERS[name]
    with pytest.raises(error, match=words):
        _worth(change(ORDER_LEAF), VIEW.tab, **standing)


def test_a_leaf_has_one_number() -> None:
    for leaf, tab in ((ORDER_LEAF, VIEW.tab), (CHECK_LEAF, _tab_of(VERIFIER))):
        with pytest.raises(InvalidClaim, match="number 2"):
            _worth(leaf, tab, 2)


PROMISES: dict[str, tuple[leaves.Leaf, Callable[[Any], Any], type[Exception], str]] = {
    "promise of another": (INFERENCE_LEAF, _again("promise", TAB_KEY), InvalidClaim, "did not sign"),
    "another place": (INFERENCE_LEAF, _again("result", key_of(NODE), segment=0), InvalidClaim, "another place"),
    "work of another": (INFERENCE_LEAF, _again("result", key_of(VERIFIER)), InvalidSignature, "Result"),
    "no inference": (INFERENCE_LEAF, _again("promise", SCHEDULER_KEY, work=1), InvalidClaim, "Other work"),
    "no check": (CHECK_LEAF, _again("promise", SCHEDULER_KEY, work=0), InvalidClaim, "Other work"),
    "verdict elsewhere": (CHECK_LEAF, _again("verdict", key_of(VERIFIER), segment=0), InvalidClaim, "another place"),
    "verdict of another": (CHECK_LEAF, _again("verdict", key_of(NODE)), InvalidSignature, "Verdict"),
    "another result": (CHECK_LEAF, _other("result", written=13), InvalidClaim, "committed to"),
    "another trace judged": (CHECK_LEAF, _other("judged", salt=hash_of("x")), InvalidClaim, "committed to"),
    "another own trace": (CHECK_LEAF, _other("own", root=CHECK_LEAF.judged.root), InvalidClaim, "committed to"),
    "another tile": (CHECK_LEAF, _other("own", tiles=CHECK_LEAF.judged.tiles), InvalidClaim, "another trace"),
    "no tile": (CHECK_LEAF, _other("judged", tiles=b""), InvalidClaim, "tile"),
}


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_without_its_work_is_worth_nothing(name: str) -> None:
    leaf, change, error, words = PROMISES[name]
    with pytest.raises(error, match=words):
        _worth(change(leaf), _tab_of(NODE if leaf is INFERENCE_LEAF else VERIFIER))


def test_the_opened_tile_follows_from_both_roots() -> None:
    roots = (CHECK_LEAF.own.root, CHECK_LEAF.judged.root)
    count = -(-41 // 8) * 4
    seed = int.from_bytes(keccak256(keccak256(roots[0] + roots[1]) + (1).to_bytes(32) + bytes(32)))
    assert leaves.tile_of(roots, CHECK_LEAF.result, VIEW.rules) == seed % count


def test_leaves_are_encoded_as_arguments() -> None:
    for leaf in (ORDER_LEAF, INFERENCE_LEAF, CHECK_LEAF, replace(CHECK_LEAF, own=NodeReveal())):
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
