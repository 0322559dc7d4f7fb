"""What this scheduler holds of its orders for cases over them: everything that was signed, the text, and all rows."""

from __future__ import annotations

import asyncio

from troth.cases.evidence import VERSION, Evidence
from troth.protocol.market.rows import travel_as_hashes
from troth.protocol.market.views import rules_in
from troth.protocol.request import tokens_to_words
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.types import Hash32
from troth.scheduler.orders.desk import SchedulerContext
from troth.scheduler.orders.story import OrderHistory


class OrderHoldings:
    """See ``cases.desk.Holdings``; the desk gives it to drawn reviewers of a live case alone."""

    def __init__(self, desk: SchedulerContext) -> None:
        self._desk = desk

    async def evidence_of(self, order: Hash32) -> Evidence | None:
        """Everything that was signed, with request, answer and salts; None: no such answer was given here."""
        story = self._desk.store.get(order)
        if story is None or story.answered is None or story.drawn is None:
            return None
        return evidence_of(self._desk, story)

    async def rows_of(self, order: Hash32, segment: int) -> bytes | None:
        """The salt of the order's heads, then the rows that a segment gave; None where only hashes of them travelled,
        since whoever judges has rows of its own there."""
        story = self._desk.store.get(order)
        if story is None or story.answered is None or segment >= story.segments:
            return None
        rules = rules_in(self._desk.ledger.state, story.order.execution_class)
        if travel_as_hashes(exact=rules.exact, segments=story.segments):
            return None
        kept = self._desk.rows.open(order, row_size(rules.hidden_size, Dtype(rules.dtype)))
        try:
            rows = await asyncio.to_thread(kept.rows, segment, 0, story.answered.rows)
        except (OSError, EOFError):
            return None
        return story.admitted.head_salt + rows


def evidence_of(desk: SchedulerContext, story: OrderHistory) -> Evidence:
    """The evidence that a story makes; its text is there as long as it is kept."""
    admitted, answered, drawn = story.admitted, story.answered, story.drawn
    assert answered is not None
    assert drawn is not None
    domain = desk.operator.domain
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
        secret=None if story.revealed is None else story.revealed.secret,
        second_secret=None if story.frozen is None else story.frozen.second_secret,
        commitments=tuple(story.commitments.values()),
        verdicts=tuple(story.verdicts.values()),
        request=story.request,
        answer=None if story.tokens is None else tokens_to_words(story.tokens),
        salt=story.salt,
        head_salt=admitted.head_salt,
    )
