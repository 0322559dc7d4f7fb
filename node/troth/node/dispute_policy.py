"""What a node disputes without being told to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DisputePolicy:
    """What a node disputes by itself.

    Args:
        rejected: rejections, and want of a decision, of segments that it inferred.
        outvoted: acceptances of what it found wrong. Where cheats are rarer than its own mistakes, it loses by that.
    """

    rejected: bool = True
    outvoted: bool = False
