"""Proving: a rejection that most verifiers did not share is shown to the contract where a token of the answer is wrong.

A verifier keeps the rows that it rejected, or computes them again where only their hashes travelled. Where its verdict
lost, or no case can be opened, its own arithmetic is enough: the proof needs no other verifier, no committee and no
bond.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from troth.cases.convicting import Proof
from troth.cases.courtroom import CallRefused
from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.cases.opening import Opener
from troth.node.court.accusing import AccusedText, accuse
from troth.node.court.recomputing import prefill
from troth.node.engine.interface import Engine
from troth.node.errors import ProofTooDear
from troth.node.models.folder import ModelFolder
from troth.node.orders.context import NodeContext
from troth.node.orders.rejections import Rejection
from troth.node.orders.session import JUDGED
from troth.protocol.market import checks
from troth.protocol.market.rows import RowHashes, travel_as_hashes
from troth.protocol.market.state import State
from troth.protocol.market.views import class_of
from troth.protocol.request import from_canonical_bytes
from troth.protocol.tensors import Dtype, rows_to_bytes
from troth.protocol.types import Hash32, Segment

log = logging.getLogger(__name__)

SETTLED = frozenset({"AlreadyProven", "NothingAtStake", "PartyLeft", "WrongParty"})
"""Errors of the contract after which nothing is left to prove."""


def accused_text(evidence: Evidence, state: State, rows: bytes) -> AccusedText:
    """An answer by what the chain says of its class and its scheduler; NothingToDo where the chain knows neither."""
    order, tab = evidence.order, evidence.tab
    if order is None or tab is None or tab.payee not in state.parties:
        raise NothingToDo("The evidence holds no order on a tab of this deployment", None, "Ask its client for both.")
    definition, descriptor = class_of(state, order.message.execution_class)
    return AccusedText(evidence, definition, descriptor, state.parties[tab.payee].vrf_key, rows)


def require_again(evidence: Evidence, state: State) -> None:
    """Raise NothingToDo unless the rows of an answer did not travel, and all is told that they are computed from."""
    definition, _ = class_of(state, evidence.signed_order.order.execution_class)
    if not travel_as_hashes(exact=definition.exact, segments=len(evidence.results)):
        raise NothingToDo("The rows of this answer are not at hand", None, "Ask its scheduler or a verifier for them.")
    if evidence.request is None or not evidence.answer or evidence.head_salt is None:
        raise NothingToDo("The evidence lacks the request, the answer or a salt", None, "Ask its client for them.")


async def rows_again(engine: Engine, evidence: Evidence, state: State) -> bytes:
    """The rows of an answer of which only hashes travelled, by one prefill: they are those of whoever was honest.

    Raises NothingToDo as ``require_again``, and where the node signed other rows, so that its tokens cannot be weighed:
    unless it only signed a false chain, its commitment is another one, too, and the court convicts it.
    """
    require_again(evidence, state)
    definition, descriptor = class_of(state, evidence.signed_order.order.execution_class)
    assert evidence.request is not None
    assert evidence.answer is not None
    assert evidence.head_salt is not None
    answer = np.frombuffer(evidence.answer, ">u4").astype(np.int64)
    entered = np.concatenate([from_canonical_bytes(evidence.request).prompt_tokens, answer[:-1]])
    if int(entered.max()) >= descriptor.vocabulary:
        raise NothingToDo("These are no tokens of this model", len(answer), "Ask its client for the answer.")
    rows = await prefill(engine, evidence.order_id, Segment(0, descriptor.layers), entered)
    data, bound = rows_to_bytes(rows, Dtype(definition.dtype)), entered.tolist()
    size = len(data) // len(rows)
    chain, _ = await asyncio.to_thread(RowHashes(evidence.order_id, 0).extend, data, size, bound)
    if checks.head(evidence.order_id, evidence.head_salt, chain.link) != evidence.results[0].message.output_head:
        raise NothingToDo("The node signed other rows than this text has", None, "Bring the answer to the court.")
    return data


@dataclass(slots=True)
class Prover:
    """Acts for one node; ``model`` is read when a proof is made, ``most_wei`` is paid for its gas at most."""

    context: NodeContext
    opener: Opener
    model: Callable[[], ModelFolder]
    most_wei: int
    _made: dict[tuple[Hash32, int], Proof] = field(default_factory=dict)

    async def prove(self, rejection: Rejection, evidence: Evidence) -> bool:
        """Convict by a wrong token of the rejected answer; False where there is none, or nothing is left to take.

        Raises CallRefused where the contract cannot be called now, ProofTooDear where gas costs too much now.
        """
        place = (rejection.order, rejection.segment)
        try:
            proof = self._made.get(place) or await self._proof(rejection, evidence)
            # It hashed the whole model: who has to wait does not make it again.
            self._made[place] = proof
            await self._require_cheap(proof)
            await self.opener.convict(proof)
        except NothingToDo as nothing:
            log.info("no wrong token is proven: %s", nothing)
            return False
        except CallRefused as refused:
            if refused.name not in SETTLED:
                raise
            self._made.pop(place, None)
            log.info("a wrong token convicts nobody any more: %s", refused)
            return False
        del self._made[place]
        log.warning("%s: convicted by a proof, against what most verifiers said", proof.words)
        return True

    async def _proof(self, rejection: Rejection, evidence: Evidence) -> Proof:
        data = await self._rows(rejection, evidence)
        text = accused_text(evidence, self.context.ground.state, data)
        return await asyncio.to_thread(lambda: accuse(text, self.model()))

    async def _rows(self, rejection: Rejection, evidence: Evidence) -> bytes:
        """Those that were rejected; NothingToDo where they are neither kept nor can be computed."""
        context = self.context
        trace = await context.write(lambda: context.stores.traces.find(rejection.order, rejection.segment, JUDGED))
        if trace is None:
            return await rows_again(context.engine, evidence, context.ground.state)
        rows = await context.write(lambda: context.stores.traces.rows(trace))
        return rows_to_bytes(rows, Dtype(trace.dtype))

    async def _require_cheap(self, proof: Proof) -> None:
        courtroom = self.opener.courtroom
        cost = (await courtroom.simulate(proof.build(courtroom.contracts, b""))).maximum_cost
        if cost > self.most_wei:
            what = "a wrong token could be proven, and its gas costs more than this node pays"
            raise ProofTooDear(
                what, cost, f"Raise accuse_wei in [court] above {self.most_wei}, or wait for cheaper gas."
            )
