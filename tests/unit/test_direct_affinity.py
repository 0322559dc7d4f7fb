"""What is remembered of a conversation: the node that served it, under a hash that nobody else can make."""

from __future__ import annotations

from typing import Any

import pytest

from troth.client.direct.affinity import KEPT_SECONDS, Affinity
from troth.protocol.types import address_from_bytes

NODES = [address_from_bytes(bytes([number]) * 20) for number in (1, 2, 3)]
ONE, OTHER, THIRD, *_ = NODES


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


FIRST = [{"role": "system", "content": "be brief"}, user("why?")]
NEXT = [*FIRST, assistant("because"), user("really?")]


def test_the_next_turn_finds_the_node_of_the_last() -> None:
    affinity = Affinity()
    assert affinity.near(FIRST) is None
    affinity.remember(FIRST, "because", ONE)
    assert affinity.near(NEXT) == ONE
    affinity.remember(NEXT, "yes", OTHER)
    assert affinity.near([*NEXT, assistant("yes"), user("so?")]) == OTHER, "the longest beginning counts"
    assert affinity.near(NEXT) == ONE, "and whoever asks the earlier turn again finds its own"
    assert affinity.near([*NEXT, assistant("yes, but edited"), user("so?")]) == ONE


def test_blanks_around_an_answer_do_not_matter() -> None:
    affinity = Affinity()
    affinity.remember(FIRST, "\n because ", ONE)
    assert affinity.near(NEXT) == ONE


@pytest.mark.parametrize(
    "messages",
    [
        FIRST,
        [user("why?"), assistant("because"), user("really?")],
        [*FIRST, assistant("because not"), user("really?")],
        [*FIRST, user("because"), user("really?")],
        [FIRST[0], user("why?because")],
        [FIRST[0], {"role": "user", "content": "why?\x00\x00\x00\x09assistantbecause"}, user("really?")],
        [],
    ],
    ids=["the same question", "no system", "another answer", "said by the user", "joined", "smuggled", "nothing"],
)
def test_another_conversation_chooses_anew(messages: list[dict[str, str]]) -> None:
    affinity = Affinity()
    affinity.remember(FIRST, "because", ONE)
    assert affinity.near(messages) is None


def test_it_is_forgotten_after_an_hour_and_with_the_node() -> None:
    now = 0.0
    affinity = Affinity(clock=lambda: now)
    affinity.remember(FIRST, "because", ONE)
    affinity.remember([user("other")], "thing", OTHER)
    affinity.forget(ONE)
    assert affinity.near(NEXT) is None
    assert affinity.near([user("other"), assistant("thing"), user("more")]) == OTHER
    now = KEPT_SECONDS
    assert affinity.near([user("other"), assistant("thing"), user("more")]) is None
    assert len(affinity) == 0


def test_it_is_bounded_and_the_oldest_goes_first() -> None:
    affinity = Affinity(most=3)
    for number in range(5):
        affinity.remember([user(str(number))], "yes", ONE)
    affinity.remember([user("2")], "yes", OTHER)
    affinity.remember([user("5")], "yes", ONE)

    def found(number: int) -> Any:
        return affinity.near([user(str(number)), assistant("yes"), user("more")])

    assert [found(number) for number in range(6)] == [None, None, OTHER, None, ONE, ONE]
    assert len(affinity) == 3


def test_what_is_kept_can_be_recognised_by_nobody_else() -> None:
    one, other = Affinity(), Affinity()
    for affinity in (one, other):
        affinity.remember(FIRST, "because", ONE)
    assert not set(one._kept) & set(other._kept)
