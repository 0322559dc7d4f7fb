"""What a lying or silent node can make of the pool's table and of the placement of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.market_logs import META, address
from support.pool_members import CLASS, LAYERS, SHAPE, name, report, side
from support.tab_scene import TabScene

from troth.node.pool.contacts import MarketContacts
from troth.protocol.market import events as on
from troth.protocol.market.state import State, account_id
from troth.protocol.market.types import PotKind
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address
from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.pipelines.graph import PipelineHost
from troth.routing.pipelines.live_map import LiveMap, MachineReport
from troth.scheduler.pool import showing
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.class_pool import ORDER_SECONDS, PROBES, UNMOVED_SECONDS, UNTRIED_ORDERS, ClassPool
from troth.scheduler.pool.coordinator import Coordinator
from troth.scheduler.pool.pace import PlacementPace
from troth.scheduler.pool.showing import SHOWN_WAYS, shown
from troth.scheduler.pool.sides import MarketSides

HALF = 6 * SHAPE.layer_bytes
LIAR = 9


class Room:
    """A pool whose nodes all report every five seconds."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pool = ClassPool(SHAPE, 0, placing=True, pace=PlacementPace(0.0, 0.0), clock=lambda: self.now)

    def pass_by(self, seconds: float, chain: ChainSide) -> dict[str, tuple[int, int]]:
        """Let time pass; the orders that nodes are given at its end."""
        orders: dict[str, tuple[int, int]] = {}
        end = self.now + seconds
        while self.now < end:
            self.now += 5.0
            for node in chain.slices:
                held = chain.slices[node]
                self.pool.take(node, report(int(self.now), held.first, held.end, memory_bytes=HALF))
            self.pool.consider(chain)
            given = {node: self.pool.order_for(node, chain) for node in chain.slices}
            orders = {node: (order[1].first, order[1].end) for node, order in given.items() if order is not None}
        return orders


def test_a_node_that_never_moves_though_it_says_so_is_placed_around() -> None:
    room, chain = Room(), side({1: (0, 6), 2: (0, 6), 3: (6, 12), LIAR: (0, 6)})
    assert room.pass_by(5.0, chain) == {name(LIAR): (6, 12)}
    assert room.pass_by(ORDER_SECONDS + 10.0, chain) == {name(2): (6, 12)}
    # The one that obeys is all that it takes; it is not made to wait for the liar's time to be over.
    moved = side({1: (0, 6), 2: (6, 12), 3: (6, 12), LIAR: (0, 6)})
    assert room.pass_by(UNMOVED_SECONDS + 10.0, moved) == {}


def test_a_node_that_moves_late_may_be_moved_again() -> None:
    room, chain = Room(), side({1: (0, 6), 2: (0, 6), 3: (6, 12), LIAR: (0, 6)})
    room.pass_by(ORDER_SECONDS + 10.0, chain)
    assert not next(one for one in room.pool.members(chain) if one.name == name(LIAR)).movable
    late = side({1: (0, 6), 2: (0, 6), 3: (6, 12), LIAR: (6, 12)})
    assert next(one for one in room.pool.members(late) if one.name == name(LIAR)).movable


def test_a_node_that_never_finished_an_order_holds_a_few_and_not_all() -> None:
    """Attack 211: it says that a layer takes it a nanosecond, has room without end, and writes nothing."""
    now = 100.0
    pool = ClassPool(SHAPE, 100, placing=False, clock=lambda: now)

    def told() -> None:
        for node, nanoseconds in ((name(1), 20_000_000), (name(LIAR), 1)):
            pool.take(node, report(int(now), 0, LAYERS, decode_nanoseconds=nanoseconds, cache_tokens=1 << 30))

    pool.note_answer(name(1), LAYERS, 0.02 * LAYERS)
    told()
    draws = [SegmentDraw(0, LAYERS, (name(LIAR), name(1)))]
    chosen = [pool.choose(str(number), 50, draws).names for number in range(30)]
    assert chosen.count((name(LIAR),)) == UNTRIED_ORDERS * 100 // 50
    assert chosen.count((name(1),)) == 30 - UNTRIED_ORDERS * 100 // 50
    now += 5.0
    pool.note_answer(name(LIAR), LAYERS, 0.001 * LAYERS)
    told()
    assert pool.choose("later", 50, draws).names == (name(LIAR),), "it was seen to be fast"


