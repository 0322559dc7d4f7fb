"""That no other process serves with a party's keys: a home that was copied, or a machine that was meant to be stopped.

Two processes with one key sign two words for one thing, each without knowing of the other, and any two such words
convict. So each process has a number of its own, which it tells with each answer about its health, and asks at the
endpoint that is registered for its key. Only the holder of the registered TLS key can answer there. Where nobody
answers, as behind a router that does not let its own side in, nothing is known and nothing is stopped.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import httpx

from troth.protocol.market.state import State
from troth.protocol.types import Address
from troth.transport.errors import KeyInUse, OverlayError
from troth.transport.https import naming_errors, pinned_client

PROCESS_HEADER: Final = "x-troth-process"
ENDING: Final = "ending"
"""In an application's state: that its server takes nothing more, and finishes what is under way."""
ENDING_HEADER: Final = "x-troth-ending"
"""What /livez says of that."""
ANSWER_SECONDS = 5.0
LEAVING_SECONDS = 45.0
"""How long the process before this one may take to be told to end. That it ends is waited for as long as it takes: it
first finishes what is under way, for minutes perhaps."""
LOOK_SECONDS = 60.0
MOST_OTHERS = 2
"""Looks at which somebody else answered, before this process ends."""
MOST_OWN = 10
"""Looks in a row at which this process itself answered, after which earlier ones of others are forgotten."""
log = logging.getLogger(__name__)


def process_number() -> str:
    """This process, by a number that says nothing else about it."""
    return _number_of(os.getpid())


@cache
def _number_of(_process: int) -> str:
    """One for each process: a fork has what its parent remembered."""
    return secrets.token_hex(16)


class Answerer(enum.Enum):
    """Who answers at an endpoint; ENDING: another process, which takes nothing more and finishes what is under way."""

    NOBODY = enum.auto()
    OURSELVES = enum.auto()
    ANOTHER = enum.auto()
    ENDING = enum.auto()


_WAITING = {
    Answerer.ANOTHER: "another process answers at %s with this key; waiting for it to stop",
    Answerer.ENDING: "the process before this one, at %s, finishes what is under way; waiting for it to stop",
}


async def answerer_at(endpoint: str, tls_key_hash: bytes) -> Answerer:
    """Who answers at an endpoint with this TLS key."""
    try:
        async with pinned_client(endpoint, tls_key_hash, ANSWER_SECONDS) as client:
            with naming_errors(endpoint):
                answer = await client.get("/livez")
    except (OverlayError, httpx.HTTPError):
        return Answerer.NOBODY
    if answer.headers.get(PROCESS_HEADER) == process_number():
        return Answerer.OURSELVES
    return Answerer.ENDING if ENDING_HEADER in answer.headers else Answerer.ANOTHER


@dataclass(frozen=True, slots=True)
class Alone:
    """One party's operator key, and that this process alone serves with it; ``state``: the chain as it is followed."""

    state: Callable[[], State]
    operator: Address

    @property
    def registered(self) -> tuple[str, bytes]:
        """Endpoint and TLS key that the chain names, which need not be this process's: who was set up anew elsewhere
        has another one. Empty before the party is registered."""
        party = self.state().parties.get(self.operator)
        return ("", b"") if party is None else (party.endpoint, party.tls_key_hash)

    async def require(self, leaving_seconds: float = LEAVING_SECONDS) -> None:
        """Before anything is signed: raises KeyInUse where another process serves, and is not about to end."""
        until, told = time.monotonic() + leaving_seconds, set[Answerer]()
        while (found := await answerer_at(*self.registered)) in {Answerer.ANOTHER, Answerer.ENDING}:
            endpoint, _ = self.registered
            if found is Answerer.ANOTHER and time.monotonic() >= until:
                raise _in_use(endpoint)
            if found not in told:
                told.add(found)
                log.warning(_WAITING[found], endpoint)
            await asyncio.sleep(min(2.0, leaving_seconds))

    async def watch(self, every: float = LOOK_SECONDS) -> None:
        """Look again and again; raises KeyInUse once another process has answered a few times.

        A look at which nobody answers says nothing, nor does one at which the other one is about to end. One at which
        this process answers does not say much either: a name may lead to both in turn.
        """
        others, own = 0, 0
        while others < MOST_OTHERS:
            await asyncio.sleep(every)
            found = await answerer_at(*self.registered)
            if found is Answerer.ANOTHER:
                others, own = others + 1, 0
            elif found is Answerer.OURSELVES:
                own += 1
                others = others if own < MOST_OWN else 0
        raise _in_use(self.registered[0])


def _in_use(endpoint: str) -> KeyInUse:
    remedy = (
        "Stop one of the two: words of both for one order convict. Two parties need two keys. A party that moved to "
        "another machine takes its folder along, and is stopped where it was."
    )
    return KeyInUse("Another process serves with this key, at its registered endpoint", endpoint, remedy)
