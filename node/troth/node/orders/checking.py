"""A verifier's part: it commits to its own trace, then it is shown the inferencer's rows and decides.

What was handed over is compared with what was signed: inputs with the result's input head, rows with its output head,
the answer with its output hash. Anything else is the messenger's fault and refused, without a verdict. The verdict: a
no where states, tokens, or the tokens of all texts together are beyond the class's cuts; a yes where they are not and
the result commits to these very rows; else the verifier cannot tell, since it has not seen what was committed to, or
since its own noise on this prompt is as large as what it finds.

Of a whole model in an exact class the hashes of rows are handed over: equal hashes are equal rows, which the verifier
has computed itself. Where either the hashes or the commitment are not those of its own rows, it cannot tell, since the
court compares commitments alone; where neither is, it rejects.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.earning.leaf import Stage
from troth.node.errors import BadInput, ModelError, OutOfOrder
from troth.node.judging.verdicts import Judgement, judge_rows, report
from troth.node.orders.chaining import RowsAhead
from troth.node.orders.concluding import committed_trace, keep_read, keep_trace
from troth.node.orders.context import NodeContext
from troth.node.orders.rejections import Rejection
from troth.node.orders.seat import Assignment
from troth.node.orders.session import JUDGED, SegmentSession, SessionRows
from troth.node.orders.words import COMMITMENT, VERDICT
from troth.protocol import typed_data
from troth.protocol.comparison import judge_hashes, judge_states
from troth.protocol.findings import TaskFinding
from troth.protocol.market import canonical, checks, leaves, messages, prices
from troth.protocol.market.leaves import NO_TRACE, ShownTraces
from troth.protocol.market.messages import Signed
from troth.protocol.market.notes import coded
from troth.protocol.market.papers import trace_salt
from troth.protocol.market.rows import HASH_BYTES, RowHashes, hashes_in, verify_hashes, verify_rows
from troth.protocol.market.signed import Opinion, TraceCommitment, Verdict, Work
from troth.protocol.request import canonical_bytes, output_hash
from troth.protocol.tensors import any_rows_from_bytes, finite, tokens_from_bytes
from troth.protocol.trace import CommittedTrace
from troth.protocol.types import Hash32
from troth.protocol.wire import Received
from troth.protocol.wire_market import Hidden, Judge, Judged, Recommit
from troth.transport.event_loop import beside

log = logging.getLogger(__name__)

NO_TRACES = ShownTraces(NO_TRACE, NO_TRACE)


async def recommit(
    context: NodeContext, session: SegmentSession, header: Recommit, payload: memoryview
) -> tuple[Hidden, bytes]:
    """Commit to the own trace; the caller holds the session's lock.

    Raises:
        OutOfOrder: not all positions of the result were computed.
        BadInput: inputs or answer are not those that the results name.
    """
    seat = session.seat
    rows = prices.positions(seat.result) - 1
    if not header.positions == session.rows.positions == rows:
        raise OutOfOrder(
            f"{session.rows.positions} of {rows} positions were computed", header.positions, "Send them all."
        )
    tokens = tokens_from_bytes(payload, header.tokens if seat.is_last else 0, seat.descriptor.vocabulary)
    _require_answer(session, tokens)
    _require_inputs(session)
    if session.trace is None:
        own = session.rows.all_outputs()
        committed = await asyncio.to_thread(committed_trace, session, own)
        session.trace = await keep_trace(context, session, own, root=_root(committed), salt=Hash32(os.urandom(32)))
        await context.engine.forget(session.key)
    session.check.tokens, session.check.committed = tokens, True
    return Hidden(), await context.write(lambda: _commitment(context, session))


def _root(committed: CommittedTrace) -> Hash32:
    return Hash32(committed.root)


def _require_answer(session: SegmentSession, tokens: tuple[int, ...]) -> None:
    """At the last segment: the tokens are those whose hash the result names, and those that were computed from."""
    seat, result = session.seat, session.seat.result
    if not seat.is_last:
        return
    prompt = seat.request.prompt_tokens
    if (len(prompt), len(tokens)) != (result.prompt + result.cached, result.written):
        raise BadInput("the result counts other positions", len(tokens), "Send the answer that it was signed for.")
    if output_hash(seat.salt, tokens) != result.output_hash:
        raise BadInput("this is not the answer that the node signed", len(tokens), "Send the answer's tokens.")
    # The last of more than two segments is not told what the first one computed from.
    told = session.rows.all_inputs().tolist() if seat.is_first else session.rows.bound
    if seat.index <= 1 and tuple(told) != (*prompt, *tokens[:-1]):
        raise BadInput("the text is not the one that was computed", len(tokens), "Send the same tokens again.")


def _require_inputs(session: SegmentSession) -> None:
    seat = session.seat
    if seat.is_first:
        return
    entered = checks.head(seat.order_id, seat.head_salt, session.rows.upstream.link)
    if entered != seat.result.input_head:
        raise BadInput("these are not the rows that the node read", entered, "Send the rows of the segment before.")


def _commitment(context: NodeContext, session: SegmentSession) -> bytes:
    seat = session.seat
    judged = typed_data.struct_hash(seat.result)
    message = TraceCommitment(seat.order_id, seat.index, judged, own_commitment(context, session))
    place = (seat.order_id, seat.index)
    return context.stores.words.sign_once(place, COMMITMENT, message, lambda: context.operator.sign(message))


def own_commitment(context: NodeContext, session: SegmentSession) -> Hash32:
    """What this verifier commits to."""
    seat, trace = session.seat, session.trace
    assert trace is not None
    return messages.verifier_commitment(
        seat.order_id, seat.index, context.me, root=Hash32(trace.root), salt=Hash32(trace.salt)
    )


# ------------------------------------------------------------------------------------------------------------- verdicts


async def judge(
    context: NodeContext, session: SegmentSession, header: Judge, payload: memoryview
) -> tuple[Received | Judged, bytes]:
    """Take rows of the inferencer, and decide with the last of them; the caller holds the session's lock.

    Raises:
        OutOfOrder: this node has not committed to its own trace yet, or rows are missing.
        BadInput, InvalidRows, InvalidSignature: what was handed over is not what the inferencer signed.
    """
    seat, trace = session.seat, session.trace
    if seat.infers or trace is None or not session.check.committed:
        raise OutOfOrder("only a verifier that has committed judges", seat.index, "Send Advance and Recommit first.")
    if header.positions != trace.positions:
        raise BadInput("the trace has another length", header.positions, f"It has {trace.positions} positions.")
    rows = await beside(len(payload), _handed_over, session, header, payload)
    received = sum(len(part) for part in session.check.claimed)
    if header.start == 0 and received:
        session.check.claimed, received = [], 0
    if header.start != received or received + header.count > trace.positions:
        raise OutOfOrder(f"the next row to judge is {received}", header.start, "Send the rows in order.")
    if received + header.count < trace.positions:
        session.check.claimed.append(rows)
        return Received(received + header.count), b""
    claimed = np.concatenate([*session.check.claimed, rows])
    await beside(claimed.nbytes, _require_signed, context, session, header, claimed)
    word = await _decide(context, session, claimed)
    session.drop_rows()
    return await context.write(lambda: verdict_answer(context, seat.order_id, seat.index, word))


def verdict_answer(context: NodeContext, order: bytes, segment: int, word: bytes) -> tuple[Judged, bytes]:
    """A verdict that was signed, and the traces for which it is owed where it does not accept."""
    leaf = context.stores.books.leaf(order, segment, Work.CHECK)
    traces = b"" if leaf is None else leaf.traces
    return Judged(len(traces)), word + traces


def _handed_over(session: SegmentSession, header: Judge, payload: memoryview) -> NDArray[Any]:
    """Rows, or a row of bytes for the hash of each; raises WireError, InvalidRows."""
    seat = session.seat
    if not seat.sends_hashes:
        # What was signed is judged, also where it is no state.
        return any_rows_from_bytes(payload, header.count, seat.descriptor.hidden_size, seat.dtype)
    hashes = hashes_in(payload)
    if len(hashes) != header.count:
        raise BadInput("the payload has not as many row hashes as it says", len(hashes), "Send one for each position.")
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES)


def _require_signed(context: NodeContext, session: SegmentSession, header: Judge, claimed: NDArray[Any]) -> None:
    """Raise unless these are the rows, or hashes, that the inferencer chained, signed and named in its result."""
    seat = session.seat
    if header.row is None:
        raise BadInput("the last rows come with the chain's end", header.start, "Add it.")
    hashes = RowHashes(seat.order_id, seat.index)
    signer, domain = seat.nodes[seat.index], context.operator.domain
    data = np.ascontiguousarray(claimed).astype(claimed.dtype.newbyteorder("<"), copy=False).tobytes()
    if seat.sends_hashes:
        hashes = verify_hashes(hashes, data, header.row, signer=signer, domain=domain)
    else:
        bound = session.rows.tokens_of(session.rows.all_inputs())
        size = session.rows.row_size
        hashes = verify_rows(hashes, data, size, header.row, signer=signer, domain=domain, tokens=bound)
    given = checks.head(seat.order_id, seat.head_salt, hashes.link)
    if given != seat.result.output_head:
        raise BadInput("the result names other rows", given, "Send the rows that its node signed.")


@dataclass(frozen=True, slots=True)
class _Compared:
    """What a verifier found, its ``own`` trace, and the ``judged`` one where its rows were seen or are the own ones.

    ``shown`` are the rows that were handed over, if they were.
    """

    judgement: Judgement
    own: CommittedTrace
    judged: CommittedTrace | None
    shown: NDArray[Any] | None = None


async def _decide(context: NodeContext, session: SegmentSession, claimed: NDArray[Any]) -> bytes:
    seat = session.seat
    salt = trace_salt(seat.order_id, seat.index, seat.nodes[seat.index], seat.head_salt)
    compared = await (_compare_hashes if seat.sends_hashes else _compare_rows)(context, session, claimed, salt)
    judgement = await _pooled(context, session, compared.judgement)
    report(judgement)
    opinion = _opinion(judgement)
    shown = NO_TRACES
    if compared.judged is not None:
        shown = await asyncio.to_thread(_shown, session, compared.own, compared.judged, salt)
    alone = judgement.for_a_court
    if opinion is Opinion.REJECT and not alone:
        log.warning(
            "rejected for many texts, or for long windows, alone: no case is brought, since it would take nothing"
        )
    if opinion is Opinion.REJECT and compared.judged is not None and compared.shown is not None:
        await _keep_judged(context, session, compared.shown, Hash32(compared.judged.root))
    return await context.write(lambda: _sign(context, session, opinion, shown, keeps=alone))


@dataclass(frozen=True, slots=True)
class _JudgedRows:
    """See ``judging.JudgedSession``: what this node was given and what it computed."""

    seat: Assignment
    tokens: tuple[int, ...]
    rows: SessionRows

    @classmethod
    def of(cls, session: SegmentSession) -> _JudgedRows:
        return cls(session.seat, session.check.tokens, session.rows)

    def all_inputs(self) -> NDArray[Any]:
        return self.rows.all_inputs()

    def all_outputs(self) -> NDArray[Any]:
        return self.rows.all_outputs()


async def _compare_rows(
    context: NodeContext, session: SegmentSession, claimed: NDArray[Any], salt: Hash32
) -> _Compared:
    if not finite(claimed, session.seat.dtype):
        return await _no_states(context, session, claimed)
    judged = await asyncio.to_thread(committed_trace, session, claimed)
    named = _is_named(session, judged, salt)
    own = await _own_rows(context, session)
    judgement = await judge_rows(context.engine, _JudgedRows.of(session), claimed, root_matches=named)
    return _Compared(judgement, own, judged, claimed)


async def _no_states(context: NodeContext, session: SegmentSession, claimed: NDArray[Any]) -> _Compared:
    """Rows that nobody signs who computes what was ordered: no trace can be committed to them."""
    own = await _own_rows(context, session)
    states = judge_states(session.seat.execution_class, claimed, session.rows.all_outputs())
    return _Compared(Judgement(root_matches=False, states=states, tokens=None), own, None)


async def _compare_hashes(
    context: NodeContext, session: SegmentSession, claimed: NDArray[Any], salt: Hash32
) -> _Compared:
    own, rows = await _own_rows(context, session), session.rows.all_outputs()
    ahead = RowsAhead.over(
        session, RowHashes(session.seat.order_id, 0), [rows], session.rows.tokens_of(session.rows.all_inputs())
    )
    _, _, sent = await beside(ahead.size, ahead.extended)
    found = judge_hashes(hashes_in(claimed.tobytes()), hashes_in(sent))
    named = _is_named(session, own, salt)
    if not found.accepted and not named:
        return _Compared(Judgement(root_matches=False, states=found, tokens=None), own, None)
    judgement = await judge_rows(context.engine, _JudgedRows.of(session), rows, root_matches=found.accepted and named)
    return _Compared(judgement, own, own)


def _is_named(session: SegmentSession, trace: CommittedTrace, salt: Hash32) -> bool:
    return messages.trace_commitment(Hash32(trace.root), salt) == session.seat.result.trace_commitment


async def _keep_judged(context: NodeContext, session: SegmentSession, claimed: NDArray[Any], root: Hash32) -> None:
    """The rejected rows, and what they were computed from: by them a wrong token, or a wrong row, is proven where most
    verifiers say otherwise."""
    seat, trace = session.seat, session.trace
    assert trace is not None
    judged = replace(trace, attempt=JUDGED, root=root, created_at=context.stores.traces.now())
    if await context.write(lambda: context.stores.traces.find(seat.order_id, seat.index, JUDGED)) is None:
        await context.write(lambda: context.stores.traces.keep(judged, claimed))
    await context.write(lambda: keep_read(context, session, judged))


async def _own_rows(context: NodeContext, session: SegmentSession) -> CommittedTrace:
    """The own trace as it was committed to, which is also what is compared.

    Raises ModelError where rows that are not kept were computed again, after a restart, and came out otherwise.
    """
    trace = session.trace
    assert trace is not None
    if trace.keeps_rows:
        session.rows.outputs = [await context.write(lambda: context.stores.traces.rows(trace))]
    committed = await asyncio.to_thread(committed_trace, session, session.rows.all_outputs())
    if committed.root != trace.root:
        what = "these are not the rows that this node committed to"
        raise ModelError(what, trace.order_id.hex(), "Start it with the weights and libraries that it had.")
    return committed


async def _pooled(context: NodeContext, session: SegmentSession, judgement: Judgement) -> Judgement:
    """The judgement with what was seen of this inferencer before. A text that is refused anyway is not pooled: it may
    be refused for another's states, or have been made to frame. What long windows alone refuse counts: it takes no
    stake by itself, and who is refused so again and again is to be suspected."""
    text, seat, margins = judgement.text, session.seat, context.stores.margins
    if not judgement.verdict and not judgement.by_long_windows:
        return judgement
    place = (seat.nodes[seat.index], context.execution_class, seat.order_id)
    if judgement.findings:
        evidence = await context.write(lambda: margins.gather(*place, judgement.findings))
        await context.write(lambda: _note(context, session, judgement.findings))
        return replace(judgement, evidence=evidence)
    if not text.tokens:
        return judgement
    return replace(judgement, pool=await context.write(lambda: margins.add(*place, text)))


def _note(context: NodeContext, session: SegmentSession, findings: Sequence[TaskFinding]) -> None:
    """Sign what this task says, for evidence that several verifiers gather."""
    seat = session.seat
    if seat.papers is not None:
        context.stores.notes.add(seat.papers, seat.index, coded(findings), seat.order_id, context.operator.sign)


def _opinion(judgement: Judgement) -> Opinion:
    if judgement.refused or not judgement.over_many:
        return Opinion.REJECT
    return Opinion.ACCEPT if judgement.told else Opinion.CANNOT_TELL


def _shown(session: SegmentSession, own: CommittedTrace, judged: CommittedTrace, salt: Hash32) -> ShownTraces:
    """Both traces as a claim shows them: whoever computes nothing has no trace that agrees, and is paid nothing."""
    seat, trace = session.seat, session.trace
    assert trace is not None
    roots = (Hash32(own.root), Hash32(judged.root))
    return ShownTraces(
        leaves.shown(own, Hash32(trace.salt), roots, seat.result, seat.rules),
        leaves.shown(judged, salt, roots, seat.result, seat.rules),
    )


def _sign(context: NodeContext, session: SegmentSession, opinion: Opinion, shown: ShownTraces, *, keeps: bool) -> bytes:
    """The verdict as it travels, written with the leaf that it is owed for; ``keeps``: also with what a case needs."""
    seat, stores = session.seat, context.stores
    message = Verdict(
        order=seat.order_id,
        segment=seat.index,
        result=typed_data.struct_hash(seat.result),
        commitment=own_commitment(context, session),
        opinion=opinion,
        locks=context.locks and opinion is Opinion.REJECT,
    )

    def beside(signed: Signed[Verdict]) -> None:
        _settle(context, session, signed, shown)
        if keeps:
            stores.rejections.keep(_rejection(context, session, signed))

    place = (seat.order_id, seat.index)
    return stores.words.sign_once(place, VERDICT, message, lambda: context.operator.sign(message), beside=beside)


def _settle(context: NodeContext, session: SegmentSession, signed: Signed[Verdict], shown: ShownTraces) -> None:
    seat, books = session.seat, context.stores.books
    leaf, papers = books.leaf(seat.order_id, seat.index, Work.CHECK), seat.papers
    if leaf is None or papers is None:
        return
    verdict = signed.message
    if verdict.opinion != Opinion.ACCEPT and not leaves.shows_work(verdict, seat.result, shown, context.me, seat.rules):
        shown = NO_TRACES
    checked = leaves.check_leaf(leaf.promise, signed, papers.draw, papers.results, own=shown.own, judged=shown.judged)
    books.done(
        replace(
            leaf,
            stage=Stage.DONE,
            worth=leaf.price,
            evidence=canonical.encode(checked),
            done_at=context.clock(),
            done_block=context.ground.block,
            prompt=prices.positions(seat.result),
        )
    )


def _rejection(context: NodeContext, session: SegmentSession, signed: Signed[Verdict]) -> Rejection:
    seat, trace = session.seat, session.trace
    word = context.stores.words.find(seat.order_id, seat.index, COMMITMENT)
    assert word is not None and trace is not None and seat.papers is not None  # noqa: PT018
    return Rejection(
        order=seat.order_id,
        segment=seat.index,
        papers=seat.papers,
        commitment=canonical.decode(Signed[TraceCommitment], word, len(word)),
        verdict=signed,
        root=Hash32(trace.root),
        salt=Hash32(trace.salt),
        request=b"" if seat.ordered is None else canonical_bytes(seat.ordered),
        tokens=session.check.tokens,
    )
