"""How each event moves a task on: whoever follows a task's events always has the task that the next call takes."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from troth.protocol.bindings.structs import encode_values
from troth.protocol.ends import unpack_ends
from troth.protocol.errors import InvalidField
from troth.protocol.events import (
    EquivocationProven,
    InferenceCommitted,
    TaskAborted,
    TaskAssigned,
    TaskCommitted,
    TaskEvent,
    TaskExpired,
    TaskOpened,
    TaskSampled,
    TaskSettled,
    TraceRevealed,
    VerificationCommitted,
)
from troth.protocol.hashing import keccak256
from troth.protocol.settlement import Outcome
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import ZERO_HASH, Address, Hash32


def opened(event: TaskOpened, candidates: int) -> Task:
    """The task that ``event`` began; ``candidates`` is the execution class's c."""
    terms = Terms(event.client, event.scheduler, event.execution_class, event.fee, event.reference_block, event.ends)
    return Task(terms, Progress(Phase.OPENED, event.meta.block, len(unpack_ends(event.ends)), candidates))


def advance(task: Task, event: TaskEvent) -> Task:
    """``task`` after ``event``; an event that ends it leaves its last state. Raises InvalidField out of order."""
    progress = task.progress
    match event:
        case TaskOpened():
            raise InvalidField("A task is opened once", event.task_id, "Fold each log once, in order.")
        case TaskAssigned():
            changed = replace(progress, phase=Phase.ASSIGNED, parties=event.parties)
        case InferenceCommitted():
            changed = _inference_posted(task, event)
        case VerificationCommitted():
            place = event.segment * (1 + task.verifiers) + 1 + _index(task.verifiers_of(event.segment), event.verifier)
            changed = replace(progress, posts=_replaced(_posts(task), place, event.commitment))
        case TaskCommitted():
            changed = _committed(task, event)
        case TaskSampled():
            changed = replace(progress, phase=Phase.SAMPLED, phase_block=event.meta.block, seed=event.seed)
        case TraceRevealed():
            changed = _revealed(task, event)
        case TaskSettled() | TaskAborted() | TaskExpired() | EquivocationProven():
            changed = progress
        case _:
            assert_never(event)
    return Task(task.terms, changed)


def outcome_after(event: TaskEvent) -> Outcome | None:
    """How ``event`` ended its task; None if it did not."""
    match event:
        case TaskSettled():
            return event.outcome
        case TaskAborted():
            return Outcome.ABORTED
        case TaskExpired():
            return Outcome.EXPIRED
        case _:
            return None


def reveal_hash(root: Hash32, verdict: bool, tiles_hash: Hash32) -> Hash32:
    """What ``Progress.revealed`` holds of an opening; ``tiles_hash`` is keccak256 of its tiles."""
    return Hash32(keccak256(encode_values(("bytes32", "bool", "bytes32"), (root, verdict, tiles_hash))))


def _inference_posted(task: Task, event: InferenceCommitted) -> Progress:
    last = event.segment + 1 == task.progress.segments
    return replace(
        task.progress,
        attempt=event.attempt,
        positions=event.positions,
        output_hash=event.output_hash if last else task.progress.output_hash,
        parties=_seated(task, task.progress.parties, event.segment, event.inferencer),
        posts=_replaced(_posts(task), event.segment * (1 + task.verifiers), event.root),
    )


def _committed(task: Task, event: TaskCommitted) -> Progress:
    parties = task.progress.parties
    for segment, inferencer in enumerate(event.inferencers):
        parties = _seated(task, parties, segment, inferencer)
    return replace(
        task.progress,
        phase=Phase.COMMITTED,
        phase_block=event.meta.block,
        attempt=event.attempt,
        positions=event.positions,
        output_hash=event.output_hash,
        parties=parties,
        posts=event.posts,
    )


def _revealed(task: Task, event: TraceRevealed) -> Progress:
    width = task.posts_per_segment
    parties = task.parties_of(event.segment)
    members = (parties[0], *task.verifiers_of(event.segment))
    place = event.segment * width + _index(members, event.party)
    before = task.progress.revealed or (ZERO_HASH,) * len(task.progress.posts)
    revealed = reveal_hash(event.root, event.verdict, Hash32(keccak256(event.tiles)))
    return replace(task.progress, revealed=_replaced(before, place, revealed))


def _posts(task: Task) -> tuple[Hash32, ...]:
    return task.progress.posts or (ZERO_HASH,) * (task.progress.segments * (1 + task.verifiers))


def _seated(task: Task, parties: tuple[Address, ...], segment: int, inferencer: Address) -> tuple[Address, ...]:
    """The inferencer changes places with the candidate that stands first."""
    first = segment * task.parties_per_segment
    place = first + _index(parties[first : first + task.progress.candidates], inferencer)
    swapped = list(parties)
    swapped[first], swapped[place] = swapped[place], swapped[first]
    return tuple(swapped)


def _replaced(hashes: tuple[Hash32, ...], place: int, value: Hash32) -> tuple[Hash32, ...]:
    return (*hashes[:place], value, *hashes[place + 1 :])


def _index(parties: tuple[Address, ...], party: Address) -> int:
    if party not in parties:
        raise InvalidField("The event names no party of the segment", party, "Fold each log once, in order.")
    return parties.index(party)
