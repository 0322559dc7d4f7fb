"""Questions: what is refused before anything is sent or paid, and what may reach a terminal."""

from __future__ import annotations

from io import BytesIO

import pytest

from troth.client.errors import PromptError
from troth.client.orders.talking import _bounded_line
from troth.client.prompt import LARGEST_PROMPT, check_text, decode_question, read_question
from troth.client.terminal import printable, printable_line


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_question_is_refused(text: str) -> None:
    with pytest.raises(PromptError, match="empty"):
        check_text(text)


def test_bytes_that_are_no_utf8_are_refused_wherever_they_come_from() -> None:
    with pytest.raises(PromptError, match="UTF-8"):
        check_text("a\udcff")
    with pytest.raises(PromptError, match="byte 1: 0xff"):
        read_question("-", BytesIO(b"a\xff"))


def test_the_limit_counts_bytes_and_is_inclusive() -> None:
    assert check_text("a" * LARGEST_PROMPT)
    assert read_question("-", BytesIO(b"a" * LARGEST_PROMPT))
    for huge in ("a" * (LARGEST_PROMPT + 1), "ü" * (LARGEST_PROMPT // 2 + 1)):
        with pytest.raises(PromptError, match="too long"):
            check_text(huge)
        with pytest.raises(PromptError, match="too long"):
            read_question("-", BytesIO(huge.encode()))


def test_standard_input_is_not_read_beyond_the_limit() -> None:
    endless = BytesIO(b"a" * (3 * LARGEST_PROMPT))
    with pytest.raises(PromptError):
        read_question("-", endless)
    assert endless.tell() <= LARGEST_PROMPT + 1


def test_a_question_is_taken_as_it_is() -> None:
    assert read_question("  two\nlines  ") == "  two\nlines  "
    assert decode_question("é".encode()) == "é"


def test_the_rest_of_a_huge_line_is_not_asked_as_further_questions() -> None:
    lines = BytesIO(b"a" * (3 * LARGEST_PROMPT) + b"\nnext\n")
    with pytest.raises(PromptError, match="too long"):
        decode_question(_bounded_line(lines))
    assert _bounded_line(lines) == b"next\n"
    assert _bounded_line(lines) == b""


def test_text_from_strangers_cannot_steer_the_terminal() -> None:
    assert printable("a\ud800b\udfff\U0001f600") == "ab\U0001f600"
    assert printable("a\x1b[2Jb\x07\x9bc\u202ed\te\nf") == "a[2Jbcd\te\nf"
    assert printable_line("a\nb" + "x" * 1000, 10) == "a bxxxxxxx…"
