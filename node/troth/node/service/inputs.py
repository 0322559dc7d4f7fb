"""Reading the payload of a Forward: tokens or rows, checked before anything is computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.errors import BadInput, OutOfOrder
from troth.node.service.work import Work
from troth.protocol.tensors import rows_from_bytes, tokens_from_bytes
from troth.protocol.wire import Forward


def split_upstream(work: Work, header: Forward, payload: memoryview) -> tuple[tuple[int, ...] | None, memoryview]:
    """The tokens that the upstream rows bind, None unless they are segment 0's, and the rows.

    Raises WireError where the payload is too short or a token lies outside the vocabulary.
    """
    if work.seat.index != 1:
        return None, payload
    size = 4 * header.count
    return tokens_from_bytes(payload[:size], header.count, work.seat.descriptor.vocabulary), payload[size:]


def require_ordered(work: Work, header: Forward, bound: tuple[int, ...] | None) -> None:
    """That segment 0 computed from the prompt and from what this node chose; BadInput otherwise.

    Without it a scheduler could have an answer continued that is not the answer: each token would still follow from
    the rows.
    """
    if bound is not None and work.seat.is_last:
        _check_tokens(work, header.start, bound)


def read_inputs(work: Work, header: Forward, payload: memoryview, position_limit: int) -> NDArray[Any]:
    """Tokens (int64) or rows of a message.

    Raises:
        BadInput: the wrong kind, too many positions, or tokens that the task cannot have there.
        WireError: another size than the header says, a token outside the vocabulary, NaN or infinity.
    """
    seat = work.seat
    expected = "tokens" if seat.is_first else "rows"
    if header.kind != expected:
        raise BadInput(f"segment {seat.index} takes {expected}", header.kind, f"Send {expected}.")
    end = header.start + header.count
    if end > _longest(work, position_limit):
        raise BadInput("there are more positions than the task can have", end, "Stop at the request's limit.")
    if not seat.is_first:
        return rows_from_bytes(payload, header.count, seat.descriptor.hidden_size, seat.dtype)
    tokens = tokens_from_bytes(payload, header.count, seat.descriptor.vocabulary)
    _check_tokens(work, header.start, tokens)
    return np.array(tokens, dtype=np.int64)


def _longest(work: Work, position_limit: int) -> int:
    request = work.seat.announcement.request
    return position_limit if request is None else min(position_limit, request.position_limit)


def _check_tokens(work: Work, start: int, tokens: tuple[int, ...]) -> None:
    prompt = work.seat.request.prompt_tokens
    for position, token in enumerate(tokens, start):
        if position < len(prompt):
            if token != prompt[position]:
                raise BadInput("this is not the prompt that was ordered", position, "Send the client's prompt.")
        elif work.emitted.get(position - 1, token) != token:
            raise BadInput("this is not the token that this node chose", position, "Send back what it emitted.")


def require_next(work: Work, header: Forward) -> None:
    """Raise OutOfOrder unless the message starts where the session ends."""
    if header.start != work.positions:
        raise OutOfOrder(f"the next position is {work.positions}", header.start, "Send the missing positions first.")
