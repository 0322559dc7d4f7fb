"""The disputes of a running node: it answers over rows that it signed, and plays on those that it opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from troth.cases.courtroom import CallRefused
from troth.cases.errors import CaseError, NothingToDo
from troth.cases.evidence import Evidence
from troth.node.court.accusation import DisputableSegment, disputable, require_class
from troth.node.court.accusations import Accusations, open_dispute, rows_in
from troth.node.court.canonical_traces import CanonicalTraces
from troth.node.court.dispute_chain import LiveDisputes
from troth.node.court.disputing import Disputant, DisputeStanding
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.recomputing import prefill
from troth.node.court.segment_text import SegmentText
from troth.node.engine.interface import Engine
from troth.node.models.folder import ModelFolder
from troth.node.orders.context import NodeContext
from troth.node.orders.rejections import Rejection
from troth.node.orders.session import INFERS, JUDGED, READ
from troth.node.orders.traces import TraceStore
from troth.node.orders.words import READ_TOKENS
from troth.protocol.disputes.game import Matter
from troth.protocol.market.views import class_of
from troth.protocol.request import tokens_in_words
from troth.protocol.tensors import Dtype, rows_to_bytes
from troth.protocol.types import Hash32, ModelDescriptor, Segment

log = logging.getLogger(__name__)

DONE = frozenset({"NothingToLose", "AlreadyProven", "TooLate"})
"""Errors of the contract after which nothing is left to dispute."""


class OwnDisputes:
    """See the module. ``step`` is one look; ``accuse`` opens a dispute over a rejected answer."""

    def __init__(
        self, context: NodeContext, chain: LiveDisputes, folder: Path, model: Callable[[], ModelFolder], most_wei: int
    ) -> None:
        self._context = context
        self._chain = chain
        self._most = most_wei
        self._weights: OpenedWeights | None = None
        self._model = model
        self.accusations = Accusations(folder / "accusations")
        traces = CanonicalTraces(folder / "traces", self.weights)
        self.disputant = Disputant(chain, self.weights, traces, self.text_of, self._rows_again)
        self._looked = False

    def weights(self) -> OpenedWeights:
        """The model's weights, opened once."""
        if self._weights is None:
            self._weights = OpenedWeights(self._model())
        return self._weights

    def keeps(self, order: Hash32, segment: int) -> bool:
        """Whether a dispute needs what is kept of a segment; before the first look everything is needed."""
        if not self._looked:
            return True
        return any((one.life.matter.order, one.life.matter.segment) == (order, segment) for one in self.standing)

    @property
    def standing(self) -> tuple[DisputeStanding, ...]:
        """The disputes under way."""
        return self.disputant.standing

    async def step(self) -> None:
        """Take every turn that is due."""
        await self.disputant.look()
        self._looked = True
        accused = {(one.life.matter.order, one.life.matter.segment) for one in self.standing if one.accuses}
        await asyncio.to_thread(self.accusations.drop_others, accused)

    async def close(self) -> None:
        """Stop computing, and close the connection."""
        await self.disputant.traces.close()
        await self._chain.close()

    # ------------------------------------------------------------------------------------------------- what is known

    async def text_of(self, matter: Matter) -> SegmentText | None:
        """What this node read as the inferencer, or was shown of an order that it accuses."""
        place = matter.order, matter.segment
        own = await self._context.write(partial(self._own, *place))
        if own is not None:
            return own
        return await asyncio.to_thread(self.accusations.find, *place, self._context.ground.state)

    def _own(self, order: Hash32, segment: int) -> SegmentText | None:
        """On the records' thread: what was kept beside a result of this node."""
        stores = self._context.stores
        begun = stores.words.begun(order, segment, "infer")
        if begun is None:
            return None
        _, descriptor = class_of(self._context.ground.state, self._context.execution_class)
        tokens, read = stores.words.find(order, segment, READ_TOKENS), stores.traces.find(order, segment, READ)
        if tokens is None and read is None:
            return None
        trace = stores.traces.find(order, segment, INFERS)
        given = None
        if trace is not None and trace.keeps_rows:
            given = rows_to_bytes(stores.traces.rows(trace), Dtype(trace.dtype))
        return SegmentText(
            order=order,
            segment=segment,
            head_salt=Hash32(begun.papers),
            tokens=None if tokens is None else tokens_in_words(tokens),
            read=None if read is None else rows_to_bytes(stores.traces.rows(read), Dtype(read.dtype)),
            given=given,
            hidden=descriptor.hidden_size,
        )

    async def _rows_again(self, text: SegmentText) -> SegmentText:
        """Own rows that were not kept: an exact class computes the same ones."""
        _, descriptor = class_of(self._context.ground.state, self._context.execution_class)
        return await computed_again(self._context.engine, text, descriptor)

    # ------------------------------------------------------------------------------------------------------ accusing

    async def accuse(self, rejection: Rejection, evidence: Evidence) -> bool:
        """Open a dispute over a rejected result; False where no row of it is wrong by more than honest ones are.

        Raises CallRefused or ChainError where it cannot be opened now, ProofTooDear where it costs too much now.
        """
        if not self._most:
            return False
        try:
            found = await self._disputable(rejection, evidence)
            position = await asyncio.to_thread(found.find, self.weights())
            await open_dispute(self._chain, self.accusations, found, self.weights(), position, most=self._most)
        except CaseError as error:
            log.info("no row is disputed: %s", error)
            return False
        except CallRefused as refused:
            if refused.name not in DONE:
                raise
            log.info("a wrong row convicts nobody any more: %s", refused)
            return False
        return True

    async def _disputable(self, rejection: Rejection, evidence: Evidence) -> DisputableSegment:
        state, segment = self._context.ground.state, rejection.segment
        require_class(class_of(state, self._context.execution_class)[0])
        kept = await self._context.write(partial(rejected_rows, self._context.stores.traces, rejection))
        found = disputable(evidence, state, segment, rows_in(evidence, None) | kept)
        if found.text.given is None:
            await require_other_rows(self._context.engine, found)
        return found


def rejected_rows(traces: TraceStore, rejection: Rejection) -> dict[int, bytes]:
    """What a rejected segment gave and read, by the segment that gave it; on the records' thread."""
    found = dict[int, bytes]()
    for segment, attempt in ((rejection.segment, JUDGED), (rejection.segment - 1, READ)):
        trace = traces.find(rejection.order, rejection.segment, attempt)
        if trace is not None and segment >= 0:
            found[segment] = rows_to_bytes(traces.rows(trace), Dtype(trace.dtype))
    return found


async def computed_again(engine: Engine, text: SegmentText, descriptor: ModelDescriptor) -> SegmentText:
    """A whole model's text with the rows that this engine gives for it."""
    if text.tokens is None:
        remedy = "Only a first segment, which begins with tokens, is computed again."
        raise NothingToDo("The rows of this segment are not kept", text.order.hex(), remedy)
    span, entered = Segment(0, descriptor.layers), np.array(text.tokens, np.int64)
    rows = await prefill(engine, text.order, span, entered)
    return replace(text, given=rows_to_bytes(rows, Dtype.FLOAT32))


async def require_other_rows(engine: Engine, found: DisputableSegment) -> None:
    """Raise NothingToDo where a node of an exact class signed the rows that this engine computes, too."""
    again = await computed_again(engine, found.text, found.descriptor)
    if again.head() == found.signed.message.output_head:
        raise NothingToDo(
            "The node signed the rows that this machine computes, too", found.segment, "There is nothing to dispute."
        )
