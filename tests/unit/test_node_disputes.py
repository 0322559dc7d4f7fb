"""When a node has a segment verified again by itself, and for how long it keeps what that needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from troth.node.dispute_policy import DisputePolicy
from troth.node.disputes import FINAL_BLOCKS, closing_call, dispute_call, is_forgettable, review_of
from troth.node.models.classes import default_class
from troth.node.service.bench import Bench
from troth.node.service.standing import Standing
from troth.node.traces import StoredTrace
from troth.protocol.calls import decode_call
from troth.protocol.contract_types import Account, Parameters, Role
from troth.protocol.ends import pack_ends
from troth.protocol.events import LogMeta, TaskSettled
from troth.protocol.identifiers import class_id
from troth.protocol.review import review_id, review_task
from troth.protocol.settlement import Outcome
from troth.protocol.state import ReviewRecord, TaskRecord
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import ZERO_HASH, Address, Hash32, address_from_bytes

ID, ROOT = Hash32(b"\x07" * 32), Hash32(b"\x09" * 32)
RULES = default_class(Hash32(b"\x01" * 32), 0, "toy", 10, reviewers=5)
PARTIES = tuple(address_from_bytes(bytes([number]) * 20) for number in range(1, 6))
OTHERS = [address_from_bytes(bytes([number]) * 20) for number in range(10, 15)]
SETTLED, WINDOW = 100, 20
PRICE = (8 + 6 * 5) * 10
TASK = Task(
    Terms(OTHERS[0], OTHERS[1], class_id(RULES), 300, 50, pack_ends((4,))),
    Progress(Phase.SAMPLED, 90, 1, 2, 0, 20, ZERO_HASH, ZERO_HASH, PARTIES, (ROOT,) + (Hash32(b"\x05" * 32),) * 3),
)


@dataclass
class View:
    """A chain on which one task was settled."""

    outcome: Outcome = Outcome.REJECTED
    verdicts: int = 0
    valid: int = 7
    head: int = SETTLED + 1
    stake: int = PRICE
    lost: int | None = None
    group: list[Address | None] = field(default_factory=lambda: [*PARTIES, *OTHERS])
    reviews: dict[Hash32, ReviewRecord] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=lambda: Parameters(12, 11, 10, WINDOW, 999, 1, OTHERS[2]))

    def record(self, task: Hash32) -> TaskRecord:
        meta = LogMeta(SETTLED, ZERO_HASH, ZERO_HASH, 0)
        masks = ((self.verdicts,), (7,), (self.valid,))
        event = TaskSettled(ID, self.outcome, (self.outcome,), *masks, meta)
        return TaskRecord(TASK, ZERO_HASH, self.outcome, (event,))

    def ended_at(self, task: Hash32) -> int:
        return SETTLED

    def review(self, review: Hash32) -> ReviewRecord | None:
        return self.reviews.get(review)

    def members(self, class_: Hash32, segment: Any, block: int) -> list[Address | None]:
        return self.group

    def lost_dispute(self, operator: Address) -> int | None:
        return self.lost

    def execution_class(self, class_: Hash32) -> Any:
        return RULES

    def account(self, operator: Address) -> Account:
        return Account(self.stake, 0, 0, Role.NODE)


def bench(view: View, me: Address = PARTIES[0], policy: DisputePolicy | None = None) -> Bench:
    @dataclass
    class Operator:
        address: Address

    @dataclass
    class Tools:
        view: View
        operator: Operator
        disputes: DisputePolicy

    return cast(Bench, Tools(view, Operator(me), policy or DisputePolicy()))


def trace(*, inferred: bool = True) -> StoredTrace:
    return StoredTrace(ID, 0, 0, int(inferred), 20, 32, 0, ROOT, ZERO_HASH, b"", 1, b"", b"", b"", 0.0)


def test_a_rejected_inferencer_disputes() -> None:
    call = dispute_call(bench(View()), trace())
    assert call is not None
    task_id, _, settled, segment = decode_call(call.data).values
    assert (task_id, segment) == (ID, 0)
    assert tuple(map(tuple, settled[:4])) == ((2,), (0,), (7,), (7,))


@pytest.mark.parametrize(
    "view",
    [
        View(outcome=Outcome.ACCEPTED),
        View(valid=0),
        View(head=SETTLED + WINDOW),
        View(stake=PRICE - 1),
        View(group=[*PARTIES, *OTHERS[1:]]),
        View(reviews={review_id(ID, 0): ReviewRecord(ID, 0, TASK, None, ())}),
    ],
    ids=["accepted", "showed nothing", "too late", "too poor", "too few reviewers", "disputed already"],
)
def test_what_is_left_alone(view: View) -> None:
    assert dispute_call(bench(view), trace()) is None


def test_policy_and_place_count() -> None:
    assert dispute_call(bench(View(), policy=DisputePolicy(rejected=False)), trace()) is None
    assert dispute_call(bench(View(), me=PARTIES[1]), trace()) is None, "another candidate inferred"


def test_an_undecided_segment_is_left_to_its_scheduler_for_half_the_window() -> None:
    view = View(outcome=Outcome.INDETERMINATE, stake=0, head=SETTLED + WINDOW // 2 - 1)
    assert dispute_call(bench(view), trace()) is None
    assert dispute_call(bench(replace(view, head=SETTLED + WINDOW // 2)), trace()) is not None


@pytest.mark.parametrize(("verdicts", "expected"), [(0b011, True), (0b111, False)])
def test_an_outvoted_verifier_disputes_by_its_policy_only(verdicts: int, expected: bool) -> None:
    view = View(outcome=Outcome.ACCEPTED, verdicts=verdicts)
    mine = trace(inferred=False)
    assert dispute_call(bench(view, me=PARTIES[4], policy=DisputePolicy(outvoted=False)), mine) is None
    assert (dispute_call(bench(view, me=PARTIES[4]), mine) is not None) is expected


def test_who_has_lost_a_dispute_begins_none_by_itself_for_a_while() -> None:
    view = View(lost=SETTLED + 1 - 999)
    assert dispute_call(bench(view), trace()) is None
    assert dispute_call(bench(replace(view, lost=SETTLED - 999)), trace()) is not None


def test_traces_are_kept_until_nobody_can_ask() -> None:
    view = View(head=SETTLED + WINDOW + FINAL_BLOCKS)
    assert not is_forgettable(cast(Any, view), trace())
    assert is_forgettable(cast(Any, replace(view, head=view.head + 1)), trace())
    live = ReviewRecord(ID, 0, review_task(TASK, 0, PARTIES[0], 80, 110), None, ())
    under_review = replace(view, head=10_000, reviews={review_id(ID, 0): live})
    assert not is_forgettable(cast(Any, under_review), trace())
    assert review_of(cast(Any, under_review), trace()) == review_id(ID, 0)
    assert review_of(cast(Any, under_review), trace(inferred=False)) is None, "a first verifier has no part in it"


@pytest.mark.parametrize(
    ("phase", "wait"), [(Phase.DISPUTED, 12), (Phase.ASSIGNED, 12), (Phase.COMMITTED, 11), (Phase.SAMPLED, None)]
)
def test_the_disputer_closes_what_is_left_lying(phase: Phase, wait: int | None) -> None:
    review = review_task(TASK, 0, PARTIES[0], 80, 110)
    standing = Standing(review_id(ID, 0), 0, replace(review, progress=replace(review.progress, phase=phase)))
    last = 110 + (wait or 500)
    assert closing_call(bench(View(head=last)), standing) is None
    late = closing_call(bench(View(head=last + 1)), standing)
    assert (late is not None) is (wait is not None)
    assert closing_call(bench(View(head=last + 1), me=PARTIES[1]), standing) is None, "it is not its bond"
