"""Conclude: an inferencer keeps its trace and signs its result, once; asking again gives the same bytes.

The trace is on stable storage before the result is signed, and the result is written together with the leaf that it
makes payable: a node that is killed at any step can still open, and is still paid.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.earning.leaf import Leaf, Stage
from troth.node.errors import AlreadySigned, BadInput, OutOfOrder
from troth.node.orders.chaining import chained_to, upstream_to
from troth.node.orders.context import NodeContext
from troth.node.orders.reading import worth_beyond
from troth.node.orders.session import READ, SegmentSession, rows_between
from troth.node.orders.traces import StoredTrace
from troth.node.orders.words import IMPRINTS, READ_TOKENS, RESULT
from troth.protocol import typed_data
from troth.protocol.imprints.naming import Imprints, imprints_of
from troth.protocol.imprints.rows import RowKind, imprints_root, round_row
from troth.protocol.market import canonical, checks, messages, prices
from troth.protocol.market.layers import layers_of
from troth.protocol.market.leaves import inference_leaf
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import trace_salt
from troth.protocol.market.signed import Result, Work
from troth.protocol.request import output_hash, tokens_to_words
from troth.protocol.tensors import rows_to_bytes, tokens_from_bytes, widen
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.types import ZERO_HASH, Hash32
from troth.protocol.wire_market import Conclude, Concluded
from troth.transport.event_loop import beside


async def conclude(
    context: NodeContext, session: SegmentSession, header: Conclude, payload: memoryview
) -> tuple[Concluded, bytes]:
    """Sign the segment's result; the caller holds the session's lock, and has looked whether it is signed already.

    Raises:
        OutOfOrder: the text has not ended, or more positions are named than were computed.
        BadInput: tokens missing, or not those of this answer.
    """
    seat = session.seat
    if not 0 < header.positions <= session.rows.positions:
        raise OutOfOrder(
            f"{session.rows.positions} positions were computed", header.positions, "Conclude at most those."
        )
    tokens = tokens_from_bytes(payload, header.tokens if seat.is_last else 0, seat.descriptor.vocabulary)
    written = _written(session, header, tokens)
    await session.end()
    heads = await _heads(session, header.positions)
    rows = await beside(header.positions * session.rows.row_size, session.rows.first_outputs, header.positions)
    salt = trace_salt(seat.order_id, seat.index, context.me, seat.head_salt)
    committed = await beside(rows.nbytes, committed_trace, session, rows)
    commitment = messages.trace_commitment(_root(committed), salt)
    result = _result(session, (header.positions, written), tokens, heads, commitment)
    made = _stored(context, session, rows, root=_root(committed), salt=salt)
    imprints = await asyncio.to_thread(_imprints, session, rows, written, result)
    word, beside_it = await context.write(lambda: _concluded(context, session, made, rows, (result, imprints)))
    await context.engine.forget(session.key)
    session.drop_rows()
    session.text.telling.conclude(word, written)
    last_row = rows_to_bytes(rows[-1:], seat.dtype) if seat.is_last and seat.sends_hashes else b""
    return Concluded(last_row, beside_it), word


def _written(session: SegmentSession, header: Conclude, tokens: tuple[int, ...]) -> int:
    """Tokens of the answer, once they fit the positions: a trace has P + T - 1 rows."""
    seat = session.seat
    if seat.ordered is None:
        written = header.tokens or header.positions - session.rows.begun_with + 1
    else:
        written = header.positions - len(seat.ordered.prompt_tokens) + 1
    if written < 1:
        raise OutOfOrder("the prompt is not complete", header.positions, "Nothing is owed for a part of a prompt.")
    if written > header.positions:
        raise BadInput("more was written than there are positions", written, "Name the tokens of the answer.")
    if seat.is_last:
        _require_text(session, header, tokens, written)
    return written


def _require_text(session: SegmentSession, header: Conclude, tokens: tuple[int, ...], written: int) -> None:
    first = len(session.seat.request.prompt_tokens) - 1
    own = tuple(session.text.emitted.get(position, -1) for position in range(first, header.positions))
    if len(tokens) != written or tokens != own:
        raise BadInput("these are not the tokens that this node chose", len(tokens), "Send the text it emitted.")
    if session.seat.request.may_end_early:
        if header.positions < session.rows.own.position:
            # Else whole texts would be had for the price of their first token.
            what = f"rows of {session.rows.own.position} positions were given"
            raise OutOfOrder(what, header.positions, "Conclude all that you were given.")
        return
    if header.positions != session.rows.positions or session.text.finish(header.positions - 1, tokens[-1]) is None:
        # Verifiers reject a text that ends in its middle, so nobody signs for one whose client did not allow it.
        raise OutOfOrder("the text has not ended", len(tokens), "Go on until Rows says finished.")


async def _heads(session: SegmentSession, positions: int) -> tuple[Hash32, Hash32]:
    """What so many rows were computed from, and the rows."""
    seat = session.seat
    own = await chained_to(session, positions)
    given = checks.head(seat.order_id, seat.head_salt, own.link)
    if seat.is_first:
        return seat.order.request_hash, given
    before = await upstream_to(session, positions)
    return checks.head(seat.order_id, seat.head_salt, before.link), given


def _result(
    session: SegmentSession,
    counted: tuple[int, int],
    tokens: tuple[int, ...],
    heads: tuple[Hash32, Hash32],
    commitment: Hash32,
) -> Result:
    """``counted``: positions, and how many tokens they wrote."""
    (positions, written), seat = counted, session.seat
    prompt = positions - written + 1
    cached = min(session.rows.cached, prompt)
    return Result(
        order=seat.order_id,
        segment=seat.index,
        input_head=heads[0],
        output_head=heads[1],
        prompt=prompt - cached,
        cached=cached,
        written=written,
        trace_commitment=commitment,
        output_hash=output_hash(seat.salt, tokens) if seat.is_last else ZERO_HASH,
    )


def committed_trace(session: SegmentSession, rows: NDArray[Any]) -> CommittedTrace:
    """The trace's tree; seconds of hashing for a long one."""
    seat = session.seat
    layout = TileLayout(seat.order_id, seat.execution_class.model, len(rows), rows.shape[1], seat.dtype)
    return layout.commit(rows)


