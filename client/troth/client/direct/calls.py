"""A scheduler's interface through nodes: each call enters at one of them, another one where it cannot be reached.

Nothing that a node relays is believed more than if the scheduler had said it, and a scheduler is believed nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from troth.client.delivered import never_sent
from troth.client.direct.nodes import NodeChoice
from troth.client.direct.ways import Way, Ways
from troth.client.errors import ClientError, OverlayFailed, SchedulerRefused, SchedulerUnreachable, StreamError
from troth.client.language import LanguageFiles
from troth.client.untrusted import read_hex
from troth.overlay.errors import OverlayError
from troth.protocol.types import Address, Hash32

KNOCK_SECONDS = 20.0
"""Time for a node's first answer: the order is sent only to one that has just answered."""
_ENDS = {"settled", "failed"}
_CIRCUITS = {"guard", "middle", "proxy", "path", "client"}
"""Hops that are no node's fault."""
_NOT_THERE = (SchedulerUnreachable, StreamError, SchedulerRefused)

Answer = TypeVar("Answer")


class DirectCalls:
    """The calls of `SchedulerCalls`.

    Args:
        wanted: the class for which nodes are chosen where a call does not name one; None: any.
        near: the node to enter at, if it can still be entered.
    """

    def __init__(
        self, choice: NodeChoice, ways: Ways, wanted: Hash32 | None = None, near: Address | None = None
    ) -> None:
        self._choice = choice
        self._ways = ways
        self._wanted = wanted
        self._near = near

    def near(self, node: Address) -> DirectCalls:
        """The same calls, entering at this node as long as it is listed and has not failed of late."""
        return DirectCalls(self._choice, self._ways, self._wanted, node)

    async def classes(self) -> dict[Hash32, tuple[int, ...]]:
        """As the scheduler says through one of the nodes."""
        return await self._first(self._wanted, lambda way: way.api.classes(), _NOT_THERE)

    async def language(self, identifier: Hash32) -> LanguageFiles:
        """As the scheduler says through one of the nodes; not yet checked."""
        return await self._first(identifier, lambda way: way.api.language(identifier), _NOT_THERE)

    async def task(self, identifier: Hash32, salt: Hash32) -> dict[str, Any]:
        """As the scheduler says through one of the nodes, which sees the answer and the salt on the way."""

        async def asked(way: Way) -> dict[str, Any]:
            # Whoever does not answer at all is not told the salt.
            await _knock(way)
            return await way.api.task(identifier, salt)

        return await self._first(self._wanted, asked, (SchedulerUnreachable,))

    async def order(self, body: dict[str, object]) -> AsyncGenerator[dict[str, Any], None]:
        """Send an order through a node that has just answered. Another one is tried only while none can have got it.

        Raises:
            OverlayFailed: no node could be reached; `hop` is "node" where the node itself failed.
        """
        nodes = self._some(_class_of(body))
        for node in nodes:
            answered = False
            try:
                async with aclosing(self._order_at(node, body)) as lines:
                    async for line in lines:
                        answered = True
                        yield line
                return
            except SchedulerUnreachable as error:
                failure = _at(node, error)
                if answered or not _another_may_do(failure) or node == nodes[-1]:
                    raise failure from error

    async def _order_at(self, node: Address, body: dict[str, object]) -> AsyncGenerator[dict[str, Any], None]:
        whole = own = False
        try:
            async with self._ways.to(node) as way:
                try:
                    await _knock(way)
                except ClientError as error:
                    raise _unknocked(node, error) from error
                async with aclosing(way.api.order(body)) as lines:
                    async for line in lines:
                        way.heard()
                        whole = whole or line.get("type") in _ENDS
                        yield line
        except SchedulerUnreachable as error:
            own = _at(node, error).hop in _CIRCUITS
            raise
        except SchedulerRefused:
            own = True
            raise
        finally:
            # Also when the reader gave up: for it the node was silent, or what it said was not to be believed.
            if not (whole or own):
                self._choice.failed(node)

    async def _first(
        self, wanted: Hash32 | None, call: Callable[[Way], Awaitable[Answer]], passed_over: tuple[type[Exception], ...]
    ) -> Answer:
        nodes = self._some(wanted)
        for node in nodes:
            try:
                async with self._ways.to(node) as way:
                    answer = await call(way)
                    way.heard()
                    return answer
            except passed_over as error:
                failure = _at(node, error) if isinstance(error, SchedulerUnreachable) else error
                if isinstance(failure, OverlayFailed) and failure.hop in _CIRCUITS:
                    raise failure from error
                self._choice.failed(node)
                if node == nodes[-1]:
                    raise failure from error
        raise AssertionError("there is at least one node")

    def _some(self, wanted: Hash32 | None) -> list[Address]:
        try:
            nodes = self._choice.some(wanted, self._near)
        except OverlayError as error:
            raise OverlayFailed(error.what, error.value, error.remedy, hop="path", delivered="no") from error
        if not nodes:
            raise OverlayFailed(
                "The directory lists no bonded node that hosts the whole model of this class",
                "any class" if wanted is None else "0x" + wanted.hex(),
                "Wait for the next list, or go through the scheduler with --no-direct.",
                hop="node",
                delivered="no",
            )
        return nodes


async def _knock(way: Way) -> None:
    """Ask something harmless first. Whether an order arrived at a node that was never there, nobody could tell."""
    if way.fresh:
        return
    try:
        async with asyncio.timeout(KNOCK_SECONDS):
            await way.api.classes()
    except TimeoutError as error:
        raise SchedulerUnreachable(
            f"The node did not answer within {KNOCK_SECONDS:g} s", "nothing was sent", "Ask again: it is free."
        ) from error
    way.heard()


def _class_of(body: dict[str, object]) -> Hash32:
    order = body["order"]
    assert isinstance(order, dict)
    return Hash32(read_hex(order["execution_class"], 32))


def _unknocked(node: Address, error: ClientError) -> OverlayFailed:
    hop = _at(node, error).hop if isinstance(error, SchedulerUnreachable) else "node"
    free = "Nothing was sent: ask again, it is free."
    return OverlayFailed(error.what, f"{node}: {error.value}", free, hop=hop, delivered="no")


def _at(node: Address, error: SchedulerUnreachable) -> OverlayFailed:
    """The same failure, with the node in the scheduler's place."""
    if isinstance(error, OverlayFailed):
        if error.hop not in {"destination", "node"}:
            return error
        value = error.value if error.hop == "node" else f"{node}: {error.value}"
        return OverlayFailed(error.what, value, error.remedy, hop="node", delivered=error.delivered)
    delivered = "no" if never_sent(error) else "unknown"
    return OverlayFailed(error.what, f"{node}: {error.value}", error.remedy, hop="node", delivered=delivered)


def _another_may_do(failure: OverlayFailed) -> bool:
    # Without circuits no other node can be reached either.
    return failure.delivered == "no" and failure.hop != "path"
