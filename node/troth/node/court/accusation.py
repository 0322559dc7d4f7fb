"""From evidence to an accusation: which row of an order is wrong, and the call that opens the dispute over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.provable import COURT, rows_are_not
from troth.node.court.segment_text import ASK, SegmentText, first_far, is_far
from troth.protocol import typed_data
from troth.protocol.disputes.calls import Accusation
from troth.protocol.disputes.game import stride
from troth.protocol.disputes.layout import Layout
from troth.protocol.errors import InvalidStep
from troth.protocol.market import prices
from troth.protocol.market.layers import layers_of, mark_of
from troth.protocol.market.messages import Signed
from troth.protocol.market.rows import travel_as_hashes
from troth.protocol.market.signed import Result
from troth.protocol.market.state import State
from troth.protocol.market.types import ExecutionClass
from troth.protocol.market.views import class_of
from troth.protocol.request import from_canonical_bytes
from troth.protocol.types import Address, ModelDescriptor, unpack_ends

NAME_NONE = "Name no row: the first that is wrong is found by itself."


@dataclass(frozen=True)
class DisputableSegment:
    """A segment of an order that arithmetic can judge, and what is known of it."""

    evidence: Evidence
    definition: ExecutionClass
    descriptor: ModelDescriptor
    segment: int
    text: SegmentText

    @property
    def signed(self) -> Signed[Result]:
        """What its node signed."""
        return self.evidence.results[self.segment]

    @property
    def accused(self) -> Address:
        """Who signed it."""
        return Address(typed_data.recover(self.signed.message, self.evidence.domain, self.signed.signature))

    @property
    def rows(self) -> int:
        """How many rows it signed."""
        return int(prices.positions(self.signed.message)) - 1

    def layout(self, weights: OpenedWeights, position: int) -> Layout:
        """The trace of a row; NothingToDo where no transaction could check it, or the model is another one."""
        first, end = self.layers
        named = layers_of(self.definition.name)
        if weights.shape.hash != named:
            raise NothingToDo("The class names another shape than this model has", self.definition.name, COURT)
        layout = Layout(weights.shape, first, end, position)
        try:
            layout.require()
        except InvalidStep as error:
            raise NothingToDo(error.what, error.value, COURT) from error
        return layout

    @property
    def layers(self) -> tuple[int, int]:
        """First and end of the segment."""
        ends = unpack_ends(self.evidence.signed_order.order.ends)
        return (ends[self.segment - 1] if self.segment else 0), ends[self.segment]

    def find(self, weights: OpenedWeights, wanted: int | None = None) -> int:
        """The position to dispute: the one that is ``wanted``, or the first row that is too far from the canonical one.

        Where rows did not travel it is the last one, on which all others bear. Seconds to minutes, on a thread.

        Raises NothingToDo where no row is wrong by more than honest machines differ, or not the one that is wanted: who
        disputes a true row loses the bond. The same where something is missing.
        """
        last = self.rows - 1
        if wanted is not None and not 0 <= wanted <= last:
            raise NothingToDo(f"The node signed {self.rows} rows, from 0 to {last}", wanted, NAME_NONE)
        layout = self.layout(weights, last if wanted is None else wanted)
        if self.text.given is None:
            return layout.position
        seed = typed_data.struct_hash(self.signed.message)
        if wanted is not None:
            if not is_far(weights, layout, self.text, seed):
                raise NothingToDo("This row is no further from the canonical one than honest ones", wanted, NAME_NONE)
            return wanted
        found = first_far(weights, layout, self.text, seed)
        if found is None:
            what = "No row of this segment is further from the canonical one than honest machines are"
            raise NothingToDo(what, self.segment, COURT)
        return found

    def accusation(self, weights: OpenedWeights, position: int) -> Accusation:
        """What the dispute is opened with."""
        return Accusation(
            order=self.evidence.signed_order,
            execution_class=self.definition,
            model=self.descriptor,
            result=self.signed.message,
            signature=self.signed.signature,
            shape=weights.shape.encoded,
            mark=mark_of(self.definition.name),
            position=position,
        )


def disputable(evidence: Evidence, state: State, segment: int, rows: Mapping[int, bytes]) -> DisputableSegment:
    """A segment of an order by what the chain says of its class; ``rows``: what segments gave, as far as it is known.

    Raises NothingToDo for a class that has no disputes, and where the evidence lacks something.
    """
    order = evidence.order
    if order is None or not 0 <= segment < len(evidence.results):
        raise NothingToDo("The evidence holds no such result of an order", segment, "Ask its client for both.")
    definition, descriptor = class_of(state, order.message.execution_class)
    require_class(definition)
    if evidence.head_salt is None:
        raise NothingToDo("The evidence lacks the salt of the heads", segment, ASK)
    tokens = None
    if evidence.request is not None and evidence.answer:
        answer = np.frombuffer(evidence.answer, ">u4")
        tokens = (*from_canonical_bytes(evidence.request).prompt_tokens, *(int(token) for token in answer[:-1]))
    text = SegmentText(
        order=evidence.order_id,
        segment=segment,
        head_salt=evidence.head_salt,
        tokens=tokens if segment == 0 else None,
        read=rows.get(segment - 1) if segment else None,
        given=rows.get(segment),
        hidden=descriptor.hidden_size,
        bound=tokens if segment == 1 else None,
    )
    found = DisputableSegment(evidence, definition, descriptor, segment, text)
    _require_whole(found)
    return found


def require_class(definition: ExecutionClass) -> None:
    """Raise NothingToDo for a class whose rows arithmetic does not judge."""
    why = rows_are_not(definition)
    if why:
        raise NothingToDo(why, definition.name, COURT)


def _require_whole(found: DisputableSegment) -> None:
    """That what is known is what was signed."""
    text, result = found.text, found.signed.message
    segments = len(found.evidence.results)
    if text.given is None and not travel_as_hashes(exact=found.definition.exact, segments=segments):
        raise NothingToDo("The rows that the node signed are not at hand", found.segment, ASK)
    if text.segment == 0 and (text.tokens is None or len(text.tokens) != found.rows):
        raise NothingToDo("The evidence lacks the request or the answer", found.segment, ASK)
    if text.given is not None and text.head() != result.output_head:
        raise NothingToDo("These are not the rows that the node signed", found.segment, ASK)
    if text.segment == 0:
        return
    if text.read is None or text.given is None:
        raise NothingToDo("The rows of this segment, or of the one before, are missing", found.segment, ASK)
    if text.head(entered=True) != result.input_head:
        raise NothingToDo("These are not the rows that the node read", found.segment, ASK)


def rounds_of(layout: Layout) -> int:
    """How often the accused shows levels, at most."""

    def turns(levels: int) -> int:
        count = 0
        while levels:
            levels, count = levels - stride(levels), count + 1
        return max(count, 1)

    # A defence by a nudge has twice as many tensors.
    top = turns(replace(layout, doubled=True).depth)
    return top + max(turns(sum(layout.levels(tensor))) for tensor in range(layout.count))
