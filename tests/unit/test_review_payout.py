"""Who pays whom for a review, case by case in units (VeriLLM, Appendix E)."""

from __future__ import annotations

from dataclasses import replace

from troth.protocol.contract_types import Settled
from troth.protocol.ends import pack_ends
from troth.protocol.review_payout import FirstRound, close_review, settle_review
from troth.protocol.settlement import (
    BondReturn,
    Credit,
    Outcome,
    Pot,
    Release,
    SegmentDecision,
    Slash,
    SlashReason,
)
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import ZERO_HASH, Address, Hash32

UNIT = 100
POST = Hash32(b"\x01" * 32)
NAMES = tuple(Address(name) for name in ("i", "v0", "v1", "v2"))
REVIEWERS = ("r0", "r1", "r2", "r3", "r4")
STAKES = dict.fromkeys((*NAMES, *REVIEWERS, "scheduler"), 100 * UNIT)
OVERTURNED = SlashReason.OVERTURNED


def first(outcome: Outcome, verdicts: int, cluster: int, valid: int = 7, posts: int = 4) -> FirstRound:
    terms = Terms(Address("client"), Address("scheduler"), ZERO_HASH, 0, 1, pack_ends((2,)))
    posted = tuple(POST if place < posts else ZERO_HASH for place in range(4))
    task = Task(terms, Progress(Phase.SAMPLED, 5, 1, 1, parties=NAMES, posts=posted))
    return FirstRound(task, Settled((int(outcome),), (verdicts,), (cluster,), (valid,), 9), 0)


def decision(
    outcome: Outcome, cluster: set[int], dissenting: set[int] | None = None, unrevealed: set[int] | None = None
) -> SegmentDecision:
    sets = (frozenset(cluster), frozenset(dissenting or ()), frozenset(unrevealed or ()))
    return SegmentDecision(outcome, "i", REVIEWERS, *sets)


def pot(bond: int, disputer: str) -> Pot:
    return Pot(bond * UNIT, UNIT, disputer, "scheduler", "reserve")