def test_a_report_is_answered_without_a_look_at_every_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of n machines has n² links and is told of n reports in 1.5 s: a walk for each would be n³."""
    room, chain = Room(), side(dict.fromkeys(range(8), (0, LAYERS)))
    room.pass_by(5.0, chain)

    def walk(*_: object) -> None:
        raise AssertionError("all links were looked at")

    monkeypatch.setattr(LiveMap, "links", walk)
    assert len(room.pool.probes_for(name(3))) == PROBES


def test_links_are_looked_up_one_by_one() -> None:
    table = LiveMap(6.0, link_expiry_seconds=300.0)
    names = [name(number) for number in range(3)]
    for machine in names:
        table.report(MachineReport(1, PipelineHost(machine, 0, LAYERS, 0.01, 1000)), 0.0)
    table.link(names[0], names[1], 0.25, 0.0)
    table.link(names[2], names[0], 0.5, 200.0)
    found = table.links(300.0)
    assert dict(found) == found == {(names[0], names[1]): 0.25, (names[2], names[0]): 0.5}
    assert len(found) == 2
    assert found.get((names[0], "stranger")) is found.get((names[1], names[0])) is None
    assert dict(table.links(301.0)) == {(names[2], names[0]): 0.5}
    assert table.unmeasured(names[0], 300.0) == [names[2]]
    assert table.unmeasured(names[0], 301.0) == names[1:]
    assert table.unmeasured("stranger", 0.0) == names


def test_nodes_to_which_there_is_no_way_do_not_stand_before_the_rest() -> None:
    """Four that stall their probes, with addresses next to each other, stay unmeasured for ever."""
    clock, chain = Room(), side(dict.fromkeys(range(20), (0, LAYERS)))
    clock.pass_by(5.0, chain)
    asked = [set(clock.pool.probes_for(name(3))) for _ in range(5)]
    assert set().union(*asked) == {name(number) for number in range(20) if number != 3}


def test_who_has_withdrawn_or_lost_its_stake_is_no_host_any_more(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, nodes=4)
    kept, gone, empty, short = list(scene.nodes)
    scene.ledger.fold(on.Deregistered(gone, 9, META))
    state = with_stake(with_stake(scene.ledger.state, empty, 0), short, scene.definition.seat - 1)
    found = MarketSides(lambda: (state, scene.ledger.block)).side(scene.class_id)
    assert found is not None
    assert set(found.slices) == {kept}
    assert set(MarketSides(lambda: (scene.ledger.state, 0)).side(scene.class_id).slices) == {kept, empty, short}  # type: ignore[union-attr]


def with_stake(state: State, party: Address, stake: int) -> State:
    return replace(state, pots=state.pots.set((PotKind.STAKE, account_id(party)), stake))


def test_schedulers_that_have_withdrawn_take_no_place(tmp_path: Path) -> None:
    """A node speaks to so many; who comes and goes with one stake could else keep it from all others."""
    scene = TabScene(tmp_path, nodes=1)
    state, operator = scene.ledger.state, scene.client_tab.payee
    least = parameters_of(state).scheduler_stake
    gone = replace(state.parties[operator], operator=address(77), exit_block=9)
    poor = replace(state.parties[operator], operator=address(78))
    state = with_stake(with_stake(state, address(77), least), address(78), least - 1)
    for party in (gone, poor):
        state = replace(state, parties=state.parties.set(party.operator, party))
    state = with_stake(state, operator, least)
    assert [one.operator for one in MarketContacts(lambda: state).schedulers()] == [operator]
    leaving = replace(state.parties[operator], exit_block=9)
    state = replace(state, parties=state.parties.set(operator, leaving))
    assert not MarketContacts(lambda: state).schedulers()


def test_a_map_that_everybody_asks_for_is_drawn_twice_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    now = [0.0]

    def draw(_pool: object, _side: object, at: float) -> dict[str, object]:
        drawn.append(at)
        return {"at": at}

    class Pools:
        def pools(self) -> dict[bytes, tuple[None, None]]:
            return {bytes(32): (None, None)}

    monkeypatch.setattr(showing, "shown", draw)
    pools: Any = Pools()
    board = showing.Board(pools, lambda: now[0])
    assert [board.body() for _ in range(1000)] == [b'{"0x%s": {"at": 0.0}}' % (b"00" * 32)] * 1000
    now[0] = showing.DRAWN_SECONDS
    board.body()
    assert drawn == [0.0, showing.DRAWN_SECONDS]


def test_a_large_pools_map_shows_few_of_its_links() -> None:
    room, chain = Room(), side(dict.fromkeys(range(SHOWN_WAYS + 6), (0, LAYERS)))
    room.pass_by(5.0, chain)
    for one in chain.slices:
        for other in chain.slices:
            room.pool.live.link(one, other, 0.01, room.now)
    assert len(shown(room.pool, chain, room.now)["links"]) == SHOWN_WAYS * (SHOWN_WAYS - 1)


def test_a_stranger_who_asks_for_the_ends_has_nothing_placed() -> None:
    """While no split can be offered, everybody who asks what is served would else have the placement computed."""
    room, chain = Room(), side({})
    looks: list[ChainSide] = []
    consider = room.pool.consider

    def look(seen: ChainSide) -> None:
        looks.append(seen)
        consider(seen)

    nothing: Any = None
    entry: Any = SimpleNamespace(placing=True, class_id=CLASS, ends=())
    coordinator: Any = Coordinator((), nothing, nothing, nothing)
    coordinator.pool, coordinator._side = lambda _: room.pool, lambda _: chain
    room.pool.consider = look  # type: ignore[method-assign]
    assert [coordinator.ends(entry) for _ in range(100)] == [(LAYERS,)] * 100
    assert len(looks) == 1
