"""What a node does by itself beside serving: answers summons, hands rejections on, frees what nobody asks for.

Summons that a scheduler passed on to this node are answered on chain, since a node that stays silent is fined. The
answer shows the signed result or verdict, as canonical JSON, for the scheduler to use. It shows nothing where this node
was given nothing to work with. Whoever passed the summons on has put up its gas.

Traces and words are kept until nobody can ask for them any more (``cases.keeping``). A node that freed a trace earlier
could be summoned to show it, and lose L for showing nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from troth.cases.keeping import is_in_court, oldest_kept
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.node.orders.context import NodeContext
from troth.node.orders.rejections import Rejection, RejectionOpener
from troth.node.orders.session import CHECKS, INFERS, JUDGED, READ
from troth.node.orders.traces import TraceStore
from troth.node.orders.words import RESULT, VERDICT, BegunSegment, SignedWords
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind, SummonsState
from troth.protocol.market.state import State
from troth.protocol.market.types import Contracts, Parameters
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address, Hash32
from troth.transport.logs import task_bound

log = logging.getLogger(__name__)
LEAVES_KEPT = 35 * 86_400.0
"""Seconds for which paid leaves are kept, for the view of what was earned."""


def passed_to(state: State, me: Address, block: int) -> tuple[tuple[Hash32, SummonsState], ...]:
    """Open summons that wait for this node, those with the nearest deadline first."""
    open_ = ((summons_id, one) for summons_id, one in state.summons.items() if one.answered is None)
    mine = [(summons_id, one.state) for summons_id, one in open_ if one.state.passed_to == me]
    return tuple(sorted((one for one in mine if block < one[1].deadline), key=lambda one: one[1].deadline))


def response(summons_id: Hash32, summons: SummonsState, words: SignedWords, contracts: Contracts) -> PartCall:
    """The call that says that this node is there, with what it signed. On the records' thread.

    A summons for results names no segment: a node infers one segment of an order, and shows that one's.
    """
    if summons.kind is SummonsKind.RESULTS:
        word = words.any(summons.order, RESULT)
    else:
        word = words.find(summons.order, summons.segment, VERDICT)
    return build(contracts, Part.SUMMONS, "respond", summons_id, summons, word or b"")


def forgettable(
    begun: Iterable[BegunSegment], state: State, block: int, parameters: Parameters
) -> tuple[BegunSegment, ...]:
    """Of orders that are old enough, those that no case and no summons keeps."""
    return tuple(one for one in begun if not is_in_court(state, one.order, one.segment, block, parameters))


def drop_traces(traces: TraceStore, begun: BegunSegment) -> None:
    """Free what was kept of an order's segment."""
    for attempt in (INFERS, CHECKS, JUDGED, READ):
        trace = traces.find(begun.order, begun.segment, attempt)
        if trace is not None:
            traces.drop(trace)


class NodeDuties:
    """Each method is one turn of a `Duty`. ``reached`` waits until a block was followed."""

    def __init__(
        self,
        context: NodeContext,
        wallet: Market,
        key: Key,
        opener: RejectionOpener,
        reached: Callable[[int], Awaitable[Any]],
        *,
        disputes: Callable[[Hash32, int], bool] = lambda _order, _segment: False,
    ) -> None:
        """``disputes``: whether a dispute over a segment goes on."""
        self._context = context
        self._wallet = wallet
        self._key = key
        self._opener = opener
        self._reached = reached
        self._disputes = disputes
        self.responded = 0
        """Summons that were answered on chain."""

    async def answer_summons(self) -> None:
        """Respond to every summons that was passed on to this node, to all at once: silence convicts, and a window has
        fewer blocks than a scheduler may pass summons on. What fails of one keeps no other waiting, and is raised then.
        """
        ground = self._context.ground
        waiting = passed_to(ground.state, self._context.me, ground.block)
        outcomes = await asyncio.gather(*(self._respond(*one) for one in waiting), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _respond(self, summons_id: Hash32, summons: SummonsState) -> None:
        with task_bound(summons.order):
            words, contracts = self._context.stores.words, self._wallet.contracts
            call = await self._context.write(partial(response, summons_id, summons, words, contracts))
            try:
                receipt = await self._wallet.execute(call, self._key)
            except ChainRejected as error:
                log.warning("a summons could not be answered: %s", error)
                return
            self.responded += 1
            log.warning("a scheduler passed a summons on; answered in block %d", receipt.block)
            await self._reached(receipt.block)

    async def hand_on(self) -> None:
        """Offer own rejections to whoever opens cases, until it has taken them; none waits for another's scheduler."""
        waiting = await self._context.write(self._context.stores.rejections.waiting)
        outcomes = await asyncio.gather(*(self._offer(one) for one in waiting), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _offer(self, rejection: Rejection) -> None:
        with task_bound(rejection.order):
            if await self._opener.rejected(rejection):
                await self._context.write(partial(self._context.stores.rejections.took, rejection))

    async def free(self) -> None:
        """Drop traces and words of orders that nobody can ask about any more, and paid leaves of last month."""
        context, ground = self._context, self._context.ground
        stores, parameters = context.stores, parameters_of(ground.state)
        old = await context.write(lambda: stores.words.older_than(oldest_kept(ground.block, parameters)))
        for begun in forgettable(old, ground.state, ground.block, parameters):
            if not self._disputes(begun.order, begun.segment):
                await context.write(partial(_drop, context, begun))
        await context.write(lambda: stores.books.forget_before(context.clock() - LEAVES_KEPT))


def _drop(context: NodeContext, begun: BegunSegment) -> None:
    drop_traces(context.stores.traces, begun)
    context.stores.words.forget(begun)
    context.stores.rejections.forget(begun.order, begun.segment)
