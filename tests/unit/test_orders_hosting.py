"""Which layers a node on tabs holds: its slice, former ones for as long as anybody may ask for them, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.market_logs import META
from support.order_market import BLOCK, PROMPT, FakeGround
from support.order_network import Network, Ordered, build
from support.tabs_stage import PARAMETERS
from support.toy_engine import ToyEngine

from troth.node.errors import ConfigError, ModelError, NodeBusy
from troth.node.orders.hosting import Holding, SliceHosting, asked_for, holding
from troth.node.registration.asking import asks_for, asks_of
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import CaseRecord, State
from troth.protocol.market.types import Ask
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import ZERO_HASH, Hash32, Segment, pack_ends

WHOLE, LOWER, UPPER = Segment(0, 2), Segment(0, 1), Segment(1, 2)
CHANGED = BLOCK + 1
LAST = CHANGED + asked_for(PARAMETERS)
"""The last block in which the slice of before the change may be asked for."""


class Layered(ToyEngine):
    """Holds the layers that it was told to, and no others."""

    held: frozenset[Segment] = frozenset()
    fails: Any = None

    def holds(self, segment: Segment) -> bool:
        return any(one.first <= segment.first and segment.end <= one.end for one in {self.slice, *self.held})

    async def rehost(self, hosted: Segment, keep: Sequence[Segment] = ()) -> None:
        if self.fails is not None:
            raise self.fails
        self.slice, self.held = hosted, frozenset(keep)


class Mover:
    """One node of a network, whose slice changes by the chain."""

    def __init__(self, network: Network, number: int) -> None:
        self.network = network
        self.address = list(network.nodes)[number]
        self.node = network.nodes[self.address]
        engine, context, service = self.node.start()
        layered = Layered(engine.slice)
        self.node.started = (layered, replace(context, engine=layered), service)
        service._context = self.node.context
        self.engine: Layered = layered
        self.hosting = SliceHosting(self.node.context, service)
        self.says([(5, WHOLE)])

    @property
    def ground(self) -> FakeGround:
        return self.network.ground

    def ordered(self) -> Ordered:
        """An order whose first segment is this node's, and only that."""
        for _ in range(1_000):
            ordered = self.network.order()
            if ordered.nodes[0] == self.address != ordered.nodes[1]:
                return ordered
        raise AssertionError(self.address)

    def says(self, slices: list[tuple[int, Segment]]) -> None:
        state = self.ground.state
        party = replace(state.parties[self.address], hosted=slices[-1][1], slices=tuple(slices))
        self.ground.state = replace(state, parties=state.parties.set(self.address, party))

    async def at(self, block: int) -> Holding:
        self.ground.block = block
        await self.hosting.step()
        found = holding(self.node.context, self.node.service.segments)
        assert found is not None
        return found


@pytest.fixture
def mover(tmp_path: Path) -> Mover:
    return Mover(build(tmp_path, ends=(1, 2)), 0)


async def test_a_former_slice_is_held_while_orders_may_ask_for_it(mover: Mover) -> None:
    assert await mover.at(BLOCK) == Holding(WHOLE)
    mover.says([(5, WHOLE), (CHANGED, UPPER)])
    assert await mover.at(CHANGED) == Holding(UPPER, (WHOLE,))
    assert mover.engine.holds(LOWER)
    assert await mover.at(LAST - 1) == Holding(UPPER, (WHOLE,))
    assert await mover.at(LAST) == Holding(UPPER)
    assert (mover.engine.holds(LOWER), mover.engine.slice) == (False, UPPER)


async def test_a_restart_holds_what_the_running_node_held(mover: Mover) -> None:
    mover.says([(5, LOWER), (CHANGED, UPPER)])
    await mover.at(CHANGED + 3)
    fresh = SliceHosting(mover.node.context, mover.node.service)
    mover.engine.held = frozenset()
    await fresh.step()
    assert mover.engine.holds(LOWER)


async def test_a_reorganisation_that_takes_the_change_back(mover: Mover) -> None:
    mover.says([(5, LOWER), (CHANGED, UPPER)])
    await mover.at(CHANGED)
    mover.says([(5, LOWER)])
    assert await mover.at(CHANGED) == Holding(LOWER)
    assert (mover.engine.slice, mover.engine.held) == (LOWER, frozenset())


async def test_an_order_under_way_ends_as_if_nothing_had_happened(mover: Mover) -> None:
    """The node moves after the prompt; the rest of the answer, its result and the check are those of one that stays."""
    network, ordered = mover.network, mover.ordered()
    node, seen = mover.node, []
    plain = node.ask

    async def moves_in_the_middle(header: Any, payload: bytes = b"", *arguments: Any) -> Any:
        if not seen and getattr(header, "start", 0) == len(PROMPT):
            seen.append(header.start)
            mover.says([(5, WHOLE), (CHANGED, UPPER)])
            assert WHOLE in (await mover.at(CHANGED)).keep
        return await plain(header, payload, *arguments)

    node.ask = moves_in_the_middle  # type: ignore[method-assign]
    served = network.draw(await network.conclude(await network.infer(ordered)))
    assert seen == [len(PROMPT)]
    check = await network.check(served, 0)
    assert {Opinion(word.message.opinion) for word in check.verdicts.values()} == {Opinion.ACCEPT}


