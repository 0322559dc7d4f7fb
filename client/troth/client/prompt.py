"""Where a question comes from, and what is refused before anything is sent or paid."""

from __future__ import annotations

import sys
from typing import BinaryIO

from .errors import PromptError

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
        raise PromptError("The question is too long", f"{size} bytes", f"Use at most {LARGEST_PROMPT} bytes.")
    return text


def read_question(argument: str, standard_input: BinaryIO | None = None) -> str:
    """The question given as an argument, or, for `-`, read from standard input with a bound on its size."""
    if argument != "-":
        return check_text(argument)
    raw = (standard_input or sys.stdin.buffer).read(LARGEST_PROMPT + 1)
    try:
        return check_text(raw.decode())
    except UnicodeDecodeError as error:
        if len(raw) > LARGEST_PROMPT:
            raise PromptError(
                "The question is too long", f"over {LARGEST_PROMPT} bytes", f"Use at most {LARGEST_PROMPT} bytes."
            ) from error
        raise PromptError(
            "The question is not valid UTF-8", f"byte {error.start}: 0x{raw[error.start]:02x}", "Encode it as UTF-8."
        ) from error
