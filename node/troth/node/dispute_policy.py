"""What a node disputes without being told to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DisputePolicy:
    """What a node disputes by itself.

    Args:
        rejected: rejections, and want of a decision, of segments that it inferred.
        outvoted: acceptances of what it, as a verifier, found wrong.

    A node that has lost a dispute begins none by itself for an unbonding period: it may be the one whose weights,
    engine or driver are at fault, and each dispute costs more than many rejections.
    """

    rejected: bool = True
    outvoted: bool = True