async def test_a_session_keeps_its_layers_for_the_lag_and_not_for_ever(mover: Mover) -> None:
    """Attack: a scheduler never dismisses, so that the node cannot free what it left."""
    network, ordered = mover.network, mover.ordered()
    papers = network.papers(ordered, 0)
    header, payload = network.first(ordered, 0, papers, tokens_to_bytes(PROMPT), count=len(PROMPT))
    await mover.node.ask(header, payload)
    mover.says([(5, WHOLE), (CHANGED, UPPER)])
    assert (await mover.at(LAST + PARAMETERS.lag - 1)).keep == (LOWER,)
    assert mover.node.service.sessions == 1
    await mover.at(LAST + PARAMETERS.lag)
    assert (mover.node.service.sessions, mover.engine.holds(LOWER)) == (0, False)


async def test_work_for_layers_that_are_not_there_yet_is_for_another_node(mover: Mover) -> None:
    """The chain says that it hosts them; the disk has not delivered. Nothing is signed, and a later try succeeds."""
    network, ordered = mover.network, mover.ordered()
    await mover.engine.rehost(UPPER)
    papers = network.papers(ordered, 0)
    message = network.first(ordered, 0, papers, tokens_to_bytes(PROMPT), count=len(PROMPT))
    assert mover.hosting.lacking == "layers 0:2 are loading"
    with pytest.raises(NodeBusy, match="not loaded here yet"):
        await mover.node.ask(*message)
    assert mover.node.service.sessions == 0
    await mover.at(BLOCK)
    assert not mover.hosting.lacking
    reply, _ = await mover.node.ask(*message)
    assert reply.count == len(PROMPT)


def with_case(state: State, class_id: Hash32, ends: Hash32, reference: int, outcome: Outcome | None = None) -> State:
    case = CaseState(
        CaseKind.DOUBT, CasePhase.DRAWN, segment=0, reference_block=reference, execution_class=class_id, ends=ends
    )
    return replace(state, cases=state.cases.set(ZERO_HASH, CaseRecord(ZERO_HASH, case, outcome, (META,))))


async def test_a_case_brings_a_former_slice_back(mover: Mover) -> None:
    """Reviewers are members at the order's block, hours before they judge: who cannot compute would pay for silence."""
    mover.says([(5, LOWER), (CHANGED, UPPER)])
    assert await mover.at(LAST) == Holding(UPPER)
    state, class_id = mover.ground.state, mover.node.class_id
    mover.ground.state = with_case(state, class_id, pack_ends((1, 2)), BLOCK)
    assert await mover.at(LAST) == Holding(UPPER, (LOWER,))
    assert mover.engine.holds(LOWER)
    mover.ground.state = with_case(state, class_id, pack_ends((1, 2)), BLOCK, Outcome.UPHELD)
    assert await mover.at(LAST) == Holding(UPPER)
    mover.ground.state = with_case(state, class_id, pack_ends((1, 2)), CHANGED)
    assert await mover.at(LAST) == Holding(UPPER), "it was no member any more"
    mover.ground.state = with_case(state, class_id, ZERO_HASH, BLOCK)
    assert await mover.at(LAST) == Holding(UPPER), "a split that is none"


async def test_layers_that_are_coming_are_held_and_go_again_if_they_do_not_come(mover: Mover) -> None:
    mover.says([(5, LOWER)])
    await mover.at(BLOCK)
    sent: list[frozenset[Segment]] = []

    async def change() -> None:
        async with mover.hosting.expecting(UPPER):
            sent.append(mover.engine.held)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await change()
    assert sent == [{UPPER}]
    assert (mover.engine.slice, mover.engine.held) == (LOWER, frozenset())
    mover.engine.fails = ModelError("the disk is gone", None, "Mount it.")
    with pytest.raises(ModelError):
        await change()
    assert len(sent) == 1, "nothing is sent for layers that cannot be loaded"


# Asks


def test_asks_follow_the_layers_and_stay_where_the_node_stays() -> None:
    whole = Ask(30, 3, 61)
    assert asks_for([Segment(0, 5), Segment(5, 30)], {}, 30, whole) == {
        Segment(0, 5): Ask(5, 0, 10),
        Segment(5, 30): Ask(25, 2, 50),
    }
    present = {Segment(0, 10): Ask(10, 2, 40), Segment(10, 20): Ask(30, 1, 20)}
    asks = asks_for([Segment(0, 10), Segment(0, 5)], present, 30, None)
    assert asks == {Segment(0, 10): Ask(10, 2, 40), Segment(0, 5): Ask(15, 1, 20)}
    assert asks_for([Segment(0, 10)], present, 30, whole) == {Segment(0, 10): Ask(10, 2, 40)}
    with pytest.raises(ConfigError, match="what this node asks"):
        asks_for([Segment(0, 5)], {}, 30, None)


def test_asks_are_read_from_the_groups_that_a_node_is_in(tmp_path: Path) -> None:
    network = build(tmp_path, ends=(1, 2), ask=Ask(7, 1, 9))
    node = next(iter(network.nodes))
    assert asks_of(network.ground.state, node, 2) == {LOWER: Ask(7, 1, 9), UPPER: Ask(7, 1, 9)}
