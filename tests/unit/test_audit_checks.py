"""Every check against a recorded contract: in order as recorded, and failing once one thing is changed."""

from __future__ import annotations

from collections.abc import Callable
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
    ClassRegistered,
    Credited,
    EquivocationProven,
    EscrowReleased,
    InferenceCommitted,
    SchedulerRegistered,
    Slashed,
    SlotFilled,
    TaskAssigned,
    TaskCommitted,
    TaskOpened,
    TaskSampled,
    TaskSettled,
    TraceRevealed,
    VerificationCommitted,
    parse_log,
)
from troth.protocol.settlement import Outcome, SlashReason
from troth.protocol.types import Hash32


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return recorded()


@pytest.mark.parametrize("name", ["cooperative", "merged", "exact", "aborted"])
def test_honest_tasks_are_clean(evidence: Evidence, name: str) -> None:
    report = audited(evidence, name)
    assert report.findings == ()
    assert report.exit_code is ExitCode.CLEAN
    assert tuple(check.number for check in report.checks) == NUMBERS


def test_whole_contract_has_only_the_faults_that_were_played(evidence: Evidence) -> None:
    report = audited(evidence)
    assert report.exit_code is ExitCode.VIOLATION
    found = [(finding.check, finding.kind, finding.role) for finding in report.findings]
    assert found == [
        ("V5", Kind.INCONCLUSIVE, "scheduler"),  # waiting
        ("V5", Kind.INCONCLUSIVE, "scheduler"),  # overdue
        ("V8", Kind.INCONCLUSIVE, None),  # waiting
        ("V10", Kind.CHEATED, "node"),
        ("V11", Kind.CHEATED, "inferencer"),
        ("V11", Kind.CHEATED, "verifier"),
        ("V11", Kind.CHEATED, "scheduler"),
        *[("V11", Kind.CHEATED, "verifier")] * 3,  # overturned: the inferencer is acquitted
        ("V11", Kind.CHEATED, "inferencer"),  # refunded
        *[("V11", Kind.CHEATED, "verifier")] * 3,
        *[("V11", Kind.CHEATED, role) for role in ("verifier", "reviewer", "disputer")],  # dispute lost
        *[("V11", Kind.CHEATED, "verifier")] * 3,  # escalated
        *[("V11", Kind.CHEATED, role) for role in ("inferencer", "scheduler")],  # unreviewed
    ]


def test_every_check_has_looked_at_something(evidence: Evidence) -> None:
    assert all(check.results for check in audited(evidence).checks)


