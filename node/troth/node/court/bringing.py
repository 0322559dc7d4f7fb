"""Own rejections are brought to the court: once it is known what the other verifiers signed, and most seats reject.

A verifier is told by its scheduler, and asks where it is not. A scheduler that says nothing keeps verifiers from the
court, but not its client, who was given the same verdicts, or summons them on chain.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial

from troth.cases.assessing import Bring
from troth.cases.courtroom import CallRefused
from troth.cases.errors import CaseError
from troth.cases.office import Office
from troth.node.court.holding import evidence_of
from troth.node.court.inquiring import Inquirer
from troth.node.court.own_disputes import OwnDisputes
from troth.node.court.proving import Prover
from troth.node.errors import NodeError
from troth.node.orders.context import NodeContext
from troth.node.orders.informed import keep, post_of, signer_in
from troth.node.orders.rejections import Rejection
from troth.node.orders.seat import drawn_check
from troth.protocol.errors import ProtocolError
from troth.protocol.market import checks, messages
from troth.protocol.market.papers import Spoken
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Hash32

log = logging.getLogger(__name__)

PAUSE = 15.0
"""Seconds between two looks at a rejection that cannot be brought yet; the scheduler is asked at each but the first."""
FORGOTTEN_SECONDS = 3_600.0
"""After which a rejection that was offered no more is forgotten."""
NOT_BROUGHT = "a rejection is not brought, since [court] most_bond is 0: whoever holds the evidence may"
SAYINGS = 16
"""Different lines of the log about one rejection."""


@dataclass(slots=True)
class Bringer:
    """See ``orders.rejections.RejectionOpener``. ``most_bond`` is what the operator risks of its money for one case;
    ``prover`` needs none; ``disputes`` puts up a bond of their own."""

    context: NodeContext
    office: Office
    inquirer: Inquirer
    most_bond: int
    pause: float = PAUSE
    prover: Prover | None = None
    disputes: OwnDisputes | None = None
    _looks: dict[tuple[Hash32, int], float] = field(default_factory=dict)
    _said: dict[tuple[Hash32, int], set[str]] = field(default_factory=dict)

    async def rejected(self, rejection: Rejection) -> bool:
        """Bring it where it can be; False: it is offered again."""
        place = (rejection.order, rejection.segment)
        if self.most_bond == 0 and self.prover is None:
            log.warning(NOT_BROUGHT)
            return True
        now, before = self.context.clock(), self._looks.get(place)
        if before is not None and now - before < self.pause:
            return False
        self._forget(now)
        self._looks[place] = now
        try:
            done = await self._look(rejection, asks=before is not None)
        except (CaseError, ProtocolError, NodeError, CallRefused) as error:
            self._say(rejection, f"a rejection cannot be brought now: {error}")
            return False
        if done:
            self._looks.pop(place)
        return done

    def _forget(self, now: float) -> None:
        """Let go of rejections that are offered no more: they were brought, or are too old."""
        self._looks = {place: at for place, at in self._looks.items() if now - at < FORGOTTEN_SECONDS}
        self._said = {place: said for place, said in self._said.items() if place in self._looks}

    async def _look(self, rejection: Rejection, *, asks: bool) -> bool:
        spoken = await self._spoken(rejection)
        if self.most_bond == 0:
            # A proof needs no bond, and nobody else's word.
            if not await self._prove(rejection, spoken):
                log.warning(NOT_BROUGHT)
            return True
        standing = await asyncio.to_thread(self._majority, rejection, spoken)
        if standing is None and asks:
            await self._ask(rejection)
            spoken = await self._spoken(rejection)
            standing = await asyncio.to_thread(self._majority, rejection, spoken)
        if standing is None:
            if asks:
                what = "the other verdicts over a rejected result are not told: the order's client must act"
                self._say(rejection, what)
            return False
        if standing is not Opinion.REJECT:
            if not await self._prove(rejection, spoken):
                log.info("most seats do not reject the result: only its client can call it into question")
            return True
        return await self._bring(rejection, spoken)

    async def _prove(self, rejection: Rejection, spoken: Spoken) -> bool:
        """Whether arithmetic convicts where the majority did not."""
        evidence = evidence_of(rejection, spoken, self.context.operator.domain)
        if self.prover is not None and await self.prover.prove(rejection, evidence):
            return True
        return self.disputes is not None and await self.disputes.accuse(rejection, evidence)

    async def _spoken(self, rejection: Rejection) -> Spoken:
        told = partial(self.context.stores.rejections.told, rejection.order, rejection.segment)
        return await self.context.write(told) or Spoken((rejection.commitment,), (rejection.verdict,))

    def _majority(self, rejection: Rejection, spoken: Spoken) -> Opinion | None:
        """What most seats say; None: some that could still make a majority have not been heard."""
        papers, domain = rejection.papers, self.context.operator.domain
        seats = drawn_check(papers, post_of(self.context, papers.tab.payee)).seats[rejection.segment]
        said = {
            signer: Opinion(one.message.opinion)
            for one in (*spoken.verdicts, rejection.verdict)
            if (signer := signer_in(seats, one, domain)) is not None
        }
        majority = checks.majority(seats, said)
        return majority if majority is not Opinion.CANNOT_TELL or said.keys() == seats.seats.keys() else None

    async def _ask(self, rejection: Rejection) -> None:
        papers, segment = rejection.papers, rejection.segment
        scheduler = papers.tab.payee
        data = await self.inquirer.ask(scheduler, rejection.order, segment)
        if data is not None:
            await keep(self.context, post_of(self.context, scheduler), papers, segment, data)

    async def _bring(self, rejection: Rejection, spoken: Spoken) -> bool:
        """Hand it to the office, which has it on disk when this returns True."""
        evidence = evidence_of(rejection, spoken, self.context.operator.domain)
        seen, segment = await self.office.courtroom.seen(), rejection.segment
        standing = seen.state.cases.get(messages.case_id(rejection.order, segment))
        if standing is None or not standing.live:
            found = await self.office.opener.assess(evidence)
            bring = next((one for one in found.cases if one.segment == segment), None)
            hindered = self._hindered(bring)
            if hindered:
                self._say(rejection, f"a rejection is not brought: {hindered} {' '.join(found.against)}")
                return await self._prove(rejection, spoken) or standing is not None
        await self.office.rejected(evidence, segment)
        log.warning("a rejected result is brought to the court, or carried on where it stands")
        return True

    def _hindered(self, bring: Bring | None) -> str:
        """Why it cannot be brought by this node now; empty where it can."""
        if bring is None:
            return "no case can be opened."
        if bring.openers:
            return "only its client can."
        if bring.lacks:
            return f"{', '.join(bring.lacks)} are not told; the order's client must act."
        if bring.bond > self.most_bond:
            return f"its bond of {bring.bond} is above [court] most_bond, {self.most_bond}."
        return ""

    def _say(self, rejection: Rejection, what: str) -> None:
        """Log something once."""
        said = self._said.setdefault((rejection.order, rejection.segment), set())
        if what not in said and len(said) < SAYINGS:
            said.add(what)
            log.warning("%s", what)
