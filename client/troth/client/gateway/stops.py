"""Cutting an answer at a stop text, while it streams, wherever the boundaries between its pieces fall."""

from __future__ import annotations

from collections.abc import Sequence


class StopCutter:
    """Feeds on pieces of text and lets out what can no longer belong to a stop.

    The cut is before the stop that is complete first, and the longest of those that are complete at the same character;
    so it depends on the text alone, not on how it was split.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """The text that is certain now; nothing once a stop was met."""
        if self.stopped:
            return ""
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
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
