"""The replay window accepts each nonce once, in bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.transport.envelope import SESSION_BYTES, WINDOW_BITS, NonceSequence, ReplayWindow
from troth.transport.errors import MalformedEnvelope, Replayed

SENDER = "0x0000000000000000000000000000000000000001"


def nonce(counter: int, session: bytes = b"s" * SESSION_BYTES) -> bytes:
    return session + counter.to_bytes(8, "big")


@given(st.lists(st.integers(0, WINDOW_BITS - 1), max_size=60))
def test_each_counter_passes_exactly_once_in_any_order(counters: list[int]) -> None:
    window = ReplayWindow(seconds=120)
    seen: set[int] = set()
    for counter in counters:
        if counter in seen:
            with pytest.raises(Replayed):
                window.accept(SENDER, nonce(counter), 100, 100)
        else:
            window.accept(SENDER, nonce(counter), 100, 100)
        seen.add(counter)


def test_a_nonce_behind_the_window_is_refused_though_never_seen() -> None:
    window = ReplayWindow(seconds=120)
    window.accept(SENDER, nonce(WINDOW_BITS + 5), 100, 100)
    window.accept(SENDER, nonce(6), 100, 100)
    with pytest.raises(Replayed):
        window.accept(SENDER, nonce(5), 100, 100)


@pytest.mark.parametrize("highest", [2**36, 2**64 - 1])
def test_a_number_far_behind_costs_no_memory(highest: int) -> None:
    window = ReplayWindow(seconds=120)
    window.accept(SENDER, nonce(highest), 100, 100)
    tracemalloc.start()
    try:
        with pytest.raises(Replayed):
            window.accept(SENDER, nonce(1), 100, 100)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_sessions_are_independent_and_bounded() -> None:
    window = ReplayWindow(seconds=120, sessions_per_sender=2)
    window.accept(SENDER, nonce(1, b"a" * SESSION_BYTES), 100, 100)
    window.accept(SENDER, nonce(1, b"b" * SESSION_BYTES), 100, 100)
    with pytest.raises(Replayed, match="2 open sessions"):
        window.accept(SENDER, nonce(1, b"c" * SESSION_BYTES), 100, 100)
    # Once a message of `a` would be refused for its age alone, the session may go.
    window.accept(SENDER, nonce(1, b"c" * SESSION_BYTES), 221, 221)


def test_a_session_that_could_still_be_replayed_is_kept_under_pressure() -> None:
    window = ReplayWindow(seconds=120, senders=1)
    window.accept(SENDER, nonce(1), 100, 100)
    with pytest.raises(Replayed, match="senders are being remembered"):
        window.accept("0x0000000000000000000000000000000000000002", nonce(1), 100, 100)
    with pytest.raises(Replayed):
        window.accept(SENDER, nonce(1), 100, 100)
    window.accept("0x0000000000000000000000000000000000000002", nonce(1), 300, 300)


def test_a_sequence_never_repeats() -> None:
    sequence = NonceSequence()
    assert len({sequence.next() for _ in range(1000)}) == 1000
    assert NonceSequence().next()[:SESSION_BYTES] != sequence.next()[:SESSION_BYTES]


def test_a_nonce_of_another_length() -> None:
    with pytest.raises(MalformedEnvelope):
        ReplayWindow(seconds=120).accept(SENDER, b"short", 0, 0)
