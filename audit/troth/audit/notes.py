"""M22: verifiers' records of their findings about a node, put together and checked again against a deployment's record.

Every signature, the order and draw behind every note, and that no record has a gap. What the records say together is
the verifiers' word: a majority of them may have agreed to lie, and the findings are computed again only by whoever has
the model and the order's text. So it convicts nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from troth.audit.checks import NOTED
from troth.audit.errors import BundleRefused
from troth.audit.report import AuditReport, CheckReport, CheckResult, Finding, FindingKind
from troth.audit.subject import AuditSubject
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.findings import Kind
from troth.protocol.market import canonical
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.messages import order_id
from troth.protocol.market.notes import (
    FindingNote,
    JointEvidence,
    NotedTask,
    TaskOfMany,
    epoch_of,
    honest_mean,
    joint_evidence,
    require_record,
)
from troth.protocol.market.papers import PAPERS_LIMIT, drawn_seats
from troth.protocol.market.suspicion import SuspectList, suspected
from troth.protocol.market.views import class_of, silent_of, view_of
from troth.protocol.tensors import Dtype
from troth.protocol.types import Address, Hash32

NUMBER, TITLE = NOTED
LINE_LIMIT = PAPERS_LIMIT + (1 << 12)
TASKS_LIMIT = 1 << 18
"""Notes of one audit."""
About = tuple[Address, Hash32, int]
"""A node, a class and an epoch: what records are put together of."""


@dataclass(slots=True)
class _Joined:
    """Records about one node in one class and epoch."""

    shown: set[Address] = field(default_factory=set)
    verifiers: int = 0
    tasks: dict[tuple[Hash32, int], tuple[int, Mapping[Address, Address], dict[Address, FindingNote]]] = field(
        default_factory=dict
    )


def read_notes(paths: Sequence[Path]) -> list[NotedTask]:
    """The notes of some files, each once; BundleRefused where a line is none."""
    found: dict[bytes, NotedTask] = {}
    for path in paths:
        try:
            for task in _lines(path):
                found[task.note.signature] = task
                if len(found) > TASKS_LIMIT:
                    raise BundleRefused(f"More than {TASKS_LIMIT} notes", path, "Audit fewer files at once.")
        except OSError as error:
            raise BundleRefused("The file cannot be read", path, str(error)) from error
    return list(found.values())


def _lines(path: Path) -> Iterator[NotedTask]:
    number, remedy = 0, "Use the file as `troth node notes --out` wrote it."
    with path.open("rb") as file:
        while line := file.readline(LINE_LIMIT + 2):
            number += 1
            try:
                yield canonical.decode(NotedTask, line.rstrip(b"\n"), LINE_LIMIT)
            except ProtocolError as error:
                raise BundleRefused(f"Line {number} is no note: {error}", path, remedy) from error


def audit_notes(tasks: Sequence[NotedTask], subject: AuditSubject) -> tuple[AuditReport, SuspectList]:
    """What the records say together, against the groups and keys of a deployment's record; and who is suspected."""
    joined: dict[About, _Joined] = {}
    results = [CheckResult(None, tuple(_take(record, subject, joined))) for record in _records(tasks, subject)]
    suspects, evidence = [], subject.evidence
    for about, one in sorted(joined.items()):
        found = list(_evidence(about, one, subject))
        results += [CheckResult(None, (_said(about, one, said),)) for said in found]
        suspects.append(suspected(*about, found))
    known = SuspectList(
        evidence.chain_id,
        evidence.place.contracts.bank,
        evidence.last.number,
        tuple(one for one in suspects if one is not None),
    )
    return _report(results, joined, subject), known


def _report(results: Sequence[CheckResult], joined: Mapping[About, _Joined], subject: AuditSubject) -> AuditReport:
    evidence = subject.evidence
    return AuditReport(
        chain_id=evidence.chain_id,
        contract=evidence.place.contracts.bank,
        first_block=evidence.first,
        last_block=evidence.last.number,
        last_block_hash=evidence.last.hash,
        tasks=tuple(sorted({order for one in joined.values() for order, _ in one.tasks})),
        checks=(CheckReport(NUMBER, TITLE, tuple(results)),),
        not_checked=(
            "The findings themselves: whoever has the model and an order's text computes them again.",
            "That a majority of the drawn verifiers did not agree to lie.",
            "Tasks in which none of these verifiers was drawn.",
        ),
        subject="noted task",
    )