def submission(place: int, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(arguments: dict[str, Any]) -> dict[str, Any]:
        fields = list(arguments["submission"])
        fields[place] = value(fields[place])
        return {"submission": tuple(fields)}

    return change


def order_field(place: int, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda arguments: {
        "order": tuple(value if index == place else field for index, field in enumerate(arguments["order"]))
    }


def swapped_verifiers(evidence: Evidence) -> Evidence:
    def change(event: TaskAssigned) -> dict[str, Any]:
        *rest, one, other = event.parties
        return {"parties": (*rest, other, one)}

    return with_event(evidence, TaskAssigned, "cooperative", change)


def other_row(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"a": (*arguments["a"][:4], OTHER, arguments["a"][5])}


def same_rows(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"b": arguments["a"], "signatureB": arguments["signatureA"]}


def expired_order(evidence: Evidence) -> Evidence:
    block = place_of(evidence, TaskOpened, "cooperative").block
    late = replace(evidence.headers[block], timestamp=2**40)
    return replace(evidence, headers={**evidence.headers, block: late})


def other_commit_hash(evidence: Evidence) -> Evidence:
    block = place_of(evidence, TaskCommitted, "cooperative").block
    logs = tuple(
        replace(log, meta=replace(log.meta, block_hash=OTHER)) if log.meta.block == block else log
        for log in evidence.logs
    )
    return replace(evidence, logs=logs)


def other_sender(evidence: Evidence) -> Evidence:
    place = place_of(evidence, InferenceCommitted, "own calls")
    return with_transaction(evidence, place.transaction, sender=evidence.contract)


def settled_twice(evidence: Evidence) -> Evidence:
    place = place_of(evidence, TaskSettled, "cooperative")
    log = next(log for log in evidence.logs if log.meta == place)
    meta = replace(place, block=evidence.last.number, log_index=0, transaction=OTHER)
    return replace(evidence, logs=(*evidence.logs, replace(log, meta=meta)))


def paid_elsewhere(evidence: Evidence) -> Evidence:
    place = place_of(evidence, Credited, "cooperative")
    logs = tuple(
        replace(log, meta=replace(place, transaction=OTHER)) if log.meta == place else log for log in evidence.logs
    )
    return replace(evidence, logs=logs)


TAMPERED: list[tuple[str, str, Tamper]] = [
    ("V1", "cooperative", lambda e: with_event(e, Credited, "cooperative", lambda v: {"credit": v.credit + 1})),
    ("V1", "cooperative", lambda e: with_event(e, Credited, "cooperative", lambda v: {"amount": v.amount + 1})),
    ("V1", "rejected", lambda e: with_event(e, Slashed, "rejected", lambda v: {"stake": v.stake - 1})),
    ("V1", "rejected", lambda e: with_event(e, EscrowReleased, "rejected", lambda v: {"balance": v.balance + 1})),
    ("V1", "cooperative", lambda e: with_event(e, TaskOpened, "cooperative", lambda v: {"escrow": v.escrow + 1})),
    ("V1", "cooperative", lambda e: without_event(e, Credited, "cooperative")),
    ("V1", "cooperative", changed(ClassRegistered, None, execution_class=OTHER, skip=1)),
    ("V1", "cooperative", lambda e: replace(e, balance=1)),
    ("V1", "cooperative", lambda e: replace(e, task_states={task_named(e, "cooperative"): OTHER})),
    ("V2", "cooperative", changed(TaskOpened, "cooperative", request_hash=OTHER)),
    ("V2", "cooperative", lambda e: with_event(e, TaskOpened, "cooperative", lambda v: {"client": e.contract})),
    ("V2", "merged", lambda e: with_event(e, TaskOpened, "merged", lambda v: {"fee": v.fee - 1})),
    ("V2", "merged", changed(TaskOpened, "merged", reference_block=0)),
    ("V2", "merged", changed(TaskOpened, "merged", ends=Hash32(b"\x1d".ljust(32, b"\0")))),
    ("V2", "cooperative", called(TaskOpened, "cooperative", order_field(3, 1))),
    ("V2", "cooperative", called(TaskOpened, "cooperative", lambda a: {"signature": flipped(a["signature"], 10)})),
    ("V2", "cooperative", changed(SchedulerRegistered, None, stake=1)),
    ("V2", "cooperative", expired_order),
    ("V3", "cooperative", changed(TaskAssigned, "cooperative", betas=(OTHER,))),
    ("V3", "cooperative", lambda e: with_event(e, TaskAssigned, "cooperative", lambda v: {"betas": (*v.betas, OTHER)})),
    (
        "V3",
        "cooperative",
        lambda e: with_event(e, TaskAssigned, "cooperative", lambda v: {"proofs": (flipped(v.proofs[0]),)}),
    ),
    ("V3", "cooperative", lambda e: with_event(e, SchedulerRegistered, None, lambda v: {"vrf_x": v.vrf_x ^ 1})),
    ("V3", "cooperative", changed(SlotFilled, None, from_block=2**30)),
    ("V3", "cooperative", swapped_verifiers),
    ("V4", "merged", called(TaskCommitted, "merged", submission(5, lambda s: flipped(s, 40)))),
    ("V4", "merged", called(TaskCommitted, "merged", submission(5, lambda s: s + b"\0"))),
    ("V4", "merged", called(TaskCommitted, "merged", submission(1, lambda positions: positions + 1))),
    ("V4", "merged", called(TaskCommitted, "merged", submission(3, lambda _: b"\x09".ljust(32, b"\0")))),
    ("V4", "cooperative", changed(TaskCommitted, "cooperative", output_hash=OTHER)),
    ("V4", "cooperative", lambda e: with_event(e, TaskCommitted, "cooperative", fewer_segments_posts)),
    ("V4", "own calls", other_sender),
    ("V4", "own calls", called(VerificationCommitted, "own calls", lambda a: {"commitment": OTHER})),
    ("V4", "own calls", called(InferenceCommitted, "own calls", lambda a: {"positions": 9})),
    ("V5", "cooperative", other_parameters(sample_window=0)),
    ("V5", "own calls", other_parameters(commit_window=1)),
    ("V5", "own calls", other_parameters(reveal_window=1)),
    ("V5", "silent", other_parameters(reveal_window=200)),
    ("V5", "expired", other_parameters(sample_window=200)),
    ("V5", "cooperative", settled_twice),
    ("V5", "cooperative", lambda e: without_event(e, TaskSampled, "cooperative")),
    ("V6", "cooperative", changed(TaskSampled, "cooperative", seed=OTHER)),
    ("V6", "cooperative", lambda e: with_event(e, TaskSampled, "cooperative", lambda v: {"proof": flipped(v.proof)})),
    ("V6", "cooperative", other_commit_hash),
    ("V7", "cooperative", called(TaskSettled, "cooperative", opening(0, 3, lambda tiles: flipped(tiles, 100)))),
    ("V7", "cooperative", called(TaskSettled, "cooperative", opening(2, 3, lambda tiles: flipped(tiles, 100)))),
    ("V7", "cooperative", called(TaskSettled, "cooperative", opening(1, 2, flipped))),
    ("V7", "cooperative", called(TaskSettled, "cooperative", opening(1, 1, lambda verdict: not verdict))),
    ("V7", "cooperative", called(TaskSettled, "cooperative", opening(0, 0, flipped))),
    ("V7", "cooperative", called(TaskSettled, "cooperative", opening(3, 3, lambda tiles: tiles[:-1]))),
    ("V7", "cooperative", called(TaskSettled, "cooperative", opening(3, 4, lambda path: path[:-1]))),
    ("V7", "cooperative", called(TaskSettled, "cooperative", lambda a: {"openings": a["openings"][:-1]})),
    ("V7", "exact", called(TaskSettled, "exact", opening(1, 4, lambda _: [OTHER]))),
    ("V7", "own calls", called(TaskSettled, "own calls", opening(2, 3, lambda tiles: flipped(tiles, 100)))),
    ("V7", "own calls", called(TraceRevealed, "own calls", single_opening(3, lambda tiles: flipped(tiles, 9)))),
    ("V7", "own calls", called(TraceRevealed, "own calls", single_opening(4, lambda path: path[::-1]))),
    ("V7", "own calls", called(TraceRevealed, "own calls", lambda a: {"party": 3})),
    ("V7", "own calls", called(TraceRevealed, "own calls", single_opening(2, flipped), skip=1)),
    ("V8", "cooperative", changed(TaskSettled, "cooperative", outcome=Outcome.REJECTED)),
    ("V8", "cooperative", changed(TaskSettled, "cooperative", segment_outcomes=(Outcome.REJECTED,))),
    ("V8", "cooperative", changed(TaskSettled, "cooperative", clusters=(3,))),
    ("V8", "rejected", changed(TaskSettled, "rejected", verdicts=(7,))),
    ("V8", "cooperative", changed(TaskSettled, "cooperative", valid=(3,))),
    ("V8", "cooperative", called(TaskSettled, "cooperative", opening(1, 3, lambda tiles: b"\x55" * len(tiles)))),
    ("V8", "exact", called(TaskSettled, "exact", opening(1, 0, flipped))),
    ("V9", "cooperative", lambda e: with_event(e, Credited, "cooperative", lambda v: {"amount": v.amount - 1})),
    ("V9", "cooperative", lambda e: with_event(e, Credited, "cooperative", lambda v: {"account": e.contract})),
    ("V9", "cooperative", lambda e: without_event(e, Credited, "cooperative")),
    ("V9", "cooperative", paid_elsewhere),
    ("V9", "rejected", lambda e: with_event(e, Slashed, "rejected", lambda v: {"amount": v.amount // 2})),
    ("V9", "rejected", changed(Slashed, "rejected", evidence=OTHER)),
    ("V9", "rejected", changed(Slashed, "rejected", reason=SlashReason.UNREVEALED)),
    ("V9", "rejected", lambda e: with_event(e, EscrowReleased, "rejected", lambda v: {"amount": v.amount - 1})),
    ("V9", "expired", lambda e: with_event(e, Credited, "expired", lambda v: {"amount": v.amount + 1})),
    ("V9", "expired", changed(Slashed, "expired", evidence=OTHER)),
    ("V9", "aborted", lambda e: without_event(e, EscrowReleased, "aborted")),
    ("V9", "silent", lambda e: with_event(e, Slashed, "silent", lambda v: {"operator": e.contract})),
    ("V10", "own calls", called(EquivocationProven, "own calls", other_row)),
    ("V10", "own calls", called(EquivocationProven, "own calls", same_rows)),
    ("V10", "own calls", changed(EquivocationProven, "own calls", position=6)),
    ("V10", "own calls", lambda e: with_event(e, EquivocationProven, "own calls", lambda v: {"signer": e.contract})),
    ("V10", "own calls", lambda e: with_event(e, EquivocationProven, "own calls", lambda v: {"reporter": v.signer})),
    ("V10", "own calls", lambda e: with_event(e, Slashed, "own calls", lambda v: {"amount": v.amount - 1})),
    ("V10", "own calls", changed(Slashed, "own calls", evidence=OTHER)),
]


@pytest.mark.parametrize(
    ("number", "name", "tamper"),
    TAMPERED,
    ids=[f"{number}-{name}-{index}" for index, (number, name, _) in enumerate(TAMPERED)],
)
def test_a_change_makes_its_check_fail(evidence: Evidence, number: str, name: str, tamper: Tamper) -> None:
    assert Kind.MISMATCH not in kinds(untouched(name), number)
    report = audited(tamper(evidence), name)
    assert Kind.MISMATCH in kinds(report, number)
    assert Kind.INCOMPLETE not in kinds(report, number)
    assert report.exit_code is ExitCode.VIOLATION


def test_no_check_lacks_a_change_that_makes_it_fail() -> None:
    assert {number for number, _, _ in TAMPERED} == set(NUMBERS) - {"V11", "V12", "V13"}


@pytest.mark.parametrize(
    ("name", "role", "units", "reason"),
    [("rejected", "inferencer", 20, "reject"), ("silent", "verifier", 2, "open"), ("expired", "scheduler", 8, "dead")],
)
def test_who_was_found_wrong_is_named(evidence: Evidence, name: str, role: str, units: int, reason: str) -> None:
    (finding,) = audited(evidence, name).findings
    task = task_named(evidence, name)
    (slash,) = [e for e in map(parse_log, evidence.logs) if isinstance(e, Slashed) and e.task_id == task]
    assert (finding.check, finding.kind, finding.role) == ("V11", Kind.CHEATED, role)
    assert (finding.party, finding.amount, finding.place) == (slash.operator, units * 10**12, slash.meta)
    assert finding.evidence == (("decided from", "0x" + slash.evidence.hex()),)
    assert reason in finding.message
    assert finding.segment == (None if role == "scheduler" else 0)


def test_an_equivocator_is_named_with_its_whole_stake(evidence: Evidence) -> None:
    (finding,) = audited(evidence, "own calls").findings
    place = place_of(evidence, EquivocationProven, "own calls")
    before = read_history([log for log in evidence.logs if log.meta < place]).state
    assert finding.party is not None
    stake = before.account(finding.party).stake
    assert (finding.check, finding.kind, finding.role, finding.amount) == ("V10", Kind.CHEATED, "node", stake)
    assert stake > 0


@pytest.mark.parametrize(("kind", "numbers"), [(TaskSettled, {"V7", "V8", "V9"}), (TaskOpened, {"V2"})])
def test_what_cannot_be_read_is_inconclusive(evidence: Evidence, kind: type, numbers: set[str]) -> None:
    place = place_of(evidence, kind, "cooperative")
    rest = {found: entry for found, entry in evidence.transactions.items() if found != place.transaction}
    through_another = with_transaction(evidence, place.transaction, receiver=evidence.parameters.reserve)
    for withheld in (replace(evidence, transactions=rest), through_another):
        report = audited(withheld, "cooperative")
        assert {finding.check for finding in report.findings} == numbers
        assert {finding.kind for finding in report.findings} == {Kind.INCONCLUSIVE}
        assert report.exit_code is ExitCode.INCONCLUSIVE


def test_a_call_that_cannot_emit_the_event_is_a_mismatch(evidence: Evidence) -> None:
    opened, settled = (place_of(evidence, kind, "cooperative") for kind in (TaskOpened, TaskSettled))
    data = evidence.transactions[opened.transaction].data
    report = audited(with_transaction(evidence, settled.transaction, data=data), "cooperative")
    assert kinds(report, "V7") == {Kind.MISMATCH}
    report = audited(with_transaction(evidence, settled.transaction, data=b"\1\2\3\4"), "cooperative")
    assert kinds(report, "V7") == {Kind.MISMATCH}


def test_an_unread_equivocation_still_names_the_slashed_party(evidence: Evidence) -> None:
    place = place_of(evidence, EquivocationProven, "own calls")
    rest = {found: entry for found, entry in evidence.transactions.items() if found != place.transaction}
    report = audited(replace(evidence, transactions=rest), "own calls")
    assert kinds(report, "V10") == {Kind.CHEATED, Kind.INCONCLUSIVE}


def test_a_live_task_is_inconclusive_only_past_its_deadline(evidence: Evidence) -> None:
    deadline = place_of(evidence, TaskOpened, "overdue").block + evidence.parameters.commit_window
    for last, code in ((deadline, ExitCode.CLEAN), (deadline + 1, ExitCode.INCONCLUSIVE)):
        report = audited(replace(evidence, last=replace(evidence.last, number=last)), "overdue")
        assert report.exit_code is code


def test_an_undecided_task_is_inconclusive(evidence: Evidence) -> None:
    report = audited(
        with_event(evidence, TaskSettled, "silent", lambda _: {"outcome": Outcome.INDETERMINATE}), "silent"
    )
    assert kinds(report, "V8") == {Kind.MISMATCH, Kind.INCONCLUSIVE}


def test_a_log_out_of_order_or_of_no_event_contradicts(evidence: Evidence) -> None:
    first, second, *rest = evidence.logs
    for logs in ((second, first, *rest), (replace(first, topics=(OTHER,)), second, *rest)):
        report = audited(replace(evidence, logs=tuple(logs)))
        assert kinds(report, "V1") == {Kind.MISMATCH}


def test_a_tampered_event_is_encoded_as_the_contract_does(evidence: Evidence) -> None:
    assert all(encoded(parse_log(log), log) == log for log in evidence.logs)
