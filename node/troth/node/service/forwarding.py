"""Forward: compute positions and sign their rows; one path for inferencers and verifiers.

The engine starts at once; the upstream signature is checked while it runs. Nothing is kept from a message that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Computed
from troth.node.errors import BadInput, OutOfOrder
from troth.node.orders.choosing import Chosen, next_token, told_again
from troth.node.service.bench import Bench
from troth.node.service.inputs import read_inputs, require_next, require_ordered, split_upstream
from troth.node.service.work import Work
from troth.node.signing_record import ROW, Subject
from troth.protocol import typed_data
from troth.protocol.rows import RowChain
from troth.protocol.tensors import rows_to_bytes
from troth.protocol.tokens import Finish
from troth.protocol.types import Address, Row
from troth.protocol.wire import Forward, Rows
from troth.protocol.wire_fields import RowSignature


async def forward(bench: Bench, work: Work, header: Forward, payload: memoryview) -> tuple[Rows, bytes]:
    """Answer a Forward; the caller holds the work's lock.

    Raises:
        Refusal, ProtocolError: see `inputs`, `Work.check_upstream`; the session is as it was before.
        AlreadySigned: the same position was signed with another state.
    """
    bound, payload = split_upstream(work, header, payload)
    inputs = read_inputs(work, header, payload, bench.limits.positions)
    _require_emitter(work, header)
    if header.start + header.count <= work.positions:
        return await _repeat(bench, work, header, inputs)
    work.require_open()
    require_next(work, header)
    require_unfinished(work)
    upstream, (outputs, seconds) = await _compute_beside_check(bench, work, header, inputs, (payload, bound))
    require_ordered(work, header, bound)
    data = rows_to_bytes(outputs, work.seat.dtype)
    chain, rows = work.own_chain.extend(data, work.row_size, work.tokens_of(inputs))
    chosen = None
    if header.emit:
        chosen, head_seconds = await next_token(
            bench, work, outputs[-1:], position=rows[-1].position, asked=header.logprobs
        )
        seconds += head_seconds
    signature = await sign_rows(bench, rows)
    keep(work, inputs, outputs, chain, upstream)
    work.bound += bound or ()
    if chosen is not None:
        position = rows[-1].position
        work.note_token(position, chosen.token, chosen.logprobs, finish(work, position, chosen.token))
    return _reply(work, header, signature, chosen, seconds), data


def _require_emitter(work: Work, header: Forward) -> None:
    if header.emit and not (work.seat.is_last and work.seat.infers):
        raise BadInput("only the last segment's inferencer chooses tokens", work.seat.index, "Do not ask to emit.")
    if header.emit and header.start + header.count < len(work.seat.request.prompt_tokens):
        raise BadInput("the prompt is not complete yet", header.start + header.count, "Emit from its last token on.")
    if header.logprobs is not msgspec.UNSET and not header.emit:
        raise BadInput("log probabilities belong to a token", work.seat.index, "Ask for them where you ask to emit.")


def require_unfinished(work: Work) -> None:
    """Raise BadInput after the last token."""
    if not work.emitted:
        return
    last = max(work.emitted)
    if finish(work, last, work.emitted[last]) is not None:
        raise BadInput("the text has ended", last, "Send Commit.")


def finish(work: Work, position: int, token: int) -> Finish | None:
    """Why the text ends with the token chosen at a position: counted by position, since an earlier attempt may have
    chosen the tokens before."""
    request = work.seat.request
    if token in request.end_tokens:
        return "stop"
    return "length" if position == request.position_limit - 1 else None


async def _compute_beside_check(
    bench: Bench,
    work: Work,
    header: Forward,
    inputs: NDArray[Any],
    received: tuple[memoryview, Sequence[int] | None],
) -> tuple[tuple[RowChain, Address] | None, Computed]:
    computing = asyncio.ensure_future(bench.engine.forward(work.key, work.seat.layers, header.start, inputs))
    try:
        await asyncio.sleep(0)
        upstream = None
        if not work.seat.is_first:
            upstream = work.check_upstream(*received, header.upstream, bench.operator.domain)
            assert header.upstream is not None
            work.check_countersignature(header.upstream, header.countersignature, bench.operator.domain)
        computed = await computing
        bench.meter.note(work.seat.layers.end - work.seat.layers.first, header.count, computed.seconds)
        return upstream, computed
    finally:
        # After a failed check the job ends by itself; the next message starts at the old position and overwrites it.
        computing.cancel()


async def sign_rows(bench: Bench, rows: Sequence[Row]) -> RowSignature:
    """A signature over the last row, recorded for all of them; AlreadySigned where one was signed differently."""
    last = rows[-1]
    covered = [(row.position, typed_data.struct_hash(row)) for row in rows]
    subject = Subject(last.task_id, last.segment, last.attempt, ROW, last.position)
    signature = await bench.write(
        lambda: bench.record.sign_chain(subject, covered[:-1], covered[-1][1], lambda: bench.operator.sign(last))
    )
    return RowSignature(last.position, last.row_hash, last.previous, signature)


def keep(
    work: Work,
    inputs: NDArray[Any],
    outputs: NDArray[Any],
    chain: RowChain,
    upstream: tuple[RowChain, Address] | None,
) -> None:
    """Add computed positions to the session."""
    work.inputs.append(inputs)
    work.outputs.append(outputs)
    work.own_chain = chain
    if upstream is not None:
        work.upstream_chain, work.upstream_signer = upstream


async def _repeat(bench: Bench, work: Work, header: Forward, inputs: NDArray[Any]) -> tuple[Rows, bytes]:
    """The answer to a message that was answered before: same inputs, same rows, same signature."""
    if not work.outputs:
        raise OutOfOrder("the trace is committed and its rows are freed", header.start, "Ask for an opening.")
    known = work.slice_of(work.inputs, header.start, header.count)
    if not np.array_equal(known, inputs):
        raise BadInput("these positions were computed from other inputs", header.start, "Start another attempt.")
    data = rows_to_bytes(work.all_outputs(), work.seat.dtype)
    last = header.start + header.count
    end, bound = last * work.row_size, work.tokens_of(work.all_inputs()[:last])
    _, rows = RowChain(work.seat.task_id, work.seat.index, work.attempt).extend(data[:end], work.row_size, bound)
    signature = await sign_rows(bench, rows[header.start :])
    token = work.emitted.get(last - 1)
    chosen = None
    if token is not None:
        chosen = await told_again(bench, token, work.slice_of(work.outputs, last - 1, 1), header.logprobs)
    return _reply(work, header, signature, chosen, 0.0), data[header.start * work.row_size : end]


def _reply(work: Work, header: Forward, signature: RowSignature, chosen: Chosen | None, seconds: float) -> Rows:
    microseconds = int(seconds * 1_000_000)
    if chosen is None:
        return Rows(header.start, header.count, signature, model_microseconds=microseconds)
    token, logprobs = chosen
    finished = finish(work, signature.position, token)
    return Rows(header.start, header.count, signature, token, finished, microseconds, logprobs)
