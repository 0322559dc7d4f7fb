"""Blame and waiting: what a lying hop gains, and how often a client tries when nothing works."""

from __future__ import annotations

from random import Random

from support.listings import listed

from troth.overlay.paths.pace import Attempts, CircuitPace
from troth.transport.errors import CircuitFailed

PATH = tuple(listed(number).relay for number in range(3))
GUARD, MIDDLE, PROXY = (relay.name for relay in PATH)


class Hour:
    """Attempts under a clock that a test turns."""

    def __init__(self, pace: CircuitPace | None = None) -> None:
        self.time = 1_000.0
        self.attempts = Attempts(pace or CircuitPace(), Random(1), lambda: self.time)


def test_the_named_hop_and_the_one_before_are_left_out_for_a_while() -> None:
    hour = Hour()
    hour.attempts.blame(PATH, CircuitFailed("proxy", 3, "unreachable"))
    assert hour.attempts.avoided() == [frozenset({MIDDLE, PROXY}), frozenset({PROXY}), frozenset()]
    assert not hour.attempts.resting(GUARD)
    hour.time += 601
    assert hour.attempts.avoided() == [frozenset()]


def test_a_guard_rests_but_is_never_left_out() -> None:
    hour = Hour()
    hour.attempts.blame(PATH, CircuitFailed("middle", 2, "unreachable"))
    assert hour.attempts.avoided()[0] == {MIDDLE}
    assert hour.attempts.resting(GUARD)
    hour.time += 0.5
    assert not hour.attempts.resting(GUARD)


def test_a_guard_that_lets_few_circuits_stand_stays_slow() -> None:
    hour, tries = Hour(), 0
    ends = hour.time + 3_600
    while hour.time < ends:
        if hour.attempts.resting(GUARD):
            hour.time += 0.1
            continue
        tries += 1
        if tries % 10:
            hour.attempts.blame(PATH, CircuitFailed("middle", 2, "unreachable"))
        else:
            hour.attempts.succeeded(GUARD)
    assert tries < 200


def test_failures_that_name_nobody_leave_nobody_out() -> None:
    hour = Hour()
    for failure in (CircuitFailed("destination", 0, ""), CircuitFailed("path", 9, "")):
        hour.attempts.blame(PATH, failure)
    assert hour.attempts.avoided() == [frozenset()]
    assert not hour.attempts.resting(GUARD)


def test_builds_are_bounded_while_all_of_them_fail() -> None:
    hour, builds = Hour(), 0
    ends = hour.time + 3_600
    while hour.time < ends:
        if hour.attempts.allowed(0):
            builds += 1
            hour.attempts.build_failed()
        hour.time += 0.05
    # Once a wait is as long as it gets: 30 to 60 s.
    assert 60 < builds < 140


def test_builds_are_bounded_while_all_of_them_succeed() -> None:
    hour, builds = Hour(), 0
    for _ in range(1_000):
        if hour.attempts.allowed(0):
            builds += 1
            hour.attempts.succeeded(GUARD)
        hour.time += 0.1
    assert builds <= 8 + 0.5 * 100


def test_few_at_once_and_one_at_a_time_after_failures() -> None:
    hour = Hour()
    assert hour.attempts.allowed(2)
    assert not hour.attempts.allowed(3)
    for _ in range(3):
        hour.attempts.build_failed()
    hour.time += 60
    assert not hour.attempts.allowed(1)
    assert hour.attempts.allowed(0)
