"""Errors of the demo network."""

from __future__ import annotations

import json

from troth.protocol.errors import TrothError


class DemoError(TrothError):
    """Something the demo needs did not happen: `what` happened, with which `value`, and the `remedy`."""


class ProcessDied(DemoError):
    """A process of the network ended, or never became ready."""


class MissingTool(DemoError):
    """A program that the demo runs is not installed."""


class ActFailed(DemoError):
    """An act of the demo did not show what it must show."""


def demand(held: bool, what: str, found: object) -> None:
    """Raise ActFailed unless what must have happened did."""
    if not held:
        raise ActFailed(
            f"The demo expected that {what}", json.dumps(found, default=str), "Look into the logs with --keep."
        )
