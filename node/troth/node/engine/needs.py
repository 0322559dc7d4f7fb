"""What of a model some segments need: which layers, and what lies before the first and after the last one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from troth.protocol.types import Segment


@dataclass(frozen=True, slots=True)
class Needs:
    """Layers by their index in the model; ``entry`` is the embedding, ``ending`` the final norm and the head."""

    layers: frozenset[int] = frozenset()
    entry: bool = False
    ending: bool = False

    @classmethod
    def of(cls, segments: Iterable[Segment], total: int) -> Needs:
        """What segments of a model with ``total`` layers need."""
        needed = tuple(segments)
        return cls(
            frozenset(layer for segment in needed for layer in range(segment.first, segment.end)),
            any(segment.first == 0 for segment in needed),
            any(segment.end == total for segment in needed),
        )

    def __or__(self, other: Needs) -> Needs:
        """What both need."""
        return Needs(self.layers | other.layers, self.entry or other.entry, self.ending or other.ending)

    def __sub__(self, other: Needs) -> Needs:
        """What this needs and the other does not."""
        return Needs(self.layers - other.layers, self.entry and not other.entry, self.ending and not other.ending)

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.layers) or self.entry or self.ending
