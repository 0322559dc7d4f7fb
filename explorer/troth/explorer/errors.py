"""Errors of the explorer. Each says what happened, the offending value and what to do.

ExplorerError
├── IndexUnusable     the index's file cannot be opened, or is of another deployment
├── NoSuchFigure      no figure has this name
├── NothingHere       the index knows no such node, task or case
└── TooManyAsk        all readers of the index are taken, and enough requests wait for one
"""

from __future__ import annotations

from troth.protocol.errors import TrothError


class ExplorerError(TrothError):
    """Base of every error of this package."""


class IndexUnusable(ExplorerError):
    """The index cannot be used; ``value`` is its path."""


class NoSuchFigure(ExplorerError):
    """There is no figure of this name."""


class NothingHere(ExplorerError):
    """What was asked for is not in the index."""


class TooManyAsk(ExplorerError):
    """No more requests are taken now; ``value`` is how many wait."""
