"""Second verifications: committee sizes of Lemma E.2, who is drawn, who may dispute."""

from __future__ import annotations

from math import comb

import pytest
from eth_abi import encode
from hypothesis import given
from hypothesis import strategies as st

from troth.protocol.contract_types import Settled
from troth.protocol.ends import pack_ends
from troth.protocol.errors import InvalidField, WrongAssignment
from troth.protocol.hashing import keccak256
from troth.protocol.review import (
    draw_reviewers,
    in_the_right,
    is_disputable,
    profits,
    review_id,
    review_task,
    reviewers_needed,
)
from troth.protocol.settlement import Outcome
from troth.protocol.task import Phase, Progress, Task, Terms, task_hash
from troth.protocol.types import ZERO_ADDRESS, Hash32, Segment, address_from_bytes

ONE = Hash32(b"\x01" * 32)
ACCEPTED, REJECTED, UNDECIDED = int(Outcome.ACCEPTED), int(Outcome.REJECTED), int(Outcome.INDETERMINATE)


def party(number: int) -> str:
    return address_from_bytes(number.to_bytes(20))


PARTIES = tuple(party(number) for number in range(1, 11))
TASK = Task(
    Terms(party(90), party(91), ONE, 1000, 7, pack_ends((2, 5))),
    Progress(Phase.SAMPLED, 50, 2, 2, 1, 20, ONE, ONE, PARTIES, tuple(Hash32(bytes([n]) * 32) for n in range(1, 9))),
)


@pytest.mark.parametrize(
    ("honest", "error", "needed"), [(0.9, 0.01, 15), (0.95, 0.01, 13), (0.75, 0.01, 37), (0.6, 0.1, 117)]
)
def test_committees_of_the_lemma(honest: float, error: float, needed: int) -> None:
    assert reviewers_needed(honest, error) == needed


@given(st.floats(0.6, 1), st.floats(0.001, 0.4), st.floats(0, 0.05))
def test_a_committee_of_that_size_errs_no_more_often(honest: float, error: float, miss: float) -> None:
    size, right = reviewers_needed(honest, error, miss), honest * (1 - miss)
    wrong = sum(comb(size, k) * right**k * (1 - right) ** (size - k) for k in range((size + 1) // 2))
    assert size % 2 == 1
    assert wrong <= error + 1e-12


@pytest.mark.parametrize(("honest", "error"), [(0.5, 0.01), (0.4, 0.01), (1.2, 0.1), (0.9, 0.0), (0.9, 0.5)])
def test_without_an_honest_majority_no_committee_suffices(honest: float, error: float) -> None:
    with pytest.raises(InvalidField):
        reviewers_needed(honest, error)


def test_review_id_is_what_the_contract_hashes() -> None:
    tag = keccak256(b"troth/review/1")
    assert review_id(ONE, 3) == keccak256(encode(["bytes32", "bytes32", "uint8"], [tag, ONE, 3]))


def test_a_review_is_a_task_of_one_segment() -> None:
    review = review_task(TASK, 1, party(90), 8, 60)
    assert review.terms.is_review
    assert not TASK.terms.is_review
    assert review.terms.segments == (Segment(2, 5),)
    assert review.progress.parties == PARTIES[5:]
    assert review.progress.posts == TASK.progress.posts[4:5]
    assert (review.progress.phase, review.progress.candidates, review.terms.fee) == (Phase.DISPUTED, 1, 8)
    assert task_hash(review)[-2:] == bytes(2)
    assert task_hash(review) != task_hash(review_task(TASK, 1, ZERO_ADDRESS, 8, 60))


@given(st.binary(min_size=32, max_size=32), st.integers(0, 12))
def test_no_first_party_is_drawn_again(beta: bytes, vacant: int) -> None:
    members = [party(number) for number in range(1, 20)]
    slots = [None if place == vacant else member for place, member in enumerate(members)]
    drawn = draw_reviewers(Hash32(beta), slots, PARTIES[:5], 7)
    assert len(set(drawn)) == 7
    assert not set(drawn) & set(PARTIES[:5])
    assert members[vacant] not in drawn
    with pytest.raises(WrongAssignment):
        draw_reviewers(Hash32(beta), slots, PARTIES[:5], 15)


def settled(*outcomes: int, verdicts: int = 0, valid: int = 7) -> Settled:
    count = len(outcomes)
    return Settled(outcomes, (verdicts,) * count, (0,) * count, (valid,) * count, 60)


@pytest.mark.parametrize(
    ("state", "segment", "expected"),
    [
        (settled(REJECTED, ACCEPTED), 0, True),
        (settled(REJECTED, ACCEPTED), 1, False),
        (settled(REJECTED, ACCEPTED, valid=0), 0, False),
        (settled(ACCEPTED, ACCEPTED), 1, True),
        (settled(UNDECIDED, REJECTED), 0, True),
    ],
)
def test_what_can_be_disputed(state: Settled, segment: int, expected: bool) -> None:
    assert is_disputable(state, segment) is expected


def test_who_would_profit() -> None:
    rejected = settled(REJECTED, ACCEPTED, verdicts=0b001, valid=0b011)
    assert in_the_right(rejected, 0, Outcome.ACCEPTED) == {0}
    assert in_the_right(rejected, 0, Outcome.REJECTED) == {1}
    assert [profits(TASK, rejected, 0, one) for one in PARTIES[:5]] == [True, False, True, False, False]
    accepted = settled(ACCEPTED, ACCEPTED, verdicts=0b011)
    assert [profits(TASK, accepted, 1, one) for one in PARTIES[5:]] == [False, False, False, False, True]
