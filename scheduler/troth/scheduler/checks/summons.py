"""What is asked of this scheduler on chain: results and checks, answered by itself and in time.

Everything is read from the chain and the journal, so that a restart changes nothing: a deadline is a block. Where a
node is why there is no answer, the summons is passed on to it; it speaks, or pays and another one is drawn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from troth.chain.errors import ChainError
from troth.protocol.errors import ProtocolError
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.messages import compact, word_of
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind, SummonsState
from troth.protocol.market.state import SummonsRecord
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Address, Hash32
from troth.scheduler.checks.forgotten import answer_forgotten
from troth.scheduler.checks.lottery import drawn_verifiers, reveal
from troth.scheduler.errors import OrderRefused
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.drawing import draw, fresh_draw
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.service import Orders
from troth.scheduler.tabs.database import StorageFailed

log = logging.getLogger(__name__)

LONGEST_PAUSE = 16.0
"""Seconds until a summons for an order that the records lost is looked at again, after one that was 1 doubled: each
look asks whole groups of nodes what they signed, and may hash what they show for seconds."""


@dataclass(frozen=True, slots=True)
class _LiveSummons:
    """A live summons of this scheduler with its order, of which these records may know nothing."""

    summons_id: Hash32
    record: SummonsRecord
    known: OrderHistory | None

    @property
    def history(self) -> OrderHistory:
        """Its order."""
        assert self.known is not None  # else nothing but ``forgotten`` answers it
        return self.known

    @property
    def state(self) -> SummonsState:
        return self.record.state


@dataclass(frozen=True, slots=True)
class _LostOrder:
    """Until which block there is something to do, when it is looked for next, and how long that was waited for."""

    deadline: int
    next_look: float
    pause: float


class SummonsDuty:
    """Looks at every live summons again and again; each is worked on once at a time."""

    def __init__(self, orders: Orders, clock: Callable[[], float] = time.monotonic) -> None:
        self._orders = orders
        self._clock = clock
        self._working: dict[Hash32, asyncio.Task[None]] = {}
        self._lost: dict[Hash32, _LostOrder] = {}
        """By summons whose order the records lost."""

    @property
    def _context(self) -> SchedulerContext:
        return self._orders.context

    async def look(self) -> None:
        """Begin to answer whatever is asked."""
        me, state = self._context.operator.address, self._context.ledger.state
        self._lost = {name: lost for name, lost in self._lost.items() if name in state.summons}
        for summons_id, record in state.summons.items():
            if record.state.scheduler != me or record.answered is not None or summons_id in self._working:
                continue
            history = self._context.store.get(record.state.order)
            if history is None and not self._is_due(summons_id, record.state):
                continue
            task = asyncio.create_task(self._answer(_LiveSummons(summons_id, record, history)))
            self._working[summons_id] = task
            task.add_done_callback(partial(self._done, summons_id))

    def _is_due(self, summons_id: Hash32, state: SummonsState) -> bool:
        """Whether a summons for a lost order is looked at now. One that a node is to answer asks no groups."""
        now, lost = self._clock(), self._lost.get(summons_id)
        if lost is None:
            log.error("summoned for order 0x%s, which is not in the journal", state.order.hex())
        if state.passed_to == NO_ADDRESS and lost is not None and lost.deadline == state.deadline:
            if now < lost.next_look:
                return False
            pause = min(2 * lost.pause, LONGEST_PAUSE)
        else:
            pause = 1.0
        self._lost[summons_id] = _LostOrder(state.deadline, now + pause, pause)
        return True

    def _done(self, summons_id: Hash32, _task: asyncio.Task[None]) -> None:
        self._working.pop(summons_id, None)

    async def abandon(self) -> None:
        """Stop working; the next start goes on."""
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _answer(self, asked: _LiveSummons) -> None:
        try:
            if asked.state.passed_to != NO_ADDRESS and self._context.ledger.block > asked.state.deadline:
                await self._end_silence(asked)
            elif asked.known is None:
                await answer_forgotten(self._context, asked.record, partial(self._send_about, asked))
            elif asked.state.kind is SummonsKind.RESULTS:
                await self._answer_results(asked)
            else:
                await self._answer_check(asked)
        except (ChainError, ProtocolError, OrderRefused, StorageFailed) as error:
            log.error("a summons is not answered yet, its deadline is block %d: %s", asked.state.deadline, error)
        except Exception:
            log.exception("a summons is not answered yet, its deadline is block %d", asked.state.deadline)

    async def _send_about(self, asked: _LiveSummons, function: str, *arguments: object, deposit: int = 0) -> None:
        await self._send(function, asked, *arguments, deposit=deposit)

    async def _send(self, function: str, asked: _LiveSummons, *arguments: object, deposit: int = 0) -> None:
        coin = self._context.ledger.parameters.asset == NO_ADDRESS
        call = self._call(function, asked, *arguments, value=deposit if coin else 0)
        block = await self._context.ledger.execute(call, deposit)
        log.info("%s was sent in block %d, the deadline is %d", function, block, asked.state.deadline)

    def _call(self, function: str, asked: _LiveSummons, *arguments: object, value: int) -> PartCall:
        contracts = self._context.ledger.contracts
        return build(contracts, Part.SUMMONS, function, asked.summons_id, asked.state, *arguments, value=value)

    # ---- results

    async def _answer_results(self, asked: _LiveSummons) -> None:
        history = asked.history
        if history.answered is None:
            if history.failed is not None and not asked.state.extended:
                await self._pass_on_results(asked)
            return  # it runs, or its node was asked already and has its own time to speak
        if history.drawn is None:
            if self._orders.runs(history.order_id):
                return  # its draw is on its way to the disk, which takes only one
            await draw(self._context, self._orders.book, history)
        assert history.drawn is not None
        # No older than the summons: its client may have no other draw than this one.
        fresh = fresh_draw(self._context, history, history.drawn.proof)
        signatures = tuple(compact(one.signature) for one in history.answered.results)
        shown = (history.admitted.nodes, history.results, signatures, fresh.message, fresh.signature)
        await self._send("answerResults", asked, *shown)

    async def _pass_on_results(self, asked: _LiveSummons) -> None:
        history = asked.history
        assert history.failed is not None
        # Where nobody in particular failed, the first segment's node has to say what it has.
        segment = history.failed.segment if history.failed.segment < history.segments else 0
        node, promised = history.admitted.nodes[segment], history.admitted.promises[segment]
        tab, deposit = self._context.node_tabs.tab(node), await self._context.ledger.pass_deposit()
        shown = (history.admitted.nodes, tab, promised.message, promised.signature)
        await self._send("passOnResults", asked, *shown, deposit=deposit)

    # ---- checks

    async def _answer_check(self, asked: _LiveSummons) -> None:
        history, segment = asked.history, asked.state.segment
        if history.answered is None or history.drawn is None:
            return
        if history.revealed is None:
            await reveal(self._context, history, asked.state.secret)
        await self._checked(history)
        responded = set(asked.record.responded)
        missing = [one for one in history.undecided(segment) if one not in responded]
        if not missing:
            await self._send_verdicts(asked)
        elif asked.state.passed_to == NO_ADDRESS:
            await self._pass_on_check(asked, missing[0])

    async def _checked(self, history: OrderHistory) -> None:
        """Run the check as if its client had asked here, and wait for its end."""
        async for _ in self._orders.check(history).lines.follow():
            pass

    async def _send_verdicts(self, asked: _LiveSummons) -> None:
        history, segment = asked.history, asked.state.segment
        check = history.check_of(segment)
        assert check is not None
        given = [history.verdicts[segment, one] for one in check.operators if (segment, one) in history.verdicts]
        words = tuple(word_of(one) for one in given)
        await self._send("answerCheck", asked, *self._results(history), words, self._hints(asked))

    async def _pass_on_check(self, asked: _LiveSummons, verifier: Address) -> None:
        history, segment = asked.history, asked.state.segment
        check = history.check_of(segment)
        assert check is not None
        place = check.operators.index(verifier)
        promised, node = check.promises[place], check.operators[place]
        deposit = await self._context.ledger.pass_deposit()
        shown = (self._context.node_tabs.tab(node), promised.message, promised.signature, self._hints(asked))
        await self._send("passOnCheck", asked, *self._results(history), *shown, deposit=deposit)

    async def _end_silence(self, asked: _LiveSummons) -> None:
        """The node to which it was passed on said nothing: it pays, and the next of the draw takes its place."""
        await self._send("convict", asked)

    def _results(self, history: OrderHistory) -> tuple[object, object]:
        assert history.answered is not None
        return history.results, tuple(compact(one.signature) for one in history.answered.results)

    def _hints(self, asked: _LiveSummons) -> bytes:
        return drawn_verifiers(self._context, asked.history)[asked.state.segment].hints


def stuck(context: SchedulerContext) -> list[str]:
    """What is asked of this scheduler on chain and not answered, with the block by which it is due."""
    me = context.operator.address
    return [
        f"a summons for {record.state.kind.name.lower()} of order 0x{record.state.order.hex()} "
        f"is due by block {record.state.deadline}"
        for record in context.ledger.state.summons.values()
        if record.state.scheduler == me and record.answered is None
    ]
