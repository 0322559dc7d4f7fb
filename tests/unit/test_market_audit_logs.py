"""Audits of a scheduler's log: the honest one is clean, and each lie in it is found by its own check."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.market_record import SCHEDULER, line_of, posted, promise_of, record
from support.market_scene import TAB_KEY, Scene, hash_of

from troth.audit import running
from troth.audit.checks import CHAIN, logs
from troth.audit.display import counted, guarded
from troth.audit.errors import AuditError, SourceUnusable
from troth.audit.report import Finding, FindingKind
from troth.audit.watching.findings import ShownFindings
from troth.protocol.errors import InvalidField
from troth.protocol.market import log_data
from troth.protocol.market.log_data import LoggedResult, LoggedVerdict, LogLine, read_address
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import State
from troth.protocol.types import ZERO_HASH

SCENE = Scene()


@cache
def honest() -> LogLine:
    return line_of(SCENE)


def changed(**changes: Any) -> LogLine:
    line = honest()
    return LogLine(**{name: changes.get(name, getattr(line, name)) for name in line.__struct_fields__})


def examined(line: LogLine, promises: tuple[Any, ...] = (), **post: Any) -> list[Finding]:
    """Findings over an entry with this one line."""
    data = log_data.encode_data([line])
    subject = record(posted(data, **post))
    assert not subject.history.contradictions
    served = logs.ServedLogs(SCHEDULER, {1: data}, {}, promises)
    return [found for report in logs.examine(subject, served) for one in report.results for found in one.findings]


def numbers(findings: list[Finding]) -> set[str]:
    return {finding.check for finding in findings}


def test_an_honest_log_is_clean() -> None:
    assert examined(honest(), (promise_of(honest()),)) == []


def test_the_record_of_the_stage_passes_the_checks_of_the_chain() -> None:
    subject = record(posted(log_data.encode_data([honest()])))
    for check in CHAIN:
        if check.number not in {"M18", "M3"}:
            report = check.report(subject)
            assert [found for result in report.results for found in result.findings] == [], check.number


def other_bytes(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda line: {"infer_proof": other_bytes(line.infer_proof)}, "M15"),
        (lambda line: {"results": ()}, "M15"),
        (
            lambda line: {
                "results": (
                    LoggedResult(line.results[0].node, other_bytes(line.results[0].result), line.results[0].signature),
                )
            },
            "M15",
        ),
        (lambda line: {"results": (LoggedResult(TAB_NODE, line.results[0].result, line.results[0].signature),)}, "M15"),
        (lambda _: {"prompt_price": "1"}, "M15"),
        (lambda _: {"execution_class": "0x" + "00" * 32}, "M15"),
        (lambda line: {"draw_proof": other_bytes(line.draw_proof)}, "M16"),
        (lambda line: {"beta": other_bytes(line.beta)}, "M16"),
        (lambda line: {"secret": other_bytes(line.secret)}, "M16"),
        (lambda _: {"verdicts": ()}, "M16"),
        (lambda line: {"verdicts": line.verdicts[1:]}, "M16"),
        (lambda line: {"verdicts": (flipped(line.verdicts[0]), *line.verdicts[1:])}, "M16"),
        (lambda line: {"verdicts": (foreign(line.verdicts[0]), *line.verdicts[1:])}, "M16"),
        (lambda _: {"check_rate": 0}, "M16"),
    ],
)
def test_every_lie_in_a_line_is_found(change: Callable[[LogLine], dict[str, Any]], check: str) -> None:
    findings = examined(changed(**change(honest())))
    assert check in numbers(findings)
    assert all(finding.kind is FindingKind.CHEATED for finding in findings)
    assert all(finding.action for finding in findings)


TAB_NODE = line_of(SCENE).verdicts[0].verifier
"""A node that was drawn to check, and not to infer."""


def flipped(said: LoggedVerdict) -> LoggedVerdict:
    return LoggedVerdict(said.segment, said.verifier, int(Opinion.REJECT), said.locks, said.commitment, said.signature)


def foreign(said: LoggedVerdict) -> LoggedVerdict:
    node = honest().results[0].node
    return LoggedVerdict(said.segment, node, said.opinion, said.locks, said.commitment, said.signature)


@pytest.mark.parametrize("counter", ["orders", "drawn", "checked", "rejected", "unrevealed", "positions"])
def test_wrong_totals_are_found(counter: str) -> None:
    findings = examined(honest(), counts={counter: 99_999})
    assert numbers(findings) == {"M14"}
    assert counter in findings[0].message


def test_a_wrong_root_is_found() -> None:
    assert "M14" in numbers(examined(honest(), root=hash_of("another")))


def test_an_unrevealed_order_needs_no_check() -> None:
    assert examined(changed(secret="", verdicts=())) == []


@pytest.mark.slow
def test_a_rejection_that_nobody_brings_is_named_with_its_call() -> None:
    findings = examined(line_of(SCENE, verdicts=rejections()))
    assert [(finding.check, finding.kind) for finding in findings] == [("M16", FindingKind.INCONCLUSIVE)]
    assert "Court.open" in str(findings[0].action)


def rejections() -> tuple[LoggedVerdict, ...]:
    journey = SCENE.checked(opinion=Opinion.REJECT)
    assert journey.checks
    return tuple(
        LoggedVerdict(
            0, name, 2, one.message.locks, log_data.written(one.message.commitment), log_data.written(one.signature)
        )
        for name, one in journey.checks[0].verdicts.items()
    )


def test_a_verifier_that_spoke_is_not_passed_over_for_silence_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in court: its own verdict is there. A verdict that somebody else signed in its name is none."""
    verifier = read_address(honest().verdicts[0].verifier)
    monkeypatch.setattr(State, "silent_in_check", lambda *_: (verifier,))
    assert examined(honest()) == []
    forged = changed(verdicts=(flipped(honest().verdicts[0]), *honest().verdicts[1:]))
    assert f"{verifier} was not drawn to check segment 0" in {found.message for found in examined(forged)}


