"""Commit: an inferencer signs its trace root; a verifier signs a salted commitment to its own, still hidden, root.

The trace is on stable storage before the signature exists: a node that is killed afterwards can still open.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from troth.node.errors import AlreadySigned, BadInput, OutOfOrder
from troth.node.judging import judge_text, reference_rows
from troth.node.service.bench import Bench
from troth.node.service.work import Work
from troth.node.signing_record import TRACE_COMMITMENT, TRACE_ROOT, Subject
from troth.node.traces import UNDECIDED, StoredTrace
from troth.protocol.announcement import announcement_to_wire
from troth.protocol.identifiers import model_id, trace_commitment
from troth.protocol.request import output_hash
from troth.protocol.tensors import tokens_from_bytes
from troth.protocol.tokens import finish_reason
from troth.protocol.trace import TileLayout
from troth.protocol.types import ZERO_HASH, Hash32, TraceCommitment, TraceRoot
from troth.protocol.wire import Commit, Committed, TraceCommitted

Reply = Committed | TraceCommitted


async def commit(bench: Bench, work: Work, header: Commit, payload: memoryview) -> tuple[Reply, bytes]:
    """Answer a Commit; asking again gives the same answer. The caller holds the work's lock.

    Raises:
        OutOfOrder: not as many positions as were computed.
        BadInput: tokens missing, or not those of this trace.
        AlreadySigned: an earlier session committed to another trace at this attempt.
    """
    if header.positions != work.positions or not work.positions:
        raise OutOfOrder(f"{work.positions} positions were computed", header.positions, "Commit to exactly those.")
    sent = tokens_from_bytes(payload, header.tokens, work.seat.descriptor.vocabulary)
    if work.trace is None:
        tokens = _generated(work, sent)
        await _require_good_text(bench, work, tokens)
        await work.end()
        work.trace = await _store(bench, work, tokens)
        work.tokens = tokens
        await bench.engine.forget(work.key)
        if work.seat.infers:
            work.drop_rows()
    elif sent and sent != work.tokens:
        raise BadInput("the trace was committed with other tokens", len(sent), "Repeat the first message.")
    return await _signed(bench, work.trace), b""


def _generated(work: Work, sent: tuple[int, ...]) -> tuple[int, ...]:
    """The generated tokens at the last segment; none elsewhere."""
    if not work.seat.is_last:
        if sent:
            raise BadInput("only the last segment is told the tokens", len(sent), "Send none.")
        return ()
    tokens = sent or tuple(work.emitted[position] for position in sorted(work.emitted))
    _check_text(work, tokens)
    return tokens


def _check_text(work: Work, tokens: tuple[int, ...]) -> None:
    prompt = work.seat.request.prompt_tokens
    if len(prompt) + len(tokens) - 1 != work.positions:
        raise BadInput("tokens and positions do not fit together", len(tokens), "There are P + T - 1 positions.")
    chosen = dict(enumerate(tokens, len(prompt) - 1))
    if any(chosen.get(position) != token for position, token in work.emitted.items()):
        raise BadInput("these are not the tokens that this node chose", len(tokens), "Send the text it emitted.")
    # The last of more than two segments is not told what the first one computed from.
    told = work.all_inputs().tolist() if work.seat.is_first else work.bound
    if work.seat.index <= 1 and tuple(told) != (*prompt, *tokens[:-1]):
        raise BadInput("the text is not the one that was computed", len(tokens), "Send the same tokens again.")


async def _require_good_text(bench: Bench, work: Work, tokens: tuple[int, ...]) -> None:
    """An inferencer signs for the whole text: what an earlier attempt chose is checked as a verifier would."""
    seat = work.seat
    if not (seat.infers and seat.is_last):
        return
    if len(work.emitted) == len(tokens):
        if finish_reason(tokens, seat.request) is None:
            raise OutOfOrder("the text has not ended", len(tokens), "Go on until Rows says finished.")
        return
    reference = await reference_rows(bench.engine, work)
    report = await judge_text(bench.engine, work, work.all_outputs() if reference is None else reference, tokens)
    if not report.accepted:
        raise BadInput("tokens of an earlier attempt do not follow from the rows", report.score, "Begin again.")


async def _store(bench: Bench, work: Work, tokens: tuple[int, ...]) -> StoredTrace:
    seat, rows = work.seat, work.all_outputs()
    layout = TileLayout(seat.task_id, model_id(seat.descriptor), len(rows), rows.shape[1], seat.dtype)
    committed = await asyncio.to_thread(layout.commit, rows)
    part, _ = announcement_to_wire(seat.announcement.without_request())
    hashed = output_hash(seat.salt, tokens) if seat.is_last else ZERO_HASH
    known = await bench.write(lambda: bench.traces.find(seat.task_id, seat.index, work.attempt))
    if known is not None:
        if (known.root, known.output_hash) != (committed.root, hashed):
            # Never replaced: it may be the one on chain, and a node that cannot open is slashed.
            raise AlreadySigned("another trace was committed at this attempt", len(rows), "Start another attempt.")
        return known
    trace = StoredTrace(
        task_id=seat.task_id,
        segment=seat.index,
        attempt=work.attempt,
        inferred=int(seat.infers),
        positions=len(rows),
        columns=int(rows.shape[1]),
        dtype=int(seat.dtype),
        root=committed.root,
        salt=ZERO_HASH if seat.infers else os.urandom(32),
        output_hash=hashed,
        verdict=1 if seat.infers else UNDECIDED,
        commitment=b"",
        judged=b"",
        announcement=msgspec.json.encode(part),
        created_at=bench.traces.now(),
        review_id=seat.review or b"",
    )
    await bench.write(lambda: bench.traces.keep(trace, rows))
    return trace


def signed_root(trace: StoredTrace) -> TraceRoot:
    """The statement that an inferencer signs about its trace."""
    task, root, outputs = Hash32(trace.task_id), Hash32(trace.root), Hash32(trace.output_hash)
    return TraceRoot(task, trace.segment, trace.attempt, trace.positions, root, outputs)


async def _signed(bench: Bench, trace: StoredTrace) -> Reply:
    (task, segment), root = trace.statement, Hash32(trace.root)
    if trace.inferred:
        statement = signed_root(trace)
        subject = Subject(task, segment, trace.attempt, TRACE_ROOT)
        return Committed(root, statement.output_hash, await bench.sign(subject, statement))
    hidden = trace_commitment(task, segment, bench.operator.address, root=root, salt=Hash32(trace.salt))
    promise = TraceCommitment(task, segment, trace.attempt, hidden)
    subject = Subject(task, segment, trace.attempt, TRACE_COMMITMENT)
    return TraceCommitted(hidden, await bench.sign(subject, promise))
