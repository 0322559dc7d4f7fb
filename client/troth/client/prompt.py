"""Where a question comes from, and what is refused before anything is sent or paid."""

from __future__ import annotations

import sys
from typing import BinaryIO

from troth.client.errors import PromptError

LARGEST_PROMPT = 256 * 1024
"""Bytes of UTF-8 in one question. Any served model's context is far smaller; this bounds tokenising."""


def check_text(text: str) -> str:
    """Return the question as it is, or raise PromptError when it is empty, too long, or not encodable text."""
    if not text.strip():
        raise PromptError("The question is empty", repr(text[:40]), "Write a question.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        # Bytes that are no UTF-8 reach Python's argv as lone surrogates.
        raise PromptError(
            "The question is not valid UTF-8", ascii(text[error.start : error.end]), "Encode it as UTF-8."
        ) from error
    if size > LARGEST_PROMPT:
        raise _too_long(f"{size} bytes")
    return text


def decode_question(raw: bytes) -> str:
    """Text of a question's bytes, perhaps empty; PromptError when it is too long or no UTF-8."""
    if len(raw) > LARGEST_PROMPT:
        raise _too_long(f"over {LARGEST_PROMPT} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise PromptError(
            "The question is not valid UTF-8", f"byte {error.start}: 0x{raw[error.start]:02x}", "Encode it as UTF-8."
        ) from error


def read_question(argument: str, standard_input: BinaryIO | None = None) -> str:
    """The question given as an argument, or, for `-`, read from standard input with a bound on its size."""
    if argument != "-":
        return check_text(argument)
    return check_text(decode_question((standard_input or sys.stdin.buffer).read(LARGEST_PROMPT + 1)))


def _too_long(size: str) -> PromptError:
    return PromptError("The question is too long", size, f"Use at most {LARGEST_PROMPT} bytes.")
