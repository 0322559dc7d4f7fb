"""Whatever the parties do, money is neither made nor lost, and nobody is slashed for what the rules do not punish."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from troth.protocol.payout import settle_late, settle_task
from troth.protocol.settlement import (
    Credit,
    Movement,
    Outcome,
    Party,
    Pot,
    Release,
    Revealed,
    SegmentFindings,
    Slash,
    SlashReason,
    decide_task,
)

NAMES = [f"operator {number}" for number in range(12)]
ROOTS = [bytes([number]) * 32 for number in range(3)]


@st.composite
def parties(draw: st.DrawFn, name: str) -> Party:
    kind = draw(st.sampled_from(["absent", "silent", "revealed", "revealed", "revealed"]))
    revealed = Revealed(draw(st.sampled_from(ROOTS)), draw(st.booleans())) if kind == "revealed" else None
    return Party(name, kind != "absent", revealed)


@st.composite
def segments(draw: st.DrawFn, verifiers: int) -> SegmentFindings:
    names = draw(st.permutations(NAMES))[: verifiers + 1]
    drawn = [draw(parties(name)) for name in names]
    return SegmentFindings(Party(names[0], True, drawn[0].revealed), tuple(drawn[1:]), None)


@st.composite
def tasks(draw: st.DrawFn) -> tuple[list[SegmentFindings], Pot, dict[str, int]]:
    verifiers = draw(st.sampled_from([1, 3, 5, 7]))
    found = draw(st.lists(segments(verifiers), min_size=1, max_size=4))
    unit = draw(st.integers(1, 10**18))
    fee = unit * 6 * ((1 + verifiers) * len(found) + 1) + draw(st.integers(0, 1000))
    stakes = draw(st.dictionaries(st.sampled_from([*NAMES, "scheduler"]), st.integers(0, 60 * unit)))
    return found, Pot(fee, unit, "client", "scheduler", "reserve"), stakes


def balance(movements: tuple[Movement, ...], fee: int) -> int:
    paid_in = fee + sum(move.amount for move in movements if isinstance(move, Slash))
    return paid_in - sum(move.amount for move in movements if isinstance(move, Credit | Release))


@settings(max_examples=400)
@given(tasks())
def test_settlement_conserves_money(task: tuple[list[SegmentFindings], Pot, dict[str, int]]) -> None:
    found, pot, stakes = task
    decision = decide_task(found)
    movements = settle_task(decision, pot, stakes)
    assert balance(movements, pot.fee) == 0
    assert all(movement.amount > 0 for movement in movements)
    lost: dict[str, int] = {}
    for movement in movements:
        if isinstance(movement, Slash):
            lost[movement.operator] = lost.get(movement.operator, 0) + movement.amount
    assert all(amount <= stakes.get(operator, 0) for operator, amount in lost.items())
    if decision.outcome is not Outcome.ACCEPTED:
        assert Release("client", pot.fee) in movements
        assert not any(isinstance(movement, Credit) and movement.account == "scheduler" for movement in movements)
    if decision.outcome is Outcome.INDETERMINATE:
        assert {movement.reason for movement in movements if isinstance(movement, Slash)} <= {SlashReason.UNREVEALED}


@given(tasks())
def test_honest_majorities_are_never_slashed(task: tuple[list[SegmentFindings], Pot, dict[str, int]]) -> None:
    """Where all who reveal agree with the inferencer and accept it, only silence costs."""
    found, pot, stakes = task
    truth = Revealed(ROOTS[0], True)
    honest = [
        SegmentFindings(
            Party(segment.inferencer.operator, True, truth),
            tuple(Party(p.operator, p.committed, truth if p.revealed else None) for p in segment.verifiers),
            None,
        )
        for segment in found
    ]
    movements = settle_task(decide_task(honest), pot, stakes)
    assert {movement.reason for movement in movements if isinstance(movement, Slash)} <= {SlashReason.UNREVEALED}


@given(tasks(), st.lists(st.sampled_from(NAMES), max_size=9))
def test_a_late_scheduler_conserves_money(
    task: tuple[list[SegmentFindings], Pot, dict[str, int]], committed: list[str]
) -> None:
    found, pot, stakes = task
    movements = settle_late(pot, len(found), committed, stakes)
    assert balance(movements, pot.fee) == 0
    assert sum(movement.amount for movement in movements if isinstance(movement, Slash)) <= stakes.get("scheduler", 0)
