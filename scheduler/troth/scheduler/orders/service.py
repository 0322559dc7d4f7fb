"""The orders of one scheduler: taken, followed, taken up again after a restart, forgotten in time.

Telling nodes that nothing more is computed for an order: their caches are free, what they signed stays with them.

How long prompts, answers and rows are kept: as long as somebody may have to be shown them, and no longer.

Of an answer: until no court hears of it any more, since whoever judges it needs the rows of the segment before, and
this scheduler owes them; who lets them go earlier could be convicted of showing nothing. Of an order without an answer:
for the lag, finality and inclusion. While a case or a summons goes on, and for the window after it, everything stays.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from troth.cases.keeping import is_in_court, last_block
from troth.chain.errors import ChainError
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market import lottery
from troth.protocol.market.bodies import Submission
from troth.protocol.market.last_row import LastRow
from troth.protocol.market.state import State
from troth.protocol.market.types import Parameters
from troth.protocol.market.types import Work as PromisedWork
from troth.protocol.request import from_canonical_bytes
from troth.protocol.types import Address, Hash32, unpack_ends
from troth.protocol.wire_market import Dismiss
from troth.scheduler.checks.lottery import reveal
from troth.scheduler.checks.opening import open_tiles
from troth.scheduler.checks.running import CheckRun
from troth.scheduler.errors import Busy, ChainAway, NotYet, OrderAborted, OrderRefused, TooLate, UnknownOrder
from troth.scheduler.log.entries import LogBook
from troth.scheduler.orders.admission import admit
from troth.scheduler.orders.concluding import signed_before
from troth.scheduler.orders.desk import OrderSession, SchedulerContext
from troth.scheduler.orders.drawing import draw, draw_again
from troth.scheduler.orders.running import OrderRun, fail
from troth.scheduler.orders.shown import replay, replay_forgotten
from troth.scheduler.orders.store import ANSWERED, FAILED, OrderStore
from troth.scheduler.orders.story import OrderHistory
from troth.scheduler.orders.stream import Lines
from troth.scheduler.tabs.database import StorageFailed
from troth.scheduler.tabs.due import left_undecided, nothing_owed, results_fees
from troth.transport.errors import ChannelUnavailable, OverlayError
from troth.transport.logs import task_bound

log = logging.getLogger(__name__)

DISMISS_SECONDS = 5.0


async def dismiss(desk: SchedulerContext, order_id: Hash32, nodes: Iterable[Address]) -> None:
    """Tell each node once; who does not hear it frees its cache by itself, later."""
    await asyncio.gather(*[_tell(desk, order_id, node) for node in dict.fromkeys(nodes)])


async def _tell(desk: SchedulerContext, order_id: Hash32, node: Address) -> None:
    try:
        await desk.peers.channel(node).request(Dismiss(order_id), b"", DISMISS_SECONDS)
    except (OverlayError, ProtocolError) as error:
        log.debug("%s was not told that an order is over: %s", node, error)


FINALITY_BLOCKS = 96
"""Two epochs of Ethereum, in which a block becomes final, and one in which a call is included."""


def is_owed_no_more(story: OrderHistory, state: State, block: int, parameters: Parameters) -> bool:
    """Whether nobody may ask for prompt, answer or rows of an order any more."""
    if block <= _last_word(story, parameters):
        return False
    return not any(is_in_court(state, story.order_id, segment, block, parameters) for segment in range(story.segments))


def maybe_over(store: OrderStore, block: int, parameters: Parameters) -> list[Hash32]:
    """Orders old enough to be asked about; by what is indexed, since there may be millions that are not."""
    answered, failed = block - last_block(0, parameters), block - parameters.lag - FINALITY_BLOCKS
    return store.kept(ANSWERED, answered) + store.kept(FAILED, failed)


def _last_word(story: OrderHistory, parameters: Parameters) -> int:
    if story.answered is not None:
        return last_block(story.order.reference_block, parameters)
    admitted = story.admitted.admission.message.block_number
    ended = admitted if story.failed is None else max(admitted, story.failed.block)
    return ended + parameters.lag + FINALITY_BLOCKS


ROWS_PIECE = 1 << 20
"""Bytes of rows in one answer."""


class RowsPiece(NamedTuple):
    """Some rows of a segment: how many there are, the salt of the order's heads, and these as they travelled."""

    total: int
    head_salt: Hash32
    data: bytes


