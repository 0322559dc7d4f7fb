"""One order at its entry, from the scheduler's admission to its draw.

Admission and draw are the scheduler's lines; tokens and the result come from the node itself, each piece under its
signature. The scheduler's own tokens are not passed on, since nobody signs them: where the node cannot be heard, or the
two differ, the stream ends, and the client goes on at the scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from troth.node.direct.counters import Counters
from troth.node.direct.dealing import EntryDealing, Ranked
from troth.node.direct.hearing import AnswerReader, Piece
from troth.node.direct.lines import node_of, read_line, results_line, said_line, token_line
from troth.node.direct.order import EnteredOrder
from troth.node.errors import NodeError, SchedulerAway
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address
from troth.transport.errors import OverlayError
from troth.transport.logs import task_bound

log = logging.getLogger(__name__)

UNREAD_LINES = 64
"""Lines that wait for a client who reads slowly; then neither node nor scheduler is read any further."""
OTHER_LINES = 64
"""Lines of the scheduler besides tokens; an order has three."""
LONGEST_SECONDS = 7200.0
"""An order that lasts longer is not passed on to its end: its place is needed. The client goes to the scheduler."""
RESULT_SECONDS = 1.0
"""How long the scheduler's results wait for the node's own."""


@dataclass(frozen=True, slots=True)
class ServingContext:
    """What every order that enters works with."""

    dealing: EntryDealing
    hearing: AnswerReader
    counters: Counters
    vocabulary: int


class ServingOrder:
    """Reads the scheduler's lines, listens to the node that it admitted, and gives one stream of both."""

    def __init__(self, order: EnteredOrder, scheduler: Address, ranked: Ranked, tools: ServingContext) -> None:
        self._order, self._scheduler, self._ranked, self._tools = order, scheduler, ranked, tools
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue(UNREAD_LINES)
        self._passed: list[int] = []
        self._theirs: list[object] = []
        self._agreed = 0
        self._node: Address | None = None
        self._following: asyncio.Task[bool] | None = None
        self._began = time.monotonic()
        self._answered: float | None = None

    async def lines(self, upstream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Every line for the client. Whoever stops reading ends the listening; the order goes on at its scheduler."""
        reading = asyncio.create_task(self._read(upstream))
        try:
            while (line := await self._next()) is not None:
                yield line + b"\n"
        finally:
            under_way = [reading] if self._following is None else [reading, self._following]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            if self._node is not None:
                self._tools.dealing.ended(self._order, self._answered)

    async def _next(self) -> bytes | None:
        left = self._began + LONGEST_SECONDS - time.monotonic()
        # Once the time is over, a line that waits already is not passed on either.
        with contextlib.suppress(TimeoutError):
            if left > 0:
                async with asyncio.timeout(left):
                    return await self._out.get()
        log.warning("an order lasts too long: %g s", LONGEST_SECONDS)
        return None

    # ---- the scheduler

    async def _read(self, upstream: AsyncIterator[bytes]) -> None:
        """The scheduler's lines, one by one, until it has told the last, or the stream is to end."""
        count = 0
        try:
            async for raw in upstream:
                count += 1
                if count > self._order.max_tokens + OTHER_LINES:
                    raise SchedulerAway("The scheduler's stream does not end", count, "Use another one.")
                if not await self._take(raw, read_line(raw)):
                    break
        except (NodeError, OverlayError, ProtocolError) as error:
            # The client sees its stream end early, and goes to the scheduler itself.
            log.warning("a scheduler's stream broke: %s", error)
        except Exception:
            log.exception("an order's stream broke")
        await self._out.put(None)

    async def _take(self, raw: bytes, line: dict[str, Any]) -> bool:
        """Pass a line on, or what stands for it; False where the stream ends with it."""
        match line.get("type"):
            case "admitted" if self._following is None:
                await self._out.put(raw)
                self._node = node_of(line)
                if self._node is not None:
                    self._tools.dealing.dealt(self._order, self._ranked, self._node)
                    self._following = asyncio.create_task(self._follow(self._node))
                return self._node is not None
            case "token":
                self._theirs.append(line.get("id"))
                return self._agree()
            case "results":
                return await self._end(raw)
            case "draw" | "failed":
                await self._out.put(raw)
                return False
            case _:
                return True  # of a later version, or nothing that a client waits for

    async def _end(self, raw: bytes) -> bool:
        """The node's own result, which was passed on; the scheduler's copy where only that is missing."""
        if self._following is None:
            return False
        done, _ = await asyncio.wait((self._following,), timeout=RESULT_SECONDS)
        if done and self._following.result():
            return True
        if self._passed == self._theirs:
            self._following.cancel()
            await self._out.put(raw)
            return True
        return False

    # ---- the node

    async def _follow(self, node: Address) -> bool:
        """Pass on what the node says; whether that was all, its result included."""
        with task_bound(self._order.order_id):
            try:
                pieces = self._tools.hearing.pieces(node, self._order.order_id, self._order.salt)
                async with aclosing(pieces) as heard:
                    async for piece in heard:
                        if not await self._pass_on(piece):
                            break
                    else:
                        return True
            except (OverlayError, ProtocolError, NodeError) as error:
                log.info("the node cannot be heard, so its client goes to the scheduler: %s", error)
            except Exception:
                log.exception("listening failed; the client goes to the scheduler")
        await self._out.put(None)
        return False

    async def _pass_on(self, piece: Piece) -> bool:
        order, tools, first = self._order, self._tools, len(self._passed)
        self._passed += piece.tokens
        if len(self._passed) > order.max_tokens or not self._agree():
            return False
        for index, token in enumerate(piece.tokens):
            packed = piece.logprobs[index] if piece.logprobs else None
            await self._out.put(token_line(first + index, token, packed, order.logprobs, tools.vocabulary))
        if piece.tokens:
            tools.counters.tokens.inc(len(piece.tokens))
            await self._out.put(said_line(len(self._passed), piece.signature))
        if piece.result is not None:
            self._answered = time.monotonic() - self._began
            await self._out.put(results_line(piece.finished, piece.result))
        return True

    def _agree(self) -> bool:
        """Whether node and scheduler say the same, as far as both have spoken."""
        both = min(len(self._passed), len(self._theirs))
        places = range(self._agreed, both)
        differing = next((place for place in places if self._passed[place] != self._theirs[place]), None)
        self._agreed = both
        if differing is None:
            return True
        log.warning("node and scheduler differ at token %d", differing)
        self._tools.counters.contradictions.inc()
        if self._node is not None:
            self._tools.dealing.contradicted(self._scheduler, self._node)
        return False
