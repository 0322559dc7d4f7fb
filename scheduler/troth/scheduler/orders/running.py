"""An order from its admission to its draw: the only place that knows the order of the steps.

admitted -> tokens -> answered and drawn, or failed: each journalled before what follows from it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import Logprobs
from troth.protocol.market import prices
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Result
from troth.protocol.types import Address
from troth.scheduler.errors import NodeFailed, OrderAborted
from troth.scheduler.log.entries import LogBook
from troth.scheduler.orders.concluding import OrderEnding
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.drawing import first_draw
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.hop import Hop
from troth.scheduler.orders.pipeline import PipelineRun
from troth.scheduler.orders.shown import shown_admitted, shown_draw, shown_failed, shown_logprobs, shown_results
from troth.scheduler.orders.steps import AnsweredStep, FailedStep
from troth.scheduler.orders.stream import Lines
from troth.scheduler.orders.veiling import Veil, veils
from troth.scheduler.tabs.due import nothing_owed, results_fees

log = logging.getLogger(__name__)

NO_RESULTS: Mapping[int, Signed[Result]] = MappingProxyType({})
FAILED_REMEDY = "Order again: nothing is owed for this one."


class OrderRun:
    """Drives one order. ``lines`` may be read by a client, by several, or by nobody."""

    def __init__(self, context: SchedulerContext, book: LogBook, session: OrderSession) -> None:
        self._context = context
        self._book = book
        self._session = session
        self._kept = context.rows.open(session.order_id, session.offer.sent_bytes)
        self._hops = [Hop(context, session, segment, self._kept) for segment in range(session.history.segments)]
        self._tokens: list[int] = []
        self._shown: dict[int, Signed[Result]] = {}
        self._no_more = asyncio.Event()
        self.lines = Lines()

    @property
    def nodes(self) -> tuple[Address, ...]:
        """Who serves it."""
        return self._session.nodes

    def end_early(self) -> None:
        """Its client wants no more: it pays for what is written by then."""
        self._no_more.set()

    async def run(self) -> None:
        """Everything after the admission was journalled."""
        self.lines.send("admitted", **shown_admitted(self._session.history))
        try:
            with self._context.peers.at_work(self.nodes):
                await self._serve()
        except OrderAborted as error:
            await self._fail(error)
        finally:
            self._kept.close()
            self._remember()
            self.lines.end()

    async def _serve(self) -> None:
        context, session, history = self._context, self._session, self._session.history
        veil = Veil(context, session) if veils(session) else None
        pipeline = PipelineRun(session, self._hops, self._on_token, context.waits.generation, veil)
        pipeline.no_more = self._no_more
        self._tokens = pipeline.tokens
        try:
            reason = await pipeline.run()
            results = await self._ending().results(context.waits.generation.prefill)
        except ProtocolError as error:
            raise OrderAborted(error.what, None, FAILED_REMEDY) from error
        except OSError as error:
            raise OrderAborted("The scheduler's disk takes no rows", error.strerror, FAILED_REMEDY) from error
        fee = prices.fee(history.order, session.offer.rules, history.segments, results[-1].message)
        if self._kept.in_files:
            await asyncio.to_thread(self._kept.sync)
        served = context.client_tabs.serve(history.order.tab, history.order.sequence, fee, context.ledger.block)
        answered = AnsweredStep("end" if reason == "stop" else reason, results, self._hops[-1].chain.position, fee)
        # Nothing leaves between answer and draw, so that they share a flush: folded once both are on the disk.
        drawn, owed = first_draw(context, self._book, replace(history, answered=answered))
        beside = (*served, *self._kept.statements(), *owed)
        await context.store.note_answer(history, answered, drawn, tuple(pipeline.tokens), *beside)
        for node in self.nodes:
            context.peers.note_answer(node)
        self.lines.send("results", **shown_results(history))
        self.lines.send("draw", **shown_draw(history))

    def _on_token(self, position: int, token: int, logprobs: Logprobs | None) -> None:
        fields = {} if logprobs is None else {"logprobs": shown_logprobs(logprobs)}
        self.lines.send("token", position=position, id=token, **fields)

    async def _fail(self, error: OrderAborted) -> None:
        """Nothing is owed by the client; nodes before the one that failed are paid for what they can show."""
        segment = error.segment if isinstance(error, NodeFailed) else self._session.history.segments
        log.warning("the order failed: %s", error)
        if isinstance(error, NodeFailed):
            self._context.peers.note_failure(self._session.nodes[segment])
        # With the cause: whoever ordered cannot tell a node that is gone from one that has too much to do.
        told = f"{error.what}: {error.value}" if isinstance(error, NodeFailed) else error.what
        failed = await fail(self._context, self._session.history, error.code, told, segment, shown=self._shown)
        self.lines.send("failed", **shown_failed(failed))
        await self._pay_earlier(segment)

    async def _pay_earlier(self, segment: int) -> None:
        """Nodes before the one that failed show what they have, and are paid for it as if the order had ended well."""
        for earlier in range(min(segment, self._session.history.segments)):
            result = await self._earlier_result(earlier)
            context, history = self._context, self._session.history
            due = context.ledger.block + context.ledger.parameters.lag
            owed = results_fees(context.node_tabs, history, [result], due) if result else None
            await context.database.commit(*(owed or nothing_owed(context.node_tabs, history, [earlier])))

    async def _earlier_result(self, segment: int) -> Signed[Result] | None:
        written = self._hops[segment].chain.position - len(self._session.request.prompt_tokens) + 1
        if written < 1 or segment == self._session.history.segments - 1:
            return None  # it broke off within the prompt, of which no result can be signed
        try:
            patience = self._context.waits.generation
            return await self._ending().result(segment, written, max(patience.token, patience.slow))
        except (NodeFailed, ProtocolError) as error:
            log.info("an earlier node showed no result: %s", error)
            return None

    def _ending(self) -> OrderEnding:
        return OrderEnding(self._context, self._session, self._hops, self._tokens, self._shown)

    def _remember(self) -> None:
        """How long each node took: the next choice goes by it. Their caches are free now."""
        for hop, span in zip(self._hops, self._session.spans, strict=True):
            if hop.decoding is None:
                continue  # it wrote no token alone: what a prompt took says nothing of that
            # Not the last answer: a node that gives that one at once would count as faster than anybody.
            self._context.peers.note_latency(hop.node, hop.decoding)
            if self._context.routes is not None:
                self._context.routes.note_answer(self._session, hop.node, span.end - span.first, hop.decoding)
        if self._context.routes is not None:
            self._context.routes.release(self._session)


async def fail(
    context: SchedulerContext,
    history: OrderHistory,
    code: str,
    what: str,
    segment: int,
    *,
    shown: Mapping[int, Signed[Result]] = NO_RESULTS,
) -> FailedStep:
    """Journal that an order came to nothing, with what changes in the books.

    From ``segment`` on nodes are owed what results they have ``shown``: one that signed may claim its promise.
    """
    failed = FailedStep(code, what, FAILED_REMEDY, context.ledger.block, segment)
    served = context.client_tabs.serve(history.order.tab, history.order.sequence, 0, context.ledger.block)
    later = range(segment, history.segments)
    owed = nothing_owed(context.node_tabs, history, [one for one in later if one not in shown])
    due = context.ledger.block + context.ledger.parameters.lag
    owed += results_fees(context.node_tabs, history, [shown[one] for one in later if one in shown], due)
    await context.store.note(history, failed, *served, *owed)
    return failed
