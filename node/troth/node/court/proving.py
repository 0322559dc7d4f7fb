"""Proving: a rejection that most verifiers did not share is shown to the contract where a token of the answer is wrong.

A verifier keeps the rows that it rejected. Where its verdict lost, or no case can be opened, its own arithmetic is
enough: the proof needs no other verifier, no committee and no bond.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from troth.cases.convicting import Proof
from troth.cases.courtroom import CallRefused
from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.cases.opening import Opener
from troth.node.court.accusing import AccusedText, accuse
from troth.node.errors import ProofTooDear
from troth.node.models.folder import ModelFolder
from troth.node.orders.bench import NodeContext
from troth.node.orders.rejections import Rejection
from troth.node.orders.session import JUDGED
from troth.protocol.market.state import State
from troth.protocol.market.views import class_of
from troth.protocol.tensors import Dtype, rows_to_bytes
from troth.protocol.types import Hash32

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


@dataclass(slots=True)
class Prover:
    """Acts for one node; ``model`` is read when a proof is made, ``most_wei`` is paid for its gas at most."""

    bench: NodeContext
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
            if proof is None:
                return False
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

    async def _proof(self, rejection: Rejection, evidence: Evidence) -> Proof | None:
        """None where the rejected rows were not kept."""
        bench = self.bench
        trace = await bench.write(lambda: bench.stores.traces.find(rejection.order, rejection.segment, JUDGED))
        if trace is None:
            return None
        rows = await bench.write(lambda: bench.stores.traces.rows(trace))
        text = accused_text(evidence, bench.ground.state, rows_to_bytes(rows, Dtype(trace.dtype)))
        return await asyncio.to_thread(lambda: accuse(text, self.model()))

    async def _require_cheap(self, proof: Proof) -> None:
        courtroom = self.opener.courtroom
        cost = (await courtroom.simulate(proof.build(courtroom.contracts, b""))).maximum_cost
        if cost > self.most_wei:
            what = "a wrong token could be proven, and its gas costs more than this node pays"
            raise ProofTooDear(
                what, cost, f"Raise accuse_wei in [court] above {self.most_wei}, or wait for cheaper gas."
            )
