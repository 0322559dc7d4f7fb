"""Reading the payload of an Advance: tokens or rows, checked before anything is computed from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from msgspec import UnsetType
from numpy.typing import NDArray

from troth.node.errors import BadInput, OutOfOrder
from troth.node.orders.seat import worth_of
from troth.node.orders.session import SegmentSession
from troth.protocol.market import prices
from troth.protocol.market.rows import RowHashes, verify_rows, verify_veiled
from troth.protocol.market.signed import Result
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.tensors import NO_STATE, any_rows_from_bytes, finite, tokens_from_bytes
from troth.protocol.typed_data import Domain
from troth.protocol.wire_market import Advance


class MessageInputs(NamedTuple):
    """What a message brings: inputs, the bytes of upstream rows, and the tokens that they bind (segment 1 alone)."""

    inputs: NDArray[Any]
    rows: memoryview
    bound: tuple[int, ...] | None


def read_inputs(
    session: SegmentSession, header: Advance, payload: memoryview, position_limit: int, domain: Domain
) -> MessageInputs:
    """Tokens (int64) or rows of a message.

    Raises:
        BadInput: too many positions, more than the promise pays for, tokens that the order cannot have there, or rows
            that the node before signed and that are no states.
        WireError: another size than the header says, a token outside the vocabulary.
        InvalidRows, InvalidSignature, InvalidProof: rows that are no states and that nobody signed.
    """
    seat = session.seat
    end = header.start + header.count
    if end > _longest(session, position_limit):
        raise BadInput("there are more positions than the order can have", end, "Stop at the request's limit.")
    _require_paid(session, header, end)
    if seat.is_first:
        tokens = tokens_from_bytes(payload, header.count, seat.descriptor.vocabulary)
        _check_tokens(session, header.start, tokens)
        return MessageInputs(np.array(tokens, dtype=np.int64), payload[:0], None)
    bound = None
    if seat.index == 1:
        size = 4 * header.count
        bound = tokens_from_bytes(payload[:size], header.count, seat.descriptor.vocabulary)
        payload = payload[size:]
    inputs = any_rows_from_bytes(payload, header.count, seat.descriptor.hidden_size, seat.dtype)
    given = MessageInputs(inputs, payload, bound)
    if not finite(inputs, seat.dtype):
        # Before anything is computed of them, and before anybody is blamed for them.
        upstream_after(session, given, header, domain)
        signer = seat.nodes[seat.index - 1]
        blamed = "one of those drawn" if signer == NO_ADDRESS else signer
        what = f"the node of segment {seat.index - 1} signed what is no state, of which nothing can be computed"
        raise BadInput(what, blamed, f"{NO_STATE}: hold that node to it, and order again.")
    return given


def _longest(session: SegmentSession, position_limit: int) -> int:
    seat = session.seat
    if not seat.infers:
        # A verifier computes the trace of a result that is signed: P + T - 1 rows.
        return min(position_limit, prices.positions(seat.result) - 1)
    return position_limit if seat.ordered is None else min(position_limit, seat.ordered.position_limit)


def _require_paid(session: SegmentSession, header: Advance, end: int) -> None:
    """A segment that is not shown the request knows only from its promise how long the answer may be."""
    seat = session.seat
    if not seat.infers or seat.ordered is not None:
        return
    written = max(session.rows.alone_with(header.count), 1)
    worth, price = worth_of(seat, end - written + 1, written), seat.promise.message.price
    if worth > price:
        raise BadInput(f"the promise pays {price}, and so many positions cost {worth}", end, "Promise more next time.")


def _written(session: SegmentSession) -> int:
    """How many tokens the rows so far belong to. Who is not shown the request counts those that came alone: one less
    than there are, unless the prompt's last message was one position."""
    seat, end = session.seat, session.rows.positions
    if seat.ordered is None:
        return max(session.rows.alone, 1)
    return end - min(len(seat.ordered.prompt_tokens), end) + 1


def worth_so_far(session: SegmentSession) -> int:
    """What its promise makes of the positions that an inference has computed, asked for or not."""
    seat, end = session.seat, session.rows.positions
    if not seat.infers or not end:
        return 0
    written = _written(session)
    return min(worth_of(seat, end - written + 1, written), seat.promise.message.price)


def worth_beyond(session: SegmentSession, result: Result) -> int:
    """What its promise makes of the positions that a segment gave and that its result leaves out, or counts as a prompt
    though they were written. Only the last segment, which knows the tokens, can refuse to sign for less than it gave.
    """
    seat, end = session.seat, session.rows.positions
    if seat.is_last:
        return 0
    prompt = result.prompt + result.cached
    written = max(_written(session), end - prompt + 1)
    given = min(worth_of(seat, end - written + 1, written), seat.promise.message.price)
    return max(given - worth_of(seat, prompt, result.written), 0)


def positions_paid(session: SegmentSession, positions: int) -> int:
    """How many written positions cost as much as the first ``positions`` of an answer; what was cached counts nothing.

    Where writing costs nothing, whatever is written is paid.
    """
    seat, asked = session.seat, session.seat.promise.message
    prompt = min(len(seat.request.prompt_tokens), positions)
    written = positions - prompt + 1
    if not asked.written_ask:
        return seat.request.max_tokens
    return written + asked.prompt_ask * (prompt - min(session.rows.cached, prompt)) // asked.written_ask


def _check_tokens(session: SegmentSession, start: int, tokens: tuple[int, ...]) -> None:
    prompt = session.seat.request.prompt_tokens
    for position, token in enumerate(tokens, start):
        if position < len(prompt):
            if token != prompt[position]:
                raise BadInput("this is not the prompt that was ordered", position, "Send the client's prompt.")
        elif session.text.emitted.get(position - 1, token) != token:
            raise BadInput("this is not the token that this node chose", position, "Send back what it emitted.")


def require_ordered(session: SegmentSession, header: Advance, bound: tuple[int, ...] | None) -> None:
    """That segment 0 computed from the prompt and from what this node chose; BadInput otherwise.

    Without it a scheduler could have an answer continued that is not the answer: each token would still follow from
    the rows.
    """
    if bound is not None and session.seat.is_last:
        _check_tokens(session, header.start, bound)


def require_next(session: SegmentSession, header: Advance) -> None:
    """Raise OutOfOrder unless the message starts where the session ends."""
    if header.start != session.rows.positions:
        raise OutOfOrder(
            f"the next position is {session.rows.positions}", header.start, "Send the missing positions first."
        )


def upstream_after(session: SegmentSession, given: MessageInputs, header: Advance, domain: Domain) -> RowHashes:
    """The chain of the segment before after these rows, which its admitted node signed; one of those that were drawn
    where papers hide which.

    Raises BadInput without a signature; InvalidRows, InvalidSignature, InvalidProof, InvalidField where the rows are
    not those that were signed.
    """
    seat, signature = session.seat, header.upstream
    if seat.nodes[seat.index - 1] == NO_ADDRESS:
        if isinstance(header.veiled, UnsetType):
            raise BadInput("rows came without a proof of their signature", seat.index, "Forward a veiled row.")
        return verify_veiled(
            session.rows.upstream,
            given.rows,
            session.rows.row_size,
            header.veiled,
            members=seat.before,
            domain=domain,
            tokens=given.bound,
        )
    if signature is None:
        raise BadInput("rows came without their signer's signature", seat.index, "Forward the upstream one.")
    return verify_rows(
        session.rows.upstream,
        given.rows,
        session.rows.row_size,
        signature,
        signer=seat.nodes[seat.index - 1],
        domain=domain,
        tokens=given.bound,
    )
