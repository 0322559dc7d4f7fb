"""Compare: a verifier that has committed to its own root is shown the inferencer's rows and decides.

Verdict (design.md section 5): (1) the rows are those that the inferencer signed, at the first segment for the tokens
that this node was given; anything else is the messenger's fault and refused; (2) the signed root is the root of these
rows; (3) states within the class's cut; (4) at the last segment, tokens within the class's margin and a valid end;
(5) there, in a class that tolerates noise, tokens of all its texts together no worse than this node's own noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.errors import BadInput, OutOfOrder
from troth.node.judging import Judgement, judge, report
from troth.node.service.bench import Bench
from troth.node.service.work import Work
from troth.node.signing_record import VERDICT, Subject
from troth.node.traces import UNDECIDED, StoredTrace
from troth.protocol import typed_data
from troth.protocol.identifiers import class_id, verdict_commitment
from troth.protocol.rows import RowChain, verify_rows
from troth.protocol.tensors import rows_from_bytes, rows_to_bytes
from troth.protocol.types import Address, Hash32, TraceRoot, VerdictCommitment, to_address
from troth.protocol.wire import Compare, Compared, Received
from troth.protocol.wire_fields import RowSignature

Reply = Received | Compared


async def compare(bench: Bench, work: Work, header: Compare, payload: memoryview) -> tuple[Reply, bytes]:
    """Answer a Compare; the caller holds the work's lock.

    Raises:
        OutOfOrder: this node has not committed to its own trace yet, or rows are missing.
        BadInput, InvalidRows, InvalidSignature: what was handed over is not what the inferencer signed.
    """
    trace = _own_trace(work, header)
    if trace.verdict != UNDECIDED:
        return await _signed(bench, trace), b""
    rows = rows_from_bytes(payload, header.count, trace.columns, work.seat.dtype)
    received = sum(len(part) for part in work.claimed)
    if header.start == 0 and received:
        work.claimed, received = [], 0
    if header.start != received or received + header.count > trace.positions:
        raise OutOfOrder(f"the next row to compare is {received}", header.start, "Send the rows in order.")
    if received + header.count < trace.positions:
        work.claimed.append(rows)
        return Received(received + header.count), b""
    claimed = np.concatenate([*work.claimed, rows])
    claim = (_signed_claim if work.seat.review is None else _reviewed_claim)(bench, work, header, claimed)
    judgement = await _pooled(bench, work, header, await judge(bench.engine, work, claimed, claim.root))
    report(judgement)
    work.trace = await _decide(bench, trace, judgement, claim)
    work.drop_rows()
    return await _signed(bench, work.trace), b""


async def _pooled(bench: Bench, work: Work, header: Compare, judgement: Judgement) -> Judgement:
    """The judgement with what was seen of this inferencer before. A text that is refused anyway is not pooled: it may
    be refused for another's states, or have been made to frame."""
    text, seat = judgement.text, work.seat
    if not text.tokens or not judgement.verdict:
        return judgement
    place = (to_address(header.inferencer), class_id(seat.execution_class), seat.task_id)
    return replace(judgement, pool=await bench.write(lambda: bench.margins.add(*place, text)))


def _own_trace(work: Work, header: Compare) -> StoredTrace:
    if work.seat.infers or work.trace is None:
        raise OutOfOrder("only a verifier that has committed compares", work.seat.index, "Send Commit first.")
    if header.positions != work.trace.positions:
        raise BadInput("the trace has another length", header.positions, f"It has {work.trace.positions} positions.")
    return work.trace


def _signed_claim(bench: Bench, work: Work, header: Compare, claimed: NDArray[Any]) -> TraceRoot:
    """What the inferencer signed of its trace, after checking its chain and its signature."""
    row, root, outputs, signature = header.row, header.root, header.output_hash, header.root_signature
    if row is None or root is None or outputs is None or signature is None:
        raise BadInput("the last rows come with chain end, root and its signature", header.start, "Add them.")
    inferencer = to_address(header.inferencer)
    if inferencer not in work.seat.assignment.candidates(work.seat.index):
        raise BadInput("this is no candidate of the segment", inferencer, "Name the inferencer.")
    if work.trace is not None and outputs != work.trace.output_hash:
        raise BadInput("the inferencer signed another text", outputs, "Send every verifier the tokens it emitted.")
    _check_chain(bench, work, inferencer, row, claimed)
    statement = TraceRoot(
        work.seat.task_id, work.seat.index, work.attempt, header.positions, Hash32(root), Hash32(outputs)
    )
    typed_data.require_signer(statement, bench.operator.domain, signature, inferencer)
    return statement


def _reviewed_claim(bench: Bench, work: Work, header: Compare, claimed: NDArray[Any]) -> TraceRoot:
    """What stands on chain of the inferencer's trace, after checking that these are its rows."""
    assert work.seat.review is not None
    record, row = bench.view.review(work.seat.review), header.row
    if record is None or row is None:
        raise BadInput("the last rows of a review come with the chain's end", header.start, "Add it.")
    progress, inferencer = record.review.progress, record.review.progress.parties[0]
    if (header.positions, work.attempt) != (progress.positions, progress.attempt):
        raise BadInput("the trace on chain is another one", header.positions, f"Send attempt {progress.attempt}.")
    if work.seat.is_last and work.trace is not None and work.trace.output_hash != progress.output_hash:
        raise BadInput("the text on chain is another one", progress.output_hash, "Send the tokens of the receipt.")
    _check_chain(bench, work, inferencer, row, claimed)
    return TraceRoot(work.seat.review, 0, progress.attempt, progress.positions, progress.posts[0], progress.output_hash)


def _check_chain(bench: Bench, work: Work, inferencer: Address, row: RowSignature, claimed: NDArray[Any]) -> None:
    start = RowChain(work.seat.task_id, work.seat.index, work.attempt)
    verify_rows(
        start,
        rows_to_bytes(claimed, work.seat.dtype),
        work.row_size,
        row,
        signer=inferencer,
        domain=bench.operator.domain,
        tokens=work.tokens_of(work.all_inputs()),
    )


async def _decide(bench: Bench, trace: StoredTrace, judgement: Judgement, claim: TraceRoot) -> StoredTrace:
    verdict, judged = judgement.verdict, typed_data.struct_hash(claim)
    hidden = _commitment(bench.operator.address, trace, verdict)
    return await bench.write(lambda: bench.traces.decide(trace, verdict=verdict, commitment=hidden, judged=judged))


def _commitment(me: Address, trace: StoredTrace, verdict: bool) -> Hash32:
    (task, segment), root, salt = trace.statement, Hash32(trace.root), Hash32(trace.salt)
    return verdict_commitment(task, segment, me, root=root, verdict=verdict, salt=salt)


async def _signed(bench: Bench, trace: StoredTrace) -> Compared:
    (task, segment), commitment = trace.statement, Hash32(trace.commitment)
    statement = VerdictCommitment(task, segment, trace.attempt, commitment, Hash32(trace.judged))
    subject = Subject(task, segment, trace.attempt, VERDICT)
    other = _commitment(bench.operator.address, trace, not trace.verdict)
    return Compared(commitment, other, await bench.sign(subject, statement))
