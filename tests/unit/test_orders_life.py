"""Nodes serve orders on tabs, and what they signed passes the statement of the protocol: node and protocol agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.market_logs import META
from support.order_market import BLOCK, DOMAIN, SCHEDULER
from support.order_network import build, verified

from troth.protocol import typed_data
from troth.protocol.doubts import under_rules
from troth.protocol.findings import Kind
from troth.protocol.market import checks, leaves, prices
from troth.protocol.market.life import Acknowledged, Rejected, live
from troth.protocol.market.messages import sign
from troth.protocol.market.notes import require_record, value_of
from troth.protocol.market.papers import drawn_seats
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Opinion, Work
from troth.protocol.market.state import ConvictionRecord
from troth.protocol.market.types import Tab
from troth.protocol.types import Hash32


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_an_honest_order_is_acknowledged_at_once_by_the_protocol(tmp_path: Path, ends: tuple[int, ...]) -> None:
    network = build(tmp_path, ends=ends)
    ordered = await network.serve()
    for segment in range(len(ends)):
        link = verified(ordered, segment, 4 * 32).link
        head = checks.head(ordered.order_id, ordered.head_salt, link)
        assert ordered.results[segment].message.output_head == head
    parts = tuple([await network.check(ordered, segment) for segment in range(len(ends))])
    view = network.view(ordered.order.message)
    ending = live(network.journey(ordered, parts), view)
    assert isinstance(ending, Acknowledged)
    assert ending.checked
    said = [verdict.message.opinion for part in parts for verdict in part.verdicts.values()]
    assert set(said) == {Opinion.ACCEPT}


async def test_an_order_that_is_not_drawn_is_acknowledged_after_the_lag(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    ending = live(network.journey(ordered), network.view(ordered.order.message))
    assert isinstance(ending, Acknowledged)
    assert not ending.checked


async def test_positions_from_a_nodes_cache_cost_their_own_price_and_change_nothing_for_its_verifiers(
    tmp_path: Path,
) -> None:
    network = build(tmp_path)
    plain = await network.serve()
    order = network.order()
    network.nodes[order.nodes[0]].engine.kept = 8
    ordered = await network.serve(order)
    result, view = ordered.results[0].message, network.view(ordered.order.message)
    prompt = len(ordered.request.prompt_tokens)
    assert (result.prompt, result.cached) == (prompt - 8, 8)
    promised = ordered.pays[ordered.nodes[0], 0, Work.INFERENCE].promise.message
    assert prices.promise_worth(promised, result) < prices.promise_worth(promised, plain.results[0].message)
    ending = live(network.journey(ordered, (await network.check(ordered, 0),)), view)
    assert isinstance(ending, Acknowledged)
    assert ending.checked


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_a_cheaper_model_is_rejected_by_every_verifier_and_by_the_protocol(
    tmp_path: Path, ends: tuple[int, ...]
) -> None:
    network = build(tmp_path, ends=ends, locks=True)
    order = network.order()
    network.nodes[order.nodes[0]].engine.scale *= 0.9
    ordered = await network.serve(order)
    parts = tuple([await network.check(ordered, segment) for segment in range(len(ends))])
    verdicts = list(parts[0].verdicts.values())
    assert {verdict.message.opinion for verdict in verdicts} == {Opinion.REJECT}
    assert all(verdict.message.locks for verdict in verdicts)
    ending = live(network.journey(ordered, parts), network.view(ordered.order.message))
    # One node may have been drawn for both segments.
    cheated = tuple(segment for segment, node in enumerate(ordered.nodes) if node == ordered.nodes[0])
    assert ending == Rejected(cheated)
    for verifier in parts[0].verdicts:
        waiting = network.nodes[verifier].context.stores.rejections.waiting()
        (rejection,) = (one for one in waiting if one.segment == 0)
        assert rejection.verdict == parts[0].verdicts[verifier]
        assert rejection.tokens == (tuple(ordered.tokens) if len(ends) == 1 else ())
        assert rejection.request


async def test_a_sampled_text_is_checked_with_the_same_public_noise(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve(temperature=700_000)
    part = await network.check(ordered, 0)
    assert {verdict.message.opinion for verdict in part.verdicts.values()} == {Opinion.ACCEPT}
    for verifier, signed in part.verdicts.items():
        typed_data.require_signer(signed.message, DOMAIN, signed.signature, verifier)


async def test_an_exact_class_opens_roots_alone(tmp_path: Path) -> None:
    network = build(tmp_path, exact=True, tiles=0)
    ordered = await network.serve()
    part = await network.check(ordered, 0)
    assert part.node is not None
    assert part.node.tiles.tiles == b""
    ending = live(network.journey(ordered, (part,)), network.view(ordered.order.message))
    assert isinstance(ending, Acknowledged)
    assert ending.checked


async def test_work_is_worth_what_the_promise_says_once_it_is_signed(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    node = network.nodes[ordered.nodes[0]]
    leaf = node.context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE)
    assert leaf is not None
    assert (leaf.prompt, leaf.cached, leaf.written) == (12, 0, 6)
    assert leaf.worth == network.price(ordered)
    part = await network.check(ordered, 0)
    for verifier, promise in part.promises.items():
        check = network.nodes[verifier].context.stores.books.leaf(ordered.order_id, 0, Work.CHECK)
        assert check is not None
        assert check.worth == promise.message.price


@pytest.mark.parametrize("changes", [{}, {"exact": True, "tiles": 0}])
async def test_what_is_kept_of_finished_work_is_worth_its_price_where_a_claim_is_objected_to(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """``leaves.worth`` is the contract's rule: without the node's salt no acceptance could ever be claimed."""
    network = build(tmp_path, **changes)
    ordered = await network.serve()
    part = await network.check(ordered, 0)
    rules = network.view(ordered.order.message).rules
    standing = leaves.LeafContext(DOMAIN, BLOCK, 20, 1_000, rules, {})
    for operator, work in ((ordered.nodes[0], Work.INFERENCE), *((one, Work.CHECK) for one in part.promises)):
        node = network.nodes[operator]
        leaf = node.context.stores.books.leaf(ordered.order_id, 0, work)
        assert leaf is not None
        tab = Tab(SCHEDULER, operator, SCHEDULER)
        assert leaves.worth(leaf.shown(), tab, leaf.number, standing) == leaf.worth == leaf.price
        assert leaf.value(network.ground.state, operator) == leaf.worth


async def test_a_rejection_is_owed_once_the_result_fell(tmp_path: Path) -> None:
    network = build(tmp_path)
    order = network.order()
    network.nodes[order.nodes[0]].engine.scale *= 0.9
    ordered = await network.serve(order)
    verifier = next(iter(network.drawn(ordered)[0].seats))
    await network.verify(ordered, 0, verifier)
    leaf = network.nodes[verifier].context.stores.books.leaf(ordered.order_id, 0, Work.CHECK)
    assert leaf is not None
    state = network.ground.state
    assert leaf.value(state, verifier) == 0
    reference = ordered.order.message.reference_block
    convicted = ConvictionRecord(Fault.FALSE_RESULT, ordered.order_id, reference - 5, reference + 5, META)
    fallen = replace(state, convictions=state.convictions.set(ordered.nodes[0], (convicted,)))
    assert leaf.value(fallen, verifier) == leaf.price
    voided = replace(state, voided=state.voided.set((ordered.order_id, 0), ordered.order_id))
    assert leaf.value(voided, verifier) == leaf.price
    tab, rules = Tab(SCHEDULER, verifier, SCHEDULER), network.view(ordered.order.message).rules
    standing = leaves.LeafContext(DOMAIN, BLOCK, 20, 1_000, rules, {}, convicted=frozenset({ordered.nodes[0]}))
    assert leaves.worth(leaf.shown(), tab, leaf.number, standing) == leaf.price


async def test_rows_whose_node_committed_to_another_trace_cannot_be_told(tmp_path: Path) -> None:
    """The states are right, but the result names a trace that nobody was shown: who said yes would answer for it."""
    network = build(tmp_path)
    ordered = await network.infer(network.order())
    await network.conclude(ordered)
    operator = network.nodes[ordered.nodes[0]].operator
    other = replace(ordered.results[0].message, trace_commitment=ordered.order_id)
    ordered.results = [sign(other, DOMAIN, operator.secret)]
    ordered = network.draw(ordered)
    verifier = next(iter(network.drawn(ordered)[0].seats))
    _, verdict = await network.verify(ordered, 0, verifier)
    assert verdict.message.opinion == Opinion.CANNOT_TELL
    leaf = network.nodes[verifier].context.stores.books.leaf(ordered.order_id, 0, Work.CHECK)
    assert leaf is not None
    assert leaf.value(network.ground.state, verifier) == 0


@pytest.mark.slow
async def test_verifiers_sign_what_they_found_beside_the_verdict(tmp_path: Path) -> None:
    """Once for each task, with what shows that they were drawn; a class of older rules finds nothing."""
    network = build(tmp_path, calibration=under_rules(Hash32(bytes(32))))
    ordered = await network.serve()
    for verifier in network.drawn(ordered)[0].seats:
        node = network.nodes[verifier]
        await network.verify(ordered, 0, verifier)
        await node.ask(*network.judge_message(ordered, 0))
        (noted,) = node.context.stores.notes.of()
        assert require_record([noted.note], DOMAIN) == verifier
        note = noted.note.message
        assert (note.node, note.order, note.number) == (ordered.nodes[0], ordered.order_id, 1)
        assert (note.states, value_of(note, Kind.TOKENS)) == (0, 0.0)
        _, seats = drawn_seats(noted.papers, network.view(ordered.order.message))
        assert verifier in seats[0].operators
    older = build(tmp_path / "older")
    ordered = await older.serve()
    verifier = next(iter(older.drawn(ordered)[0].seats))
    await older.verify(ordered, 0, verifier)
    assert list(older.nodes[verifier].context.stores.notes.of()) == []
