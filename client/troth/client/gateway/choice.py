"""One choice of a completion while its text comes: cut at a stop, its tokens' log-probabilities beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.client.chosen import Chosen
from troth.client.gateway.stops import StopCutter
from troth.client.updates import Finished, Text

_REASONS = {"end": "stop", "length": "length"}


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that is certain now, the tokens that begin in it, and where it begins in the answer."""

    text: str
    chosen: tuple[Chosen, ...]
    offset: int


class Choice:
    """`reason` is OpenAI's finish_reason, None until the choice is whole; `tokens` counts what came up to its end."""

    def __init__(self, stops: Sequence[str], ends: Sequence[int]) -> None:
        self._cutter = StopCutter(stops)
        self._ends = frozenset(ends)
        self._length = 0
        self._waiting: list[tuple[int, Chosen]] = []
        self._shown = 0
        self.reason: str | None = None
        self.tokens = 0

    def feed(self, update: Text) -> Delta | None:
        """What can be shown after another piece of text; None if that is nothing."""
        if self.reason is not None:
            return None
        # The token that ends an answer is no part of its text, and OpenAI's clients do not expect it.
        shown = [one for one in update.chosen if one.token not in self._ends]
        self._waiting += [(self._length, one) for one in shown]
        self._length += len(update.text)
        self.tokens += len(update.chosen)
        delta = self._shown_now(self._cutter.feed(update.text))
        if self._cutter.stopped:
            self.reason = "stop"
        return delta

    def finish(self, update: Finished) -> Delta | None:
        """The rest of the text, if the answer ended without a stop."""
        if self.reason is not None:
            return None
        self.reason, self.tokens = _REASONS.get(update.reason, "stop"), update.tokens
        return self._shown_now(self._cutter.flush(), everything=True)

    def _shown_now(self, text: str, *, everything: bool = False) -> Delta | None:
        offset, self._shown = self._shown, self._shown + len(text)
        ready = [one for start, one in self._waiting if everything or start < self._shown]
        self._waiting = [pair for pair in self._waiting if not (everything or pair[0] < self._shown)]
        return Delta(text, tuple(ready), offset) if text or ready else None
