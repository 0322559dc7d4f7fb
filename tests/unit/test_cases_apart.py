"""Several cases at once: what fails of one, such as a file that is gone, costs none of the others its window."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from troth.cases import defending
from troth.cases.carrying import Carrier
from troth.cases.defending import Defender
from troth.cases.reviewing import Reviewer
from troth.chain.errors import ChainUnavailable
from troth.client.orders.court import Court
from troth.node.court.disputing import Disputant
from troth.protocol.market.proceedings import CasePhase
from troth.protocol.types import ZERO_ADDRESS

NOTHING: Any = None
BROKEN, WHOLE = b"\x01" * 32, b"\x02" * 32


class Failing:
    """Fails for the first case, and notes for which it was asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[bytes] = []

    def part_of(self, case_id: bytes) -> None:
        self.asked.append(case_id)
        if case_id == BROKEN:
            raise self.error


UNFORESEEN = pytest.mark.parametrize("error", [FileNotFoundError("rows"), ValueError("a file that is cut")])


@UNFORESEEN
async def test_a_driver_carries_the_others_on(error: Exception) -> None:
    failing = Failing(error)

    async def tick(case_id: bytes) -> Any:
        failing.part_of(case_id)
        return SimpleNamespace(case_id=case_id)

    journal: Any = SimpleNamespace(cases=lambda: (BROKEN, WHOLE))
    carrier: Any = Carrier(NOTHING, NOTHING, journal)
    carrier.tick = tick
    await carrier._look_at_all()
    assert failing.asked == [BROKEN, WHOLE]


@UNFORESEEN
async def test_a_client_carries_the_others_on(error: Exception) -> None:
    failing = Failing(error)

    async def tick(case_id: bytes) -> Any:
        failing.part_of(case_id)
        return SimpleNamespace(case_id=case_id, words="", over=False)

    journal = SimpleNamespace(cases=lambda: (BROKEN, WHOLE), case=lambda _: None)
    office: Any = SimpleNamespace(journal=journal, carrier=SimpleNamespace(tick=tick))
    await Court(office, NOTHING, 0).look()
    assert failing.asked == [BROKEN, WHOLE]


