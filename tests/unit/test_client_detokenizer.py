"""Streaming text: nothing lost, no half character shown, bounded work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.byte_language import END, LANGUAGE, tokens_of

from troth.client.detokenizer import LONGEST_HOLD, REPLACEMENT, Detokenizer


@given(st.text().filter(lambda text: REPLACEMENT not in text))
def test_pieces_join_to_the_text_and_hold_whole_characters(text: str) -> None:
    detokenizer = Detokenizer(LANGUAGE)
    pieces = [detokenizer.feed(token) for token in tokens_of(text)]
    assert not any(REPLACEMENT in piece for piece in pieces)
    assert "".join(pieces) + detokenizer.flush() == text


@given(st.lists(st.integers(0, END), max_size=60))
def test_any_tokens_are_survived_and_shown_in_time(tokens: list[int]) -> None:
    detokenizer = Detokenizer(LANGUAGE)
    for token in tokens:
        detokenizer.feed(token)
        assert len(detokenizer._pending) < LONGEST_HOLD
    detokenizer.flush()
    assert detokenizer.flush() == ""


def test_a_text_cut_inside_a_character_says_so() -> None:
    detokenizer = Detokenizer(LANGUAGE)
    first = tokens_of("é")[0]
    assert detokenizer.feed(first) == ""
    assert detokenizer.flush() == REPLACEMENT


def test_the_work_for_a_token_does_not_grow_with_the_stream() -> None:
    class Counting:
        longest = 0

        def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
            self.longest = max(self.longest, len(ids))
            return LANGUAGE.decode(ids, skip_special_tokens)

    for token in (END, tokens_of("é")[0], tokens_of("a")[0]):
        decoder = Counting()
        detokenizer = Detokenizer(decoder)
        for _ in range(2_000):
            detokenizer.feed(token)
        assert decoder.longest <= 2 * LONGEST_HOLD
