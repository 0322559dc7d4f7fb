"""One direct task at its entry, from the assignment to the last line."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec

from troth.node.direct.counters import Counters
from troth.node.direct.entering import Entering
from troth.node.direct.hearing import Hearing, Piece
from troth.node.direct.lines import Drawn, read_assigned, read_line, token_line
from troth.node.direct.merging import Contradiction, Merging
from troth.node.direct.order import EnteredOrder
from troth.node.direct.scheduler_side import SchedulerSide
from troth.node.direct.served import is_signed_by, served
from troth.node.errors import NodeError, SchedulerAway
from troth.overlay.errors import OverlayError
from troth.overlay.logs import task_bound
from troth.protocol.errors import ProtocolError
from troth.protocol.state import Scheduler
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, ExecutionClass

log = logging.getLogger(__name__)

UNREAD_LINES = 64
"""Lines that wait for a client who reads slowly; then the scheduler's connection is not read any further either."""
OTHER_LINES = 64
"""Lines of the scheduler besides tokens; a task has seven."""
LONGEST_SECONDS = 7200.0
"""A task that lasts longer is not passed on to its end: its place is needed. The client asks for the receipt."""
SERVED_SECONDS = 1.0
"""How long the end waits for the node's signature over the whole answer, where the scheduler told the end first."""


class ServingTask:
    """Reads the scheduler's lines, has a node chosen, listens to it, and gives one stream of both.

    Args:
        order: what entered.
        scheduler: whose task it is.
        rules: the class's rules, for how many candidates are drawn.
        vocabulary: tokens of the model.
        schedulers, entering, hearing, counters: the entry's parts.
        domain: of signatures.
    """

    def __init__(
        self,
        order: EnteredOrder,
        scheduler: Scheduler,
        rules: ExecutionClass,
        vocabulary: int,
        *,
        schedulers: SchedulerSide,
        entering: Entering,
        hearing: Hearing,
        counters: Counters,
        domain: Domain,
    ) -> None:
        self._order, self._scheduler, self._rules, self._vocabulary = order, scheduler, rules, vocabulary
        self._schedulers, self._entering, self._hearing = schedulers, entering, hearing
        self._counters, self._domain = counters, domain
        self._merging = Merging(order.max_tokens)
        self._passing = asyncio.Lock()
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue(UNREAD_LINES)
        self._drawn: Drawn | None = None
        self._following: asyncio.Task[None] | None = None
        self._node: Address | None = None
        self._signed: tuple[Address, bytes] | None = None
        self._began = time.monotonic()
        self._answered: float | None = None

    async def lines(self, upstream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Every line for the client. Whoever stops reading ends the listening; the task goes on at its scheduler."""
        reading = asyncio.create_task(self._read(upstream))
        try:
            while (line := await self._next()) is not None:
                yield line + b"\n"
        finally:
            under_way = [reading] if self._following is None else [reading, self._following]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            if self._drawn is not None:
                self._entering.ended(self._order, self._drawn.task_id, self._answered)

    async def _next(self) -> bytes | None:
        try:
            return await asyncio.wait_for(self._out.get(), self._began + LONGEST_SECONDS - time.monotonic())
        except TimeoutError:
            log.warning("a task lasts too long: %g s", LONGEST_SECONDS)
            return None

    async def _read(self, upstream: AsyncIterator[bytes]) -> None:
        """The scheduler's lines, one by one, until it has told the last."""
        count = 0
        try:
            async for raw in upstream:
                count += 1
                if count > self._order.max_tokens + OTHER_LINES:
                    raise SchedulerAway("The scheduler's stream does not end", count, "Use another one.")
                await self._take(raw, read_line(raw))
        except (NodeError, OverlayError, ProtocolError) as error:
            # The client sees its stream end early, as it would at the scheduler itself, and asks for the receipt.
            log.warning("a scheduler's stream broke: %s", error)
        except Exception:
            log.exception("a direct task's stream broke")
        await self._out.put(None)

    async def _take(self, raw: bytes, line: dict[str, Any]) -> None:
        match line.get("type"):
            case "assigned" if self._drawn is None:
                await self._out.put(raw)
                self._drawn = read_assigned(line, self._rules.candidates)
                if self._drawn is not None:
                    self._following = asyncio.create_task(self._follow(self._drawn))
            case "token":
                await self._take_token(raw, line)
            case "finished":
                await self._finish(raw)
            case "served":
                pass  # only the node's own signature is passed on
            case _:
                await self._out.put(raw)

    async def _take_token(self, raw: bytes, line: dict[str, Any]) -> None:
        async with self._passing:
            try:
                fresh = self._merging.from_scheduler(line.get("position"), line.get("id"))
            except Contradiction as found:
                self._note(found)
                fresh = False
            if fresh:
                self._counters.tokens.labels(source="scheduler").inc()
                await self._out.put(raw)

    async def _finish(self, raw: bytes) -> None:
        if self._following is not None and self._merging.listening:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._following), SERVED_SECONDS)
        async with self._passing:
            self._merging.stop()
        self._answered = time.monotonic() - self._began
        if self._signed is not None and self._drawn is not None:
            node, signature = self._signed
            statement = served(self._drawn.task_id, self._order.salt, self._merging.tokens)
            if is_signed_by(node, statement, signature, self._domain):
                line = {"type": "served", "node": node, "signature": "0x" + signature.hex()}
                await self._out.put(msgspec.json.encode(line))
            else:
                log.warning("%s signed another answer than it gave", node)
        await self._out.put(raw)

    async def _follow(self, drawn: Drawn) -> None:
        """Have a node chosen, tell the scheduler, and pass on what the node says."""
        with task_bound(drawn.task_id):
            try:
                node = await self._entering.choose(
                    self._order, self._scheduler.operator, drawn.task_id, drawn.candidates
                )
                with self._counters.spent("posting"):
                    taken = await self._schedulers.choose(self._scheduler, drawn.task_id, self._order.salt, node)
                if node is None:
                    return
                self._node = node
                self._counters.seconds.labels(part="whole").observe(time.monotonic() - self._began)
                if not taken:
                    log.info("the scheduler did not take %s", node)
                    return
                async for piece in self._hearing.pieces(
                    node, drawn.task_id, self._order.salt, lambda: len(self._merging.tokens)
                ):
                    await self._pass_on(node, piece)
                    if not self._merging.listening:
                        return
            except (OverlayError, ProtocolError, NodeError) as error:
                log.info("the answer comes from the scheduler alone: %s", error)
            except Exception:
                log.exception("listening failed; the answer comes from the scheduler alone")

    async def _pass_on(self, node: Address, piece: Piece) -> None:
        async with self._passing:
            try:
                fresh = self._merging.from_node(piece.start, piece.tokens)
            except Contradiction as found:
                self._note(found)
                return
            first = piece.start + len(piece.tokens) - len(fresh)
            for position, token in enumerate(fresh, first):
                packed = piece.logprobs[position - piece.start] if piece.logprobs else None
                await self._out.put(token_line(position, token, packed, self._order.logprobs, self._vocabulary))
            self._counters.tokens.labels(source="node").inc(len(fresh))
            if piece.signature is not None and self._merging.listening:
                self._signed = node, piece.signature

    def _note(self, found: Contradiction) -> None:
        self._counters.contradictions.inc()
        if self._node is not None:
            self._entering.contradicted(self._scheduler.operator, self._node)
        log.warning("node and scheduler differ at token %d; the scheduler's word goes on", found.position)
