"""How much goes into one message to a node, and how long its answer may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MESSAGE_BYTES = 4 * 2**20
"""Rows in one message at most: what a connection encrypts and copies in a few milliseconds."""

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class GenerationPatience:
    """Seconds until an inferencer counts as dead.

    Args:
        token: without any sign of life, where a token is awaited.
        prefill: for one message of a prefill.
        slow: for one token of a node that answers meanwhile: its machine has much to do. Clients wait longer for a
            line.
    """

    token: float = 10.0
    prefill: float = 60.0
    slow: float = 50.0
