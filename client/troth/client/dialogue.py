"""The questions of a conversation on a terminal, and what is said beside its answers."""

from __future__ import annotations

import signal
import sys
from typing import BinaryIO

from troth.client.prompt import LARGEST_PROMPT, check_text
from troth.client.template import Message

FAREWELLS = {"/exit", "/quit"}


def opening(system: str) -> list[Message]:
    """The beginning of a conversation."""
    return [{"role": "system", "content": check_text(system)}] if system else []


def _typed() -> bytes:
    """A line from the terminal. asyncio takes the first Ctrl-C for the event loop, which stands still here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input("> ").encode("utf-8", "surrogateescape")
    finally:
        signal.signal(signal.SIGINT, before)


def _bounded_line(standard_input: BinaryIO) -> bytes:
    """A line, cut one byte above the limit; its rest is skipped, or each piece of it would be asked and paid for."""
    line = piece = standard_input.readline(LARGEST_PROMPT + 1)
    while piece and not piece.endswith(b"\n"):
        piece = standard_input.readline(LARGEST_PROMPT + 1)
    return line


def say(line: str) -> None:
    """A line about an answer, beside it."""
    print(line, file=sys.stderr, flush=True)


def next_question(standard_input: BinaryIO) -> bytes | None:
    """The next line, None at the end of the conversation; on a terminal with its line editing."""
    if sys.stdin.isatty():
        try:
            line = _typed()
        except EOFError:
            return None
    else:
        line = _bounded_line(standard_input)
        if not line:
            return None
    return None if line.strip().decode("utf-8", "replace") in FAREWELLS else line
