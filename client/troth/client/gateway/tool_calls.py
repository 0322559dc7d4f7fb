"""Calls of tools in a model's text, read while it comes: OpenAI's deltas of tool calls, and the text around them.

A call's arguments are passed on as they are written, once its name is known. What begins like a call and is none is
text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace

from troth.client.gateway.tools import TAGGED, CallDialect

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_NAME = r'"name"\s*:\s*"(?P<name>[A-Za-z0-9_.:-]{1,64})"'
_HEAD = re.compile(rf'\s*\{{\s*{_NAME}\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{{)')


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call: with ``name`` and ``identifier`` where it begins, then parts of its arguments."""

    index: int
    arguments: str
    name: str = ""
    identifier: str = ""


@dataclass(frozen=True, slots=True)
class ReadText:
    """What of a text is certain now."""

    text: str = ""
    calls: tuple[CallDelta, ...] = ()


def whole_calls(pieces: Iterable[CallDelta]) -> tuple[CallDelta, ...]:
    """Calls put together from their pieces."""
    found: dict[int, CallDelta] = {}
    for piece in pieces:
        before = found.get(piece.index)
        found[piece.index] = piece if before is None else replace(before, arguments=before.arguments + piece.arguments)
    return tuple(found[index] for index in sorted(found))


def new_call() -> str:
    """An identifier of a call, in the form that clients expect."""
    return "call_" + secrets.token_hex(12)


class _JsonEnd:
    """Follows a JSON object to the brace that closes it."""

    def __init__(self) -> None:
        self._depth = 0
        self._inside = self._escaped = False

    def feed(self, text: str) -> int | None:
        """How much of a piece belongs to the object, once it ends in it; None before."""
        for index, letter in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._inside:
                self._escaped, self._inside = letter == "\\", letter != '"'
            elif letter == '"':
                self._inside = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if not self._depth:
                    return index + 1
        return None


class CallReader:
    """Feeds on pieces of an answer's text. ``count`` calls were found so far; what follows ``most`` is passed over."""

    def __init__(self, dialect: CallDialect, most: int) -> None:
        self._tagged = dialect == TAGGED
        self._most = most
        self._held = ""
        self._state = "text" if self._tagged else "start"
        self._end = _JsonEnd()
        self.count = 0

    def feed(self, piece: str) -> ReadText:
        """What is certain after another piece."""
        self._held += piece
        steps = {"start": self._begin, "text": self._words, "call": self._call, "arguments": self._arguments}
        text, calls = [], list[CallDelta]()
        while True:
            before = (self._state, len(self._held))
            said = steps.get(self._state, self._passed)()
            text.append(said.text)
            calls += said.calls
            if (self._state, len(self._held)) == before:
                return ReadText("".join(text), tuple(calls))

    def finish(self) -> ReadText:
        """The end of the text: what was held back is text, or a whole call without its last tag.

        The beginning of one more call, at which the answer was cut, is no text beside the calls before it.
        """
        rest, self._held = self._held, ""
        if self._state == "call":
            calls_before = self.count
            said = self._whole(rest, (OPENING if self._tagged else "") + rest)
            return ReadText() if calls_before and not said.calls else said
        is_cut = self.count and OPENING.startswith(rest.strip())
        return ReadText(rest) if self._state == "text" and not is_cut else ReadText()

    def _begin(self) -> ReadText:
        """Without tags an answer is a call from its first letter, or none."""
        stripped = self._held.lstrip()
        if stripped:
            self._state = "call" if stripped[0] == "{" else "text"
        return ReadText()

    def _words(self) -> ReadText:
        at = self._held.find(OPENING) if self._tagged else -1
        if at >= 0:
            text, self._held, self._state = self._held[:at], self._held[at + len(OPENING) :], "call"
            # Space before a call, and between calls, is no answer.
            return ReadText("" if text.isspace() else text)
        certain = len(self._held) - (_overlap(self._held, OPENING) if self._tagged else 0)
        if self._tagged and not self._held[:certain].strip():
            return ReadText()
        text, self._held = self._held[:certain], self._held[certain:]
        return ReadText(text)

    def _call(self) -> ReadText:
        head = _HEAD.match(self._held)
        if head is not None:
            self._held, self._state, self._end = self._held[head.end() :], "arguments", _JsonEnd()
            return ReadText(calls=(CallDelta(self._next(), "", head["name"], new_call()),))
        at = self._held.find(CLOSING) if self._tagged else -1
        if at < 0:
            return ReadText()
        inside, self._held = self._held[:at], self._held[at + len(CLOSING) :]
        said = self._whole(inside, OPENING + inside + CLOSING)
        self._state = self._after()
        return said

    def _arguments(self) -> ReadText:
        if not self._held:
            return ReadText()
        size = self._end.feed(self._held)
        if size is not None:
            self._state = "tail"
        cut = len(self._held) if size is None else size
        piece, self._held = self._held[:cut], self._held[cut:]
        return ReadText(calls=(CallDelta(self.count - 1, piece),))

    def _passed(self) -> ReadText:
        """What closes a call, a brace and its tag, and what comes after the last call."""
        at = self._held.find(CLOSING) if self._tagged and self._state == "tail" else -1
        if at >= 0:
            self._held, self._state = self._held[at + len(CLOSING) :], self._after()
        return ReadText()

    def _after(self) -> str:
        return "text" if self.count < self._most else "over"

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def _whole(self, text: str, raw: str) -> ReadText:
        """A call in another order or spacing, of which all is there; the raw text where it is none."""
        try:
            found = json.loads(text)
            name = found["name"]
            arguments = found.get("arguments", found.get("parameters", {}))
            written = json.dumps(arguments, ensure_ascii=False)
            f"{name}{written}".encode()  # half of a surrogate pair is no text
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return ReadText(raw)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return ReadText(raw)
        return ReadText(calls=(CallDelta(self._next(), written, name, new_call()),))


def _overlap(text: str, tag: str) -> int:
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
