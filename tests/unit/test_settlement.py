"""Decisions and movements of money, case by case as the rules list them."""

from __future__ import annotations

from collections import Counter

import pytest

from troth.protocol.agreement import AgreementRule
from troth.protocol.dtype import Dtype
from troth.protocol.errors import InvalidSettlement
from troth.protocol.payout import settle_late, settle_task
from troth.protocol.settlement import (
    Credit,
    Outcome,
    Party,
    Pot,
    Release,
    Revealed,
    SegmentFindings,
    Slash,
    SlashReason,
    decide_segment,
    decide_task,
)

UNIT = 100
SAME, OTHER, THIRD = (bytes([value]) * 32 for value in (1, 2, 3))
RULE = AgreementRule(Dtype.FLOAT32, 10, 0, 10_000)


def party(name: str, root: bytes | None = SAME, verdict: bool = True, committed: bool = True) -> Party:
    return Party(name, committed, None if root is None else Revealed(root, verdict, root * 16))


def findings(
    *verifiers: Party, inferencer: bytes | None = SAME, rule: AgreementRule | None = None, name: str = "i"
) -> SegmentFindings:
    return SegmentFindings(party(name, inferencer), verifiers, rule)


def pot(segments: int = 1, verifiers: int = 3) -> Pot:
    return Pot(UNIT * 6 * ((1 + verifiers) * segments + 1), UNIT, "client", "scheduler", "reserve")


HONEST = (party("a"), party("b"), party("c"))
RICH = dict.fromkeys(["i", "j", "a", "b", "c", "d", "e", "scheduler"], 100_000)


@pytest.mark.parametrize("rule", [None, RULE], ids=["exact", "tolerant"])
class TestSegments:
    def test_all_agree(self, rule: AgreementRule | None) -> None:
        decision = decide_segment(findings(*HONEST, rule=rule))
        assert decision.outcome is Outcome.ACCEPTED
        assert decision.cluster == {0, 1, 2}
        assert not decision.dissenting
        assert not decision.unrevealed

    def test_a_quorum_is_enough(self, rule: AgreementRule | None) -> None:
        decision = decide_segment(findings(party("a"), party("b", OTHER, False), party("c"), rule=rule))
        assert decision.outcome is Outcome.ACCEPTED
        assert decision.cluster == {0, 2}
        assert decision.dissenting == {1}

    def test_verdicts_that_differ_are_no_edge(self, rule: AgreementRule | None) -> None:
        decision = decide_segment(findings(party("a"), party("b", SAME, False), party("c", OTHER, False), rule=rule))
        assert decision.outcome is Outcome.INDETERMINATE
        assert decision.cluster == frozenset()
        assert decision.dissenting == {0, 1, 2}

    def test_a_verifier_that_accepts_what_it_contradicts_is_in_no_cluster(self, rule: AgreementRule | None) -> None:
        liars = (party("a", OTHER), party("b", OTHER), party("c"))
        decision = decide_segment(findings(*liars, rule=rule))
        assert decision.outcome is Outcome.INDETERMINATE
        assert decision.dissenting == {0, 1, 2}

    def test_agreeing_rejections_reject(self, rule: AgreementRule | None) -> None:
        rejecting = (party("a", OTHER, False), party("b", OTHER, False), party("c", SAME, True))
        decision = decide_segment(findings(*rejecting, rule=rule))
        assert decision.outcome is Outcome.REJECTED
        assert decision.cluster == {0, 1}
        assert decision.dissenting == {2}

    def test_rejections_of_an_inferencer_that_agrees_still_reject(self, rule: AgreementRule | None) -> None:
        """Tiles are a sample; a verdict covers all rows and the tokens."""
        rejecting = (party("a", SAME, False), party("b", SAME, False), party("c", None))
        decision = decide_segment(findings(*rejecting, rule=rule))
        assert decision.outcome is Outcome.REJECTED
        assert decision.unrevealed == {2}

    def test_a_silent_inferencer_is_rejected_and_nobody_contradicts_it(self, rule: AgreementRule | None) -> None:
        decision = decide_segment(findings(*HONEST, inferencer=None, rule=rule))
        assert decision.outcome is Outcome.REJECTED
        assert decision.cluster == {0, 1, 2}

    def test_silence_all_round(self, rule: AgreementRule | None) -> None:
        silent = (party("a", None), party("b", None, committed=False), party("c", None))
        decision = decide_segment(findings(*silent, rule=rule))
        assert decision.outcome is Outcome.INDETERMINATE
        assert decision.unrevealed == {0, 2}


def test_clusters_are_chains_not_cliques() -> None:
    """a–b and b–c agree, a–c do not: still one cluster, as Kruskal leaves it."""
    rule = AgreementRule(Dtype.FLOAT32, 10, 0, 9_000)
    base = bytes(512)
    b, c = b"\xff" * 48 + base[48:], b"\xff" * 96 + base[96:]
    verifiers = tuple(
        Party(name, True, Revealed(SAME, False, tiles)) for name, tiles in (("a", base), ("b", b), ("c", c))
    )
    assert not rule.agrees(base, c)
    assert decide_segment(SegmentFindings(party("i"), verifiers, rule)).cluster == {0, 1, 2}


