"""Errors of the root command.

CommandError            a sub-command could not be started
"""

from __future__ import annotations

from troth.protocol.errors import TrothError


class CommandError(TrothError):
    """A sub-command could not be started: what happened, the offending value, and what to do about it."""
