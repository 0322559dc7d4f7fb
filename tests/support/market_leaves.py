"""Leaves of a scheduler, of a node that served and of a verifier, and each with something wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.market_scene import BLOCK, DOMAIN, SCHEDULER_KEY, TAB_KEY, Scene, hash_of, key_of

from troth.protocol.errors import InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.market import leaves, messages
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.leaves import CheckLeaf, LeafContext, OrderLeaf, ShownCheck
from troth.protocol.market.messages import sign
from troth.protocol.market.signed import Opinion, Work
from troth.protocol.market.types import Tab
from troth.protocol.types import Hash32

SCENE = Scene(parts=(6, 12))
JOURNEY, VIEW = SCENE.served(), SCENE.view
assert JOURNEY.results
assert JOURNEY.draw
RESULTS, DRAW = JOURNEY.results, JOURNEY.draw
NODE = JOURNEY.nodes[1]
VERIFIER = next(one for one in VIEW.groups[0].owners if one not in JOURNEY.nodes)
SCHEDULER = VIEW.tab.payee
STANDING = LeafContext(DOMAIN, BLOCK, 20, 10_000, VIEW.rules, dict.fromkeys(JOURNEY.nodes, VIEW.rules.penalty))
ORDER_LEAF = leaves.order_leaf(JOURNEY.order, VIEW.tab, RESULTS, DRAW)


def tab_of(node: str) -> Tab:
    """The scheduler's tab with a node; the scheduler is its key."""
    return Tab(SCHEDULER, node, SCHEDULER)  # type: ignore[arg-type]


def _promised(node: str, work: Work) -> Any:
    promised = SCENE.promise(1, work, 5_000).message
    return sign(replace(promised, tab=messages.tab_id(tab_of(node))), DOMAIN, SCHEDULER_KEY)


INFERENCE_LEAF = leaves.inference_leaf(_promised(NODE, Work.INFERENCE), RESULTS[1])


def checked(scene: Scene, opinion: Opinion = Opinion.ACCEPT, *, noise: float = 1e-7, seed: int = 5) -> CheckLeaf:
    """The leaf of a verifier whose own trace is the node's with some noise."""
    rules, journey = scene.view.rules, scene.served()
    assert journey.results
    assert journey.draw
    result = journey.results[1].message
    node, own = scene.trace(), scene.trace(noise, seed)
    if rules.exact and not seed:
        own = node
    roots, salt = (Hash32(own.root), Hash32(node.root)), hash_of("own salt")
    hidden = messages.verifier_commitment(scene.order_id, 1, VERIFIER, root=roots[0], salt=salt)
    verdict = sign(scene.verdict(result, hidden, opinion), DOMAIN, key_of(VERIFIER))
    promised = scene.promise(1, Work.CHECK, 700).message
    signed = sign(replace(promised, tab=messages.tab_id(tab_of(VERIFIER))), DOMAIN, SCHEDULER_KEY)
    traces = {
        "own": leaves.shown(own, salt, roots, result, rules),
        "judged": leaves.shown(node, hash_of("node salt"), roots, result, rules),
    }
    return leaves.check_leaf(signed, verdict, journey.draw, journey.results, **traces)


CHECK_LEAF = checked(SCENE)
DISAGREEING = checked(SCENE, Opinion.REJECT, noise=0.5, seed=9)
REJECT_LEAF = replace(DISAGREEING, check=replace(DISAGREEING.check, own=leaves.NO_TRACE, judged=leaves.NO_TRACE))
WORDS = {opinion: checked(SCENE, opinion) for opinion in (Opinion.ACCEPT, Opinion.REJECT, Opinion.CANNOT_TELL)}
"""The same check with each opinion that a verifier may have, and traces that agree."""


def _other(name: str, **changes: Any) -> Callable[[Any], Any]:
    return lambda leaf: replace(leaf, **{name: replace(getattr(leaf, name), **changes)})


