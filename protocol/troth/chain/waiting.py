"""How long the chain's node is waited for, and that whoever waits is told so: one setting for all commands."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

from troth.chain.errors import ChainUnavailable

_log = logging.getLogger(__name__)

LIMIT_VARIABLE = "TROTH_CHAIN_TIMEOUT"
"""Seconds that a request waits for the chain's node, with its repetitions; `troth --chain-timeout` sets it."""
LIMIT_SECONDS = 20.0
"""Without that setting: twice what a large answer of a slow public node takes, so that one lost connection is
survived."""
LONGEST_LIMIT = 3600.0
NOTICE_SECONDS = 2.5
"""After this much of silence somebody is told; a healthy node answers in a tenth."""

_said: set[str] = set()
"""Nodes of which it was said that they are waited for, until they answer."""


def waiting_limit() -> float:
    """The setting, in seconds; ChainUnavailable for one that is no number of seconds above zero."""
    given = os.environ.get(LIMIT_VARIABLE, "")
    if not given:
        return LIMIT_SECONDS
    try:
        seconds = float(given.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_LIMIT:
        what = f"{LIMIT_VARIABLE} must be seconds, more than 0 and at most {LONGEST_LIMIT:.0f}"
        raise ChainUnavailable(what, given[:40], "Give --chain-timeout a number like 30, or leave it out.")
    return seconds


@contextmanager
def told_of(place: str, limit: float) -> Iterator[None]:
    """While the block waits for the node at ``place``, at most ``limit`` seconds; it is said once until it answers."""
    notice = asyncio.get_running_loop().call_later(NOTICE_SECONDS, _tell, place, limit)
    try:
        yield
    finally:
        notice.cancel()
    _said.discard(place)


def _tell(place: str, limit: float) -> None:
    if place not in _said:
        _said.add(place)
        # Where no log was set up, as in a command, Python writes the bare words on standard error.
        _log.warning("waiting for the chain node %s, at most %g s for each answer (--chain-timeout)", place, limit)