# ------------------------------------------------------------------------------------------------- served and promised


def test_data_that_is_not_served_or_was_changed_is_a_finding() -> None:
    data = log_data.encode_data([honest()])
    subject = record(posted(data))

    def kinds(served: logs.ServedLogs) -> list[FindingKind]:
        report = logs.examine(subject, served)[0]
        return [finding.kind for result in report.results for finding in result.findings]

    refused = {1: logs.MissingLogData("HTTP status 404", reached=True)}
    assert kinds(logs.ServedLogs(SCHEDULER, {}, refused)) == [FindingKind.CHEATED]
    assert kinds(logs.ServedLogs(SCHEDULER, {}, {1: logs.MissingLogData("no route", reached=False)})) == [
        FindingKind.INCONCLUSIVE
    ]
    assert kinds(logs.ServedLogs(SCHEDULER, {1: data + b"\n"}, {})) == [FindingKind.CHEATED]
    broken = b"no line\n"
    event = posted(data, data_hash=log_data.data_hash(broken))
    (report, *_) = logs.examine(record(event), logs.ServedLogs(SCHEDULER, {1: broken}, {}))
    assert "cannot be read" in report.results[0].findings[0].message


def test_a_promised_leaf_that_is_missing_is_found() -> None:
    another = changed(block_bucket=1)
    (finding,) = examined(honest(), (promise_of(another),))
    assert (finding.check, finding.kind, finding.party) == ("M17", FindingKind.CHEATED, SCHEDULER)
    (late,) = examined(honest(), (promise_of(honest(), entry=2),))
    (forged,) = examined(honest(), (promise_of(honest(), key=TAB_KEY),))
    assert late.kind is forged.kind is FindingKind.INCONCLUSIVE


def test_promises_are_read_from_lines(tmp_path: Path) -> None:
    promise = promise_of(honest())
    message = promise.message
    said = {"order": message.order, "leaf": message.leaf, "signature": promise.signature}
    line = json.dumps({name: log_data.written(raw) for name, raw in said.items()} | {"entry": message.entry})
    (tmp_path / "promises").write_text(line + "\n", "utf-8")
    assert running.read_promises(tmp_path / "promises") == (promise,)
    for wrong in ("[]", "{}", line.replace("0x", ""), "["):
        (tmp_path / "promises").write_text(wrong, "utf-8")
        with pytest.raises(running.BundleRefused):
            running.read_promises(tmp_path / "promises")


# ------------------------------------------------------------------------------------------------------------ the form


def test_lines_round_trip_and_other_forms_are_refused() -> None:
    raw = log_data.encode_line(honest())
    assert log_data.decode_line(raw) == honest()
    for wrong in (raw[:-1], raw.replace(b":", b": ", 1), raw.replace(b'"order"', b'"orders"', 1), b"[" * 70_000, b""):
        with pytest.raises(InvalidField):
            log_data.decode_line(wrong)
    other = changed(order="0x" + "11" * 32)
    data = log_data.encode_data([other, honest()])
    assert set(log_data.decode_data(data)) == {honest(), other}
    lines = data.splitlines(keepends=True)
    for wrong in (b"".join(reversed(lines)), lines[0] * 2, data[:-1], data + b"\n"):
        with pytest.raises(InvalidField):
            log_data.decode_data(wrong)


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=9, unique=True), st.data())
def test_roots_differ_where_a_leaf_does(leaves: list[bytes], data: st.DataObject) -> None:
    hashed = [log_data.leaf_of(leaf) for leaf in leaves]
    root = log_data.root_of(hashed)
    assert (root == ZERO_HASH) is (not leaves)
    if hashed:
        index = data.draw(st.integers(0, len(hashed) - 1))
        assert log_data.root_of([*hashed[:index], log_data.leaf_of(b"x"), *hashed[index + 1 :]]) != root
        assert log_data.root_of([*hashed, log_data.leaf_of(b"x")]) != root


