"""Errors of the root command.

CommandError            a sub-command could not be started
"""

from __future__ import annotations


class CommandError(Exception):
    """A sub-command could not be started: what happened, the offending value, and what to do about it."""

    def __init__(self, what: str, value: object, remedy: str) -> None:
        super().__init__(f"{what} ({value}). {remedy}")
        self.what = what
        self.value = value
        self.remedy = remedy