def _shown(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same with a change of what is shown of the check."""
    return lambda leaf: replace(leaf, check=change(leaf.check))


def _again(name: str, key: bytes, signature: str = "", **changes: Any) -> Callable[[Any], Any]:
    """The same with another message, signed again."""

    def change(leaf: Any) -> Any:
        made = sign(replace(getattr(leaf, name), **changes), DOMAIN, key)
        return replace(leaf, **{name: made.message, (signature or f"{name}_signature"): made.signature})

    return change


def _drawn_over(check: ShownCheck, results: tuple[Hash32, ...]) -> ShownCheck:
    """The scheduler drew over these."""
    named = replace(check.draw, results=Hash32(keccak256(b"".join(results))))
    draw = sign(named, DOMAIN, SCHEDULER_KEY)
    return replace(check, results=results, draw=draw.message, draw_signature=draw.signature)


def _results(**changes: Any) -> Callable[[OrderLeaf], OrderLeaf]:
    """The second result is another one, and the draw is over it."""

    def change(leaf: OrderLeaf) -> OrderLeaf:
        second = sign(replace(leaf.results[1], **changes), DOMAIN, key_of(NODE))
        results = (leaf.results[0], second.message)
        drawn = sign(replace(leaf.draw, results=messages.results_hash(results)), DOMAIN, SCHEDULER_KEY)
        signatures = (leaf.result_signatures[0], second.signature)
        return OrderLeaf(leaf.order, results, signatures, drawn.message, drawn.signature)

    return change


def _first(**changes: Any) -> Callable[[OrderLeaf], OrderLeaf]:
    """The first result is another one; its node and the scheduler signed again."""

    def change(leaf: OrderLeaf) -> OrderLeaf:
        first = sign(replace(leaf.results[0], **changes), DOMAIN, key_of(JOURNEY.nodes[0]))
        results = (first.message, leaf.results[1])
        drawn = sign(replace(leaf.draw, results=messages.results_hash(results)), DOMAIN, SCHEDULER_KEY)
        signatures = (first.signature, leaf.result_signatures[1])
        return OrderLeaf(leaf.order, results, signatures, drawn.message, drawn.signature)

    return change


ORDERS: dict[str, tuple[Callable[[Any], Any], dict[str, Any], type[Exception], str]] = {
    "another tab": (_other("order", order=replace(SCENE.order, tab=hash_of("x"))), {}, InvalidClaim, "another tab"),
    "not signed": (_other("order", signature=b""), {}, InvalidClaim, "did not sign"),
    "one result": (lambda leaf: replace(leaf, results=leaf.results[:1]), {}, InvalidClaim, "2 segments"),
    "another place": (_results(segment=0), {}, InvalidClaim, "another place"),
    "heads apart": (_results(input_head=hash_of("x")), {}, InvalidClaim, "do not meet"),
    "positions apart": (_results(written=11), {}, InvalidClaim, "do not meet"),
    "ends with a gap": (
        _other("order", order=replace(SCENE.order, ends=Hash32(b"\6\0\x0c".ljust(32, b"\0")))),
        {},
        InvalidClaim,
        "did not sign",
    ),
    "another draw": (_again("draw", SCHEDULER_KEY, results=hash_of("x")), {}, InvalidClaim, "other results"),
    "draw of another order": (_again("draw", SCHEDULER_KEY, order=hash_of("x")), {}, InvalidClaim, "other results"),
    "stale": (lambda leaf: leaf, {"block": BLOCK + 21}, InvalidClaim, "not of the last 20"),
    "block to come": (lambda leaf: leaf, {"block": BLOCK - 1}, InvalidClaim, "not of the last 20"),
    "too old to be judged": (
        lambda leaf: leaf,
        {"answer_age": BLOCK - 1 - SCENE.order.reference_block},
        InvalidClaim,
        "The court hears draws",
    ),
    "another request": (_first(input_head=hash_of("x")), {}, InvalidClaim, "another request"),
    "draw of a stranger": (_again("draw", TAB_KEY), {}, InvalidSignature, "Draw"),
    "a node without stake": (
        lambda leaf: leaf,
        {"bonded": {JOURNEY.nodes[0]: VIEW.rules.penalty, NODE: VIEW.rules.penalty - 1}},
        InvalidClaim,
        "at stake",
    ),
    "a node of no class": (lambda leaf: leaf, {"bonded": {}}, InvalidClaim, "at stake"),
    "a convict's": (lambda leaf: leaf, {"convicted": frozenset({SCHEDULER})}, InvalidClaim, "fell"),
    "voided": (lambda leaf: leaf, {"voided": True}, InvalidClaim, "fell"),
    "kept back": (lambda leaf: leaf, {"unanswered": True}, InvalidClaim, "fell"),
}

PROMISES: dict[str, tuple[leaves.Leaf, Callable[[Any], Any], type[Exception], str]] = {
    "promise of another": (INFERENCE_LEAF, _again("promise", TAB_KEY), InvalidClaim, "did not sign"),
    "another place": (INFERENCE_LEAF, _again("result", key_of(NODE), segment=0), InvalidClaim, "another place"),
    "work of another": (INFERENCE_LEAF, _again("result", key_of(VERIFIER)), InvalidSignature, "Result"),
    "no inference": (INFERENCE_LEAF, _again("promise", SCHEDULER_KEY, work=1), InvalidClaim, "Other work"),
    "no check": (CHECK_LEAF, _again("promise", SCHEDULER_KEY, work=0), InvalidClaim, "Other work"),
    "verdict elsewhere": (
        CHECK_LEAF,
        _shown(_again("verdict", key_of(VERIFIER), "signature", segment=0)),
        InvalidClaim,
        "another place",
    ),
    "verdict of another": (
        CHECK_LEAF,
        _shown(_again("verdict", key_of(NODE), "signature")),
        InvalidSignature,
        "Verdict",
    ),
    "verdict over another": (
        CHECK_LEAF,
        _shown(_again("verdict", key_of(VERIFIER), "signature", result=hash_of("x"))),
        InvalidClaim,
        "not the drawn one",
    ),
    "draw elsewhere": (
        CHECK_LEAF,
        _shown(_again("draw", SCHEDULER_KEY, order=hash_of("x"))),
        InvalidClaim,
        "another order",
    ),
    "draw of a stranger to the tab": (CHECK_LEAF, _shown(_again("draw", TAB_KEY)), InvalidSignature, "Draw"),
    "draw over others": (
        CHECK_LEAF,
        _shown(_again("draw", SCHEDULER_KEY, results=hash_of("x"))),
        InvalidClaim,
        "other results",
    ),
    "draw over one": (
        CHECK_LEAF,
        _shown(lambda check: _drawn_over(check, check.results[:1])),
        InvalidClaim,
        "1 results",
    ),
    "another result": (CHECK_LEAF, _shown(_other("result", written=13)), InvalidClaim, "not the drawn one"),
    "another trace judged": (CHECK_LEAF, _shown(_other("judged", salt=hash_of("x"))), InvalidClaim, "committed to"),
    "another own trace": (
        CHECK_LEAF,
        _shown(_other("own", root=CHECK_LEAF.check.judged.root)),
        InvalidClaim,
        "committed to",
    ),
    "another tile": (
        CHECK_LEAF,
        _shown(_other("own", tiles=CHECK_LEAF.check.judged.tiles)),
        InvalidClaim,
        "another trace",
    ),
    "no tile": (CHECK_LEAF, _shown(_other("judged", tiles=b"")), InvalidClaim, "tile"),
    "a rejection of what stands": (REJECT_LEAF, lambda leaf: leaf, InvalidClaim, "result stands"),
    "a rejection with traces that disagree": (DISAGREEING, lambda leaf: leaf, InvalidClaim, "does not agree"),
}


def redrawn(leaf: OrderLeaf, block: int) -> OrderLeaf:
    """The same with a draw that the scheduler signed again, with this block."""
    drawn = sign(replace(leaf.draw, block_number=block), DOMAIN, SCHEDULER_KEY)
    return replace(leaf, draw=drawn.message, draw_signature=drawn.signature)
