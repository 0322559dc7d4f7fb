"""The orders of one scheduler: taken, followed, taken up again after a restart, forgotten in time.

Nodes are told when nothing more is computed for an order: they free its caches, and keep what they signed.

Prompts, answers and rows are kept as long as somebody may have to be shown them, and no longer. Those of an answer are
kept until no court hears of it any more. Whoever judges it needs the rows of the segment before, and this scheduler
owes them: if it let them go earlier, it could be convicted of showing nothing. Those of an order without an answer are
kept for the lag, finality and inclusion. While a case or a summons goes on, and for the window after it, everything
stays.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from troth.cases.keeping import is_in_court, last_block
from troth.chain.errors import ChainError
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market import lottery
from troth.protocol.market.bodies import Submission
from troth.protocol.market.last_row import LastRow
from troth.protocol.market.signed import Work as PromisedWork
from troth.protocol.market.state import State
from troth.protocol.market.types import Parameters
from troth.protocol.request import from_canonical_bytes
from troth.protocol.types import Address, Hash32, unpack_ends
from troth.protocol.wire_market import Dismiss
from troth.scheduler.checks.lottery import reveal
from troth.scheduler.checks.opening import open_tiles
from troth.scheduler.checks.running import CheckRun
from troth.scheduler.errors import (
    Busy,
    ChainAway,
    EndsInFull,
    NotYet,
    OrderAborted,
    OrderRefused,
    TooLate,
    UnknownOrder,
)
from troth.scheduler.log.entries import LogBook
from troth.scheduler.orders.admission import admit
from troth.scheduler.orders.concluding import signed_before
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.drawing import draw, draw_again
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.running import OrderRun, fail
from troth.scheduler.orders.shown import replay, replay_forgotten
from troth.scheduler.orders.store import ANSWERED, FAILED, OrderStore
from troth.scheduler.orders.stream import Lines
from troth.scheduler.tabs.database import StorageFailed
from troth.scheduler.tabs.due import left_undecided, nothing_owed, results_fees
from troth.transport.errors import ChannelUnavailable, OverlayError
from troth.transport.logs import task_bound

log = logging.getLogger(__name__)

DISMISS_SECONDS = 5.0
FINALITY_BLOCKS = 96
"""Two epochs of Ethereum, in which a block becomes final, and one in which a call is included."""
ROWS_PIECE = 1 << 20
"""Bytes of rows in one answer."""
GREED = 8
"""How many times as many places as are free one tab may hold: alone it has eight ninths of all."""
KEPT_SHARE = 16
"""One place of so many is kept for tabs that hold none, and one at least from ``GREED`` places on: of fewer an idle
place is too much of what a scheduler earns."""
RETRY_AFTER = 5
"""Seconds after which a client that found all places taken may ask again: a short answer's time."""
CLIENT_SECONDS = 3.0
"""How long one that is to stop waits for a client's next secret; a check that was not begun waits for the restart."""
LOOK_SECONDS = 0.05


async def dismiss(context: SchedulerContext, order_id: Hash32, nodes: Iterable[Address]) -> None:
    """Tell each node once; who does not hear it frees its cache by itself, later."""
    await asyncio.gather(*[_tell(context, order_id, node) for node in dict.fromkeys(nodes)])


async def _tell(context: SchedulerContext, order_id: Hash32, node: Address) -> None:
    try:
        await context.peers.channel(node).request(Dismiss(order_id), b"", DISMISS_SECONDS)
    except (OverlayError, ProtocolError) as error:
        log.debug("%s was not told that an order is over: %s", node, error)


def is_owed_no_more(history: OrderHistory, state: State, block: int, parameters: Parameters) -> bool:
    """Whether nobody may ask for prompt, answer or rows of an order any more."""
    if block <= _last_word(history, parameters):
        return False
    return not any(
        is_in_court(state, history.order_id, segment, block, parameters) for segment in range(history.segments)
    )


