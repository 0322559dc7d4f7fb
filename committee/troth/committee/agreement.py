"""Which entries more than 2/3 of the members will sign together."""

from __future__ import annotations

from collections.abc import Mapping

from troth.protocol.types import Address


def common_entries(
    own: frozenset[bytes], others: Mapping[Address, frozenset[bytes]], needed: int
) -> frozenset[bytes] | None:
    """What the leader and `needed` - 1 more members all accept; None if too few answered.

    Each signer must accept every entry, so the entries are an intersection. Members join it in the order in which they
    leave the most of it: one who accepts nothing, or only entries that the leader cannot reach itself, comes last and
    takes nothing away as long as enough others agree.
    """
    if len(others) + 1 < needed:
        return None
    kept, left = own, dict(others)
    for _ in range(needed - 1):
        best = max(sorted(left), key=lambda operator: len(kept & left[operator]))
        kept &= left.pop(best)
    return kept
