"""One order as its log line: what an auditor recomputes, without prompt, answer, salt or tab."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from troth.protocol.market import log_data, prices
from troth.protocol.market.ballots import members_of
from troth.protocol.market.log_data import LoggedBallot, LoggedBallots, LoggedVerdict, LogLine, written
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
    admitted = history.admitted
    line = log_data.promised_line(
        history.order_id,
        history.order,
        zip(admitted.nodes, history.answered.results, strict=True),
        (admitted.infer_proof, proof),
        draw,
        block=history.drawn_first or draw.block_number,
        positions=prices.positions(history.results[-1]),
    )
    secret = "" if history.revealed is None else written(history.revealed.secret)
    return msgspec.structs.replace(line, secret=secret, verdicts=_said(history))


def _said(history: OrderHistory) -> tuple[LoggedVerdict, ...]:
    """The verdicts of who was drawn last: a node that a summons proved silent has no say."""
    return tuple(
        log_data.logged_verdict(verifier, verdict)
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