@given(st.integers(min_value=1, max_value=1 << 40))
def test_buckets_hold_their_positions(positions: int) -> None:
    bucket = log_data.bucket_of(positions)
    assert positions <= 1 << bucket
    assert bucket == 0 or positions > 1 << bucket - 1


def test_a_full_disk_is_told_and_findings_are_kept_once_there_is_room(tmp_path: Path) -> None:
    """SQLite's own limit stands for the disk's."""
    shown = ShownFindings(tmp_path / "findings.sqlite")
    found = [Finding("M13", FindingKind.CHEATED, "x" * (1 << 16))]
    (pages,) = shown._database.execute("PRAGMA page_count").fetchone()
    shown._database.execute(f"PRAGMA max_page_count={pages}")
    for _ in range(2):
        with pytest.raises(SourceUnusable, match="takes nothing"):
            shown.note(found, 1)
    shown._database.execute("PRAGMA max_page_count=1000000")
    shown.note(found, 1)
    assert shown.compare(found, 2) == ((), ())
    shown.close()


def test_what_was_looked_at_is_counted_in_plain_english() -> None:
    said = [counted(number, what) for what in ("log entry", "case") for number in (0, 1, 4)]
    assert said == ["0 log entries", "1 log entry", "4 log entries", "0 cases", "1 case", "4 cases"]


@pytest.mark.parametrize(
    "change",
    [
        {"order": "../../etc/passwd"},
        {"order": "0x" + "11" * 31},
        {"secret": "0x11"},
        {"beta": ""},
        {"execution_class": "x" * 60_000},
        {"positions_bucket": 1 << 40},
        {"positions_bucket": -1},
        {"block_bucket": -1},
        {"reference_block": 1 << 60},
        {"check_rate": -1},
        {"results": (LoggedResult("<b>", "0x", "0x"),)},
        {"results": honest().results * 33},
        {"node_share": 1 << 16},
        {"verdicts": (LoggedVerdict(0, "0x12", 1, False, "0x", "0x"),)},
        {"verdicts": (LoggedVerdict(1 << 62, TAB_NODE, 1, False, "0x", "0x"),)},
        {"verdicts": (LoggedVerdict(0, TAB_NODE, 1 << 62, False, "0x", "0x"),)},
    ],
)
def test_a_line_out_of_all_bounds_is_its_scheduler_s_fault_and_stops_no_audit(change: dict[str, Any]) -> None:
    """An auditor counts with what a stranger wrote: a shift by 2^40, say, would take all of its memory."""
    data = log_data.encode_data([changed(**change)])
    subject = record(posted(log_data.encode_data([honest()]), data_hash=log_data.data_hash(data)))
    reports = logs.examine(subject, logs.ServedLogs(SCHEDULER, {1: data}, {}))
    (finding,) = [found for report in reports for one in report.results for found in one.findings]
    assert (finding.check, finding.kind, finding.party) == ("M13", FindingKind.CHEATED, SCHEDULER)
    assert "cannot be read" in finding.message


def test_a_file_that_cannot_be_used_is_named_and_no_violation() -> None:
    def work() -> None:
        Path("/nowhere/at/all").write_bytes(b"")

    with pytest.raises(AuditError, match="A file cannot be used: No such file") as caught:
        guarded(work)
    assert str(caught.value.value) == "/nowhere/at/all"
    assert caught.value.exit_code != 1


def test_who_names_no_scheduler_that_posted_is_told_of_those_that_did() -> None:
    """An auditor with nothing but a chain node knew no address to ask for, and was told to check it."""
    subject = record(posted(log_data.encode_data([honest()])))
    other: Any = "0x" + "12" * 20
    reading: Any = SimpleNamespace(subject=subject)
    with pytest.raises(AuditError, match="has posted no log entry") as refused:
        running.audit_log(reading, logs.ServedLogs(other, {}, {}, ()), ["M13"])
    assert refused.value.remedy == f"Those that have posted: {SCHEDULER}."
    nobody: Any = SimpleNamespace(subject=record())
    with pytest.raises(AuditError) as refused:
        running.audit_log(nobody, logs.ServedLogs(other, {}, {}, ()), ["M13"])
    assert SCHEDULER in refused.value.remedy or "No scheduler is registered" in refused.value.remedy
