"""Changes recorded evidence, so that a test sees a check fail for the one thing that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.audit_stage_names import TASKS

from troth.audit.auditing import audit, opened_tasks
from troth.audit.bundle_reading import read_bundle
from troth.audit.evidence import Evidence
from troth.audit.history import read_history
from troth.audit.report import CheckReport, Report
from troth.protocol.bindings import named
from troth.protocol.bindings.structs import encode_parameters, field_names
from troth.protocol.calls import decode_call
from troth.protocol.events import Log, parse_log
from troth.protocol.review import review_id
from troth.protocol.types import Hash32

REVIEW_OF = "review of "
BUNDLE = Path(__file__).resolve().parents[1] / "unit" / "data" / "audit_bundle.jsonl.gz"


def recorded() -> Evidence:
    """The recorded contract; see ``audit_stage`` for what was played."""
    return read_bundle(BUNDLE)[0]


def task_named(evidence: Evidence, name: str) -> Hash32:
    """The id of a played task, or of "review of" its first segment."""
    task = opened_tasks(read_history(evidence.logs))[TASKS.index(name.removeprefix(REVIEW_OF))]
    return review_id(task, 0) if name.startswith(REVIEW_OF) else task


def subject(event: Any) -> Hash32 | None:
    """The review, or else the task, that an event names."""
    return getattr(event, "review_id", getattr(event, "task_id", None))


def audited(evidence: Evidence, name: str | None = None) -> Report:
    """All checks, of one task or of all."""
    history = read_history(evidence.logs)
    tasks = opened_tasks(history)
    if name is None:
        return audit(evidence, history, tasks, blocks=range(evidence.last.number + 1))
    return audit(evidence, history, [tasks[TASKS.index(name.removeprefix(REVIEW_OF))]])


def result(report: Report, number: str) -> CheckReport:
    """One check's results."""
    return next(check for check in report.checks if check.number == number)


def encoded(event: Any, log: Log) -> Log:
    """``log`` with the content of ``event``."""
    entry = named("event")[type(event).__name__]
    values = [getattr(event, name) for name in field_names(type(event))[:-1]]
    pairs = list(zip(entry.inputs, values, strict=True))
    topics = [Hash32(encode_parameters([p], [value])) for p, value in pairs if p.indexed]
    data = [(p, value) for p, value in pairs if not p.indexed]
    body = encode_parameters([p for p, _ in data], [value for _, value in data])
    return replace(log, topics=(Hash32(entry.topic), *topics), data=body)


def with_event(
    evidence: Evidence, kind: type, name: str | None, change: Callable[[Any], dict[str, Any]], skip: int = 0
) -> Evidence:
    """The event of ``kind`` (of a task, if named) with other fields; ``skip`` passes over earlier ones."""
    task = None if name is None else task_named(evidence, name)
    logs = list(evidence.logs)
    for index, log in enumerate(logs):
        event = parse_log(log)
        if not isinstance(event, kind) or (task is not None and subject(event) != task):
            continue
        if skip:
            skip -= 1
            continue
        logs[index] = encoded(replace(event, **change(event)), log)
        return replace(evidence, logs=tuple(logs))
    raise AssertionError(f"no {kind.__name__} of {name} was recorded")


def without_event(evidence: Evidence, kind: type, name: str) -> Evidence:
    """The first event of ``kind`` of a task left out."""
    place = place_of(evidence, kind, name)
    return replace(evidence, logs=tuple(log for log in evidence.logs if log.meta != place))


def place_of(evidence: Evidence, kind: type, name: str, skip: int = 0) -> Any:
    """Where an event of a task stands."""
    task = task_named(evidence, name)
    events = [event for event in map(parse_log, evidence.logs) if isinstance(event, kind) and subject(event) == task]
    return events[skip].meta


def with_call(
    evidence: Evidence, kind: type, name: str, change: Callable[[dict[str, Any]], dict[str, Any]], skip: int = 0
) -> Evidence:
    """The call behind an event with other arguments, named as in Solidity."""
    place = place_of(evidence, kind, name, skip)
    transaction = evidence.transactions[place.transaction]
    call = decode_call(transaction.data)
    arguments = {p.name: value for p, value in zip(call.entry.inputs, call.values, strict=True)}
    changed = {**arguments, **change(arguments)}
    data = call.entry.selector + encode_parameters(call.entry.inputs, list(changed.values()))
    return with_transaction(evidence, place.transaction, data=data)


def with_transaction(evidence: Evidence, transaction: Hash32, **changes: Any) -> Evidence:
    """A transaction with other fields."""
    changed = replace(evidence.transactions[transaction], **changes)
    return replace(evidence, transactions={**evidence.transactions, transaction: changed})


def flipped(data: bytes, place: int = -1) -> bytes:
    """One bit of one byte changed."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)
