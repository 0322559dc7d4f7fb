"""Acting on evidence: a dry run in words, convictions, summons, and bringing a result to the court.

That a case is wanted, and with what, is in the journal before anything is sent; who is killed in between opens it
after the restart, or finds that it stands.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from troth.cases import calls
from troth.cases.assessing import Assessment, Bring, Summon, assess
from troth.cases.convicting import Proof
from troth.cases.courtroom import CallRefused, ChainView, Courtroom, Mined, value_of
from troth.cases.errors import NothingToDo
from troth.cases.evidence import Evidence
from troth.cases.journal import CarriedCase, CaseJournal
from troth.cases.standing import view_of
from troth.protocol.market import messages
from troth.protocol.market.calls import PartCall
from troth.protocol.market.messages import KeyCheck, signed_by_account
from troth.protocol.market.proceedings import CaseKind, SummonsKind
from troth.protocol.market.state import CaseRecord
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Hash32


@dataclass(frozen=True, slots=True)
class WantedCase:
    """How a case is to be opened. ``after``: the block that was seen when it was wanted; only a case that was opened
    later is the one that is meant, so that a reorganisation which takes the opening away is mended by another."""

    segment: int
    suspend: bool = False
    most_bond: int | None = None
    unready: bool = False
    after: int = 0

    def encode(self) -> str:
        """For the journal."""
        return json.dumps([self.segment, self.suspend, self.most_bond, self.unready, self.after])

    def is_met_by(self, record: CaseRecord | None) -> bool:
        """Whether this case, as it stands or ended, is what was wanted."""
        return record is not None and (record.live or record.events[0].meta.block > self.after)

    @classmethod
    def decode(cls, text: str) -> WantedCase:
        """Inverse of ``encode``."""
        return cls(*json.loads(text))


@dataclass(slots=True)
class Opener:
    """Acts for one account."""

    courtroom: Courtroom
    journal: CaseJournal
    key_check: KeyCheck = signed_by_account

    # ---- looking

    async def assess(self, evidence: Evidence) -> Assessment:
        """What can be done now."""
        seen = await self.courtroom.seen()
        return assess(evidence, seen.state, seen.block, self.key_check)

    async def dry_run(self, evidence: Evidence) -> tuple[str, ...]:
        """Every option in words, with what the chain says of its call; nothing is sent."""
        seen = await self.courtroom.seen()
        found = assess(evidence, seen.state, seen.block, self.key_check)
        said = []
        options: list[Proof | Bring | Summon] = [*found.convictions, *found.cases, *found.summons]
        for number, option in enumerate(options):
            try:
                call = await self._call(evidence, option, seen)
                said.append(f"{found.words[number]} {await self._simulated(call)}")
            except CallRefused as refused:
                said.append(f"{found.words[number]} Now it would fail: {refused}")
        return (*said, *found.against)

    async def _simulated(self, call: PartCall) -> str:
        simulation = await self.courtroom.simulate(call)
        if simulation.rejection is not None:
            return f"From {self.courtroom.account} it would fail now: {simulation.rejection}."
        return f"From {self.courtroom.account} it would succeed, at {simulation.maximum_cost} wei of gas at most."

    async def _call(self, evidence: Evidence, option: Proof | Bring | Summon, seen: ChainView) -> PartCall:
        if isinstance(option, Proof):
            return await self._conviction(option)
        if isinstance(option, Summon):
            return await self._summons(evidence, option, seen)
        return await self._case(evidence, option, WantedCase(option.segment), seen)

    # ---- acting

    async def convict(self, proof: Proof) -> Mined:
        """Take L from who convicts itself; raises CallRefused where it was done before.

        Where the order is older than the contract knows, it is shown, too: leaves since then are void.
        """
        mined = await self.courtroom.send(await self._conviction(proof))
        if proof.date is not None and proof.reference_block < mined.block - await self._reference_age():
            await self.courtroom.send(proof.date(self.courtroom.contracts))
        return mined

    async def _reference_age(self) -> int:
        return parameters_of((await self.courtroom.seen()).state).reference_age

    async def summon(self, evidence: Evidence, summon: Summon) -> Mined:
        """Ask a scheduler on chain for what it owes."""
        return await self.courtroom.send(await self._summons(evidence, summon, await self.courtroom.seen()))

    async def end_summons(self) -> tuple[Hash32, ...]:
        """Convict every party that was to answer a summons of this account and has not; which summons that were.

        A silent node's conviction gives the scheduler another window: then the summons is looked at again.
        """
        seen, ended = await self.courtroom.seen(), []
        for summons_id, record in seen.state.summons.items():
            overdue = record.answered is None and seen.next > record.state.deadline
            if not overdue or record.state.summoner != self.courtroom.account:
                continue
            try:
                await self.courtroom.send(calls.convict_silence(self.courtroom.contracts, summons_id, record.state))
            except CallRefused:
                continue
            ended.append(summons_id)
        return tuple(ended)

    async def bring(self, evidence: Evidence, wanted: WantedCase, folder: Path | None = None) -> Hash32:
        """Open a case, and return its id; raises NothingToDo where it cannot be, or not within ``most_bond``.

        One that somebody else opened is as good: its reviewers are served from this evidence, too.
        """
        seen, drawn = await self.courtroom.seen(), messages.case_id(evidence.order_id, wanted.segment)
        standing = seen.state.cases.get(drawn)
        if standing is not None and standing.live:
            self.journal.follow(drawn, evidence, folder)
            return drawn
        bring = await self._possible(evidence, wanted)
        case_id = case_id_of(evidence, bring)
        wanted = replace(wanted, after=seen.block)
        self.journal.follow(case_id, evidence, folder, wanted.encode())
        followed = self.journal.case(case_id)
        assert followed is not None
        try:
            await self.open(followed)
        except CallRefused as refused:
            self.journal.end(case_id, refused.name)
            raise NothingToDo(str(refused), case_id.hex(), "Look what stands on the chain.") from refused
        return case_id

    async def open(self, followed: CarriedCase) -> bool:
        """Open a case that the journal wants, unless it stands; whether it does now.

        Raises NothingToDo where it cannot be opened any more, CallRefused where it cannot be now.
        """
        if followed.evidence is None or not followed.wanted:
            return False
        seen, wanted = await self.courtroom.seen(), WantedCase.decode(followed.wanted)
        if wanted.is_met_by(seen.state.cases.get(followed.case_id)):
            return True
        bring = await self._possible(followed.evidence, wanted)
        call = await self._case(followed.evidence, bring, wanted, seen)
        try:
            await self.courtroom.send(call)
        except CallRefused as refused:
            stands = (await self.courtroom.seen()).state.cases.get(followed.case_id)
            if refused.name == "CaseUnderWay" or wanted.is_met_by(stands):
                return True
            raise
        return True

    async def _possible(self, evidence: Evidence, wanted: WantedCase) -> Bring:
        found = await self.assess(evidence)
        bring = next((one for one in found.cases if one.segment == wanted.segment), None)
        account = self.courtroom.account
        if bring is None:
            why = " ".join(found.against) or "The evidence has no such segment."
            raise NothingToDo("No case can be opened", wanted.segment, why)
        if bring.openers and account not in bring.openers:
            who = " or ".join(bring.openers)
            raise NothingToDo("Only its client or the tab key opens this case", account, f"Hand the evidence to {who}.")
        if wanted.most_bond is not None and bring.bond > wanted.most_bond:
            raise NothingToDo(
                "The bond is above what was allowed", bring.bond, "Allow more, or let somebody else open it."
            )
        if bring.lacks and not wanted.unready:
            lacking = ", ".join(bring.lacks)
            raise NothingToDo(
                f"Reviewers would miss {lacking}", wanted.segment, "Ask the client for the whole evidence."
            )
        return bring

    # ---- calls

    async def _conviction(self, proof: Proof) -> PartCall:
        hints = b"" if proof.request is None else await self.courtroom.hints(proof.request)
        return proof.build(self.courtroom.contracts, hints)

    async def _summons(self, evidence: Evidence, summon: Summon, seen: ChainView) -> PartCall:
        contracts = self.courtroom.contracts
        asked = calls.summons_deposit(contracts, summon.kind, await self.courtroom.base_fee())
        least: int = await self.courtroom.read(asked)
        # The base fee moves until the call is mined; twice as much is taken, and given back with it.
        value = value_of(seen, least + least // 2)
        if summon.kind is SummonsKind.RESULTS:
            return calls.summon_results(contracts, evidence, evidence.admissions[0], value)
        if evidence.secret is None:
            raise NothingToDo("A check is summoned with the first secret", summon.segment, "Ask the client for it.")
        return calls.summon_check(contracts, evidence, summon.segment, evidence.secret, value)

    async def _case(self, evidence: Evidence, bring: Bring, wanted: WantedCase, seen: ChainView) -> PartCall:
        doubt = bring.kind is CaseKind.DOUBT
        view = view_of(evidence, seen.state, seen.block, self.key_check)
        alpha = messages.draw_alpha(evidence.order_id)
        hints = b"" if doubt or bring.seat_request is None else await self.courtroom.hints(bring.seat_request)
        return calls.open_case(
            self.courtroom.contracts,
            evidence,
            bring.segment,
            secret=None if doubt else evidence.secret,
            verdicts=bring.verdicts,
            proof=calls.NO_PROOF if doubt else calls.proof_of(view.vrf_key, alpha, evidence.draw_proof),
            hints=hints,
            suspend=wanted.suspend and bring.may_suspend,
            value=value_of(seen, bring.bond),
        )


def case_id_of(evidence: Evidence, bring: Bring) -> Hash32:
    """The id of the case that would be opened."""
    doubts = messages.DOUBTS if bring.kind is CaseKind.DOUBT else 0
    return messages.case_id(evidence.order_id, doubts + bring.segment)
