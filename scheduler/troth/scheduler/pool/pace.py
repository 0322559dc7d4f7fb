"""When to think about the placement again: not at every change, and not for ever later because of ever new ones."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PlacementPace:
    """Hysteresis in time. `now` is monotonic.

    Args:
        settle_seconds: without a join or a leave, before the next decision; at most four times that after the first.
        calm_seconds: without a move, before what works is improved.
    """

    settle_seconds: float = 3.0
    calm_seconds: float = 60.0
    _names: frozenset[str] = field(default=frozenset())
    _first_change: float | None = None
    _last_change: float = float("-inf")
    _last_move: float = float("-inf")

    def may_decide(self, names: frozenset[str], now: float, *, busy: bool) -> tuple[bool, bool]:
        """Whether to decide now, and whether all is calm enough to move nodes only for something better.

        `busy`: some nodes are on their way to what the last decision said; then only a change of members counts.
        """
        changed = names != self._names
        if changed:
            self._names = names
            self._last_change = now
            if self._first_change is None:
                self._first_change = now
        waiting = self._first_change is not None
        settled = now - self._last_change >= self.settle_seconds
        overdue = self._first_change is not None and now - self._first_change >= 4 * self.settle_seconds
        if busy and not waiting:
            return False, False
        if waiting and not (settled or overdue):
            return False, False
        self._first_change = None
        return True, settled and now - self._last_move >= self.calm_seconds

    def note_move(self, now: float) -> None:
        """Nodes are being moved."""
        self._last_move = now
