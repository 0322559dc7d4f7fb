"""After the last token: each node signs its result, and it must say what the scheduler saw itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from troth.chain.retries import attempts_of
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.imprints.naming import Imprints, imprints_of
from troth.protocol.market import canonical, checks
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Result
from troth.protocol.request import output_hash
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import ZERO_HASH, Hash32
from troth.protocol.wire import Frame
from troth.protocol.wire_market import Conclude, Concluded
from troth.scheduler.errors import NodeFailed
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.hop import Hop
from troth.transport.errors import ChannelUnavailable, OverlayError, RemoteFailure

_LIMIT = 1 << 13
AWAY_SECONDS = 20.0
"""How long a node that went away before it answered is asked again for its result; clients wait longer for a line."""
AGAIN_SECONDS = 0.5
ASKED_SECONDS = 5.0
"""For a node to find what it has signed."""
BUSY = "busy"
"""What a node answers whose model is still loading."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OrderEnding:
    """The end of an order: its nodes, the tokens that they wrote, and every result that was ``shown`` so far."""

    context: SchedulerContext
    session: OrderSession
    hops: Sequence[Hop]
    tokens: Sequence[int]
    shown: dict[int, Signed[Result]] = field(default_factory=dict)

    async def results(self, timeout: float) -> tuple[Signed[Result], ...]:
        """All results, which meet and stand for these tokens; raises NodeFailed for who signs something else.

        They are then as ``checks.require_results`` and ``checks.require_answer`` want them.
        """
        asked = [self.result(segment, len(self.tokens), timeout) for segment in range(len(self.hops))]
        # Whoever has signed is owed its work, also where another one has not: all are heard before one fails the order.
        heard = await asyncio.gather(*asked, return_exceptions=True)
        for one in heard:
            if isinstance(one, BaseException):
                raise one
        results = tuple(self.shown[segment] for segment in range(len(self.hops)))
        # Each was checked when it came: signature, heads, positions, and the answer where it is the last one.
        checks.require_meeting([one.message for one in results])
        return results

    async def result(self, segment: int, written: int, timeout: float) -> Signed[Result]:
        """One node's result over the rows that it has signed.

        Every node is told how many tokens were ``written``, which its result counts; only the last one is shown them.
        """
        hop = self.hops[segment]
        shown = tokens_to_bytes(self.tokens) if self._is_last(segment) else b""
        frame = await self._concluded(hop, written, shown, timeout)
        try:
            self.shown[segment] = self._checked(segment, written, frame)
            hop.keep_last(frame.header)
            return self.shown[segment]
        except ProtocolError as error:
            raise hop.failed(error) from error

    async def _concluded(self, hop: Hop, written: int, shown: bytes, timeout: float) -> Frame:
        """The same question again where its answer was lost: a node that has signed is owed for it, and says the same.

        To give the order up then would leave it with a result that this scheduler's vouchers do not pay.
        """
        try:
            return await hop.conclude(hop.chain.position, written, shown, timeout)
        except NodeFailed as error:
            if not _was_lost(error):
                raise
        await asyncio.sleep(AGAIN_SECONDS)
        async for attempt in attempts_of(_was_lost, seconds=AWAY_SECONDS, pause=AGAIN_SECONDS):
            with attempt:
                return await hop.conclude(hop.chain.position, written, shown, timeout)
        raise AssertionError("the last failure is raised")

    def _is_last(self, segment: int) -> bool:
        return segment == len(self.hops) - 1

    def _checked(self, segment: int, written: int, frame: Frame) -> Signed[Result]:
        hop, session = self.hops[segment], self.session
        if not isinstance(frame.header, Concluded):
            raise hop.failed(f"an answer to another question: {type(frame.header).__name__}")
        signed = canonical.decode(Signed[Result], frame.payload, _LIMIT)
        result = signed.require(self.context.operator.domain, hop.node)
        expected = replace(
            result,
            order=session.order_id,
            segment=segment,
            input_head=session.history.order.request_hash if segment == 0 else self._head(segment - 1),
            output_head=self._head(segment),
            written=written,
            output_hash=output_hash(session.salt, self.tokens) if self._is_last(segment) else ZERO_HASH,
        )
        if result != expected or result.prompt + result.cached != len(session.request.prompt_tokens):
            raise hop.failed("a result that is not over the rows and tokens that it gave")
        if self._is_last(segment) and imprints_of(session.offer.execution_class.name) is not None:
            self._require_imprints(hop, result, frame.header)
        return signed

    def _require_imprints(self, hop: Hop, result: Result, header: Concluded) -> None:
        """That they are those of its rows, who proves by them sees: it costs milliseconds for each row."""
        if not header.imprints:
            raise hop.failed("a result without the imprints that its class names")
        imprints = canonical.decode(Signed[Imprints], header.imprints, _LIMIT)
        if imprints.require(self.context.operator.domain, hop.node).result != typed_data.struct_hash(result):
            raise hop.failed("imprints of another result")

    def _head(self, segment: int) -> Hash32:
        return checks.head(
            self.session.order_id, self.session.history.admitted.head_salt, self.hops[segment].chain.link
        )


async def signed_before(context: SchedulerContext, history: OrderHistory, segment: int) -> Signed[Result] | None:
    """The result that a node of an interrupted order has signed, which it is owed for; None: it has signed none.

    Nothing is signed for being asked: no result is over no positions. Raises ChannelUnavailable or TimeoutError where
    the node is away.
    """
    node = history.admitted.nodes[segment]
    try:
        frame = await context.peers.channel(node).request(Conclude(history.order_id, segment, 0), b"", ASKED_SECONDS)
        if not isinstance(frame.header, Concluded):
            return None
        signed = canonical.decode(Signed[Result], frame.payload, _LIMIT)
        result = signed.require(context.operator.domain, node)
    except (OverlayError, ProtocolError) as error:
        if _is_away(error):
            raise ChannelUnavailable(f"{node} cannot say yet what it has signed", error) from error
        log.info("%s has signed nothing for an order that was cut off: %s", node, error)
        return None
    return signed if (result.order, result.segment) == (history.order_id, segment) else None


def _was_lost(error: Exception) -> bool:
    return isinstance(error, NodeFailed) and _is_away(error.__cause__)


def _is_away(error: BaseException | None) -> bool:
    """Whether a node may answer later: it is not there, or has started again and loads its model."""
    return isinstance(error, ChannelUnavailable) or (isinstance(error, RemoteFailure) and error.remote_code == BUSY)
