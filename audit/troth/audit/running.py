"""From a node or a file to a report: what the commands do before they print."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from troth.audit.auditing import audit, opened_tasks, tasks_between
from troth.audit.bundle_reading import read_bundle
from troth.audit.errors import AuditError, SourceUnusable, UnknownTask
from troth.audit.evidence import Evidence
from troth.audit.history import History, equivocations, read_history
from troth.audit.report import Report
from troth.audit.source import Source
from troth.chain.errors import ChainError
from troth.protocol.logs import LogMeta
from troth.protocol.types import Address, Hash32

OFFLINE_NOTES = (
    "That the chain contains these blocks: compare the printed block hashes with a source that you trust.",
    "That the bundle has every log, that logs and times are those of their blocks, and the contract's parameters.",
)


async def audit_task(
    rpc: str, contract: Address, task: Hash32, *, start: int, last: int | None, only: Collection[str]
) -> Report:
    """One task, and the whole event stream under it."""
    try:
        async with await Source.connect(rpc, contract) as source:
            head = await source.header(last)
            logs = await source.logs(start, head.number)
            history = read_history(logs)
            _require_task(history, task)
            places = [step.event.meta for step in history.with_reviews(task)]
            evidence = await source.evidence(start, head, logs, places, _slots(history, [task]))
    except ChainError as error:
        raise SourceUnusable(error.what, error.value, error.remedy) from error
    return audit(evidence, history, [task], only=only)


async def audit_chain(
    rpc: str, contract: Address, *, start: int, first: int, last: int | None, only: Collection[str]
) -> Report:
    """Every task with an event in blocks ``first`` to ``last``."""
    try:
        async with await Source.connect(rpc, contract) as source:
            head = await source.header(last)
            if first > head.number:
                raise SourceUnusable("The chain ends before that block", first, "Choose an earlier --from-block.")
            logs = await source.logs(start, head.number)
            history = read_history(logs)
            tasks = tasks_between(history, first, head.number)
            evidence = await source.evidence(start, head, logs, _places(history, tasks), _slots(history, tasks))
    except ChainError as error:
        raise SourceUnusable(error.what, error.value, error.remedy) from error
    return audit(evidence, history, tasks, blocks=range(first, head.number + 1), only=only)


async def collect(rpc: str, contract: Address, *, start: int, last: int | None) -> Evidence:
    """Everything that a bundle carries: the headers of all logs, and the transactions of all tasks."""
    try:
        async with await Source.connect(rpc, contract) as source:
            head = await source.header(last)
            logs = await source.logs(start, head.number)
            places = [log.meta for log in logs]
            return await source.evidence(start, head, logs, places, [])
    except ChainError as error:
        raise SourceUnusable(error.what, error.value, error.remedy) from error


def audit_bundle(path: Path, task: Hash32 | None, only: Collection[str]) -> tuple[Report, Evidence, str]:
    """A bundle's tasks, or one of them; with its evidence and content hash. No network."""
    evidence, content = read_bundle(path)
    history = read_history(evidence.logs)
    if task is not None:
        _require_task(history, task)
        return audit(evidence, history, [task], only=only, notes=OFFLINE_NOTES), evidence, content
    blocks = range(evidence.first, evidence.last.number + 1)
    tasks = opened_tasks(history)
    return audit(evidence, history, tasks, blocks=blocks, only=only, notes=OFFLINE_NOTES), evidence, content


def _places(history: History, tasks: Collection[Hash32]) -> list[LogMeta]:
    places = [step.event.meta for task in tasks for step in history.with_reviews(task)]
    return places + [step.event.meta for step in equivocations(history)]


def _slots(history: History, tasks: Collection[Hash32]) -> list[Hash32]:
    """Tasks and their reviews, each of which has a slot in the contract."""
    return [found for task in tasks for found in (task, *history.reviews_of(task))]


def _require_task(history: History, task: Hash32) -> None:
    if task in history.state.tasks:
        return
    if history.contradictions:
        first = history.contradictions[0]
        raise AuditError(
            f"The events contradict each other before the task is opened: {first.message}",
            f"block {first.place.block}",
            "Start at the contract's first block, or use another node.",
        )
    raise UnknownTask("No such task was opened", "0x" + task.hex(), "Check the id, the contract and --to-block.")