def test_tasks_take_the_worst_of_their_segments() -> None:
    accepted = findings(*HONEST)
    rejected = findings(party("a", OTHER, False), party("b", OTHER, False), party("c"))
    open_ = findings(party("a"), party("b", OTHER, False), party("c", THIRD, False))
    assert decide_task([accepted, accepted]).outcome is Outcome.ACCEPTED
    assert decide_task([accepted, open_]).outcome is Outcome.INDETERMINATE
    assert decide_task([open_, rejected, accepted]).outcome is Outcome.REJECTED


def test_acceptance_pays_everyone_from_the_fee() -> None:
    movements = settle_task(decide_task([findings(*HONEST)]), pot(), RICH)
    assert set(movements) == {Credit(name, 6 * UNIT) for name in ("i", "a", "b", "c", "scheduler")}


def test_acceptance_returns_what_was_not_earned_and_slashes_the_rest() -> None:
    segment = findings(party("a"), party("b", OTHER, False), party("c"), party("d", None), party("e"))
    movements = settle_task(decide_task([segment]), pot(verifiers=5), RICH)
    assert Slash("b", 2 * UNIT, SlashReason.DISAGREED) in movements
    assert Slash("d", 2 * UNIT, SlashReason.UNREVEALED) in movements
    assert movements.count(Credit("reserve", 2 * UNIT)) == 2
    assert Release("client", 12 * UNIT) in movements
    assert Credit("b", 6 * UNIT) not in movements


def test_an_absent_verifier_that_never_committed_is_not_slashed() -> None:
    segment = findings(party("a"), party("b", None, committed=False), party("c"))
    movements = settle_task(decide_task([segment]), pot(), RICH)
    assert not any(isinstance(movement, Slash) for movement in movements)
    assert Release("client", 6 * UNIT) in movements


def test_rejection_refunds_and_the_inferencer_pays_its_verifiers() -> None:
    segment = findings(party("a", OTHER, False), party("b", OTHER, False), party("c"))
    movements = settle_task(decide_task([segment]), pot(), RICH)
    assert Counter(movements) == Counter(
        [
            Slash("i", 14 * UNIT, SlashReason.REJECTED),
            Credit("a", 6 * UNIT),
            Credit("b", 6 * UNIT),
            Credit("reserve", 2 * UNIT),
            Slash("c", 2 * UNIT, SlashReason.DISAGREED),
            Credit("reserve", 2 * UNIT),
            Release("client", pot().fee),
        ]
    )


def test_rejection_rewards_nobody_in_the_other_segments() -> None:
    rejected = findings(party("a", OTHER, False), party("b", OTHER, False), party("c", OTHER, False))
    accepted = findings(party("d"), party("e"), party("c", OTHER, False), name="j")
    movements = settle_task(decide_task([rejected, accepted]), pot(2), RICH)
    assert not {credit.account for credit in movements if isinstance(credit, Credit)} & {"j", "d", "e", "scheduler"}
    assert Slash("c", 2 * UNIT, SlashReason.DISAGREED) in movements
    assert Release("client", pot(2).fee) in movements


def test_a_short_stake_is_shared_pro_rata_and_rounds_to_the_reserve() -> None:
    segment = findings(party("a", OTHER, False), party("b", OTHER, False), party("c", OTHER, False))
    movements = settle_task(decide_task([segment]), pot(), {**RICH, "i": 101})
    assert Slash("i", 101, SlashReason.REJECTED) in movements
    assert [movement for movement in movements if isinstance(movement, Credit)] == [
        *(Credit(name, 101 * 6 // 20) for name in ("a", "b", "c")),
        Credit("reserve", 101 - 3 * (101 * 6 // 20)),
    ]


def test_an_inferencer_without_stake_cannot_pay() -> None:
    segment = findings(party("a", OTHER, False), party("b", OTHER, False), party("c", OTHER, False))
    assert settle_task(decide_task([segment]), pot(), {}) == (Release("client", pot().fee),)


def test_doubt_slashes_silence_only() -> None:
    segment = findings(party("a"), party("b", OTHER), party("c", None))
    movements = settle_task(decide_task([segment]), pot(), RICH)
    assert movements == (
        Slash("c", 2 * UNIT, SlashReason.UNREVEALED),
        Credit("reserve", 2 * UNIT),
        Release("client", pot().fee),
    )


def test_one_operator_in_two_segments_loses_no_more_than_it_has() -> None:
    segment = findings(party("a"), party("b", OTHER, False), party("c"))
    movements = settle_task(decide_task([segment, segment]), pot(2), {**RICH, "b": 3 * UNIT})
    assert [m.amount for m in movements if isinstance(m, Slash)] == [2 * UNIT, UNIT]


def test_a_late_scheduler_pays_those_that_committed() -> None:
    movements = settle_late(pot(2), 2, ["i", "a", "b"], RICH)
    assert movements == (
        Slash("scheduler", 16 * UNIT, SlashReason.SCHEDULER_LATE),
        *(Credit(name, 1600 // 3) for name in ("i", "a", "b")),
        Credit("reserve", 1),
        Release("client", pot(2).fee),
    )
    assert Credit("reserve", 800) in settle_late(pot(), 1, [], RICH)


def test_findings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidSettlement, match="even"):
        decide_segment(findings(party("a"), party("b")))
    with pytest.raises(InvalidSettlement, match="without a commitment"):
        decide_segment(findings(party("a", committed=False), party("b"), party("c")))
    with pytest.raises(InvalidSettlement, match="without segments"):
        decide_task([])
    with pytest.raises(InvalidSettlement, match="does not pay"):
        settle_task(decide_task([findings(*HONEST)]), Pot(1, UNIT, "client", "scheduler", "reserve"), RICH)
