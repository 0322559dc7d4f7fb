"""Several cases at once: what fails of one, such as a file that is gone, costs none of the others its window."""

from __future__ import annotations

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
