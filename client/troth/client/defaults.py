"""What a client asks of others unless it is told otherwise: here, since the commands' help loads nothing else."""

from __future__ import annotations

LEAST_SEATS = 100
"""Seasoned seats in a group."""
LEAST_OUTSIDE = 8_000
"""Share of a group's seats outside its largest owners, in basis points."""
