"""What this node keeps of its orders for cases: its own traces, rows that it gave, evidence that it rejected with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from troth.cases.evidence import VERSION, Evidence
from troth.node.errors import ConfigError
from troth.node.orders.context import NodeContext, open_stores
from troth.node.orders.rejections import Rejection
from troth.node.orders.session import INFERS
from troth.node.orders.traces import StoredTrace, TraceStore
from troth.protocol.errors import InvalidField
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import CourtText, Spoken
from troth.protocol.market.signed import Verdict
from troth.protocol.request import tokens_to_words
from troth.protocol.tensors import Dtype, RowArray, rows_to_bytes
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32, hash32_of

Found = TypeVar("Found")


class NodeHoldings:
    """Traces of ``cases.defending`` and Holdings of ``cases.context``, from the records of a node."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    async def root_of(self, order: Hash32, segment: int) -> tuple[Hash32, Hash32] | None:
        """The root that a result of this node commits to, and the commitment's salt."""
        trace = await self._context.write(partial(self._context.stores.traces.find, order, segment, INFERS))
        return None if trace is None else (Hash32(trace.root), Hash32(trace.salt))

    async def trace_of(self, order: Hash32, segment: int) -> tuple[CommittedTrace, Hash32] | None:
        """The trace that a result of this node commits to, and the commitment's salt; None where no rows are kept."""
        found = await self._inferred(order, segment)
        if found is None:
            return None
        trace, rows = found
        model = self._context.ground.state.classes[self._context.execution_class].model
        layout = TileLayout(order, model, trace.positions, trace.columns, Dtype(trace.dtype))
        return await asyncio.to_thread(layout.commit, rows), Hash32(trace.salt)

    async def evidence_of(self, order: Hash32) -> Evidence | None:
        """What this node rejected with, where it was told what the other verifiers signed."""
        context, rejections = self._context, self._context.stores.rejections
        for rejection in await context.write(partial(rejections.of, order)):
            spoken = await context.write(partial(rejections.told, order, rejection.segment))
            if spoken is not None:
                return evidence_of(rejection, spoken, context.operator.domain)
        return None

    async def rows_of(self, order: Hash32, segment: int) -> bytes | None:
        """The salt of the order's heads, then the rows that this node gave; None where they are not kept."""
        words = self._context.stores.words
        begun = await self._context.write(partial(words.begun, order, segment, "infer"))
        found = await self._inferred(order, segment)
        if begun is None or found is None:
            return None
        return begun.papers + rows_to_bytes(found[1], Dtype(found[0].dtype))

    async def _inferred(self, order: Hash32, segment: int) -> tuple[StoredTrace, RowArray] | None:
        traces = self._context.stores.traces
        trace = await self._context.write(partial(traces.find, order, segment, INFERS))
        if trace is None or not trace.keeps_rows:
            return None
        return trace, await self._context.write(partial(traces.rows, trace))


def from_own_rejections(
    folder: Path, order: str, domain: Domain, read: Callable[[TraceStore, Rejection, Evidence], Found | None]
) -> Found:
    """What ``read`` makes of the first segment of an order that this node rejected; it gives None for the next one.

    Raises:
        ConfigError: the order is none, or nothing of it was rejected here.
    """
    try:
        named = hash32_of(order)
    except InvalidField as error:
        remedy = "Name a file of evidence, or the 32 bytes of an order."
        raise ConfigError("there is no such file, and this is no order's id", order, remedy) from error
    stores = open_stores(folder)
    try:
        for rejection in stores.rejections.of(named):
            told = stores.rejections.told(named, rejection.segment)
            spoken = told or Spoken((rejection.commitment,), (rejection.verdict,))
            found = read(stores.traces, rejection, evidence_of(rejection, spoken, domain))
            if found is not None:
                return found
    finally:
        stores.close()
    raise ConfigError("this node did not reject that order's text", order, "Name a file of evidence with rows.")


def evidence_of(rejection: Rejection, spoken: Spoken, domain: Domain) -> Evidence:
    """The file that a rejecting verifier hands to the court; its text is its own, or what it was told."""
    papers, text = rejection.papers, _text_of(rejection, spoken)
    return Evidence(
        version=VERSION,
        chain_id=domain.chain_id,
        bank=domain.contract,
        tab=papers.tab,
        order=papers.order,
        admissions=(papers.admission,),
        nodes=papers.nodes,
        infer_proof=papers.infer_proof,
        results=papers.results,
        draws=(papers.draw,),
        draw_proof=papers.draw_proof,
        secret=papers.secret,
        commitments=spoken.commitments,
        verdicts=_with_own(spoken, rejection),
        request=None if text is None else text.request,
        answer=None if text is None else text.answer,
        salt=None if text is None else text.salt,
        head_salt=papers.head_salt,
    )


def _text_of(rejection: Rejection, spoken: Spoken) -> CourtText | None:
    salt = rejection.papers.salt
    if rejection.request and rejection.tokens and salt is not None:
        return CourtText(rejection.request, salt, tokens_to_words(rejection.tokens))
    return spoken.text


def _with_own(spoken: Spoken, rejection: Rejection) -> tuple[Signed[Verdict], ...]:
    known = spoken.verdicts
    return known if rejection.verdict in known else (*known, rejection.verdict)