def test_a_captured_committee_restores_its_victim_and_pays_the_review() -> None:
    """Owed: 6 to the scheduler, 30 to reviewers, 6 + 2 + 3 * 6 to the inferencer; 62 over three losers, rounded up."""
    movements = settle_review(
        decision(Outcome.ACCEPTED, {0, 1, 2, 3, 4}), first(Outcome.REJECTED, 0, 7), pot(8, "i"), STAKES, refund=False
    )
    share = -(-62 * UNIT // 3)
    assert movements == (
        BondReturn("i", 8 * UNIT),
        *(Slash(name, share, OVERTURNED) for name in ("v0", "v1", "v2")),
        Credit("scheduler", 6 * UNIT),
        *(Credit(name, 6 * UNIT) for name in REVIEWERS),
        Credit("i", 26 * UNIT),
        Credit("reserve", 3 * share - 62 * UNIT),
    )


def test_an_accepted_lie_is_refunded_and_its_dissenter_paid() -> None:
    """The client gets back 4 * 6 units; a verifier that had said no gets its slash and a reward."""
    movements = settle_review(
        decision(Outcome.REJECTED, {0, 1, 2}, {3}, {4}),
        first(Outcome.ACCEPTED, 6, 6),
        pot(38, "x"),
        STAKES,
        refund=True,
    )
    owed = 24 + 6 + 18 + 8 + 6
    share = -(-owed * UNIT // 3)
    assert movements == (
        Slash("r3", 2 * UNIT, SlashReason.DISAGREED),
        Slash("r4", 2 * UNIT, SlashReason.UNREVEALED),
        BondReturn("x", 38 * UNIT),
        *(Slash(name, share, OVERTURNED) for name in ("i", "v1", "v2")),
        Release("client", 24 * UNIT),
        Credit("scheduler", 6 * UNIT),
        *(Credit(name, 6 * UNIT) for name in ("r0", "r1", "r2")),
        Credit("v0", 8 * UNIT),
        Credit("x", 6 * UNIT),
        Credit("reserve", 4 * UNIT + 3 * share - owed * UNIT),
    )


def test_a_party_that_disputes_wrongly_pays_bond_and_reviewers() -> None:
    movements = settle_review(
        decision(Outcome.ACCEPTED, {0, 1, 2, 3}), first(Outcome.ACCEPTED, 6, 6), pot(8, "v0"), STAKES, refund=False
    )
    assert movements == (
        Slash("v0", 24 * UNIT, SlashReason.DISPUTE_LOST),
        Credit("scheduler", 6 * UNIT),
        *(Credit(name, 6 * UNIT) for name in REVIEWERS[:4]),
        Credit("reserve", 2 * UNIT),
    )


def test_an_outsider_gets_back_what_fewer_reviewers_cost_less() -> None:
    movements = settle_review(
        decision(Outcome.REJECTED, {1, 2, 4}), first(Outcome.REJECTED, 0, 7), pot(38, "x"), STAKES, refund=False
    )
    assert movements[0] == Release("x", 12 * UNIT)
    assert movements[-1] == Credit("reserve", 2 * UNIT)


def test_an_undecided_review_returns_the_bond_and_slashes_silence_alone() -> None:
    movements = settle_review(
        decision(Outcome.INDETERMINATE, set(), {0, 1, 2, 3}, {4}),
        first(Outcome.ACCEPTED, 7, 7),
        pot(8, "v0"),
        STAKES,
        refund=False,
    )
    assert movements == (
        Slash("r4", 2 * UNIT, SlashReason.UNREVEALED),
        BondReturn("v0", 8 * UNIT),
        Credit("reserve", 2 * UNIT),
    )


def test_dues_shrink_in_proportion_where_the_losers_have_too_little() -> None:
    stakes = {**STAKES, "v0": 7, "v1": 0, "v2": 100}
    movements = settle_review(
        decision(Outcome.ACCEPTED, {0, 1, 2, 3, 4}), first(Outcome.REJECTED, 0, 7), pot(8, "i"), stakes, refund=False
    )
    paid = [move for move in movements if isinstance(move, Credit)]
    assert paid[0] == Credit("scheduler", 600 * 107 // 6200)
    assert paid[6] == Credit("i", 2600 * 107 // 6200)
    assert sum(move.amount for move in paid) == 107


def test_nobody_is_charged_where_nobody_was_wrong() -> None:
    """Two verifiers said yes to a trace near both, and were too far from each other to be of one mind."""
    undecided = first(Outcome.INDETERMINATE, 3, 0, valid=3, posts=3)
    none = Pot(0, UNIT, "0x0", "scheduler", "reserve")
    assert settle_review(decision(Outcome.ACCEPTED, {0, 1, 2}), undecided, none, STAKES, refund=False) == ()


def test_an_inferencer_that_is_silent_the_second_time_pays_alone() -> None:
    silent = replace(decision(Outcome.REJECTED, {0, 1, 2, 3, 4}), shown=False)
    movements = settle_review(silent, first(Outcome.ACCEPTED, 7, 7), pot(38, "x"), STAKES, refund=True)
    owed = 30 + 6 + 30 + 6
    slashes = [move for move in movements if isinstance(move, Slash)]
    assert slashes == [Slash("i", owed * UNIT, OVERTURNED)]
    assert movements[2] == Release("client", 30 * UNIT)


def test_a_silent_scheduler_pays_who_disputed_or_who_worked() -> None:
    fine = 28 * UNIT
    slash = Slash("scheduler", fine, SlashReason.SCHEDULER_LATE)
    unpaid = close_review(pot(8, "i"), (), STAKES, verifiers=3)
    assert unpaid == (slash, Credit("i", fine), BondReturn("i", 8 * UNIT))
    # Who is no party may be the scheduler itself.
    outside = close_review(pot(38, "x"), (), STAKES, verifiers=3)
    assert outside == (slash, Credit("reserve", fine), BondReturn("x", 38 * UNIT))
    assert close_review(pot(0, "0x0"), (), STAKES, verifiers=3) == (slash, Credit("reserve", fine))
    nobody = close_review(pot(8, "i"), (), STAKES, verifiers=3, drawable=False)
    assert nobody == (BondReturn("i", 8 * UNIT),)
    late = close_review(pot(8, "i"), ("i", "r0", "r1"), STAKES, verifiers=3)
    assert late == (
        slash,
        *(Credit(name, fine // 3) for name in ("i", "r0", "r1")),
        Credit("reserve", fine % 3),
        BondReturn("i", 8 * UNIT),
    )


def test_a_review_that_lacks_votes_and_a_result_costs_its_scheduler() -> None:
    """Whoever chooses which commitments are posted could leave out those that would decide."""
    missing = decision(Outcome.INDETERMINATE, set(), {0, 1, 2, 3})
    movements = settle_review(missing, first(Outcome.REJECTED, 0, 7), pot(8, "i"), STAKES, refund=False)
    slash = Slash("scheduler", 28 * UNIT, SlashReason.SCHEDULER_LATE)
    assert movements == (BondReturn("i", 8 * UNIT), slash, Credit("i", 28 * UNIT))
    complete = decision(Outcome.INDETERMINATE, set(), {0, 1, 2, 3, 4})
    movements = settle_review(complete, first(Outcome.REJECTED, 0, 7), pot(8, "i"), STAKES, refund=False)
    assert movements == (BondReturn("i", 8 * UNIT),)


def test_a_loser_pays_a_reward_and_a_penalty_at_least() -> None:
    """Nobody but the scheduler is owed anything, and the reserve gets what is left."""
    silent = replace(decision(Outcome.REJECTED, set()), shown=False)
    undecided = first(Outcome.INDETERMINATE, 0, 0, valid=0)
    movements = settle_review(silent, undecided, pot(0, "0x0"), STAKES, refund=False)
    assert movements == (Slash("i", 8 * UNIT, OVERTURNED), Credit("scheduler", 6 * UNIT), Credit("reserve", 2 * UNIT))
