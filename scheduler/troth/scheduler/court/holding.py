"""What this scheduler holds of its orders for cases over them: everything that was signed, the text, and all rows."""

from __future__ import annotations

import asyncio

from troth.cases.evidence import VERSION, Evidence
from troth.protocol.market.rows import travel_as_hashes
from troth.protocol.market.views import rules_in
from troth.protocol.request import tokens_to_words
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.types import Hash32
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.history import OrderHistory


class OrderHoldings:
    """See ``cases.context.Holdings``; the context gives it to drawn reviewers of a live case alone."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context

    async def evidence_of(self, order: Hash32) -> Evidence | None:
        """Everything that was signed, with request, answer and salts; None: no such answer was given here."""
        history = self._context.store.get(order)
        if history is None or history.answered is None or history.drawn is None:
            return None
        return evidence_of(self._context, history)

    async def rows_of(self, order: Hash32, segment: int) -> bytes | None:
        """The salt of the order's heads, then the rows that a segment gave; None where only hashes of them travelled,
        since whoever judges has rows of its own there."""
        history = self._context.store.get(order)
        if history is None or history.answered is None or segment >= history.segments:
            return None
        rules = rules_in(self._context.ledger.state, history.order.execution_class)
        if travel_as_hashes(exact=rules.exact, segments=history.segments):
            return None
        kept = self._context.rows.open(order, row_size(rules.hidden_size, Dtype(rules.dtype)))
        try:
            rows = await asyncio.to_thread(kept.rows, segment, 0, history.answered.rows)
        except (OSError, EOFError):
            return None
        return history.admitted.head_salt + rows


def evidence_of(context: SchedulerContext, history: OrderHistory) -> Evidence:
    """The evidence that a history makes; its text is there as long as it is kept."""
    admitted, answered, drawn = history.admitted, history.answered, history.drawn
    assert answered is not None
    assert drawn is not None
    domain = context.operator.domain
    return Evidence(
        version=VERSION,
        chain_id=domain.chain_id,
        bank=domain.contract,
        tab=admitted.tab,
        order=admitted.order,
        admissions=(admitted.admission,),
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        results=answered.results,
        draws=(drawn.draw,),
        draw_proof=drawn.proof,
        secret=None if history.revealed is None else history.revealed.secret,
        second_secret=None if history.frozen is None else history.frozen.second_secret,
        commitments=tuple(history.commitments.values()),
        verdicts=tuple(history.verdicts.values()),
        request=history.request,
        answer=None if history.tokens is None else tokens_to_words(history.tokens),
        salt=history.salt,
        head_salt=admitted.head_salt,
    )
