"""Every check of reviews against a recorded contract: in order as recorded, and failing once one thing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.audit_changes import (
    OTHER,
    Tamper,
    called,
    changed,
    fewer_segments_posts,
    kinds,
    opening,
    other_parameters,
    single_opening,
    untouched,
)
from support.audit_tampering import (
    audited,
    encoded,
    flipped,
    place_of,
    recorded,
    result,
    task_named,
    with_event,
    with_transaction,
    without_event,
)

from troth.audit.checks import NUMBERS
from troth.audit.evidence import Evidence
from troth.audit.history import read_history
from troth.audit.report import ExitCode, Kind
from troth.protocol.events import (
    BondReturned,
    Credited,
    EscrowReleased,
    ReviewAssigned,
    ReviewSettled,
    Slashed,
    SlotFilled,
    TaskAssigned,
    TaskCommitted,
    TaskDisputed,
    TaskSampled,
    TaskSettled,
    TraceRevealed,
    VerificationCommitted,
    parse_log,
)
from troth.protocol.settlement import Outcome, SlashReason

OVERTURNED, REFUNDED, LOST, ESCALATED, WAITING = (
    f"review of {name}" for name in ("overturned", "refunded", "dispute lost", "escalated", "waiting")
)


def changed_phase_block(evidence: Evidence) -> Evidence:
    """The draw in the dispute's own block, whose hash is not known yet."""
    block = place_of(evidence, TaskDisputed, OVERTURNED).block
    place = place_of(evidence, ReviewAssigned, OVERTURNED)
    logs = tuple(
        replace(log, meta=replace(log.meta, block=block, log_index=100 + log.meta.log_index))
        if log.meta.transaction == place.transaction
        else log
        for log in evidence.logs
    )
    return replace(evidence, logs=logs)


def reviewed_twice(evidence: Evidence) -> Evidence:
    place = place_of(evidence, ReviewSettled, OVERTURNED)
    log = next(log for log in evidence.logs if log.meta == place)
    meta = replace(place, block=evidence.last.number, log_index=0, transaction=OTHER)
    return replace(evidence, logs=(*evidence.logs, replace(log, meta=meta)))


def credited_elsewhere(evidence: Evidence) -> Evidence:
    """The late scheduler's slash goes to the reserve, not to who disputed."""
    reserve = evidence.parameters.reserve
    return with_event(evidence, Credited, "review of unreviewed", lambda _: {"account": reserve})


def disputed_by_another(evidence: Evidence) -> Evidence:
    place = place_of(evidence, TaskDisputed, REFUNDED)
    return with_transaction(evidence, place.transaction, sender=evidence.contract)


def too_few_members(evidence: Evidence) -> Evidence:
    """All but five of the group's members joined only after the dispute."""
    joined = [event for event in map(parse_log, evidence.logs) if isinstance(event, SlotFilled)]
    late = {event.meta for event in joined if event.group == joined[-1].group and event.slot >= 5}
    logs = tuple(
        encoded(replace(parse_log(log), from_block=2**30), log) if log.meta in late else log for log in evidence.logs
    )
    return replace(evidence, logs=logs)


def swapped_reviewers(evidence: Evidence) -> Evidence:
    def change(event: ReviewAssigned) -> dict[str, Any]:
        *rest, one, other = event.parties
        return {"parties": (*rest, other, one)}

    return with_event(evidence, ReviewAssigned, OVERTURNED, change)


def first_party_drawn(evidence: Evidence) -> Evidence:
    """A first verifier sits among the reviewers."""
    assigned = [
        event
        for event in map(parse_log, evidence.logs)
        if isinstance(event, TaskAssigned) and event.task_id == task_named(evidence, "overturned")
    ]
    verifier = assigned[0].parties[-1]
    return with_event(evidence, ReviewAssigned, OVERTURNED, lambda v: {"parties": (*v.parties[:-1], verifier)})


