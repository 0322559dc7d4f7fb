"""A client's session with one destination: n paths, one secret, requests over all of them at once.

A session is forgotten when it was closed or grew old; the next one has other secrets and ids, so that a destination
cannot tell by them that both are the same client's.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.directory.listing import ListedDestination
from troth.overlay.sessions.asking import Asking
from troth.overlay.sessions.errors import Delivered, MalformedFrame, RequestFailed
from troth.overlay.sessions.frames import FrameKind
from troth.overlay.sessions.messages import HttpRequest, ResponseHead, decode_head
from troth.overlay.sessions.opening import SECRET_BYTES
from troth.overlay.sessions.path import SessionPath, Trust
from troth.overlay.sida import Threshold
from troth.transport.errors import CircuitFailed, MalformedCell

DEFAULT_THRESHOLD = Threshold(4, 3)
CIRCUIT_SECONDS = 30.0
LAST_WORD_SECONDS = 2.0
MOST_REQUESTS = 48
"""At once. Each holds an exchange at every proxy, which takes 64 and needs some for acknowledgements and parts."""


class Circuits(Protocol):
    """Live circuits over disjoint paths (`paths.pool.CircuitPool`)."""

    async def take(self, count: int, seconds: float) -> list[Circuit]:
        """So many of them, held by the caller."""

    async def replace(self, failed: Circuit, seconds: float) -> Circuit:
        """Another one in the place of one that is no good."""

    def release(self, circuit: Circuit) -> None:
        """The caller no longer uses it."""


@dataclass(frozen=True, slots=True)
class Response:
    """Head of an answer, and its body as it comes; RequestFailed may end it. Close `body` if it is not read whole."""

    head: ResponseHead
    body: AsyncGenerator[bytes, None]


class Session:
    """Use `opened`.

    Args:
        destination: whose seal key its operator has signed; the caller has checked that.
        paths: one circuit for each of the threshold's n.
    """

    def __init__(
        self,
        circuits: Circuits,
        destination: ListedDestination,
        paths: list[Circuit],
        threshold: Threshold = DEFAULT_THRESHOLD,
    ) -> None:
        if len(paths) != threshold.n:
            raise MalformedCell(f"A session of n = {threshold.n} has as many circuits", len(paths))
        self.threshold = threshold
        self.secret = os.urandom(SECRET_BYTES)
        self.destination = destination
        self.began = asyncio.get_running_loop().time()
        self.served = 0
        self._circuits = circuits
        self._trust = Trust(destination, self.secret, threshold)
        self._paths = [SessionPath(circuit, self._trust, int(time.time())) for circuit in paths]
        self._repairs: dict[int, asyncio.Task[None]] = {}
        self._askings: set[Asking] = set()
        self._last_words: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._askings)

    async def request(self, request: HttpRequest) -> Response:
        """Send a request and wait for the head of its answer; raises RequestFailed or RequestTooLarge."""
        if len(self._askings) >= MOST_REQUESTS:
            raise RequestFailed(CircuitFailed("client", 0, f"{MOST_REQUESTS} requests are under way"), Delivered.NO)
        asking = Asking(self, request)
        self._askings.add(asking)
        self.served += 1
        for index, path in enumerate(self._paths):
            if path.circuit.due:
                self.broken(index, path, CircuitFailed("client", 0, "it has served long enough"))
        asking.start()
        parts = asking.parts()
        try:
            head = decode_head(await anext(parts))
        except StopAsyncIteration:
            raise RequestFailed(CircuitFailed("destination", 0, "it answered nothing"), Delivered.YES) from None
        except MalformedFrame as error:
            await parts.aclose()
            raise RequestFailed(CircuitFailed("destination", 0, error.what), Delivered.YES) from error
        except asyncio.CancelledError:
            await parts.aclose()
            raise
        return Response(head, parts)

    async def close(self) -> None:
        """Say good-bye, and let go of the circuits."""
        if self._last_words:
            await asyncio.wait(self._last_words, timeout=LAST_WORD_SECONDS)
        # In this order: a last word may have begun a repair, whose circuit nobody would let go of.
        for task in (*self._last_words, *self._repairs.values()):
            task.cancel()
        for path in self._paths:
            if path.circuit.failure is None:
                await self._good_bye(path)
                break
        for path in self._paths:
            self._circuits.release(path.circuit)

    async def _good_bye(self, path: SessionPath) -> None:
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await path.send(bytes((FrameKind.CLOSE,)))
        except (CircuitFailed, TimeoutError):
            return

    # -- what requests ask for -------------------------------------------------------------------------------------

    async def path(self, index: int) -> SessionPath:
        """The path of this index; waits while another circuit is being found. Raises CircuitFailed or OverlayError."""
        path = self._paths[index]
        if path.circuit.failure is not None:
            self.broken(index, path, path.circuit.failure)
        repair = self._repairs.get(index)
        if repair is not None:
            # Shielded: other requests wait for the same repair.
            await asyncio.shield(repair)
        return self._paths[index]

    def broken(self, index: int, path: SessionPath, failure: CircuitFailed) -> None:
        """This path is no good: look for another circuit, once for all requests that notice."""
        if self._paths[index] is not path or index in self._repairs:
            return
        repair = self._repairs[index] = asyncio.create_task(self._repair(index, path))
        repair.add_done_callback(lambda done: self._repaired(index, done))

    def renew(self, index: int, path: SessionPath | None, opened: bytes) -> None:
        """The destination does not know the path: open it anew, once; the next time the circuit is to blame.

        `opened` is the id that the path had when it was used: another request may have opened it anew meanwhile.
        """
        if path is None or self._paths[index] is not path or path.id != opened:
            return
        if path.renewed:
            self.broken(index, path, CircuitFailed("proxy", len(path.circuit.path), "its answers are not sealed"))
        else:
            path.renewed = True
            path.begin(int(time.time()))

    def finished(self, asking: Asking, last_word: Coroutine[Any, Any, None]) -> None:
        """A request is over; its last word to the destination may take a moment."""
        self._askings.discard(asking)
        task = asyncio.create_task(last_word)
        self._last_words.add(task)
        task.add_done_callback(self._last_words.discard)

    async def _repair(self, index: int, path: SessionPath) -> None:
        circuit = await self._circuits.replace(path.circuit, CIRCUIT_SECONDS)
        self._paths[index] = SessionPath(circuit, self._trust, int(time.time()))

    def _repaired(self, index: int, done: asyncio.Task[None]) -> None:
        del self._repairs[index]
        if not done.cancelled():
            # Whoever waited has seen it; if nobody did, the next request tries again.
            done.exception()


async def opened(
    circuits: Circuits, destination: ListedDestination, threshold: Threshold = DEFAULT_THRESHOLD
) -> Session:
    """A session over circuits that are taken now; raises CircuitFailed where there are too few."""
    return Session(circuits, destination, await circuits.take(threshold.n, CIRCUIT_SECONDS), threshold)
