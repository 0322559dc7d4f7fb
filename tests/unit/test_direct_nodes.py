"""Where a request enters: which nodes may be chosen, which are tried, and when another one is."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import CLASS, META, RULES
from support.direct_client_stage import (
    KEYS,
    NODES,
    OFFER,
    Entries,
    candidates,
    direct_lines,
    direct_order,
    entries,
    whole_state,
)

from troth.client.direct import calls as calls_module
from troth.client.direct.nodes import MOST_TRIED, SHUNNED_SECONDS, NodeChoice, model_nodes
from troth.client.direct.ways import Ways
from troth.client.errors import ClientError, ModelUnavailable, OverlayFailed, SchedulerRefused, StreamError
from troth.client.home import Home
from troth.client.market import require_whole
from troth.client.ordering import SignedOrder
from troth.overlay.circuits.descriptors import Place
from troth.overlay.directory.listing import ListedDestination, Listing
from troth.protocol.contract_types import Account, Role
from troth.protocol.state import State
from troth.protocol.types import Address, Hash32, Segment

ONE, OTHER, *_ = NODES


def listing(*operators: str, kind: str = "node") -> Listing:
    place = Place("127.0.0.1", 9, bytes(32))
    destinations = [ListedDestination(place, bytes(32), operator, kind, 0, b"") for operator in operators]
    return Listing(0, 1, (), tuple(destinations))


def changed(state: State, node: Address, **fields: Any) -> State:
    return replace(state, nodes=state.nodes.with_item(node, replace(state.nodes[node], **fields)))


def account(state: State, node: Address, changed: Account) -> State:
    return replace(state, accounts=state.accounts.with_item(node, changed))


def test_bonded_nodes_with_the_whole_model_are_found_whatever_the_case_of_their_address() -> None:
    assert set(model_nodes(listing(ONE, OTHER.lower()), whole_state(), CLASS)) == {ONE, OTHER}
    assert set(model_nodes(listing(ONE), whole_state(), None)) == {ONE}


STATE = whole_state()
NOT_ELIGIBLE: dict[str, tuple[Listing, State]] = {
    "a scheduler": (listing(ONE, kind="scheduler"), STATE),
    "nobody's address": (listing("0x" + "ee" * 20), STATE),
    "no address": (listing("me"), STATE),
    "of another class": (listing(ONE), changed(STATE, ONE, execution_class=Hash32(b"\x05" * 32))),
    "the first layers only": (listing(ONE), changed(STATE, ONE, slice=Segment(0, 1))),
    "the last layers only": (listing(ONE), changed(STATE, ONE, slice=Segment(1, 2))),
    "leaving": (listing(ONE), account(STATE, ONE, Account(RULES.minimum_stake, role=Role.NODE, exit_block=9))),
    "slashed": (listing(ONE), account(STATE, ONE, Account(RULES.minimum_stake - 1, role=Role.NODE))),
    "withdrawn": (listing(ONE), account(STATE, ONE, Account(RULES.minimum_stake))),
    "not listed": (listing(), STATE),
}


@pytest.mark.parametrize(("listed", "state"), NOT_ELIGIBLE.values(), ids=NOT_ELIGIBLE)
def test_who_may_not_be_entered(listed: Listing, state: State) -> None:
    assert model_nodes(listed, state, CLASS) == {}


def test_each_node_is_as_likely_as_any_other_and_few_are_tried() -> None:
    choice = NodeChoice(lambda _: NODES)
    firsts = Counter(choice.some(CLASS)[0] for _ in range(1200))
    # 200 each; a bound that a fair choice misses once in 10**9 runs.
    assert set(firsts) == set(NODES)
    assert min(firsts.values()) > 110
    assert all(len(choice.some(CLASS)) == MOST_TRIED for _ in range(20))


def test_the_wanted_node_is_first_and_a_failed_one_last_for_a_while() -> None:
    now = 0.0
    choice = NodeChoice(lambda _: (ONE, OTHER), clock=lambda: now)
    assert all(choice.some(CLASS, ONE) == [ONE, OTHER] for _ in range(20))
    choice.failed(ONE)
    assert all(choice.some(CLASS, ONE) == [OTHER, ONE] for _ in range(20))
    now = SHUNNED_SECONDS
    assert all(choice.some(CLASS, ONE) == [ONE, OTHER] for _ in range(20))
    assert NodeChoice(lambda _: (OTHER,)).some(CLASS, ONE) == [OTHER], "no longer listed"


async def ordered(nodes: Entries, most: int = 8, near: Address | None = None) -> tuple[SignedOrder, list[Any]]:
    """One order through the nodes, and the lines that came."""
    ways = Ways(nodes.opening, most)
    signed = direct_order()
    nodes.signed["0x" + signed.signature.hex()] = signed
    calls = nodes.calls(ways) if near is None else nodes.calls(ways).near(near)
    try:
        async with aclosing(calls.order(signed.to_json())) as lines:
            return signed, [line async for line in lines]
    finally:
        await ways.close()


async def test_an_order_enters_at_one_node_that_has_answered_before() -> None:
    async with entries() as nodes:
        _, lines = await ordered(nodes)
        assert lines[-1]["type"] == "receipt"
        assert len(nodes.entered) == 1
        assert nodes.knocked == nodes.entered
        assert nodes.closed == nodes.opened == nodes.entered


async def test_nodes_that_are_not_there_are_passed_over_before_anything_is_sent() -> None:
    async with entries() as nodes:
        nodes.listed, nodes.dead = set(NODES[:3]), set(NODES[:2])
        for _ in range(6):
            await ordered(nodes)
        assert nodes.entered == [NODES[2]] * 6
        nodes.dead = set(NODES)
        with pytest.raises(OverlayFailed) as raised:
            await ordered(nodes)
        assert (raised.value.hop, raised.value.delivered) == ("node", "no")
        assert len(nodes.entered) == 6


async def test_a_node_that_does_not_answer_a_knock_gets_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "KNOCK_SECONDS", 0.2)
    async with entries() as nodes:
        nodes.listed, nodes.silent = {ONE, OTHER}, {ONE}
        await ordered(nodes, near=ONE)
        assert (nodes.knocked, nodes.entered) == ([ONE, OTHER], [OTHER])
        nodes.silent = {ONE, OTHER}
        with pytest.raises(OverlayFailed, match="did not answer within") as raised:
            await ordered(nodes)
        assert (raised.value.hop, raised.value.delivered) == ("node", "no")


async def test_only_so_many_are_tried() -> None:
    async with entries() as nodes:
        nodes.dead = set(NODES)
        with pytest.raises(OverlayFailed):
            await ordered(nodes)
        assert len(nodes.opened) == MOST_TRIED


async def test_what_may_have_arrived_is_not_sent_again() -> None:
    async with entries() as nodes:
        nodes.script = lambda signed: [...]
        with pytest.raises(StreamError):
            await ordered(nodes)
        assert len(nodes.entered) == 1
        nodes.refusing = dict.fromkeys(NODES, (503, "busy"))
        with pytest.raises(SchedulerRefused, match="busy"):
            await ordered(nodes)
        assert len(nodes.entered) == 2, "what a node relays as a refusal may be a lie about an order that it passed on"


async def test_a_node_whose_scheduler_is_silent_may_have_passed_the_order_on() -> None:
    async with entries() as nodes:
        nodes.refusing = dict.fromkeys(NODES, (502, "scheduler_away"))
        with pytest.raises(OverlayFailed) as raised:
            await ordered(nodes)
        assert (raised.value.hop, raised.value.delivered) == ("scheduler", "unknown")
        assert len(nodes.entered) == 1


async def test_a_node_that_broke_its_stream_off_is_tried_last_afterwards(tmp_path: Path) -> None:
    async with entries() as nodes:
        ways = Ways(nodes.opening)
        calls = nodes.calls(ways).near(ONE)
        nodes.scripts[ONE] = lambda signed: [*direct_lines(signed)[:4], ...]
        for attempt in range(4):
            signed = direct_order()
            nodes.signed["0x" + signed.signature.hex()] = signed
            try:
                async with aclosing(calls.order(signed.to_json())) as lines:
                    assert [line async for line in lines]
            except ClientError:
                assert attempt == 0
        await ways.close()
        assert nodes.entered[0] == ONE
        assert ONE not in nodes.entered[1:]


async def test_no_node_is_a_clear_error_and_nothing_is_sent() -> None:
    async with entries() as nodes:
        nodes.listed = set()
        with pytest.raises(OverlayFailed, match="no bonded node that hosts the whole model") as raised:
            await ordered(nodes)
        assert (raised.value.hop, raised.value.delivered) == ("node", "no")
        assert "--no-direct" in raised.value.remedy


async def test_the_scheduler_is_asked_through_another_node_where_one_fails() -> None:
    async with entries() as nodes:
        nodes.listed, nodes.dead = {ONE, OTHER}, {ONE}
        ways = Ways(nodes.opening)
        try:
            assert await nodes.calls(ways).near(ONE).classes() == {CLASS: (2,)}
            assert (await nodes.calls(ways).near(ONE).language(CLASS)).config
            found = await nodes.calls(ways).near(OTHER).task(Hash32(bytes(32)), Hash32(b"\x03" * 32))
            assert found["tokens"]
        finally:
            await ways.close()
        assert nodes.shown == [(OTHER, "0x" + "03" * 32)]


async def test_few_ways_stay_open_and_one_in_use_is_never_closed() -> None:
    async with entries() as nodes:
        ways = Ways(nodes.opening, most=2)
        async with ways.to(NODES[0]) as first:
            for node in NODES[1:5]:
                async with ways.to(node):
                    pass
            assert NODES[0] in ways.nodes()
            assert len(ways.nodes()) == 2
            assert await first.api.classes() == {CLASS: (2,)}
        async with ways.to(NODES[0]) as again:
            assert again is first
        await ways.close()
        assert sorted(nodes.closed) == sorted(nodes.opened)
        assert nodes.opened.count(NODES[0]) == 1
        assert ways.nodes() == []


def test_a_split_over_several_nodes_is_refused() -> None:
    require_whole(OFFER)
    with pytest.raises(ModelUnavailable, match="splits the model"):
        require_whole(replace(OFFER, ends=(1, 2)))


async def test_a_renewed_offer_must_be_whole_too(tmp_path: Path) -> None:
    async with entries() as nodes, nodes.session(Home(tmp_path)) as session:
        assert (await session.renewed()).offer.ends == (2,)
        nodes.ends = (1, 2)
        with pytest.raises(ModelUnavailable, match="splits the model"):
            await session.renewed()


def test_the_stage_s_nodes_are_those_of_the_draw() -> None:
    signed = direct_order()
    assert set(candidates(signed)) <= set(KEYS)
    assert META.block == 1
