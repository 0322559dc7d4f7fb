"""The parts of a node's group: who is in it, how loaded it is, what its cache holds, how much is read."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from support.group_stage import CLASS, MODEL, WHOLE, Stage, StagedEngine, with_node
from support.waiting import eventually

from troth.node.direct.group_side import BATCH, TURNS, group_of
from troth.node.engine.interface import Cleared, Removed, Stored
from troth.node.engine.vllm.blocks import block_names, packed
from troth.node.errors import NodeBusy
from troth.node.group import cache as caches
from troth.node.group import telling as lines
from troth.node.group.cache import Cache
from troth.node.group.group import EACH, MOST, PER_SECOND, Allowance
from troth.node.group.loads import Loads, load_of, load_part
from troth.node.group.membership import GroupMembership
from troth.node.group.telling import LONGEST_PAUSE, MemberLine
from troth.node.pool.meter import Meter
from troth.protocol.identifiers import group_id
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment
from troth.protocol.wire_group import LoadPart
from troth.routing.prefixes.announcing import BURST, SOONEST
from troth.routing.prefixes.local_blocks import Changes
from troth.routing.prefixes.members import LARGEST_GROUP
from troth.routing.prefixes.naming import Chunking, Naming
from troth.routing.prefixes.update import NodeLoad

TOKENS = list(range(256))


def name(number: int) -> Address:
    return Address(f"0x{number:040x}")


def naming(key: int = 0, *lengths: int) -> Naming:
    return Naming(bytes([key]) * 32, Chunking(lengths))


# Who is in it


class _Chain:
    """A state with nodes as the test says."""

    def __init__(self) -> None:
        self.state = Stage(Path()).chain

    def add(self, number: int, **changes: Any) -> None:
        self.state = with_node(self.state, name(number), f"https://n{number}:1", **changes)

    def suspend(self, number: int) -> None:
        """Off its place in the group, as a case, an eviction or a move does it."""
        group = group_id(CLASS, WHOLE)
        left = [entry for entry in self.state.members_at(group, 1) if entry.operator != name(number)]
        entries = self.state.entries
        for place, entry in enumerate(left):
            entries = entries.set((group, place), (entry,))
        sizes = self.state.sizes.set(group, ((1, len(left)),))
        self.state = replace(self.state, entries=entries, sizes=sizes)

    def peers(self, own: int, execution_class: Hash32 = CLASS) -> set[Address]:
        return set(GroupMembership(name(own), execution_class, lambda: self.state).peers)


def test_members_are_the_nodes_that_may_be_drawn_for_the_whole_model() -> None:
    chain = _Chain()
    for number in (1, 2, 3):
        chain.add(number)
    chain.add(4)
    chain.suspend(4)
    chain.add(5, exit_block=7)
    chain.add(6, hosted=Segment(0, MODEL.layers - 1))
    assert chain.peers(1) == {name(2), name(3)}
    for outsider in (4, 5, 6, 8):
        assert chain.peers(outsider) == set()
    assert chain.peers(1, Hash32(b"\x01" * 32)) == set()


def test_the_chain_is_followed() -> None:
    chain = _Chain()
    chain.add(1)
    membership = GroupMembership(name(1), CLASS, lambda: chain.state)
    assert membership.peers == {}
    chain.add(2)
    assert membership.peers[name(2)].endpoint == "https://n2:1"
    assert membership.peers is membership.peers
    chain.suspend(2)
    assert membership.peers == {}


def test_a_crowd_is_split_alike_by_all_its_members() -> None:
    chain = _Chain()
    everybody = range(1, 2 * LARGEST_GROUP + 2)
    for number in everybody:
        chain.add(number)
    groups = {number: frozenset(chain.peers(number) | {name(number)}) for number in everybody}
    assert len(set(groups.values())) == 3
    assert all(len(group) <= LARGEST_GROUP for group in groups.values())
    assert sum(len(group) for group in set(groups.values())) == len(everybody)


# How loaded it is


def test_a_load_survives_the_way() -> None:
    load = NodeLoad(1.5, 3, 2, 64, 0.000_25, 70_000, 2**32 + 5)
    part = load_part(load)
    assert msgspec.json.decode(msgspec.json.encode(part), type=LoadPart) == part
    there = load_of(part)
    assert (there.queued, there.running, there.capacity, there.pending, there.taken) == (3, 2, 64, 70_000, 5)
    assert there.latency == pytest.approx(1.5)
    assert there.pace == pytest.approx(0.000_25)


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e300, -1.0])
def test_a_load_that_does_not_fit_is_cut(value: float) -> None:
    part = load_part(NodeLoad(value, 10**9, -1, 0, value, 10**12, 2**40))
    assert msgspec.json.decode(msgspec.json.encode(part), type=LoadPart) == part
    assert (part.queued, part.running, part.capacity) == (0xFFFF, 0, 1)


def test_the_load_is_the_engine_s_and_what_was_measured() -> None:
    engine, meter = StagedEngine(), Meter()
    loads = Loads(cast(Any, engine), lambda: 99, meter, 64)
    meter.note(MODEL.layers, 1, 0.04)
    assert loads.now(3) == NodeLoad(capacity=64, pace=pytest.approx(0.04), taken=3)
    meter.note(MODEL.layers, 100, 0.1)
    engine.running, engine.waiting = 5, 2
    loads.prompted(300)
    loads.served(4.0)
    loads.served(12.0)
    assert loads.now(3) == NodeLoad(5.0, 2, 5, 64, pytest.approx(0.001), 600, 3)


def test_sessions_are_counted_where_the_engine_counts_nothing() -> None:
    plain = SimpleNamespace(layers=2)
    for sessions, queued, running in ((0, 0, 0), (3, 0, 3), (9, 5, 4)):
        load = Loads(cast(Any, plain), lambda count=sessions: count, Meter(), 4).now(0)
        assert (load.queued, load.running, load.capacity) == (queued, running, 4)


# What its cache holds


class _Followed:
    """A cache that is followed, and what was said of it."""

    def __init__(self, engine: Any) -> None:
        self.held: dict[int, int] = {}
        self.cache = Cache(engine, naming(), self._change)
        self.began = 0

    def _change(self, changes: Changes) -> None:
        if changes.cleared:
            self.held.clear()
        for gone in changes.removed:
            del self.held[gone]
        self.held.update((child, parent) for parent, child in changes.stored)

    def begin(self) -> None:
        self.began += 1

    def holds(self, names: Naming, tokens: list[int]) -> bool:
        path = [chunk for chunk, _ in names.path(packed(tokens))]
        return bool(path) and all(chunk in self.held for chunk in path)


async def test_a_cache_is_followed_and_renamed() -> None:
    engine = StagedEngine()
    engine.holds_prompt(TOKENS)
    followed = _Followed(engine)
    running = asyncio.create_task(followed.cache.run())
    await eventually(lambda: followed.holds(naming(), TOKENS))
    other = naming(7, 96)
    await followed.cache.rename(other, followed.begin)
    assert followed.began == 1
    assert followed.holds(other, TOKENS)
    assert not followed.holds(naming(), TOKENS)
    longer = [*TOKENS, *range(128)]
    engine.holds_prompt(longer)
    await eventually(lambda: followed.holds(other, longer))
    engine.evicts(longer)
    await eventually(lambda: not followed.held)
    running.cancel()


async def test_a_cache_without_an_engine_that_tells_is_empty_under_every_name() -> None:
    followed = _Followed(None)
    await followed.cache.run()
    await followed.cache.rename(naming(7), followed.begin)
    assert (followed.held, followed.began) == ({}, 1)


@pytest.mark.parametrize("block", [48, 0])
async def test_blocks_that_do_not_fit_are_not_told(block: int) -> None:
    engine = StagedEngine()
    engine.block = block
    engine.holds_prompt(TOKENS)
    followed = _Followed(engine)
    await followed.cache.run()
    assert followed.held == {}


class _Failing(StagedEngine):
    """Its events break off, each time after one block more."""

    times = 0

    async def events(self) -> AsyncIterator[Any]:  # type: ignore[override]
        self.times += 1
        blocks = block_names(TOKENS, 32)[: self.times]
        yield Cleared()
        yield Stored(ZERO_HASH, tuple(blocks), packed(TOKENS[: 32 * len(blocks)]))
        yield Removed((b"nobody knows this one",))
        if self.times < 5:
            raise RuntimeError("broken")
        await asyncio.Event().wait()


async def test_an_engine_whose_events_break_off_is_followed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "AGAIN_SECONDS", 0.0)
    engine = _Failing()
    followed = _Followed(engine)
    running = asyncio.create_task(followed.cache.run())
    await eventually(lambda: engine.times == 5 and followed.holds(naming(), TOKENS[:128]))
    assert len(followed.held) == 1
    running.cancel()


async def test_a_flood_of_events_holds_nobody_up() -> None:
    engine = StagedEngine()
    for number in range(2_000):
        engine.holds_prompt([number] * 32)
    followed, turns = _Followed(engine), 0
    followed.cache = Cache(cast(Any, engine), Naming(bytes(32), Chunking((), 32)), followed._change)
    running = asyncio.create_task(followed.cache.run())
    while len(followed.held) < 2_000:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 2_000
    running.cancel()


# What is said to one member


class _Words:
    """Says which kind of word was asked for."""

    def heartbeat(self) -> bytes:
        return b"heartbeat"

    def whole(self) -> bytes:
        return b"whole"


def test_a_member_is_told_each_update_once_and_all_after_one_that_was_missed() -> None:
    line, words = MemberLine(), cast(Any, _Words())
    assert line.content(words, 0.0) == (b"heartbeat", False)
    line.announce(b"one")
    assert line.content(words, 1.0) == (b"one", True)
    assert line.content(words, 2.0) == (b"heartbeat", False)
    line.announce(b"two")
    line.announce(b"three")
    assert line.content(words, 3.0) == (b"whole", True)
    assert line.content(words, 4.0) == (b"heartbeat", False)


def test_who_asks_for_all_again_and_again_gets_it_once_an_interval() -> None:
    line, words, said = MemberLine(), cast(Any, _Words()), []
    for second in range(21):
        line.ask_whole()
        said.append(line.content(words, second)[0])
    assert said.count(b"whole") == 5
    assert said[1:5] == [b"heartbeat"] * 4


async def test_who_does_not_answer_is_left_alone_until_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "HEARTBEAT", 0.01)
    line = MemberLine()
    await asyncio.wait_for(line.pause(), 60)
    line.failures = 1_000
    pausing = asyncio.create_task(line.pause())
    await asyncio.wait([pausing], timeout=0.5)
    assert not pausing.done()
    line.wake()
    await asyncio.wait_for(pausing, LONGEST_PAUSE / 2)


async def test_a_burst_of_requests_is_told_before_its_time_and_ten_times_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "HEARTBEAT", 600.0)
    line, words = MemberLine(), cast(Any, _Words())
    for told in range(2):
        for _ in range(BURST - 1):
            line.took()
        pausing = asyncio.create_task(line.pause())
        await asyncio.wait([pausing], timeout=3 * SOONEST)
        assert not pausing.done()
        line.took()
        await asyncio.wait_for(pausing, 60)
        line.content(words, told)
    for _ in range(2 * BURST):
        line.took()
    since = asyncio.get_running_loop().time()
    await line.pause()
    assert asyncio.get_running_loop().time() - since >= 0.99 * SOONEST


# How much is read


def test_a_member_is_read_as_far_as_its_allowance_goes() -> None:
    allowance = Allowance()
    allowance.take(name(1), MOST - EACH, 0.0)
    with pytest.raises(NodeBusy):
        allowance.take(name(1), 0, 0.0)
    allowance.take(name(2), 0, 0.0)
    with pytest.raises(NodeBusy):
        allowance.take(name(1), PER_SECOND - EACH, 0.9)
    allowance.take(name(1), PER_SECOND - EACH, 1.0)
    allowance.keep([name(2)])
    allowance.take(name(1), MOST - EACH, 1.0)


def test_a_burst_told_as_often_as_may_be_is_read() -> None:
    allowance = Allowance()
    for word in range(6_000):
        allowance.take(name(1), 60, word * SOONEST)


def test_whoever_says_a_word_each_second_has_allowance_for_snapshots() -> None:
    allowance = Allowance()
    for second in range(600):
        allowance.take(name(1), 60, second)
        if second % 30 == 29:
            allowance.take(name(1), 500_000, second)


# Put together


def _context(engine: Any) -> Any:
    return SimpleNamespace(
        engine=engine,
        operator=SimpleNamespace(address=name(1)),
        execution_class=CLASS,
        meter=Meter(),
    )


def _group(engine: Any) -> Any:
    return group_of(_context(engine), state=lambda: Stage(Path()).chain, sessions=lambda: 0)


def test_a_node_has_a_group_where_it_hosts_the_whole_model_and_something_comes_of_it() -> None:
    plain = SimpleNamespace(slice=WHOLE, layers=MODEL.layers)
    part = SimpleNamespace(slice=Segment(0, 1), layers=MODEL.layers)
    assert _group(part) is None
    assert _group(plain).load().capacity == TURNS
    assert _group(StagedEngine()).load().capacity == BATCH