def other_dispute_hash(evidence: Evidence) -> Evidence:
    block = place_of(evidence, TaskDisputed, OVERTURNED).block
    logs = tuple(
        replace(log, meta=replace(log.meta, block_hash=OTHER)) if log.meta.block == block else log
        for log in evidence.logs
    )
    return replace(evidence, logs=logs)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return recorded()


TAMPERED: list[tuple[str, str, Tamper]] = [
    ("V1", OVERTURNED, lambda e: with_event(e, TaskDisputed, OVERTURNED, lambda v: {"balance": v.balance + 1})),
    ("V1", REFUNDED, lambda e: with_event(e, TaskDisputed, REFUNDED, lambda v: {"balance": v.balance - 1})),
    ("V1", ESCALATED, changed(TaskDisputed, ESCALATED, balance=1)),
    ("V1", OVERTURNED, lambda e: with_event(e, BondReturned, OVERTURNED, lambda v: {"balance": v.balance - 1})),
    ("V1", OVERTURNED, lambda e: without_event(e, BondReturned, OVERTURNED)),
    ("V1", LOST, lambda e: without_event(e, ReviewSettled, LOST)),
    ("V1", OVERTURNED, lambda e: replace(e, task_states={task_named(e, OVERTURNED): OTHER})),
    ("V1", WAITING, lambda e: replace(e, task_states={task_named(e, WAITING): OTHER})),
    ("V1", OVERTURNED, lambda e: replace(e, task_states={task_named(e, "overturned"): OTHER})),
    ("V4", OVERTURNED, called(TaskCommitted, OVERTURNED, lambda a: {"signatures": flipped(a["signatures"], 40)})),
    ("V4", OVERTURNED, called(TaskCommitted, OVERTURNED, lambda a: {"signatures": a["signatures"] + b"\0"})),
    ("V4", OVERTURNED, called(TaskCommitted, OVERTURNED, lambda a: {"reviewId": OTHER})),
    ("V4", OVERTURNED, called(TaskCommitted, OVERTURNED, lambda a: {"commitments": [OTHER, *a["commitments"][1:]]})),
    ("V4", OVERTURNED, lambda e: with_event(e, TaskCommitted, OVERTURNED, lambda v: {"posts": (OTHER, *v.posts[1:])})),
    ("V4", OVERTURNED, lambda e: with_event(e, TaskCommitted, OVERTURNED, lambda v: {"positions": v.positions + 1})),
    ("V4", OVERTURNED, lambda e: with_event(e, TaskCommitted, OVERTURNED, fewer_segments_posts)),
    ("V4", REFUNDED, changed(TaskCommitted, REFUNDED, attempt=7)),
    ("V4", REFUNDED, called(VerificationCommitted, REFUNDED, lambda a: {"commitment": OTHER}, skip=1)),
    ("V5", OVERTURNED, changed_phase_block),
    ("V5", "review of unreviewed", other_parameters(commit_window=150)),
    ("V5", LOST, other_parameters(reveal_window=200)),
    ("V5", REFUNDED, other_parameters(sample_window=0)),
    ("V5", OVERTURNED, reviewed_twice),
    ("V6", OVERTURNED, changed(TaskSampled, OVERTURNED, seed=OTHER)),
    ("V6", REFUNDED, lambda e: with_event(e, TaskSampled, REFUNDED, lambda v: {"proof": flipped(v.proof)})),
    ("V7", OVERTURNED, called(ReviewSettled, OVERTURNED, opening(0, 3, lambda tiles: flipped(tiles, 100)))),
    ("V7", OVERTURNED, called(ReviewSettled, OVERTURNED, opening(5, 3, lambda tiles: flipped(tiles, 100)))),
    ("V7", OVERTURNED, called(ReviewSettled, OVERTURNED, opening(1, 1, lambda verdict: not verdict))),
    ("V7", OVERTURNED, called(ReviewSettled, OVERTURNED, opening(4, 2, flipped))),
    ("V7", OVERTURNED, called(ReviewSettled, OVERTURNED, lambda a: {"openings": a["openings"][:-1]})),
    ("V7", OVERTURNED, called(ReviewSettled, OVERTURNED, lambda a: {"segment": 1})),
    ("V7", OVERTURNED, called(ReviewSettled, OVERTURNED, lambda a: {"settled": (*a["settled"][:4], 9)})),
    ("V7", REFUNDED, called(TraceRevealed, REFUNDED, single_opening(3, lambda tiles: flipped(tiles, 9)))),
    ("V8", OVERTURNED, changed(ReviewSettled, OVERTURNED, outcome=Outcome.REJECTED)),
    ("V8", OVERTURNED, changed(ReviewSettled, OVERTURNED, task_outcome=Outcome.REJECTED)),
    ("V8", OVERTURNED, changed(ReviewSettled, OVERTURNED, verdicts=30)),
    ("V8", REFUNDED, changed(ReviewSettled, REFUNDED, cluster=7)),
    ("V8", ESCALATED, called(ReviewSettled, ESCALATED, opening(1, 3, lambda tiles: b"\x55" * len(tiles)))),
    ("V9", OVERTURNED, lambda e: with_event(e, Credited, OVERTURNED, lambda v: {"amount": v.amount - 1})),
    ("V9", OVERTURNED, lambda e: with_event(e, Credited, OVERTURNED, lambda v: {"account": e.contract})),
    ("V9", OVERTURNED, lambda e: with_event(e, BondReturned, OVERTURNED, lambda v: {"amount": v.amount - 1})),
    ("V9", OVERTURNED, lambda e: with_event(e, BondReturned, OVERTURNED, lambda v: {"disputer": e.contract})),
    ("V9", OVERTURNED, changed(Slashed, OVERTURNED, evidence=OTHER)),
    ("V9", OVERTURNED, changed(Slashed, OVERTURNED, reason=SlashReason.DISAGREED)),
    ("V9", REFUNDED, lambda e: with_event(e, EscrowReleased, "refunded", lambda v: {"amount": v.amount - 1})),
    ("V9", REFUNDED, lambda e: without_event(e, EscrowReleased, "refunded")),
    ("V9", LOST, lambda e: with_event(e, Slashed, LOST, lambda v: {"amount": v.amount + 1}, skip=1)),
    ("V9", LOST, changed(Slashed, LOST, evidence=OTHER, skip=1)),
    ("V9", ESCALATED, lambda e: without_event(e, Credited, ESCALATED)),
    ("V9", "review of unreviewed", lambda e: without_event(e, BondReturned, "review of unreviewed")),
    ("V9", "review of unreviewed", changed(Slashed, "review of unreviewed", evidence=OTHER)),
    ("V9", "review of unreviewed", credited_elsewhere),
    ("V12", OVERTURNED, other_parameters(dispute_window=0)),
    ("V12", OVERTURNED, lambda e: with_event(e, TaskDisputed, OVERTURNED, lambda v: {"bond": v.bond - 1})),
    ("V12", OVERTURNED, lambda e: with_event(e, TaskDisputed, OVERTURNED, lambda v: {"disputer": e.contract})),
    ("V12", REFUNDED, lambda e: with_event(e, TaskDisputed, REFUNDED, lambda v: {"bond": v.bond // 2})),
    ("V12", ESCALATED, lambda e: with_event(e, TaskDisputed, ESCALATED, lambda v: {"disputer": e.contract})),
    ("V12", OVERTURNED, changed(TaskSettled, "overturned", valid=(0,))),
    ("V12", OVERTURNED, called(TaskDisputed, OVERTURNED, lambda a: {"taskId": OTHER})),
    ("V12", OVERTURNED, called(TaskDisputed, OVERTURNED, lambda a: {"segment": 3})),
    ("V12", OVERTURNED, called(TaskDisputed, OVERTURNED, lambda a: {"settled": (*a["settled"][:4], 9)})),
    ("V12", REFUNDED, disputed_by_another),
    ("V12", OVERTURNED, too_few_members),
    ("V13", OVERTURNED, changed(ReviewAssigned, OVERTURNED, beta=OTHER)),
    ("V13", OVERTURNED, lambda e: with_event(e, ReviewAssigned, OVERTURNED, lambda v: {"proof": flipped(v.proof)})),
    ("V13", OVERTURNED, swapped_reviewers),
    ("V13", OVERTURNED, first_party_drawn),
    ("V13", OVERTURNED, other_dispute_hash),
]


@pytest.mark.parametrize(
    ("number", "name", "tamper"),
    TAMPERED,
    ids=[f"{number}-{name}-{index}" for index, (number, name, _) in enumerate(TAMPERED)],
)
def test_a_change_makes_its_check_fail(evidence: Evidence, number: str, name: str, tamper: Tamper) -> None:
    assert Kind.MISMATCH not in kinds(untouched(name), number)
    report = audited(tamper(evidence), name)
    wrong = [f for entry in result(report, number).results for f in entry.findings if f.kind is Kind.MISMATCH]
    assert any(number == "V1" or finding.message.startswith("In the review") for finding in wrong)
    assert Kind.INCOMPLETE not in kinds(report, number)
    assert report.exit_code is ExitCode.VIOLATION


def test_no_check_lacks_a_change_that_makes_it_fail() -> None:
    """V2 and V3 are about orders, V10 about rows, V11 compares nothing."""
    assert {number for number, _, _ in TAMPERED} == set(NUMBERS) - {"V2", "V3", "V10", "V11"}


def test_an_overturned_decision_names_its_makers_and_not_their_victim(evidence: Evidence) -> None:
    report = audited(evidence, "overturned")
    assigned = next(
        event
        for event in map(parse_log, evidence.logs)
        if isinstance(event, TaskAssigned) and event.task_id == task_named(evidence, "overturned")
    )
    assert {finding.check for finding in report.findings} == {"V11"}
    assert {finding.party for finding in report.findings} == set(assigned.parties[-3:])
    assert {finding.role for finding in report.findings} == {"verifier"}


@pytest.mark.parametrize(
    ("name", "roles", "stands"),
    [
        ("refunded", {"inferencer", "verifier"}, Outcome.REJECTED),
        ("dispute lost", {"verifier", "reviewer", "disputer"}, Outcome.ACCEPTED),
        ("escalated", {"verifier"}, Outcome.ACCEPTED),
        ("unreviewed", {"inferencer", "scheduler"}, Outcome.REJECTED),
    ],
)
def test_a_review_names_who_was_wrong_in_either_round(
    evidence: Evidence, name: str, roles: set[str], stands: Outcome
) -> None:
    report = audited(evidence, name)
    assert {finding.role for finding in report.findings} == roles
    assert {finding.check for finding in report.findings} == {"V11"}
    assert read_history(evidence.logs).state.tasks[task_named(evidence, name)].outcome is stands


@pytest.mark.parametrize(
    ("kind", "numbers"), [(TaskDisputed, {"V12"}), (ReviewSettled, {"V7", "V8", "V9"}), (TaskCommitted, {"V4"})]
)
def test_what_cannot_be_read_of_a_review_is_inconclusive(evidence: Evidence, kind: type, numbers: set[str]) -> None:
    place = place_of(evidence, kind, ESCALATED)
    rest = {found: entry for found, entry in evidence.transactions.items() if found != place.transaction}
    report = audited(replace(evidence, transactions=rest), "escalated")
    doubts = {finding.check for finding in report.findings if finding.kind is Kind.INCONCLUSIVE}
    assert doubts == numbers
    assert Kind.MISMATCH not in {finding.kind for finding in report.findings}


def test_a_live_review_is_inconclusive_only_past_its_deadline(evidence: Evidence) -> None:
    deadline = place_of(evidence, TaskDisputed, WAITING).block + evidence.parameters.commit_window
    for last, numbers in ((deadline, {"V8"}), (deadline + 1, {"V5", "V8"})):
        report = audited(replace(evidence, last=replace(evidence.last, number=last)), "waiting")
        assert {finding.check for finding in report.findings} == numbers
        assert report.exit_code is ExitCode.INCONCLUSIVE