def _records(tasks: Iterable[NotedTask], subject: AuditSubject) -> Iterator[tuple[Address, list[NotedTask]]]:
    """Notes by verifier, node, class and epoch, in their order."""
    found: dict[tuple[Address, About], list[NotedTask]] = {}
    for task in tasks:
        note = task.note.message
        verifier = typed_data.recover(note, subject.evidence.domain, task.note.signature)
        found.setdefault((verifier, (note.node, note.execution_class, note.epoch)), []).append(task)
    for (verifier, _), record in sorted(found.items()):
        yield verifier, sorted(record, key=lambda one: (one.note.message.number, one.note.signature))


def _take(
    record: tuple[Address, list[NotedTask]], subject: AuditSubject, joined: dict[About, _Joined]
) -> Iterator[Finding]:
    """Add a record to what is known; a finding instead where it does not hold."""
    verifier, tasks = record
    note = tasks[0].note.message
    about = (note.node, note.execution_class, note.epoch)
    numbers = [one.note.message.number for one in tasks]
    if len(set(numbers)) < len(numbers):
        what = f"Two notes with one number about {note.node}: its records say one thing to one and another to others"
        yield Finding(NUMBER, FindingKind.CHEATED, what, party=verifier, role="node", action="leave its records out")
        return
    try:
        require_record([one.note for one in tasks], subject.evidence.domain)
        known = [_drawn(one, verifier, subject) for one in tasks]
    except (ProtocolError, LookupError) as error:
        what = f"Its record about {note.node} does not hold and is left out: {error}"
        yield Finding(NUMBER, FindingKind.INCONCLUSIVE, what, party=verifier, role="node")
        return
    one = joined.setdefault(about, _Joined())
    one.shown.add(verifier)
    for task, (block, owners, group) in zip(tasks, known, strict=True):
        message = task.note.message
        one.verifiers = max(one.verifiers, group)
        one.tasks.setdefault((message.order, message.segment), (block, owners, {}))[2][verifier] = message


def _drawn(task: NotedTask, verifier: Address, subject: AuditSubject) -> tuple[int, Mapping[Address, Address], int]:
    """The draw's block, owners of the drawn verifiers, and how many could have been; raises ProtocolError unless this
    verifier was drawn for the task that the note is about."""
    papers, note, state = task.papers, task.note.message, subject.history.state
    order, block = papers.order.message, papers.draw.message.block_number
    admitted = papers.admission.message.block_number
    view = view_of(
        state, order, papers.tab, chain_id=subject.evidence.chain_id, block=max(admitted, order.reference_block + 1),
        time=order.deadline, leaving=True,
    )  # fmt: skip
    digest, segment = order_id(order, view.domain), note.segment
    results, seats = drawn_seats(papers, view, silent_of(state, digest, len(papers.results)))
    if not segment < len(results) or (note.order, note.node, note.execution_class, note.epoch, note.result) != (
        digest,
        papers.nodes[segment],
        order.execution_class,
        epoch_of(block),
        typed_data.struct_hash(results[segment]),
    ):
        raise InvalidCheck("A note is about another task than its papers", note.number, "Show this task's papers.")
    if verifier not in seats[segment].operators:
        raise InvalidCheck("Its signer was not drawn", verifier, "Leave this record out.")
    owners = view.groups[segment].owners
    return block, {one: owners[one] for one in seats[segment].operators}, len(owners) - 1


def _evidence(about: About, joined: _Joined, subject: AuditSubject) -> Iterator[JointEvidence]:
    definition, _ = class_of(subject.history.state, about[1])
    tasks = [TaskOfMany(block, *place, owners, notes) for place, (block, owners, notes) in joined.tasks.items()]
    for kind in Kind:
        honest = honest_mean(kind, Dtype(definition.dtype), exact=definition.exact)
        found = joint_evidence(tasks, kind, honest=honest, shown=len(joined.shown), verifiers=joined.verifiers)
        if found.tasks:
            yield found


def _said(about: About, joined: _Joined, found: JointEvidence) -> Finding:
    words = (
        f"{len(joined.shown)} of {joined.verifiers} verifiers noted {found.tasks} tasks; {found.kind.value}: "
        f"wealth {found.wealth:.3g} against it, of {found.bar:.3g} from where it is found out"
    )
    where = (("class", "0x" + about[1].hex()), ("epoch", str(about[2])))
    if found.accepted:
        return Finding(NUMBER, FindingKind.OBSERVED, words, party=about[0], role="node", evidence=where)
    action = (
        "order with --check self, or name it to clients and schedulers by --suspects FILE: they check its groups more"
    )
    kind = FindingKind.INCONCLUSIVE
    return Finding(NUMBER, kind, words, party=about[0], role="node", evidence=where, action=action)
