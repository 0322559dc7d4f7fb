"""One order as its log line: what an auditor recomputes, without prompt, answer, salt or tab."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from troth.protocol import typed_data
from troth.protocol.market import log_data, prices
from troth.protocol.market.ballots import members_of
from troth.protocol.market.log_data import LoggedBallot, LoggedBallots, LoggedResult, LoggedVerdict, LogLine, written
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.signed import Draw
from troth.scheduler.orders.history import OrderHistory


def line_of(history: OrderHistory, *, veiled: bool = False) -> LogLine:
    """The line of a drawn order, with whatever was shown and said since; ``veiled``: without verifiers' names."""
    assert history.drawn is not None
    line = line_with(history, history.drawn.draw.message, history.drawn.proof)
    if not veiled:
        return line
    alone = tuple(said for said in line.verdicts if sum(one.segment == said.segment for one in line.verdicts) == 1)
    cast = tuple(found for segment in sorted(history.checks) if (found := _cast(history, segment)) is not None)
    return msgspec.structs.replace(line, verdicts=alone, ballots=cast or msgspec.UNSET)


def line_with(history: OrderHistory, draw: Draw, proof: bytes) -> LogLine:
    """The line of an order with results under a draw that is about to be signed; its bucket is the first draw's."""
    assert history.answered is not None
    order, admitted = history.order, history.admitted
    seen = tuple(
        LoggedResult(node, written(typed_data.struct_hash(one.message)), written(one.signature))
        for node, one in zip(admitted.nodes, history.answered.results, strict=True)
    )
    return LogLine(
        order=written(history.order_id),
        execution_class=written(order.execution_class),
        ends=written(order.ends),
        reference_block=order.reference_block,
        check_rate=order.check_rate,
        draw_hash=written(order.draw_hash),
        prompt_price=str(order.prompt_price),
        cached_price=str(order.cached_price),
        written_price=str(order.written_price),
        node_share=order.node_share,
        infer_proof=written(admitted.infer_proof),
        results=seen,
        beta=written(draw.beta),
        draw_proof=written(proof),
        block_bucket=(history.drawn_first or draw.block_number) // log_data.BLOCK_BUCKET,
        positions_bucket=log_data.bucket_of(prices.positions(history.results[-1])),
        secret="" if history.revealed is None else written(history.revealed.secret),
        verdicts=_said(history),
    )


def _said(history: OrderHistory) -> tuple[LoggedVerdict, ...]:
    """The verdicts of who was drawn last: a node that a summons proved silent has no say."""
    return tuple(
        LoggedVerdict(
            segment,
            verifier,
            int(verdict.message.opinion),
            verdict.message.locks,
            written(verdict.message.commitment),
            written(verdict.signature),
        )
        for segment in sorted(history.checks)
        for verifier in history.checks[segment][-1].operators
        if (verdict := history.verdicts.get((segment, verifier))) is not None
    )


def _cast(history: OrderHistory, segment: int) -> LoggedBallots | None:
    """The fullest ring of who was drawn last, and its ballots in the order of their tags."""
    drawn = {*history.checks[segment][-1].operators}
    rings = [ring for place, ring in history.ballots if place == segment and drawn.issuperset(members_of(ring))]
    if not rings:
        return None
    ring = max(rings, key=lambda one: len(history.ballots[segment, one]))
    ballots = sorted(
        (signature, int(history.verdicts[segment, verifier].message.opinion))
        for verifier, signature in history.ballots[segment, ring].items()
    )
    shown = tuple(LoggedBallot(opinion, written(signature)) for signature, opinion in ballots)
    return LoggedBallots(segment, written(b"".join(ring)), shown)


def counts_of(lines: Iterable[LogLine], positions: int, fees: int) -> LogCounts:
    """What an entry over these lines counts."""
    lines = tuple(lines)
    drawn = [line for line in lines if log_data.is_drawn(line)]
    return LogCounts(
        orders=len(lines),
        positions=positions,
        drawn=len(drawn),
        checked=sum(bool(log_data.opinions_in(line)) for line in drawn),
        rejected=sum(log_data.is_rejected(line) for line in drawn),
        unrevealed=sum(not line.secret for line in lines),
        fees=fees,
    )
