"""Cutting at a stop: however a text is split, the same part of it comes out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from troth.client.gateway.choice import StopCutter

letters = st.text(alphabet="abñ🙂", max_size=40)
stops = st.lists(st.text(alphabet="abñ🙂", min_size=1, max_size=5), max_size=4)


def cut(pieces: list[str], found: list[str]) -> tuple[str, bool]:
    cutter = StopCutter(found)
    shown = "".join(cutter.feed(piece) for piece in pieces)
    return shown + ("" if cutter.stopped else cutter.flush()), cutter.stopped


def reference(text: str, found: list[str]) -> tuple[str, bool]:
    """Character by character, with the whole text in view."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in found if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(letters, stops, st.lists(st.integers(0, 40), max_size=12))
@example("abab", ["bab", "ab"], [1, 2, 3])
def test_any_split_gives_the_same_cut(text: str, found: list[str], places: list[int]) -> None:
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert cut(pieces, found) == cut([text], found) == cut(list(text), found) == reference(text, found)


@given(letters, stops)
def test_nothing_is_held_back_that_no_stop_begins_with(text: str, found: list[str]) -> None:
    cutter = StopCutter(found)
    shown = "".join(cutter.feed(letter) for letter in text)
    if not cutter.stopped:
        held = text[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in found)
