"""How long the chain's node is waited for, and that whoever waits is told so: one setting for all commands."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
AGAIN_SECONDS = 30.0
"""While a node stays slow it is said again after this much, and each further time after twice as much: a command does
not seem to hang, and the log of a process that runs for days is not filled."""
PROMPT_SECONDS = 60.0
"""A node that was not slow for so long is prompt again."""


@dataclass(slots=True)
class _Slow:
    """A node that is waited for: since when and until when, when it is said again, and how often it did answer."""

    since: float
    last: float
    due: float
    pause: float = AGAIN_SECONDS
    answers: int = 0


_slow: dict[str, _Slow] = {}
"""Nodes of which it was said that they are waited for, by their place."""


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
    """While the block waits for the node at ``place``, at most ``limit`` seconds.

    It is said once, again ever more rarely while the node stays slow, and once that it is prompt again.
    """
    begun = time.monotonic()
    notice = asyncio.get_running_loop().call_later(NOTICE_SECONDS, _tell, place, limit)
    try:
        yield
    finally:
        notice.cancel()
    _answered(place, time.monotonic() - begun)


def slowness() -> str:
    """Which nodes are waited for, and how they answer, for whoever asks why something is not ready; empty if none."""
    now = time.monotonic()
    recent = {place: slow for place, slow in _slow.items() if now - slow.last < PROMPT_SECONDS}
    told = (f"{place}: {slow.answers} answers in {now - slow.since:.0f} s" for place, slow in recent.items())
    nodes = ", ".join(told)
    return f"waiting for the chain node {nodes}; a faster one makes this shorter (--rpc)" if nodes else ""


def _tell(place: str, limit: float) -> None:
    now = time.monotonic()
    slow = _slow.get(place)
    # Where no log was set up, as in a command, Python writes the bare words on standard error.
    if slow is None:
        _slow[place] = _Slow(now - NOTICE_SECONDS, now, now + AGAIN_SECONDS)
        _log.warning("waiting for the chain node %s, at most %g s for each answer (--chain-timeout)", place, limit)
        return
    slow.last = now
    if now >= slow.due:
        slow.due, slow.pause = now + 2 * slow.pause, 2 * slow.pause
        words = "still waiting for the chain node %s: %d answers in %.0f s; a faster one makes this shorter (--rpc)"
        _log.warning(words, place, slow.answers, now - slow.since)


def _answered(place: str, seconds: float) -> None:
    slow = _slow.get(place)
    if slow is None:
        return
    slow.answers += 1
    if seconds < NOTICE_SECONDS and time.monotonic() - slow.last > PROMPT_SECONDS:
        del _slow[place]
        _log.info("the chain node %s answers promptly again", place)
