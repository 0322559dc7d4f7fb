"""Advance: compute positions; who infers signs their rows, who checks keeps them hidden.

The engine starts at once; the upstream signature is checked while it runs. Nothing is kept from a message that fails. A
chain of rows only grows in one session, and the session was written down before its first row (``words``): so no
position is ever signed twice, and no signature waits for the disk.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Computed
from troth.node.errors import BadInput, OutOfOrder
from troth.node.orders.chaining import RowsAhead, chain_up, signed_row
from troth.node.orders.choosing import ChosenToken, next_token, told_again
from troth.node.orders.context import NodeContext
from troth.node.orders.reading import MessageInputs, read_inputs, require_next, require_ordered, upstream_after
from troth.node.orders.session import SegmentSession, rows_between
from troth.protocol.market.rows import RowHashes
from troth.protocol.wire import Received, Rows
from troth.protocol.wire_fields import RowSignature
from troth.protocol.wire_market import Advance
from troth.transport.event_loop import beside

Reply = tuple[Rows | Received, bytes]


async def advance(context: NodeContext, session: SegmentSession, header: Advance, payload: memoryview) -> Reply:
    """Answer an Advance, whose papers were read; the caller holds the session's lock.

    Raises Refusal or ProtocolError, see ``reading``; the session is as it was before.
    """
    domain = context.operator.domain
    given = await beside(len(payload), read_inputs, session, header, payload, context.limits.positions, domain)
    _require_emitter(session, header)
    if header.start + header.count <= session.rows.positions:
        return await _repeat(context, session, header, given)
    session.require_open()
    require_next(session, header)
    _require_unfinished(session)
    upstream, computed = await _compute_beside_check(context, session, header, given)
    require_ordered(session, header, given.bound)
    await chain_up(session)
    tokens = session.rows.tokens_of(given.inputs)
    ahead = RowsAhead.over(session, session.rows.own, [computed.rows], tokens)
    own, last, data = await beside(ahead.size, ahead.extended)
    chosen, seconds = None, computed.seconds
    if header.emit:
        chosen, more = await next_token(
            context, session, computed.rows[-1:], position=last.position, asked=header.logprobs
        )
        seconds += more
    _keep(session, given, computed.rows, own, upstream)
    session.rows.cached += computed.cached
    if chosen is not None:
        session.text.emit(last.position, chosen.token, chosen.logprobs)
    if not session.seat.infers:
        return Received(session.rows.positions), b""
    return _reply(session, header, signed_row(context.operator, last), chosen, seconds), bytes(data)


def _keep(
    session: SegmentSession,
    given: MessageInputs,
    outputs: NDArray[Any],
    own: RowHashes,
    upstream: RowHashes | None,
) -> None:
    session.rows.add(given.inputs, outputs)
    session.rows.own, session.rows.chained = own, len(session.rows.outputs)
    session.rows.bound += given.bound or ()
    if upstream is not None:
        session.rows.upstream = upstream


def _require_emitter(session: SegmentSession, header: Advance) -> None:
    seat = session.seat
    if header.emit and not (seat.is_last and seat.infers):
        raise BadInput("only the last segment's inferencer chooses tokens", seat.index, "Do not ask to emit.")
    if header.emit and header.start + header.count < len(seat.request.prompt_tokens):
        raise BadInput("the prompt is not complete yet", header.start + header.count, "Emit from its last token on.")
    if header.logprobs is not msgspec.UNSET and not header.emit:
        raise BadInput("log probabilities belong to a token", seat.index, "Ask for them where you ask to emit.")


def _require_unfinished(session: SegmentSession) -> None:
    if not session.text.emitted:
        return
    last = max(session.text.emitted)
    if session.text.finish(last, session.text.emitted[last]) is not None:
        raise BadInput("the text has ended", last, "Send Conclude.")


async def _compute_beside_check(
    context: NodeContext, session: SegmentSession, header: Advance, given: MessageInputs
) -> tuple[RowHashes | None, Computed]:
    seat = session.seat
    computing = asyncio.ensure_future(_compute(context, session, header, given))
    try:
        await asyncio.sleep(0)
        upstream = None
        if not seat.is_first:
            domain = context.operator.domain
            upstream = await beside(len(given.rows), upstream_after, session, given, header, domain)
        computed = await computing
    finally:
        # After a failed check the job ends by itself; the next message starts at the old position and overwrites it.
        computing.cancel()
    return upstream, computed


async def _compute(context: NodeContext, session: SegmentSession, header: Advance, given: MessageInputs) -> Computed:
    """The states; of a verifier that has committed before a restart, those that it committed to.

    Where rows are not kept they are computed again, which gives the same ones.
    """
    trace = session.trace
    if trace is not None and trace.keeps_rows:
        kept = await context.write(lambda: context.stores.traces.rows(trace))
        rows = kept[header.start : header.start + header.count]
        if len(rows) != header.count:
            raise OutOfOrder("the trace that was committed is shorter", header.start, "Send the same positions again.")
        return Computed(rows, 0.0)
    layers = session.seat.layers
    computed = await context.engine.forward(session.key, layers, header.start, given.inputs)
    context.meter.note(layers.end - layers.first, header.count, computed.seconds)
    return computed


async def _repeat(context: NodeContext, session: SegmentSession, header: Advance, given: MessageInputs) -> Reply:
    """The answer to a message that was answered before: same inputs, same rows, same signature."""
    if not session.seat.infers:
        return Received(session.rows.positions), b""
    if not session.rows.outputs:
        raise OutOfOrder("the segment is concluded and its rows are freed", header.start, "Send Conclude.")
    end = header.start + header.count
    rows = session.rows
    if not np.array_equal(np.concatenate(rows_between(rows.inputs, header.start, end)), given.inputs):
        raise BadInput("these positions were computed from other inputs", header.start, "Send the same ones.")
    begin = RowHashes(session.seat.order_id, session.seat.index)
    ahead = RowsAhead.over(session, begin, rows_between(rows.outputs, 0, end), rows.first_tokens(end))
    _, last, data = await beside(ahead.size, ahead.extended)
    token, chosen = session.text.emitted.get(end - 1), None
    if token is not None:
        (row,) = rows_between(rows.outputs, end - 1, end)
        chosen = await told_again(context, token, row, header.logprobs)
    reply = _reply(session, header, signed_row(context.operator, last), chosen, 0.0)
    return reply, bytes(data[header.start * session.rows.sent_size :])


def _reply(
    session: SegmentSession, header: Advance, signature: RowSignature, chosen: ChosenToken | None, seconds: float
) -> Rows:
    microseconds = int(seconds * 1_000_000)
    if chosen is None:
        return Rows(header.start, header.count, signature, model_microseconds=microseconds)
    finished = session.text.finish(signature.position, chosen.token)
    return Rows(header.start, header.count, signature, chosen.token, finished, microseconds, chosen.logprobs)