@UNFORESEEN
async def test_a_judged_node_shows_its_part_in_the_others(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, sent = Failing(error), list[bytes]()

    async def show(_self: Any, _seen: Any, case_id: bytes, _round: int) -> Any:
        failing.part_of(case_id)
        return case_id

    async def send(_self: Any, _state: Any, shown: bytes) -> None:
        sent.append(shown)

    monkeypatch.setattr(Defender, "show", show)
    monkeypatch.setattr(Defender, "_send", send)
    monkeypatch.setattr(Defender, "_is_due", lambda *_: True)
    monkeypatch.setattr(defending, "parameters_of", lambda _: SimpleNamespace(reveal_window=8))
    record = SimpleNamespace(state=SimpleNamespace(phase_block=0, round=0))
    seen: Any = SimpleNamespace(
        state=SimpleNamespace(deployed=True, cases={BROKEN: record, WHOLE: record}), next=100, block=99
    )
    await Defender(NOTHING, ZERO_ADDRESS, NOTHING).tick(seen)
    assert (failing.asked, sent) == ([BROKEN, WHOLE], [WHOLE])


@UNFORESEEN
async def test_a_reviewer_acts_in_the_others(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(error)

    async def post(_self: Any, seat: Any, _seen: Any) -> None:
        failing.part_of(seat.case_id)

    async def drawn(_self: Any, case_id: bytes, _record: Any, _seen: Any) -> Any:
        return SimpleNamespace(state=SimpleNamespace(phase=CasePhase.DRAWN), ahead=False, case_id=case_id)

    for name, stand_in in (("_drawn", drawn), ("_post_if_due", post)):
        monkeypatch.setattr(Reviewer, name, stand_in)
    for name in ("_prepare", "_forget"):
        monkeypatch.setattr(Reviewer, name, lambda *_: None)
    seen: Any = SimpleNamespace(state=SimpleNamespace(cases={BROKEN: None, WHOLE: None}))
    await Reviewer(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING).tick(seen)
    assert failing.asked == [BROKEN, WHOLE]


@UNFORESEEN
async def test_a_disputant_takes_its_turns_in_the_others(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(error)

    async def call(_self: Any, one: Any, _block: int) -> None:
        failing.part_of(one.id)

    monkeypatch.setattr(Disputant, "_call", call)
    disputant = Disputant(NOTHING, NOTHING, NOTHING, NOTHING)
    lives: Any = [SimpleNamespace(id=one) for one in (BROKEN, WHOLE)]
    assert [await disputant._take(one, 99) for one in lives] == [False, False]
    assert failing.asked == [BROKEN, WHOLE]


class OneBlock:
    """Takes the parts of thirty cases, which are in one block: each waits until all are there."""

    def __init__(self) -> None:
        self.cases = tuple(bytes([number]) * 32 for number in range(30))
        self.mined: list[bytes] = []
        self._came, self._full = 0, asyncio.Event()

    async def take(self, case_id: bytes) -> None:
        self._came += 1
        if self._came == len(self.cases):
            self._full.set()
        async with asyncio.timeout(5):
            await self._full.wait()
        self.mined.append(case_id)


async def test_thirty_cases_are_carried_on_together() -> None:
    """Attack 208: one after the other, each a block, most of them lapse, and their bonds are lost."""
    block, journal = OneBlock(), SimpleNamespace(cases=lambda: block.cases, case=lambda _: None)

    async def tick(case_id: bytes) -> Any:
        await block.take(case_id)
        return SimpleNamespace(case_id=case_id, words="", over=False)

    carrier: Any = Carrier(NOTHING, NOTHING, journal)  # type: ignore[arg-type]
    carrier.tick = tick
    await carrier._look_at_all()
    assert len(block.mined) == 30
    block = OneBlock()
    office: Any = SimpleNamespace(journal=journal, carrier=carrier)
    await Court(office, NOTHING, 0).look()
    assert len(block.mined) == 30


async def test_a_judged_node_shows_its_part_in_thirty_cases_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 207: clients doubt thirty of its answers at once, and nobody asks it: it has three eighths of a window."""
    block = OneBlock()

    async def show(_self: Any, _seen: Any, case_id: bytes, _round: int) -> Any:
        return case_id

    async def send(_self: Any, _state: Any, shown: bytes) -> None:
        await block.take(shown)

    monkeypatch.setattr(Defender, "show", show)
    monkeypatch.setattr(Defender, "_send", send)
    monkeypatch.setattr(Defender, "_is_due", lambda *_: True)
    monkeypatch.setattr(defending, "parameters_of", lambda _: SimpleNamespace(reveal_window=8))
    record = SimpleNamespace(state=SimpleNamespace(phase_block=0, round=0))
    cases: Any = SimpleNamespace(deployed=True, cases=dict.fromkeys(block.cases, record))
    await Defender(NOTHING, ZERO_ADDRESS, NOTHING).tick(SimpleNamespace(state=cases, next=100, block=99))  # type: ignore[arg-type]
    assert len(block.mined) == 30


async def test_a_reviewer_acts_in_thirty_cases_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    block = OneBlock()

    async def act(_self: Any, case_id: bytes, _record: Any, _seen: Any) -> None:
        await block.take(case_id)

    monkeypatch.setattr(Reviewer, "_act", act)
    monkeypatch.setattr(Reviewer, "_forget", lambda *_: None)
    seen: Any = SimpleNamespace(state=SimpleNamespace(cases=dict.fromkeys(block.cases)))
    await Reviewer(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING).tick(seen)
    assert len(block.mined) == 30


async def test_a_chain_that_is_away_is_waited_for_by_all() -> None:
    failing = Failing(ChainUnavailable("The node is away", "x", "Wait."))

    async def tick(case_id: bytes) -> None:
        failing.part_of(case_id)

    journal: Any = SimpleNamespace(cases=lambda: (BROKEN, WHOLE))
    carrier: Any = Carrier(NOTHING, NOTHING, journal)
    carrier.tick = tick
    with pytest.raises(ChainUnavailable):
        await carrier._look_at_all()
    assert failing.asked == [BROKEN]
