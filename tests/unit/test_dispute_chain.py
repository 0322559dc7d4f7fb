"""What a node reads of disputes: each event once, and again while a reorganisation may change it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.dispute_events import WINDOW, dispute_events

from troth.node.court.dispute_chain import SETTLED, LiveDisputes
from troth.protocol.disputes import calls, life
from troth.protocol.disputes.calls import DisputeEvent, DisputeLost, DisputeMoot, DisputeWon


class ToldChain:
    """A chain that says these events, up to a head that may move back."""

    def __init__(self, events: list[DisputeEvent]) -> None:
        self.events, self.head, self.asked = events, 0, list[int]()

    async def block_number(self) -> int:
        return self.head

    async def logs(self, first: int, last: int) -> list[DisputeEvent]:
        self.asked.append(first)
        return [one for one in self.events if first <= one.meta.block <= last]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> tuple[ToldChain, LiveDisputes]:
    events = [
        *dispute_events("won", DisputeWon, start=100),
        *dispute_events("lost", DisputeLost, start=112, nudge=2),
        *dispute_events("moot", DisputeMoot, start=300),
    ]
    chain = ToldChain(sorted((one for one, _ in events), key=lambda one: one.meta.block))
    monkeypatch.setattr(calls, "decode_event", lambda one: one)
    market: Any = SimpleNamespace(place=SimpleNamespace(block=90))
    other: Any = None
    made: Any = chain
    return chain, LiveDisputes(market, other, other, made, 1, WINDOW, 1_000)


async def test_a_look_reads_what_is_new_and_knows_what_was(told: tuple[ToldChain, LiveDisputes]) -> None:
    chain, disputes = told
    for head in (95, 104, 104, 108, 121, 130, 118, 131, 190, 205, 302, 400, 500):
        chain.head = head
        known = await disputes.lives()
        whole = life.lives((one for one in chain.events if one.meta.block <= head), WINDOW)
        living = {name: one for name, one in whole.items() if one.ending is None}
        assert {name: one for name, one in known.items() if one.ending is None} == living, head
    assert chain.asked[0] == 90
    assert chain.asked[-1] == 400 - SETTLED + 1
    assert all(later >= earlier for earlier, later in zip(chain.asked, chain.asked[1:], strict=False))
    assert await disputes.lives() == {}


async def test_a_block_that_was_replaced_is_read_again(told: tuple[ToldChain, LiveDisputes]) -> None:
    chain, disputes = told
    chain.head = 112
    before = await disputes.lives()
    moved = [replace(one, meta=replace(one.meta, block=one.meta.block + 2)) for one in chain.events]
    chain.events, chain.head = moved, 114
    after = await disputes.lives()
    assert [one.state.deadline for one in after.values()] == [one.state.deadline + 2 for one in before.values()]
