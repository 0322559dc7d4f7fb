"""What a dispute would cost, and why there is none: said before anything is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from troth.node.models.classes import default_class
from troth.protocol.disputable import Dispute, dispute_of
from troth.protocol.ends import pack_ends
from troth.protocol.errors import NotDisputable
from troth.protocol.events import LogMeta, TaskSettled
from troth.protocol.identifiers import class_id, group_id
from troth.protocol.mapping import PersistentMap
from troth.protocol.review import review_id, review_task
from troth.protocol.settlement import Outcome
from troth.protocol.state import Group, Occupancy, ReviewRecord, State, TaskRecord
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment, address_from_bytes

ID = Hash32(b"\x07" * 32)
RULES = default_class(Hash32(b"\x01" * 32), 0, "toy", 10, reviewers=5)
CLASS = class_id(RULES)
PEOPLE = tuple(address_from_bytes(bytes([number]) * 20) for number in range(1, 11))
STRANGER = address_from_bytes(b"\x77" * 20)
SETTLED, WINDOW = 100, 20
PARTIES = (*PEOPLE[:5], *PEOPLE[:5])
TASK = Task(
    Terms(STRANGER, STRANGER, CLASS, 300, 50, pack_ends((2, 4))),
    Progress(Phase.SAMPLED, 90, 2, 2, 0, 20, ZERO_HASH, ZERO_HASH, PARTIES, (ZERO_HASH,) * 8),
)


def state(*outcomes: Outcome, members: int = 10, verdicts: int = 0, **changes: Any) -> State:
    event = TaskSettled(
        ID, max(outcomes), outcomes, (verdicts,) * 2, (7,) * 2, (7,) * 2, LogMeta(SETTLED, ZERO_HASH, ZERO_HASH, 0)
    )
    groups: PersistentMap[Hash32, Group] = PersistentMap()
    for segment in (Segment(0, 2), Segment(2, 4)):
        slots = tuple((Occupancy(person, 1),) for person in PEOPLE[:members])
        groups = groups.with_item(group_id(CLASS, segment), Group(CLASS, segment, slots))
    return State(
        classes=PersistentMap[Hash32, Any]().with_item(CLASS, RULES),
        groups=groups,
        tasks=PersistentMap[Hash32, TaskRecord]().with_item(ID, TaskRecord(TASK, ZERO_HASH, max(outcomes), (event,))),
        **changes,
    )


def ask(given: State, disputer: Address, segment: int | None = None, block: int = SETTLED + 1) -> Dispute:
    return dispute_of(given, ID, segment, disputer, block=block, window=WINDOW)


REJECTED = (Outcome.REJECTED, Outcome.ACCEPTED)


@pytest.mark.parametrize(
    ("outcomes", "disputer", "expected"),
    [
        (REJECTED, PEOPLE[0], (True, 80, 380)),
        (REJECTED, STRANGER, (False, 380, 380)),
        (REJECTED, PEOPLE[4], (False, 380, 380)),
        ((Outcome.INDETERMINATE, Outcome.ACCEPTED), STRANGER, (False, 0, 0)),
    ],
    ids=["inferencer", "outsider", "denier", "undecided"],
)
def test_what_it_costs(outcomes: Any, disputer: Address, expected: tuple[bool, int, int]) -> None:
    found = ask(state(*outcomes), disputer)
    assert (found.party, found.bond, found.at_most) == expected
    assert (found.segment, found.last_block) == (0, SETTLED + WINDOW)


def test_the_failed_segment_is_meant_unless_another_is_named() -> None:
    accepted = (Outcome.ACCEPTED, Outcome.ACCEPTED)
    assert ask(state(*accepted), STRANGER, 1).segment == 1
    with pytest.raises(NotDisputable, match="Several"):
        ask(state(*accepted), STRANGER)
    assert ask(state(Outcome.ACCEPTED, Outcome.REJECTED), STRANGER).segment == 1


@pytest.mark.parametrize(
    ("given", "segment", "block", "why"),
    [
        (state(*REJECTED), None, SETTLED + WINDOW, "window has passed"),
        (state(*REJECTED, members=9), None, SETTLED + 1, "too few nodes"),
        (state(*REJECTED), 2, SETTLED + 1, "no such segment"),
        (state(*REJECTED), 1, SETTLED + 1, "at most once|Nothing"),
        (State(), None, SETTLED + 1, "never opened"),
    ],
    ids=["late", "small group", "no segment", "accepted beside a rejected one", "unknown"],
)
def test_why_not(given: State, segment: int | None, block: int, why: str) -> None:
    with pytest.raises(NotDisputable, match=why):
        ask(given, STRANGER, segment, block)


def test_once_only() -> None:
    before = state(*REJECTED)
    record = ReviewRecord(ID, 0, review_task(TASK, 0, STRANGER, 380, 101), Outcome.ACCEPTED, ())
    with pytest.raises(NotDisputable, match="at most once"):
        ask(replace(before, reviews=before.reviews.with_item(review_id(ID, 0), record)), STRANGER)