RETRY_AFTER = 5
"""Seconds after which a client that found all places taken may ask again: a short answer's time."""


class Orders:
    """All orders of one scheduler; at most ``concurrent`` run at once, more are refused with Busy."""

    def __init__(self, desk: SchedulerContext, book: LogBook, *, concurrent: int) -> None:
        self.desk = desk
        self.book = book
        self.draining = False
        self._concurrent = concurrent
        self._runs: dict[Hash32, OrderRun] = {}
        self._checks: dict[Hash32, CheckRun] = {}
        self._locks: WeakValueDictionary[Hash32, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

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
        if len(self._runs) >= self._concurrent:
            raise Busy(f"All {self._concurrent} places are taken", RETRY_AFTER)
        try:
            work = await admit(self.desk, sent, preferred)
        except ChainError as error:
            raise ChainAway("This scheduler cannot reach the chain", error, "Try again later.") from error
        except StorageFailed as error:
            raise Busy("This scheduler's disk takes nothing now", RETRY_AFTER) from error
        run = self._runs[work.order_id] = OrderRun(self.desk, self.book, work)
        self._start(work.order_id, self._serve(run, work.order_id))
        return run.lines

    async def _serve(self, run: OrderRun, order_id: Hash32) -> None:
        try:
            await run.run()
        finally:
            del self._runs[order_id]
        if self._has_failed(order_id):
            # Who has concluded has let its caches go with that.
            await dismiss(self.desk, order_id, run.nodes)

    def _has_failed(self, order_id: Hash32) -> bool:
        story = self.desk.store.get(order_id)
        return story is None or story.answered is None

    async def again(self, order_id: Hash32, salt: Hash32) -> Lines:
        """All lines of an order, for who has its salt; raises UnknownOrder, or TooLate.

        Once prompt, answer and salt are gone, whoever knows the order's id hears whether it failed, and nothing else.
        """
        story = self.desk.store.get(order_id)
        if story is not None and story.salt is None:
            return replay_forgotten(story)
        story = self._owned(order_id, salt)
        running = self._runs.get(order_id)
        if running is not None:
            return running.lines
        if story.drawn is not None:
            async with self._lock(order_id):
                await draw_again(self.desk, story)
        return replay(story)

    async def last_row(self, order_id: Hash32, salt: Hash32) -> LastRow:
        """The last row of an answered order, for who has its salt; raises UnknownOrder, NotYet, TooLate.

        It is read from the disk, so that a restart changes nothing, and asking again gives the same.
        """
        story = self._owned(order_id, salt)
        if story.answered is None:
            raise NotYet("The order has no results", None, "Follow its lines to the results first.")
        offer = self.work_of(story).offer
        kept, last = self.desk.rows.open(order_id, offer.sent_bytes), story.segments - 1
        try:
            row, previous = await asyncio.to_thread(kept.last, last, story.answered.rows, offer.row_bytes)
        except (OSError, EOFError, KeyError) as error:
            raise TooLate("The order's rows are kept no longer", None, "Order again.") from error
        return LastRow(row, previous, story.admitted.head_salt)

    async def rows(self, order_id: Hash32, salt: Hash32, segment: int, start: int) -> RowsPiece:
        """Rows that a segment gave, or their hashes where those travel, for who has the order's salt, once nobody is to
        compute them unseen any more.

        A verifier commits to its own rows before it sees a node's: until the check is over, no client may have them to
        pass on. Raises UnknownOrder, NotYet, TooLate.
        """
        story = self._owned(order_id, salt)
        if story.answered is None or order_id in self._checks or not self._is_judged(story):
            raise NotYet("Rows are shown once the order's check is over", None, "Show its first secret, and follow it.")
        total, size = story.answered.rows, self.work_of(story).offer.sent_bytes
        if segment >= story.segments or start >= total:
            raise UnknownOrder("The order has no such row", f"segment {segment}, row {start}", "Begin with the first.")
        kept, count = self.desk.rows.open(order_id, size), min(total - start, max(ROWS_PIECE // size, 1))
        try:
            data = await asyncio.to_thread(kept.rows, segment, start, count)
        except (OSError, EOFError) as error:
            raise TooLate("The order's rows are kept no longer", None, "They go with the time for checks.") from error
        return RowsPiece(total, story.admitted.head_salt, data)

    def _owned(self, order_id: Hash32, salt: Hash32) -> OrderHistory:
        story = self.desk.store.get(order_id)
        if story is None or story.salt is None or not hmac.compare_digest(story.salt, salt):
            raise UnknownOrder("No such order is known here", "0x" + order_id.hex(), "Send the order's own salt.")
        return story

    def _is_judged(self, story: OrderHistory) -> bool:
        """Whether nobody computes an order's rows unseen any more: undrawn, judged by all, or past any verdict."""
        if story.drawn is None or story.revealed is None:
            return False
        hit = lottery.is_drawn(story.order, story.revealed.secret, story.drawn.draw.message.beta)
        ledger = self.desk.ledger
        return not hit or story.is_checked or ledger.block > story.drawn_first + 2 * ledger.parameters.lag

    # ---- checks

    async def show_secret(self, order_id: Hash32, secret: Hash32) -> Lines:
        """The client's first secret: the lines of its check, or that there is none."""
        story = self._story(order_id)
        async with self._lock(order_id):
            hit = await reveal(self.desk, story, secret)
        if not hit:
            lines = Lines()
            lines.send("undrawn")
            lines.end()
            return lines
        return self.check(story).lines

    def check(self, story: OrderHistory) -> CheckRun:
        """The check of a drawn order, begun unless it is under way."""
        running = self._checks.get(story.order_id)
        if running is None:
            running = self._checks[story.order_id] = CheckRun(self.desk, self.work_of(story))
            self._start(story.order_id, self._check(running, story.order_id))
        return running

    async def _check(self, running: CheckRun, order_id: Hash32) -> None:
        try:
            await running.run()
        finally:
            del self._checks[order_id]
        await dismiss(self.desk, order_id, running.verifiers)

    async def show_second(self, order_id: Hash32, secret: Hash32) -> OrderHistory:
        """The client's second secret; everybody that opened is in the story."""
        story = self._story(order_id)
        if story.revealed is None or order_id in self._checks:
            raise NotYet("The check has not ended", None, "Follow the lines of the first secret to their end.")
        async with self._lock(order_id):
            await open_tiles(self.desk, self.work_of(story), secret)
        return story

    def _lock(self, order_id: Hash32) -> asyncio.Lock:
        """What its client asks of one order is done one after the other: each step is written once."""
        lock = self._locks.get(order_id)
        if lock is None:
            lock = self._locks[order_id] = asyncio.Lock()
        return lock

    def work_of(self, story: OrderHistory) -> OrderSession:
        """An order to be worked on again; raises TooLate once prompt and answer are gone."""
        if story.request is None or story.salt is None:
            raise TooLate("Prompt and answer are kept no longer", None, "Checks end with the time for them.")
        ends = unpack_ends(story.order.ends)
        offer = self.desk.offers.offer(story.order.execution_class, self.desk.ledger.state, ends)
        return OrderSession(story, from_canonical_bytes(story.request), story.salt, offer, NO_LOGPROBS)

    def _story(self, order_id: Hash32) -> OrderHistory:
        story = self.desk.store.get(order_id)
        if story is None:
            raise UnknownOrder("No such order was taken here", "0x" + order_id.hex(), "Ask the order's own scheduler.")
        return story

    # ---- from start to stop

    async def resume(self) -> int:
        """Take up what a crash or a full disk cut off; how many orders.

        With results and without a draw, an order gets its draw; without results it is failed, and nothing is owed.
        One that cannot be taken up now keeps no other waiting: the next call tries it again.
        """
        taken_up = 0
        for story in self.desk.store.running():
            if story.order_id not in self._runs:
                taken_up += await self._take_up(story)
        await self._decide_failed()
        return taken_up

    async def _take_up(self, story: OrderHistory) -> bool:
        with task_bound(story.order_id):
            try:
                if story.answered is not None:
                    log.info("drawing over results that were stored before the restart")
                    await draw(self.desk, self.book, story)
                else:
                    error = OrderAborted("The scheduler was interrupted while the order ran")
                    await fail(self.desk, story, error.code, error.what, story.segments)
            except (StorageFailed, ProtocolError) as error:
                log.error("an order that was cut off cannot be taken up now: %s", error)
                return False
        return True

    async def _decide_failed(self) -> None:
        """Nodes of orders that a crash cut off are owed for what they had signed, and nothing else."""
        node_tabs, left = self.desk.node_tabs, list[Coroutine[None, None, None]]()
        for order_id in node_tabs.undecided(PromisedWork.INFERENCE):
            story = None if order_id in self._runs else self.desk.store.get(order_id)
            if story is not None and story.failed is not None:
                left += [self._decide(story, segment) for segment in left_undecided(node_tabs, story)]
        await asyncio.gather(*left)

    async def _decide(self, story: OrderHistory, segment: int) -> None:
        """What one node is owed; one that is away is asked again for as long as answers wait for their payment."""
        desk, lag = self.desk, self.desk.ledger.parameters.lag
        assert story.failed is not None
        try:
            signed = await signed_before(desk, story, segment)
        except (ChannelUnavailable, TimeoutError):
            if desk.ledger.block <= story.failed.block + lag:
                return
            signed = None
        if signed is None:
            await desk.database.commit(*nothing_owed(desk.node_tabs, story, [segment]))
        else:
            await desk.database.commit(*results_fees(desk.node_tabs, story, [signed], desk.ledger.block + lag))

    async def ask_again(self) -> None:
        """Verifiers that committed and did not speak are asked again while it may matter: one that has signed and was
        killed before its answer came is owed for it, and says the same."""
        ledger, lag = self.desk.ledger, self.desk.ledger.parameters.lag
        for order_id in self.desk.node_tabs.undecided(PromisedWork.CHECK):
            story = self.desk.store.get(order_id)
            if story is None or story.request is None or ledger.block > story.drawn_first + 2 * lag:
                continue
            if any((segment, one) in story.commitments for segment in story.checks for one in story.undecided(segment)):
                self.check(story)

    async def forget_old(self) -> None:
        """Remove prompts, answers and rows that nobody may ask for any more."""
        ledger, forgotten = self.desk.ledger, 0
        for order_id in maybe_over(self.desk.store, ledger.block, ledger.parameters):
            story = None if order_id in self._runs or order_id in self._checks else self.desk.store.get(order_id)
            if story is not None and is_owed_no_more(story, ledger.state, ledger.block, ledger.parameters):
                self.desk.rows.forget(order_id)
                await self.desk.store.forget(story)
                forgotten += 1
        if forgotten:
            await asyncio.to_thread(self.desk.database.truncate)

    async def drain(self) -> None:
        """Take no more orders and wait for what is under way."""
        self.draining = True
        while self._tasks:
            await asyncio.wait(self._tasks)

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
