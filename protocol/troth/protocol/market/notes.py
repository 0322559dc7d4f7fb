"""What verifiers found of a node, task by task, as signed records that anybody can put together and check again.

After each task a verifier signs a note of its findings (`troth.protocol.findings`). Each note of one node in one class
names the one before, so that a record is whole or ends early: nobody who posts it can leave out the tasks that speak
for the node. With each note go the papers that drew the verifier, so that nobody can make tasks up.

Several records make one. In a task the drawn verifiers' findings are averaged without the highest of any owner, so that
no single one frames a node; a verifier whose record is not shown counts as having found nothing. Such a mean is no
larger than that of all of them, whatever hangs together, so what holds for an honest node's finding holds for it. Whose
records are shown may have been chosen by what they say: the bar is higher by as many choices as there were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from troth.protocol import typed_data
from troth.protocol.findings import HONEST_LOST, HONEST_RATIO, HONEST_SHARE, Kind, TaskFinding
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import CheckPapers
from troth.protocol.sequential import ERROR, largest_wealth
from troth.protocol.tensors import Dtype
from troth.protocol.types import ZERO_HASH, Address, Hash32, Uint8, Uint32

EPOCH_BLOCKS = 1 << 18
"""Blocks of draws after which every verifier begins its records anew: one month of 10 seconds each."""
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class FindingNote:
    """A verifier's findings about ``node`` in one task.

    ``number`` counts from 1 in an ``epoch``; ``before`` is the struct hash of the note before, zero for the first.
    ``states`` and ``tokens`` are findings in millionths plus one, 0 where the task says nothing of that kind.
    """

    node: Address
    execution_class: Hash32
    epoch: Uint32
    number: Uint32
    before: Hash32
    order: Hash32
    segment: Uint8
    result: Hash32
    states: Uint32
    tokens: Uint32


@dataclass(frozen=True, slots=True)
class NotedTask:
    """A note with what shows that its verifier was drawn; prompt, answer and their salts are not in it."""

    note: Signed[FindingNote]
    papers: CheckPapers


@dataclass(frozen=True, slots=True)
class TaskOfMany:
    """A task of one node: ``owners`` of the verifiers that were drawn, and what those whose records are shown found."""

    block: int
    order: Hash32
    segment: int
    owners: Mapping[Address, Address]
    notes: Mapping[Address, FindingNote]


@dataclass(frozen=True, slots=True)
class JointEvidence:
    """Evidence of one kind over ``tasks``. ``wealth``: its inverse bounds an honest node's chance to look like this,
    were the records not chosen by what they say; ``bar``: from where it is found out, as they may have been."""

    kind: Kind
    tasks: int
    wealth: float
    bar: float

    @property
    def accepted(self) -> bool:
        """Whether an honest node may well look like this."""
        return self.wealth < self.bar


def epoch_of(block: int) -> int:
    """The epoch of a draw at a block."""
    return block // EPOCH_BLOCKS


def posted(papers: CheckPapers) -> CheckPapers:
    """Papers without what is secret or of the verifier's own: salts, its pay."""
    return replace(papers, pay=None, head_salt=ZERO_HASH, salt=None)


def coded(findings: Sequence[TaskFinding]) -> dict[str, int]:
    """Findings as a note has them, by the name of its field."""
    found = {kind.value: 0 for kind in Kind}
    return found | {one.test.value: round(one.value * MILLION) + 1 for one in findings}


def value_of(note: FindingNote, kind: Kind) -> float | None:
    """A note's finding from 0 to 1; None where it has none. Raises InvalidCheck for a number beyond."""
    code = {Kind.STATES: note.states, Kind.TOKENS: note.tokens}[kind]
    if code > MILLION + 1:
        raise InvalidCheck("A finding is from 0 to 1", code, "Leave this record out.")
    return None if code == 0 else (code - 1) / MILLION


def honest_mean(kind: Kind, dtype: Dtype, *, exact: bool) -> float:
    """What an honest node's finding is on average at most."""
    if kind is Kind.STATES:
        return HONEST_RATIO
    return HONEST_SHARE if dtype is Dtype.BFLOAT16 and not exact else HONEST_LOST


def require_record(notes: Sequence[Signed[FindingNote]], domain: typed_data.Domain) -> Address:
    """Whose record this is, once its notes are all that this verifier signed until the last of them.

    (1) One verifier signed all of them, (2) about one node in one class and epoch; (3) they are numbered from 1, and
    (4) each names the one before. Raises InvalidCheck, or InvalidSignature.
    """
    if not notes:
        raise InvalidCheck("A record has a note at least", 0, "Leave it out.")
    first = notes[0].message
    verifier = typed_data.recover(first, domain, notes[0].signature)
    before = ZERO_HASH
    for number, signed in enumerate(notes, start=1):
        note = signed.require(domain, verifier)
        about = (note.node, note.execution_class, note.epoch)
        if about != (first.node, first.execution_class, first.epoch):
            raise InvalidCheck("A record is about one node, class and epoch", about, "Sort the notes.")
        if (note.number, note.before) != (number, before):
            raise InvalidCheck("A note is missing, or of another record", note.number, "Ask for the whole record.")
        before = Hash32(typed_data.struct_hash(note))
    return verifier


def together(values: Mapping[Address, float]) -> float:
    """One finding of a task, by what each owner's verifiers found: the mean without the highest."""
    if len(values) < 2:
        return 0.0  # one's word alone is no evidence to others
    return sum(sorted(values.values())[:-1]) / (len(values) - 1)


def joint_evidence(
    tasks: Iterable[TaskOfMany], kind: Kind, *, honest: float, shown: int, verifiers: int
) -> JointEvidence:
    """The evidence of one kind over tasks of one node in one class and epoch.

    ``shown``: whose records there are, of so many ``verifiers`` that could have been drawn.
    """
    findings = []
    for task in sorted(tasks, key=lambda one: (one.block, one.order, one.segment)):
        known = {verifier: value_of(note, kind) for verifier, note in task.notes.items()}
        if all(one is None for one in known.values()):
            continue
        by_owner: dict[Address, float] = {}
        for verifier, owner in task.owners.items():
            found = known.get(verifier) or 0.0
            by_owner[owner] = min(by_owner.get(owner, 1.0), found)
        findings.append(together(by_owner))
    choices = math.comb(max(verifiers, shown), shown)
    return JointEvidence(kind, len(findings), largest_wealth(findings, honest), choices / ERROR)
