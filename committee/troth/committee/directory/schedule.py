"""Whose turn it is: time is cut into slots of one period, and each slot has one leader, in rotation."""

from __future__ import annotations

from dataclasses import dataclass

from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.types import Address

LONGEST_SKEW = 60.0
"""Seconds by which two members' clocks may differ."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Seconds from one list to the next, and for which each list holds; the same at every member."""

    period: int
    valid: int

    @property
    def skew(self) -> float:
        """How far another member's clock may be ahead."""
        return min(LONGEST_SKEW, self.period / 10)

    def slot_start(self, now: float) -> int:
        """Unix time at which the slot of `now` began: valid_after of its list."""
        return int(now // self.period) * self.period

    def is_current(self, valid_after: int, now: float) -> bool:
        """Whether a list of that time may be signed now."""
        in_time = valid_after <= now + self.skew and now < valid_after + self.period + self.skew
        return valid_after % self.period == 0 and in_time

    def leader(self, valid_after: int, membership: CommitteeMembership) -> Address:
        """Who proposes the list of a slot. If it is silent, the next slot's leader proposes the next list."""
        members = membership.members
        return members[valid_after // self.period % len(members)].operator
