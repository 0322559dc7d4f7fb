"""Routes a scheduler's messages about orders to their handlers, and keeps the sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable

from troth.node.earning.leaf import Leaf
from troth.node.errors import AlreadySigned, BadInput, EngineError, NodeBusy, NotAssigned, OutOfOrder, PeerRefusal
from troth.node.judging.texts import rules_of
from troth.node.orders.advancing import advance
from troth.node.orders.checking import judge, recommit, verdict_answer
from troth.node.orders.concluding import conclude
from troth.node.orders.context import NodeContext
from troth.node.orders.gathering import Caller, Found, TextsAnswer
from troth.node.orders.informed import post_of, told
from troth.node.orders.metrics import NodeMetrics
from troth.node.orders.polling import poll
from troth.node.orders.reading import worth_so_far
from troth.node.orders.reminding import reminded
from troth.node.orders.seat import Assignment, Post, check_seat, infer_seat
from troth.node.orders.session import CHECKS, SegmentSession
from troth.node.orders.unveiling import unveil
from troth.node.orders.words import COMMITMENT, IMPRINTS, RESULT, VERDICT, BegunSegment
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import PAPERS_LIMIT, CheckPapers, InferencePapers
from troth.protocol.market.signed import Work
from troth.protocol.market.types import Voucher
from troth.protocol.rings import public_key
from troth.protocol.tokens import Finish
from troth.protocol.types import Address, Segment
from troth.protocol.wire import Decoded, OrderReply, OrderRequest, Released
from troth.protocol.wire_decoding import WantedText, WrittenPart, decode_wanted, encode_parts, size_of
from troth.protocol.wire_market import (
    Advance,
    Conclude,
    Concluded,
    Dismiss,
    Hidden,
    Inform,
    Introduce,
    Introduced,
    Judge,
    Judged,
    Noted,
    Poll,
    Proceed,
    Recommit,
    Redeemable,
    Remind,
    Unveil,
)
from troth.transport.event_loop import beside
from troth.transport.logs import task_bound

QUIET_SECONDS = 5.0
"""A session that is asked nothing for so long no longer keeps a node from being stopped."""
LOOK_SECONDS = 0.1
PATIENCE = 5.0
"""Seconds to wait for a block that the scheduler has seen and this node has not."""
VOUCHER_LIMIT = 4_096

Name = tuple[bytes, int, str]
Answer = tuple[OrderReply, bytes]
Papers = InferencePapers | CheckPapers


class OrderService:
    """The handler that the channel server calls; see ``wire_market`` for what each message means."""

    def __init__(self, context: NodeContext, metrics: NodeMetrics) -> None:
        self._context = context
        self._metrics = metrics
        self._sessions: dict[Name, SegmentSession] = {}
        self._beginning: dict[Name, asyncio.Event] = {}
        self._promised = 0
        """Places of sessions that were checked and are being recorded."""
        self._callers: dict[Address, Caller] = {}
        self._leaving = False
        metrics.follow_sessions(lambda: len(self._sessions), lambda: context.engine.cache_bytes)
        self.answered: Callable[[float], None] = lambda _seconds: None
        """Told the seconds from an order's first message to its last token, of every answer given here."""
        self.began: Callable[[SegmentSession], None] = lambda _session: None
        """Told each session before its first position."""

    async def start(self) -> None:
        """After a restart nothing runs any more: what broke off is owed nothing."""
        await self._context.write(self._context.stores.books.end_running)

    @property
    def sessions(self) -> int:
        """Sessions held now."""
        return len(self._sessions)

    @property
    def leaving(self) -> bool:
        """Whether no session is begun any more."""
        return self._leaving

    @property
    def segments(self) -> frozenset[Segment]:
        """The layers that sessions are about."""
        return frozenset(session.seat.layers for session in self._sessions.values())

    async def end(self, segments: Collection[Segment]) -> None:
        """Drop the sessions about these layers."""
        for name in [name for name, session in self._sessions.items() if session.seat.layers in segments]:
            await self._drop(name, own_choice=True)

    async def leave(self) -> None:
        """Begin no session any more, and wait until those that are there have ended or are asked nothing any more."""
        self._leaving = True
        while True:
            now = self._context.clock()
            if all(now - session.touched >= QUIET_SECONDS for session in self._sessions.values()):
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def handle(self, sender: Address, header: OrderRequest, payload: memoryview) -> Answer:
        """Answer one message; raises a Refusal or a ProtocolError, which the channel turns into a Failure."""
        started, outcome = time.perf_counter(), "refused"
        subject = b"" if isinstance(header, Redeemable | Remind | Proceed | Introduce) else header.order
        with task_bound(subject):
            try:
                answer = await self._route(sender, header, payload)
                outcome = "answered"
                return answer
            finally:
                self._metrics.observe(type(header).__name__, outcome, time.perf_counter() - started)

    async def _route(self, sender: Address, header: OrderRequest, payload: memoryview) -> Answer:
        match header:
            case Advance():
                return await self._advance(sender, header, payload)
            case Proceed():
                return await self._proceed(sender, header, payload)
            case Conclude():
                return await self._conclude(sender, header, payload)
            case Recommit():
                return await self._recommit(sender, header, payload)
            case Judge():
                return await self._judge(sender, header, payload)
            case Poll():
                return await poll(self._context, sender, header, payload)
            case Unveil():
                return await unveil(self._context, self._post(sender), header, payload)
            case Inform():
                return await told(self._context, self._post(sender), header, payload)
            case Redeemable():
                return await self._hear(sender, payload)
            case Remind():
                return await reminded(self._context, sender, header)
            case Dismiss():
                return await self._dismiss(sender, header)
            case Introduce():
                return Introduced(), public_key(self._context.operator.secret)

    # ------------------------------------------------------------------------------------------------------ inference

    async def _advance(self, sender: Address, header: Advance, payload: memoryview) -> Answer:
        papers, request, rest = _split(header, payload)
        name = (header.order, header.segment, header.role)
        if name not in self._sessions:
            await self._begin_once(sender, header, papers, request)
        session = self._find(sender, name)
        async with session.lock:
            answer = await advance(self._context, session, header, rest)
        role = "inferencer" if session.seat.infers else "verifier"
        self._metrics.positions.labels(role=role).inc(header.count)
        self._note_answered(session, getattr(answer[0], "finished", None))
        return answer

    async def _proceed(self, sender: Address, header: Proceed, payload: memoryview) -> Answer:
        texts = [(wanted, self._decoded(sender, wanted)) for wanted in decode_wanted(payload, header.texts)]
        caller = self._callers.setdefault(sender, Caller())
        parts = await TextsAnswer(self._context, caller, header.most).answer(texts)
        sessions = {wanted.order: found for wanted, found in texts}
        for part in parts:
            session = sessions[part.order]
            if isinstance(part, WrittenPart) and isinstance(session, SegmentSession):
                self._metrics.positions.labels(role="inferencer").inc(len(part.tokens))
                self._note_answered(session, part.finished)
        return Decoded(len(parts)), await beside(size_of(parts), encode_parts, parts)

    def _decoded(self, sender: Address, wanted: WantedText) -> Found:
        try:
            return self._find(sender, (wanted.order, 0, "infer"))
        except PeerRefusal as error:
            return error

    def _note_answered(self, session: SegmentSession, finished: Finish | None) -> None:
        if finished is not None and not session.counted:
            session.counted = True
            self.answered(self._context.clock() - session.began)

    async def _conclude(self, sender: Address, header: Conclude, payload: memoryview) -> Answer:
        name = (header.order, header.segment, "infer")
        if name not in self._sessions:
            known = await self._known(sender, name, RESULT)
            if known is not None:
                return await self._concluded_before(header), known
        session = self._find(sender, name)
        await session.end()
        async with session.lock:
            # It has a trace where another question concluded it meanwhile, or the disk took no result before.
            known = await self._known(sender, name, RESULT) if session.trace is not None else None
            if known is not None:
                return await self._concluded_before(header), known
            session.require_alive()
            try:
                answer = await conclude(self._context, session, header, payload)
            except (PeerRefusal, ProtocolError):
                # Its scheduler's: a wrong question must not free it.
                raise
            except Exception:
                session.own_fault = True
                raise
        await self._drop(name)
        return answer

    async def _concluded_before(self, header: Conclude) -> Concluded:
        """What goes beside a result that was signed before; the last row is forgotten."""
        words = self._context.stores.words
        kept = await self._context.write(lambda: words.find(header.order, header.segment, IMPRINTS))
        return Concluded(imprints=kept or b"")

    # --------------------------------------------------------------------------------------------------------- checks

    async def _recommit(self, sender: Address, header: Recommit, payload: memoryview) -> Answer:
        name = (header.order, header.segment, "check")
        if name not in self._sessions:
            known = await self._known(sender, name, COMMITMENT)
            if known is not None:
                return Hidden(), known
        session = self._find(sender, name)
        async with session.lock:
            session.require_open()
            return await recommit(self._context, session, header, payload)

    async def _judge(self, sender: Address, header: Judge, payload: memoryview) -> Answer:
        name = (header.order, header.segment, "check")
        known = await self._known(sender, name, VERDICT)
        if known is not None:
            return await self._told(header, known)
        session = self._find(sender, name)
        async with session.lock:
            known = await self._known(sender, name, VERDICT)
            if known is not None:
                return await self._told(header, known)
            session.require_open()
            answer = await judge(self._context, session, header, payload)
        if isinstance(answer[0], Judged):
            await self._drop(name)
        return answer

    async def _told(self, header: Judge, word: bytes) -> Answer:
        return await self._context.write(lambda: verdict_answer(self._context, header.order, header.segment, word))

    async def _known(self, sender: Address, name: Name, kind: str) -> bytes | None:
        """What was signed before, for the scheduler that it was signed for."""
        order, segment, role = name
        words = self._context.stores.words
        begun, found = await self._context.write(
            lambda: (words.begun(order, segment, role), words.find(order, segment, kind))
        )
        if begun is None:
            return None
        if begun.scheduler != sender:
            raise NotAssigned("this is another scheduler's order", sender, "Send your own orders.")
        return found

    # ----------------------------------------------------------------------------------------------------- beginnings

    async def _begin_once(self, sender: Address, header: Advance, papers: memoryview, request: memoryview) -> None:
        """Begin a session unless it is there; messages about one session begin it one after the other."""
        name = (header.order, header.segment, header.role)
        if not papers:
            await self._refuse_unknown(sender, name)
        while (begun := self._beginning.get(name)) is not None:
            await begun.wait()
        if name in self._sessions:
            return
        self._beginning[name] = over = asyncio.Event()
        try:
            session = self._sessions[name] = await self._begin(sender, header, papers, request)
            self.began(session)
        finally:
            del self._beginning[name]
            over.set()

    async def _refuse_unknown(self, sender: Address, name: Name) -> None:
        """Say why a session is not there: never shown, or broken off."""
        order, segment, role = name
        begun = await self._context.write(lambda: self._context.stores.words.begun(order, segment, role))
        if begun is not None and begun.scheduler == sender and role == "infer":
            what = "this segment was begun here and is over; two chains of rows would convict this node"
            raise AlreadySigned(what, segment, "Ask for its result with Conclude; if there is none, order again.")
        raise OutOfOrder("this order was not shown here", segment, "Send its papers with the first message.")

    async def _begin(self, sender: Address, header: Advance, papers: memoryview, request: memoryview) -> SegmentSession:
        context = self._context
        if self._leaving:
            raise NodeBusy("this node is being stopped", None, "Choose another node.")
        await self._make_room()
        kind: type[Papers] = InferencePapers if header.role == "infer" else CheckPapers
        shown: Papers = canonical.decode(kind, papers, PAPERS_LIMIT)
        await self._wait_for_blocks(shown)
        seat = await asyncio.to_thread(_seat_of, shown, header.segment, bytes(request), self._post(sender))
        if seat.order_id != header.order:
            raise NotAssigned("the papers are of another order", seat.order_id, "Send the order's own papers.")
        # Drawn for a slice that it has changed to a moment ago: the chain is faster than a disk.
        if not context.engine.holds(seat.layers):
            raise NodeBusy("these layers are not loaded here yet", seat.layers, "Retry in a moment, or choose another.")
        rules = None
        if seat.is_last and seat.request.transforms.any:
            # A grammar that does not compile is refused before anything is computed, by verifiers as well.
            rules = await asyncio.to_thread(lambda: rules_of(context.engine, seat.request))
        # Messages that come at once all found room above: this one counts those that are recorded meanwhile.
        self._require_place()
        self._promised += 1
        try:
            await self._record(seat, shown, papers)
            session = SegmentSession.begin(seat, context.clock())
            session.text.rules = rules if seat.infers else None
            if not seat.infers:
                find = context.stores.traces.find
                session.trace = await context.write(lambda: find(seat.order_id, seat.index, CHECKS))
        finally:
            self._promised -= 1
        return session

    async def _wait_for_blocks(self, papers: Papers) -> None:
        ground = self._context.ground
        wanted = max(papers.order.message.reference_block + 1, papers.admission.message.block_number)
        if isinstance(papers, CheckPapers):
            wanted = max(wanted, papers.draw.message.block_number)
        if not await ground.until(lambda: ground.block >= wanted, PATIENCE):
            raise NotAssigned("this node has not seen the order's block", wanted, "Retry, or check its chain node.")

    async def _record(self, seat: Assignment, papers: Papers, sent: memoryview) -> None:
        """The promise and the beginning on disk, before anything is computed."""
        context, stores = self._context, self._context.stores
        pay, ledger = papers.pay, context.ledger()
        assert pay is not None  # seats are given to who is paid
        subject = context.me if seat.infers else seat.nodes[seat.index]
        kept = seat.head_salt if seat.infers else bytes(sent)
        begun = BegunSegment(seat.order_id, seat.index, seat.role, seat.scheduler, seat.order.reference_block, kept)

        def record() -> tuple[Leaf, ...]:
            with stores.database.transaction():
                stores.words.begin(begun)
                return stores.books.take_on(pay, subject, ledger, limit=context.limits.unpaid, now=context.clock())

        await self._end_unpaid(await context.write(record))

    async def _make_room(self) -> None:
        context, now, limits = self._context, self._context.clock(), self._context.limits
        idle = [name for name, one in self._sessions.items() if now - one.touched > limits.idle_seconds]
        for name in idle:
            await self._drop(name)
        self._require_place()
        if context.stores.traces.kept > limits.trace_bytes:
            kept = context.stores.traces.kept
            raise NodeBusy("the disk is full of traces that may be asked for", kept, "Choose another node.")

    def _require_place(self) -> None:
        taken = len(self._sessions) + self._promised
        if taken >= self._context.limits.works:
            raise NodeBusy("this node has no session left", taken, "Retry later or choose another node.")

    # ------------------------------------------------------------------------------------------------------- vouchers

    async def _hear(self, sender: Address, payload: memoryview) -> Answer:
        context = self._context
        signed = canonical.decode(Signed[Voucher], payload, VOUCHER_LIMIT)
        record = context.ground.state.tabs.get(signed.message.tab)
        if record is None or record.tab.payer != sender:
            raise NotAssigned("this is no tab of yours with this node", signed.message.tab, "Open one on chain.")
        ledger = context.ledger()
        await self._end_unpaid(await context.write(lambda: context.stores.books.hear(record.tab, signed, ledger)))
        return Noted(), b""

    async def _end_unpaid(self, leaves: Iterable[Leaf]) -> None:
        """Work whose payer says that nothing is owed for it goes on no longer."""
        for leaf in leaves:
            name = (leaf.order, leaf.segment, "infer" if leaf.work is Work.INFERENCE else "check")
            session = self._sessions.get(name)
            if session is not None:
                session.closed = "the scheduler has acknowledged this work as ended"
                await self._drop(name)

    # ----------------------------------------------------------------------------------------------------------- ends

    async def _dismiss(self, sender: Address, header: Dismiss) -> Answer:
        own = [name for name in self._sessions if name[0] == header.order]
        if any(self._sessions[name].seat.scheduler != sender for name in own):
            raise NotAssigned("this is another scheduler's order", sender, "Dismiss your own orders.")
        for name in own:
            await self._drop(name)
        if own:
            await self._context.engine.release(header.order)
        return Released(), b""

    async def _drop(self, name: Name, *, own_choice: bool = False) -> None:
        """End a session; what it computed and nobody asked the result of is its scheduler's debt, unless that was this
        node's ``own_choice`` or fault."""
        session = self._sessions.pop(name, None)
        if session is None:
            return
        session.closed = session.closed or "the session is over"
        session.text.telling.end()
        await session.end()
        order, segment, role = name
        work = Work.INFERENCE if role == "infer" else Work.CHECK
        async with session.lock:
            # Not before the message at hand is answered, which would begin a cache that nobody frees.
            if not session.text.telling.result:
                failed = session.decoding is not None and isinstance(session.decoding.failure, EngineError)
                lost = 0 if own_choice or session.own_fault or failed else worth_so_far(session)
                await self._context.write(lambda: self._context.stores.books.broke_off(order, segment, work, lost))
            await self._context.engine.forget(session.key)

    def _find(self, sender: Address, name: Name) -> SegmentSession:
        session = self._sessions.get(name)
        if session is None:
            raise OutOfOrder("there is no such session here", name[1], "Send the order's papers with Advance.")
        if sender != session.seat.scheduler:
            raise NotAssigned("this is another scheduler's order", sender, "Send your own orders.")
        session.touched = self._context.clock()
        return session

    def _post(self, sender: Address) -> Post:
        return post_of(self._context, sender)


def _split(header: Advance, payload: memoryview) -> tuple[memoryview, memoryview, memoryview]:
    """Papers, request, and the rest of a payload."""
    end = header.papers_size + header.request_size
    if end > len(payload):
        raise BadInput("the payload is shorter than its papers and request", len(payload), "Send them whole.")
    return payload[: header.papers_size], payload[header.papers_size : end], payload[end:]


def _seat_of(papers: Papers, index: int, request: bytes, post: Post) -> Assignment:
    if isinstance(papers, InferencePapers):
        return infer_seat(papers, index, request, post)
    return check_seat(papers, index, request, post)
