"""Two mouths, one answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.node.direct.merging import Contradiction, Merging

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 30)), max_size=40)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), steps)
def test_any_order_of_arrival_gives_each_token_once(answer: list[int], arrivals: list[tuple[bool, int, int]]) -> None:
    merging, passed, told = Merging(len(answer)), list[int](), 0
    for by_scheduler, start, count in [*arrivals, *[(True, 0, 0)] * len(answer)]:
        if not by_scheduler:
            # A node is asked from where the answer is, and may be overtaken meanwhile.
            begin = min(start, len(merging.tokens))
            passed += merging.from_node(begin, answer[begin : begin + count])
        elif told < len(answer):
            passed += [answer[told]] if merging.from_scheduler(told, answer[told]) else []
            told += 1
        assert passed == merging.tokens == answer[: len(passed)]
    assert passed == answer
    assert merging.listening


def test_the_scheduler_s_word_stands_for_what_follows() -> None:
    merging = Merging(9)
    assert merging.from_node(0, [1, 2, 3]) == [1, 2, 3]
    assert not merging.from_scheduler(0, 1)
    with pytest.raises(Contradiction, match="position 1"):
        merging.from_scheduler(1, 7)
    assert not merging.listening
    assert merging.from_node(3, [4, 5]) == ()
    assert merging.from_scheduler(3, 8)
    assert merging.tokens == [1, 2, 3, 8]


@pytest.mark.parametrize(
    ("start", "tokens"),
    [(0, [1, 9]), (1, [9]), (3, [5]), (2, [0] * 8), (0, [1, 2] + [0] * 8), (10**6, [])],
    ids=["another", "another later", "a gap", "too many", "too many from the start", "far away"],
)
def test_a_node_that_errs_is_not_heard_again(start: int, tokens: list[int]) -> None:
    merging = Merging(9)
    merging.from_scheduler(0, 1)
    merging.from_scheduler(1, 2)
    with pytest.raises(Contradiction):
        merging.from_node(start, tokens)
    assert merging.tokens == [1, 2]
    assert merging.from_node(2, [3]) == ()
    assert merging.from_scheduler(2, 3)


@pytest.mark.parametrize("position", [5, -1, "0", None, 1.0, [0]])
def test_what_is_no_token_in_its_turn_goes_to_the_client_as_it_is(position: object) -> None:
    merging = Merging(9)
    assert merging.from_scheduler(position, 1)
    assert merging.tokens == []
    assert not merging.listening


def test_nothing_of_the_node_follows_the_end() -> None:
    merging = Merging(9)
    merging.from_node(0, [1])
    merging.stop()
    assert merging.from_node(1, [2]) == ()
