"""One choice of a completion while its text comes: cut at a stop, wherever the pieces begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from troth.client.gateway.tool_calls import CallDelta, CallReader, ReadText
from troth.client.orders.chosen import AnswerToken
from troth.client.orders.updates import FinishedUpdate, TextUpdate

_REASONS = {"end": "stop", "length": "length"}


class StopCutter:
    """Feeds on pieces of text and lets out what can no longer belong to a stop.

    The cut is before the stop that is complete first, and the longest of those that are complete at the same character;
    so it depends on the text alone, not on how it was split.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.met: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop was met."""
        return self.met is not None

    def feed(self, piece: str) -> str:
        """The text that is certain now; nothing once a stop was met."""
        if self.stopped:
            return ""
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            end, at = min(ends)
            self.met, self._held = text[at:end], ""
            return text[:at]
        certain = len(text) - self._overlap(text)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """The end of the text: what was held back is no stop after all."""
        rest, self._held = self._held, ""
        return rest

    def _overlap(self, text: str) -> int:
        """Length of the longest end of `text` that a stop begins with."""
        longest = min(max(map(len, self._stops), default=0) - 1, len(text))
        for size in range(longest, 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that is certain now, the tokens that begin in it, where it begins in the answer, and pieces of calls."""

    text: str
    chosen: tuple[AnswerToken, ...]
    offset: int
    calls: tuple[CallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class WholeChoice:
    """A whole choice: its text, all tokens that begin in it, and its calls of tools."""

    text: str
    chosen: tuple[AnswerToken, ...]
    calls: tuple[CallDelta, ...]


class Choice:
    """`reason` is OpenAI's finish_reason, None until the choice is whole; `tokens` counts what came up to its end.

    `reader` finds the calls of tools in the text, where there may be some.
    """

    def __init__(self, stops: Sequence[str], ends: Sequence[int], reader: CallReader | None = None) -> None:
        self._reader = reader
        self._cutter = StopCutter(stops)
        self._ends = frozenset(ends)
        self._length = 0
        self._waiting: list[tuple[int, AnswerToken]] = []
        self._shown = 0
        self.reason: str | None = None
        self.tokens = 0

    @property
    def stop(self) -> str | None:
        """The stop at which the text was cut."""
        return self._cutter.met

    def feed(self, update: TextUpdate) -> Delta | None:
        """What can be shown after another piece of text; None if that is nothing."""
        if self.reason is not None:
            return None
        # The token that ends an answer is no part of its text, and OpenAI's clients do not expect it.
        shown = [one for one in update.chosen if one.token not in self._ends]
        self._waiting += [(self._length, one) for one in shown]
        self._length += len(update.text)
        self.tokens += len(update.chosen)
        delta = self._shown_now(self._cutter.feed(update.text))
        if not self._cutter.stopped:
            return delta
        self.reason = self._because("stop")
        return self._last(delta)

    def finish(self, update: FinishedUpdate) -> Delta | None:
        """The rest of the text, if the answer ended without a stop."""
        if self.reason is not None:
            return None
        delta, self.tokens = self._shown_now(self._cutter.flush(), everything=True), update.tokens
        delta = self._last(delta)
        self.reason = self._because(_REASONS.get(update.reason, "stop"))
        return delta

    def _because(self, reason: str) -> str:
        """A choice that ends by itself with calls says so."""
        return "tool_calls" if reason == "stop" and self._reader is not None and self._reader.count else reason

    def _last(self, delta: Delta | None) -> Delta | None:
        """A delta with what the reader of calls had held back."""
        rest = ReadText() if self._reader is None else self._reader.finish()
        if not rest.text and not rest.calls:
            return delta
        before = delta or Delta("", (), self._shown)
        return replace(before, text=before.text + rest.text, calls=before.calls + rest.calls)

    def _shown_now(self, text: str, *, everything: bool = False) -> Delta | None:
        offset, self._shown = self._shown, self._shown + len(text)
        ready = [one for start, one in self._waiting if everything or start < self._shown]
        self._waiting = [pair for pair in self._waiting if not (everything or pair[0] < self._shown)]
        said = ReadText(text) if self._reader is None else self._reader.feed(text)
        return Delta(said.text, tuple(ready), offset, said.calls) if said.text or said.calls or ready else None
