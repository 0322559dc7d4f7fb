"""V7: what was opened is what was committed to, and in a tolerant class lies at the sampled tiles."""

from __future__ import annotations

from collections.abc import Iterator

from troth.audit.case import TaskCase, mismatch, unavailable
from troth.audit.history import Step
from troth.audit.inputs import task_call
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding
from troth.protocol.calls import RevealCall
from troth.protocol.contract_types import Opening
from troth.protocol.dtype import Dtype
from troth.protocol.errors import ProtocolError
from troth.protocol.events import TraceRevealed
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import verdict_commitment
from troth.protocol.trace import tile_indices
from troth.protocol.task import Task
from troth.protocol.task_progress import reveal_hash
from troth.protocol.trace import TileOpening, opening_root, tile_count
from troth.protocol.types import ZERO_HASH, Address, Hash32

NUMBER = "V7"
TITLE = "Openings and inclusion proofs"


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on reveals of their own and on the settlement's openings; None before there are any."""
    reveals, settled = case.of(TraceRevealed), case.settlement
    if not reveals and settled is None:
        return None
    findings = [finding for step in reveals for finding in _reveal(case, step)]
    return findings if settled is None else findings + _settlement(case, settled)


def _reveal(case: TaskCase, step: Step) -> list[Finding]:
    event, task = step.event, case.before(step)
    assert isinstance(event, TraceRevealed)
    call = task_call(case.evidence, event.meta, RevealCall)
    if isinstance(call, Unavailable):
        return [unavailable(NUMBER, case, step, "A revealed opening", call)]
    assert isinstance(call, RevealCall)
    opening = call.opening
    shown = (call.task_id, call.segment, opening.root, opening.verdict, opening.tiles)
    if shown != (event.task_id, event.segment, event.root, event.verdict, event.tiles):
        return [mismatch(NUMBER, case, step, "The event tells of another opening than its transaction shows")]
    members = _members(task, call.segment)
    if call.party >= len(members) or members[call.party] != event.party:
        return [mismatch(NUMBER, case, step, "The opening is not of the party that the event names")]
    wrong = _wrong(case, task, call.segment, call.party, opening)
    return [] if wrong is None else [_finding(case, step, task, (call.segment, call.party), wrong)]


def _settlement(case: TaskCase, step: Step) -> list[Finding]:
    shown = case.shown
    if shown is None or isinstance(shown, Unavailable):
        return [] if shown is None else [unavailable(NUMBER, case, step, "The openings", shown)]
    task = case.before(step)
    width = task.posts_per_segment
    return [
        _finding(case, step, task, divmod(place, width), wrong)
        for place, wrong in _judged(case, task, shown.openings)
        if wrong is not None
    ]


def _judged(case: TaskCase, task: Task, openings: tuple[Opening | None, ...]) -> Iterator[tuple[int, str | None]]:
    revealed = task.progress.revealed or (ZERO_HASH,) * len(openings)
    for place, (opening, earlier) in enumerate(zip(openings, revealed, strict=True)):
        if opening is None:
            yield place, "It was revealed before and is left out here" if earlier != ZERO_HASH else None
        elif earlier == ZERO_HASH:
            segment, party = divmod(place, task.posts_per_segment)
            yield place, _wrong(case, task, segment, party, opening)
        else:
            given = reveal_hash(opening.root, opening.verdict, Hash32(keccak256(opening.tiles)))
            yield place, None if given == earlier else "It is another opening than the one revealed before"


def _members(task: Task, segment: int) -> tuple[Address, ...]:
    """Inferencer, then verifiers."""
    return (task.parties_of(segment)[0], *task.verifiers_of(segment))


def _wrong(case: TaskCase, task: Task, segment: int, party: int, opening: Opening) -> str | None:
    """Why an opening is not of the party's commitment; None if it is."""
    post = task.posts_of(segment)[party]
    if post == ZERO_HASH:
        return "It was opened without a commitment"
    if party == 0:
        opened = opening.root
    else:
        opened = verdict_commitment(
            case.task_id,
            segment,
            _members(task, segment)[party],
            root=opening.root,
            verdict=opening.verdict,
            salt=opening.salt,
        )
    if opened != post:
        return "It opens another commitment"
    return _wrong_tiles(case, task, segment, opening)


def _wrong_tiles(case: TaskCase, task: Task, segment: int, opening: Opening) -> str | None:
    if case.definition.exact:
        return "It carries tiles in an exact class" if opening.tiles or opening.siblings else None
    rows, columns = task.progress.positions, case.model.hidden_size
    try:
        dtype = Dtype(case.definition.dtype)
        count = tile_count(rows, columns, dtype)
        indices = tile_indices(task.progress.seed, segment, case.definition.tiles, count)
        proven = opening_root(rows, columns, dtype, indices, TileOpening(opening.tiles, opening.siblings))
    except (ProtocolError, ValueError) as error:
        return f"Its tiles cannot be proven: {error}"
    return None if proven == opening.root else "Its tiles do not lead to its root"


def _finding(case: TaskCase, step: Step, task: Task, place: tuple[int, int], wrong: str) -> Finding:
    segment, party = place
    role = case.roles[party > 0]
    operator = _members(task, segment)[party]
    return mismatch(NUMBER, case, step, f"An opening was accepted: {wrong}", segment=segment, party=operator, role=role)