def maybe_over(store: OrderStore, block: int, parameters: Parameters) -> list[Hash32]:
    """Orders old enough to be asked about; by what is indexed, since there may be millions that are not."""
    answered, failed = block - last_block(0, parameters), block - parameters.lag - FINALITY_BLOCKS
    return store.kept(ANSWERED, answered) + store.kept(FAILED, failed)


def _last_word(history: OrderHistory, parameters: Parameters) -> int:
    if history.answered is not None:
        return last_block(history.order.reference_block, parameters)
    admitted = history.admitted.admission.message.block_number
    ended = admitted if history.failed is None else max(admitted, history.failed.block)
    return ended + parameters.lag + FINALITY_BLOCKS


class RowsPiece(NamedTuple):
    """Some rows of a segment: how many there are, the salt of the order's heads, these as they travelled, and what the
    node signed of their imprints, if anything."""

    total: int
    head_salt: Hash32
    data: bytes
    imprints: bytes


def _undrawn() -> Lines:
    lines = Lines()
    lines.send("undrawn")
    lines.end()
    return lines


class Orders:
    """All orders of one scheduler; at most ``concurrent`` run at once, more are refused with Busy.

    One tab may hold ``GREED`` times as many places as are free, and the last ones go to tabs that hold none. So whoever
    orders again as soon as an answer ends leaves room for others, and a client that is alone has nearly all places. To
    hold all of them takes a tab for each of the last ones.
    """

    def __init__(self, context: SchedulerContext, book: LogBook, *, concurrent: int) -> None:
        self.context = context
        self.book = book
        self.draining = False
        self._concurrent = concurrent
        self._kept = max(1, concurrent // KEPT_SHARE) if concurrent >= GREED else 0
        """Places for tabs that hold none."""
        self._written = 0
        """Orders that were admitted and are being written."""
        self._held: Counter[Hash32] = Counter()
        """Places by tab."""
        self._runs: dict[Hash32, OrderRun] = {}
        self._checks: dict[Hash32, CheckRun] = {}
        self._locks: WeakValueDictionary[Hash32, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaited: dict[Hash32, float] = {}

    @property
    def running(self) -> int:
        """Orders without a draw yet."""
        return len(self._runs)

    def runs(self, order_id: Hash32) -> bool:
        """Whether this order is one of them: its own course draws it."""
        return order_id in self._runs

    # ---- orders

    async def submit(self, sent: Submission, preferred: Sequence[Address] = ()) -> Lines:
        """Take an order and start it; raises one of OrderRefused's kinds, with nothing kept.

        ``preferred``: nodes that should serve it if they are drawn, by the entry that passed it on.
        """
        if self.draining:
            raise Busy("This scheduler is being stopped", RETRY_AFTER)
        tab = sent.order.message.tab
        self._require_place(tab)
        try:
            session = await admit(self.context, sent, preferred, partial(self._entering, tab))
        except ChainError as error:
            raise ChainAway("This scheduler cannot reach the chain", error, "Try again later.") from error
        except StorageFailed as error:
            raise Busy("This scheduler's disk takes nothing now", RETRY_AFTER) from error
        run = self._runs[session.order_id] = OrderRun(self.context, self.book, session)
        self._held[tab] += 1
        self._start(session.order_id, self._serve(run, session.order_id, tab))
        return run.lines

    def _require_place(self, tab: Hash32) -> None:
        free = self._concurrent - len(self._runs) - self._written
        if free <= 0:
            raise Busy(f"All {self._concurrent} places are taken", RETRY_AFTER)
        if self._held[tab] >= GREED * free or (self._held[tab] and free <= self._kept):
            what = f"This tab has {self._held[tab]} of {self._concurrent} places, and the others are kept for others"
            raise Busy(what, RETRY_AFTER)

    @contextmanager
    def _entering(self, tab: Hash32) -> Iterator[None]:
        """A place while an order is written; raises Busy. Orders that come at once all found one before."""
        self._require_place(tab)
        self._written += 1
        self._held[tab] += 1
        try:
            yield
        finally:
            self._written -= 1
            self._leave(tab)

    def _leave(self, tab: Hash32) -> None:
        self._held[tab] -= 1
        if not self._held[tab]:
            del self._held[tab]

    async def _serve(self, run: OrderRun, order_id: Hash32, tab: Hash32) -> None:
        try:
            await run.run()
        finally:
            del self._runs[order_id]
            self._leave(tab)
        if self._has_failed(order_id):
            # Who has concluded has let its caches go with that.
            await dismiss(self.context, order_id, run.nodes)
        else:
            self._await_client(order_id)

    def _has_failed(self, order_id: Hash32) -> bool:
        history = self.context.store.get(order_id)
        return history is None or history.answered is None

    async def again(self, order_id: Hash32, salt: Hash32) -> Lines:
        """All lines of an order, for who has its salt; raises UnknownOrder, or TooLate.

        Once prompt, answer and salt are gone, whoever knows the order's id hears whether it failed, and nothing else.
        """
        history = self.context.store.get(order_id)
        if history is not None and history.salt is None:
            return replay_forgotten(history)
        history = self._owned(order_id, salt)
        running = self._runs.get(order_id)
        if running is not None:
            return running.lines
        if history.drawn is not None:
            async with self._lock(order_id):
                await draw_again(self.context, history)
        return replay(history)

    def end_early(self, order_id: Hash32, salt: Hash32) -> None:
        """Write no more of an answer, for who has its salt; nothing where it is whole, or has failed.

        Raises UnknownOrder, or EndsInFull where the request does not allow it.
        """
        history = self._owned(order_id, salt)
        running = self._runs.get(order_id)
        if running is None:
            return
        if history.request is None or not from_canonical_bytes(history.request).may_end_early:
            raise EndsInFull("This answer ends where the model ends it", None, "Follow its lines to the end.")
        running.end_early()

    async def last_row(self, order_id: Hash32, salt: Hash32) -> LastRow:
        """The last row of an answered order, for who has its salt; raises UnknownOrder, NotYet, TooLate.

        It is read from the disk, so that a restart changes nothing, and asking again gives the same.
        """
        history = self._owned(order_id, salt)
        if history.answered is None:
            raise NotYet("The order has no results", None, "Follow its lines to the results first.")
        offer = self.work_of(history).offer
        kept, last = self.context.rows.open(order_id, offer.sent_bytes), history.segments - 1
        try:
            row, previous = await asyncio.to_thread(kept.last, last, history.answered.rows, offer.row_bytes)
        except (OSError, EOFError, KeyError) as error:
            raise TooLate("The order's rows are kept no longer", None, "Order again.") from error
        return LastRow(row, previous, history.admitted.head_salt)

    async def rows(self, order_id: Hash32, salt: Hash32, segment: int, start: int) -> RowsPiece:
        """Rows that a segment gave, or their hashes where those travel, for who has the order's salt, once nobody is to
        compute them unseen any more.

        A verifier commits to its own rows before it sees a node's: until the check is over, no client may have them to
        pass on. Raises UnknownOrder, NotYet, TooLate.
        """
        history = self._owned(order_id, salt)
        if history.answered is None or order_id in self._checks or not self._is_judged(history):
            raise NotYet("Rows are shown once the order's check is over", None, "Show its first secret, and follow it.")
        total, size = history.answered.rows, self.work_of(history).offer.sent_bytes
        if segment >= history.segments or start >= total:
            raise UnknownOrder("The order has no such row", f"segment {segment}, row {start}", "Begin with the first.")
        kept, count = self.context.rows.open(order_id, size), min(total - start, max(ROWS_PIECE // size, 1))
        try:
            data = await asyncio.to_thread(kept.rows, segment, start, count)
            imprints = await asyncio.to_thread(kept.imprints, segment)
        except (OSError, EOFError) as error:
            raise TooLate("The order's rows are kept no longer", None, "They go with the time for checks.") from error
        return RowsPiece(total, history.admitted.head_salt, data, imprints)

    def _owned(self, order_id: Hash32, salt: Hash32) -> OrderHistory:
        history = self.context.store.get(order_id)
        if history is None or history.salt is None or not hmac.compare_digest(history.salt, salt):
            # One word for both: a stranger does not learn which orders there are.
            remedy = "Orders are kept as long as they can be checked, and shown to who has their salt."
            raise UnknownOrder("No such order is known here", "0x" + order_id.hex(), remedy)
        return history

    def _is_judged(self, history: OrderHistory) -> bool:
        """Whether nobody computes an order's rows unseen any more: undrawn, judged by all, or past any verdict."""
        if history.drawn is None or history.revealed is None:
            return False
        hit = lottery.is_drawn(history.order, history.revealed.secret, history.drawn.draw.message.beta)
        ledger = self.context.ledger
        return not hit or history.is_checked or ledger.block > history.drawn_first + 2 * ledger.parameters.lag

    # ---- checks

    async def show_secret(self, order_id: Hash32, secret: Hash32) -> Lines:
        """The client's first secret: the lines of its check, or that there is none."""
        history = self._history(order_id)
        async with self._lock(order_id):
            hit = await reveal(self.context, history, secret)
        lines = self.check(history).lines if hit else _undrawn()
        self._awaited.pop(order_id, None)
        return lines

    def check(self, history: OrderHistory) -> CheckRun:
        """The check of a drawn order, begun unless it is under way."""
        running = self._checks.get(history.order_id)
        if running is None:
            running = self._checks[history.order_id] = CheckRun(self.context, self.work_of(history))
            self._start(history.order_id, self._check(running, history.order_id))
        return running

    async def _check(self, running: CheckRun, order_id: Hash32) -> None:
        try:
            await running.run()
        finally:
            del self._checks[order_id]
            self._await_client(order_id)
        await dismiss(self.context, order_id, running.verifiers)

    async def show_second(self, order_id: Hash32, secret: Hash32) -> OrderHistory:
        """The client's second secret; everybody that opened is in the history."""
        history = self._history(order_id)
        if history.revealed is None or order_id in self._checks:
            raise NotYet("The check has not ended", None, "Follow the lines of the first secret to their end.")
        async with self._lock(order_id):
            await open_tiles(self.context, self.work_of(history), secret)
        self._awaited.pop(order_id, None)
        return history

    def _lock(self, order_id: Hash32) -> asyncio.Lock:
        """What its client asks of one order is done one after the other: each step is written once."""
        lock = self._locks.get(order_id)
        if lock is None:
            lock = self._locks[order_id] = asyncio.Lock()
        return lock

    def work_of(self, history: OrderHistory) -> OrderSession:
        """An order to be worked on again; raises TooLate once prompt and answer are gone."""
        if history.request is None or history.salt is None:
            raise TooLate("Prompt and answer are kept no longer", None, "Checks end with the time for them.")
        ends = unpack_ends(history.order.ends)
        offer = self.context.offers.offer(history.order.execution_class, self.context.ledger.state, ends)
        return OrderSession(history, from_canonical_bytes(history.request), history.salt, offer, NO_LOGPROBS)

    def _history(self, order_id: Hash32) -> OrderHistory:
        history = self.context.store.get(order_id)
        if history is None:
            raise UnknownOrder("No such order was taken here", "0x" + order_id.hex(), "Ask the order's own scheduler.")
        return history

    # ---- from start to stop

    async def resume(self) -> int:
        """Take up what a crash or a full disk cut off; how many orders.

        With results and without a draw, an order gets its draw; without results it is failed, and nothing is owed.
        One that cannot be taken up now keeps no other waiting: the next call tries it again.
        """
        taken_up = 0
        for history in self.context.store.running():
            if history.order_id not in self._runs:
                taken_up += await self._take_up(history)
        await self._decide_failed()
        return taken_up

    async def _take_up(self, history: OrderHistory) -> bool:
        with task_bound(history.order_id):
            try:
                if history.answered is not None:
                    log.info("drawing over results that were stored before the restart")
                    await draw(self.context, self.book, history)
                else:
                    error = OrderAborted("The scheduler was interrupted while the order ran")
                    await fail(self.context, history, error.code, error.what, history.segments)
            except (StorageFailed, ProtocolError) as error:
                log.error("an order that was cut off cannot be taken up now: %s", error)
                return False
        return True

    async def _decide_failed(self) -> None:
        """Nodes of orders that a crash cut off are owed for what they had signed, and nothing else."""
        node_tabs, left = self.context.node_tabs, list[Coroutine[None, None, None]]()
        for order_id in node_tabs.undecided(PromisedWork.INFERENCE):
            history = None if order_id in self._runs else self.context.store.get(order_id)
            if history is not None and history.failed is not None:
                left += [self._decide(history, segment) for segment in left_undecided(node_tabs, history)]
        await asyncio.gather(*left)

    async def _decide(self, history: OrderHistory, segment: int) -> None:
        """What one node is owed; one that is away is asked again for as long as answers wait for their payment."""
        context, lag = self.context, self.context.ledger.parameters.lag
        assert history.failed is not None
        try:
            signed = await signed_before(context, history, segment)
        except (ChannelUnavailable, TimeoutError):
            if context.ledger.block <= history.failed.block + lag:
                return
            signed = None
        if signed is None:
            await context.database.commit(*nothing_owed(context.node_tabs, history, [segment]))
        else:
            await context.database.commit(
                *results_fees(context.node_tabs, history, [signed], context.ledger.block + lag)
            )

    async def ask_again(self) -> None:
        """Verifiers that committed and did not speak are asked again while it may matter: one that has signed and was
        killed before its answer came is owed for it, and says the same. So are those whose ballot the log lacks."""
        ledger, lag = self.context.ledger, self.context.ledger.parameters.lag
        for order_id in self.context.node_tabs.undecided(PromisedWork.CHECK):
            history = self.context.store.get(order_id)
            if history is None or history.request is None or ledger.block > history.drawn_first + 2 * lag:
                continue
            if any(
                (segment, one) in history.commitments
                for segment in history.checks
                for one in history.undecided(segment)
            ):
                self.check(history)
        for history in self.book.lacking_ballots():
            if history.request is not None and ledger.block <= history.drawn_first + 2 * lag:
                self.check(history)

    async def forget_old(self) -> None:
        """Remove prompts, answers and rows that nobody may ask for any more."""
        ledger, forgotten = self.context.ledger, 0
        for order_id in maybe_over(self.context.store, ledger.block, ledger.parameters):
            history = None if order_id in self._runs or order_id in self._checks else self.context.store.get(order_id)
            if history is not None and is_owed_no_more(history, ledger.state, ledger.block, ledger.parameters):
                self.context.rows.forget(order_id)
                await self.context.store.forget(history)
                forgotten += 1
        if forgotten:
            await asyncio.to_thread(self.context.database.truncate)

    async def drain(self) -> None:
        """Take no more orders and wait for what is under way, and a moment for what their clients ask next."""
        self.draining = True
        while self._tasks or self._is_awaited():
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _await_client(self, order_id: Hash32) -> None:
        """From its draw, and from the end of its check, an order's client needs a moment to show its next secret."""
        now = time.monotonic()
        self._awaited = {one: until for one, until in self._awaited.items() if until > now}
        self._awaited[order_id] = now + CLIENT_SECONDS

    def _is_awaited(self) -> bool:
        now = time.monotonic()
        return any(until > now for until in self._awaited.values())

    async def abandon(self) -> None:
        """Drop what is under way where it stands; the journal has what the next start needs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, order_id: Hash32, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(self._guarded(order_id, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, order_id: Hash32, work: Coroutine[None, None, None]) -> None:
        with task_bound(order_id):
            try:
                await work
            except (ProtocolError, OrderRefused, StorageFailed, ChainError) as error:
                # What was journalled stands; the next call, or the next start, goes on from there.
                log.error("the order was left where it stands: %s", error)
            except Exception:
                log.exception("the order was left where it stands")
