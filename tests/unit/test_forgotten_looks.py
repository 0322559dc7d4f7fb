"""What a summons names of an order that the records lost is searched for once, and not at each look at the summons."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.summons_duty import worked_off
from support.tab_scene import CLIENT_TAB, called, history_of
from unit.test_lost_scheduler import Scene, look, summons

from troth.protocol.market import messages
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.types import Address, Hash32
from troth.scheduler.checks import forgotten
from troth.scheduler.checks.summons import SummonsDuty


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    forgotten._chosen.cache_clear()
    forgotten._chosen_results.cache_clear()
    made = Scene(tmp_path / "scheduler")
    made.ledger.block = 500
    await made.begin()
    yield made
    await made.stop()
    forgotten._chosen.cache_clear()
    forgotten._chosen_results.cache_clear()


@pytest.mark.parametrize("known", [True, False])
async def test_choices_of_nodes_are_hashed_once_for_each_summons(
    scene: Scene, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of two groups of 500 take seconds of a processor, and there is a look every second."""
    asked = await scene.send(scene.asked(check_rate=250_000))
    hashed, plain, (node,) = [], messages.nodes_hash, history_of(scene, asked).admitted.nodes

    def counted(nodes: tuple[Address, ...]) -> Any:
        hashed.append(nodes)
        return plain(nodes) if known else Hash32(b"\x77" * 32)

    event = summons(scene, asked, SummonsKind.RESULTS)
    await scene.begin_again()
    scene.ledger.fold(event)
    monkeypatch.setattr(messages, "nodes_hash", counted)
    await look(scene)
    first = len(hashed)
    assert 0 < first <= len(scene.nodes)
    await look(scene)
    await look(scene)
    assert len(hashed) == first
    if known:
        assert called(scene, Part.SUMMONS, "passOnResults").value("tab")[1].lower() == node.lower()


@pytest.mark.parametrize("known", [True, False])
async def test_choices_of_results_are_hashed_once_for_each_summons(
    scene: Scene, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that were not admitted may show results of their own for as long as the summons is not answered."""
    asked = await scene.send(scene.asked(check_rate=250_000))
    event, hashed, plain = summons(scene, asked, SummonsKind.CHECK), [], messages.results_hash_of
    if not known:
        event = replace(event, state=replace(event.state, results=Hash32(b"\x77" * 32)))
    await scene.begin_again()
    scene.ledger.fold(event)

    def counted(hashes: Any) -> Hash32:
        hashed.append(hashes)
        return plain(hashes)

    monkeypatch.setattr(messages, "results_hash_of", counted)
    await look(scene)
    assert len(hashed) == 1
    await look(scene)
    await look(scene)
    assert len(hashed) == 1
    if known:
        called(scene, Part.SUMMONS, "passOnCheck")


async def test_a_lost_order_is_looked_for_ever_less_often_while_its_summons_is_not_answered(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Each look asks whole groups. Nobody here shows the results again."""
    asked = await scene.send(scene.asked(check_rate=250_000))
    event = summons(scene, asked, SummonsKind.CHECK)
    await scene.begin_again()
    scene.ledger.fold(event)
    now, looks = 0.0, list[float]()
    for node in scene.nodes.values():
        node.stopped = True
    duty = SummonsDuty(scene.orders, lambda: now)
    for _ in range(600):
        before = len(duty._working)
        await duty.look()
        if len(duty._working) > before:
            looks.append(now)
        await worked_off(duty)
        now += 0.1
    pauses = [later - earlier for earlier, later in pairwise(looks)]
    assert pauses[:4] == pytest.approx([1, 2, 4, 8], abs=0.11)
    assert pauses[4:] == pytest.approx([16] * len(pauses[4:]), abs=0.11)
    assert len(pauses) > 5
    assert caplog.text.count("is not in the journal") == 1


async def test_what_happened_on_chain_to_a_lost_order_is_seen_to_at_once(scene: Scene) -> None:
    """A node's word, or its silence, begins another window: its first seconds are not waited away."""
    asked = await scene.send(scene.asked(check_rate=250_000))
    event = summons(scene, asked, SummonsKind.CHECK)
    duty, state = SummonsDuty(scene.orders, lambda: 0.0), event.state
    name = Hash32(b"\x01" * 32)
    assert [duty._is_due(name, state) for _ in range(2)] == [True, False]
    passed = replace(state, passed_to=CLIENT_TAB.payee, deadline=state.deadline + 10)
    assert [duty._is_due(name, passed) for _ in range(2)] == [True, True]
    responded = replace(state, deadline=state.deadline + 20)
    assert [duty._is_due(name, responded) for _ in range(2)] == [True, False]


async def test_searches_leave_the_threads_of_the_books_free(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers who summon for many orders would keep every order's next step from the disk."""
    asked = await scene.send(scene.asked(check_rate=250_000))
    events = [summons(scene, asked, SummonsKind.RESULTS)] * 64
    await scene.begin_again()
    scene.ledger.block += 10
    going_on, searching = threading.Event(), threading.Event()

    def search(*_: Any) -> None:
        searching.set()
        going_on.wait(30)

    monkeypatch.setattr(forgotten, "_admitted", search)
    looking = [asyncio.create_task(forgotten._pass_on_results(scene.context, event.state, no_send)) for event in events]
    try:
        assert await asyncio.to_thread(searching.wait, 10)
        async with asyncio.timeout(10):
            assert (await scene.send(scene.asked(check_rate=250_000))).tokens
    finally:
        going_on.set()
        await asyncio.gather(*looking)


async def no_send(*_: object, **_named: object) -> None:
    raise AssertionError("nobody was admitted")