async def keep_trace(
    context: NodeContext, session: SegmentSession, rows: NDArray[Any], *, root: Hash32, salt: Hash32
) -> StoredTrace:
    """The trace on disk; the one that was kept before, if there is one, since it may have been committed to.

    Where nobody reads rows, what is opened of it is kept alone: its root, and the salt of the commitment.
    """
    made = _stored(context, session, rows, root=root, salt=salt)
    return await context.write(lambda: _kept(context, session, made, rows))


def _stored(
    context: NodeContext, session: SegmentSession, rows: NDArray[Any], *, root: Hash32, salt: Hash32
) -> StoredTrace:
    """What names a trace on disk."""
    seat = session.seat
    return StoredTrace(
        order_id=seat.order_id,
        segment=seat.index,
        attempt=session.key.attempt,
        positions=len(rows),
        columns=0 if seat.sends_hashes else int(rows.shape[1]),
        dtype=int(seat.dtype),
        root=root,
        salt=salt,
        created_at=context.stores.traces.now(),
    )


def _kept(context: NodeContext, session: SegmentSession, made: StoredTrace, rows: NDArray[Any]) -> StoredTrace:
    """The trace once it is on disk; in the thread that writes records, as all that follows."""
    seat, traces = session.seat, context.stores.traces
    known = traces.find(made.order_id, made.segment, made.attempt)
    if known is None:
        traces.keep(made, rows)
        return made
    if seat.infers and (known.root, known.positions) != (made.root, made.positions):
        raise AlreadySigned("another trace was kept of this segment", len(rows), "Ask for what was signed.")
    return known


def _imprints(session: SegmentSession, rows: NDArray[Any], written: int, result: Result) -> Imprints | None:
    """What a class that names imprints has signed beside the result of its last segment."""
    seat = session.seat
    if not seat.is_last or imprints_of(seat.execution_class.name) is None:
        return None
    chosen = widen(np.ascontiguousarray(rows[len(rows) - written :]), seat.dtype)
    imprints = [round_row(row, RowKind.STATE).imprint() for row in chosen]
    return Imprints(typed_data.struct_hash(result), imprints_root(imprints))


def _concluded(
    context: NodeContext,
    session: SegmentSession,
    made: StoredTrace,
    rows: NDArray[Any],
    said: tuple[Result, Imprints | None],
) -> tuple[bytes, bytes]:
    """The trace on disk, then what is signed, as it travels: imprints first, since a result that was kept is given
    again with them."""
    (result, imprints), seat = said, session.seat
    session.trace = _kept(context, session, made, rows)
    keep_read(context, session, made)
    place, word = (seat.order_id, seat.index), b""
    if imprints is not None:
        word = context.stores.words.sign_once(place, IMPRINTS, imprints, lambda: context.operator.sign(imprints))
    return _sign(context, session, result), word


def keep_read(context: NodeContext, session: SegmentSession, made: StoredTrace) -> None:
    """What the segment read, on disk, where rows of its class are disputed; in the thread that writes records.

    Who signed a row computes it again from nothing else, long after the session: so it is there before the signature.
    """
    seat, stores = session.seat, context.stores
    if layers_of(seat.execution_class.name) is None:
        return
    tokens = session.rows.first_tokens(made.positions)
    if tokens is not None:
        words = tokens_to_words(tokens)
        stores.words.keep(seat.order_id, seat.index, READ_TOKENS, words)
    elif stores.traces.find(seat.order_id, seat.index, READ) is None:
        read = np.concatenate(rows_between(session.rows.inputs, 0, made.positions))
        stores.traces.keep(replace(made, attempt=READ, columns=int(read.shape[1])), read)


def _root(committed: CommittedTrace) -> Hash32:
    return Hash32(committed.root)


def _sign(context: NodeContext, session: SegmentSession, result: Result) -> bytes:
    """The result as it travels, written with the leaf that it is owed for, and with what was given beyond it."""
    seat, books = session.seat, context.stores.books

    def beside(signed: Signed[Result]) -> None:
        leaf = books.leaf(seat.order_id, seat.index, Work.INFERENCE)
        if leaf is not None:
            books.done(_served(leaf, signed, context.clock(), context.ground.block), worth_beyond(session, result))

    place = (seat.order_id, seat.index)
    return context.stores.words.sign_once(place, RESULT, result, lambda: context.operator.sign(result), beside=beside)


def _served(leaf: Leaf, signed: Signed[Result], now: float, block: int) -> Leaf:
    result = signed.message
    return replace(
        leaf,
        stage=Stage.DONE,
        worth=prices.promise_worth(leaf.promise.message, result),
        evidence=canonical.encode(inference_leaf(leaf.promise, signed)),
        done_at=now,
        done_block=block,
        prompt=result.prompt,
        cached=result.cached,
        written=result.written,
    )
