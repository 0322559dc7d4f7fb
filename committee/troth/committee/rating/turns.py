"""What a member does by itself in an epoch: it asks, leads when it is drawn, settles, and has double signers expelled.

Each step is written down before it is taken, and each look at the chain decides anew what is next. So a member that was
killed goes on, and whoever finds a step taken already leaves it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from troth.chain.duty import Duty
from troth.chain.errors import ChainError, ChainRejected
from troth.client.errors import ClientError
from troth.committee.corpus.prompts import PARTS
from troth.committee.corpus.wear import prompts_of_list
from troth.committee.errors import CommitteeError, EpochRefused
from troth.committee.rating.answers import encode_answer
from troth.committee.rating.challenges import (
    Challenge,
    Openings,
    PromptOpening,
    challenges_of,
    places_of,
    require_openings,
    root_of,
)
from troth.committee.rating.epochs import EpochFile, ExaminedList, SilenceSaid, proposed, with_signature, with_silence
from troth.committee.rating.member import VERSION, Agreement, EpochProposal, RatingMember, encode_message
from troth.committee.rating.missed import missed_list, others_evidence
from troth.committee.rating.moments import EpochMoment, late_part
from troth.committee.rating.requests import HAND_OVER, PROVE, REVIEW, SIGNED, MemberCalls
from troth.committee.rating.store import KEPT_EPOCHS
from troth.protocol import committee, typed_data
from troth.protocol import reputation_calls as calls
from troth.protocol.calls import Call
from troth.protocol.errors import ProtocolError
from troth.protocol.reputation import NOT_SCORED
from troth.protocol.reputation_events import EpochSettled
from troth.protocol.types import ZERO_HASH, Address, Hash32
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

TICK = 1.0
ASKED_AT_ONCE = 4
PAUSE_BLOCKS = 10
"""Between two attempts to bring reports of silence, or to tell the others of one."""
TOO_LATE = {"NobodySilent", "NotTheLast", "AnotherUpdate", "WrongEpoch"}
"""What the contract answers once it takes no reports of an update, or knows them."""
MISHAPS = (CommitteeError, OverlayError, ChainError, ClientError, ProtocolError)


@dataclass(eq=False)
class EpochTurns:
    """The part of a rater that acts by the chain's blocks. ``submit`` sends a call and waits for it."""

    rater: RatingMember
    others: MemberCalls
    submit: Callable[[Call], Awaitable[object]]
    tick: float = TICK
    _proofs: dict[tuple[int, bytes], bytes] = field(default_factory=dict)
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_AT_ONCE))
    _tried: set[object] = field(default_factory=set)
    _shown: EpochSettled | None = None
    _show_from: int = 0
    _untold: dict[EpochSettled, frozenset[Address]] = field(default_factory=dict)
    _tell_from: int = 0

    async def run(self) -> None:
        """For ever."""
        try:
            await Duty("rating", self.act, every=self.tick, longest=self.tick).run()
        finally:
            for task in self._asking.values():
                task.cancel()
            await asyncio.gather(*self._asking.values(), return_exceptions=True)

    async def act(self) -> None:
        """What this moment asks for."""
        moment = await self.rater.moment()
        await self._expel(moment)
        await self._tell()
        if not self._counts(moment):
            return
        self._attempt(moment)
        await self._tell_left_out(moment)
        await self._show_left_out(moment)
        if moment.settled:
            return
        self.rater.store.forget_before(moment.now.epoch - KEPT_EPOCHS)
        proof = await self._proof(moment)
        part = self._part(moment, proof)
        kept = self.rater.store.proposal(moment.now.epoch, moment.now.seed)
        if kept is not None and self._is_signed(moment, kept[0]):
            if moment.anybody_settles or kept[0].leader == self.rater.operator:
                await self._settle(moment, kept[0])
        elif kept is not None and kept[0].leader == self.rater.operator:
            await self._gather(moment, *kept)
        elif part is not None and kept is None:
            # Who signed another leader's update signs no second one.
            await self._lead(moment, part, proof if part == 0 else b"")

    # ---- who leads

    def _counts(self, moment: EpochMoment) -> bool:
        rater = moment.now.state.raters.get(self.rater.operator)
        return rater is not None and rater.counts(moment.now.epoch) and self.rater.operator in moment.now.members

    def _part(self, moment: EpochMoment, proof: bytes) -> int | None:
        """Which part of the list is ours to ask now; None where another member leads."""
        if proof and moment.now.leader(proof) == self.rater.operator:
            return 0
        if moment.now.leader(b"") == self.rater.operator:
            return 1
        return None

    async def _proof(self, moment: EpochMoment) -> bytes:
        """The last leader's proof; empty where there is none, or as long as that member is away."""
        key = (moment.now.epoch, moment.now.seed)
        if not moment.has_last_leader:
            return b""
        if key not in self._proofs:
            leader = moment.now.state.leader
            if leader == self.rater.operator:
                proof = await self.rater.prove(moment.now.epoch)
            else:
                proof = self._holding(moment, await self.others.ask(leader, PROVE, b"", moment.now.epoch))
            if proof:
                self._proofs = {key: proof}
        return self._proofs.get(key, b"")

    @staticmethod
    def _holding(moment: EpochMoment, proof: bytes) -> bytes:
        """A proof if it holds. One that does not is as none: its sender would stop this epoch and all that follow."""
        try:
            moment.now.randomness(proof)
        except (CommitteeError, ProtocolError) as error:
            log.warning("%s shows a false proof: %s", moment.now.state.leader, error)
            return b""
        return proof

    # ---- asking

    def _attempt(self, moment: EpochMoment) -> None:
        openings, fixed = self.rater.attempts(moment), self.rater.fixed(moment)
        listed = PARTS * self.rater.terms.prompts * len(fixed.nodes) if fixed is not None else 0
        late = late_part(moment.asking, listed, len(openings) * len(moment.now.members))
        due_of = partial(moment.due_of_attempt, late)
        self._ask(moment, openings, range(len(openings)), "attempt", due_of)

    def _ask(
        self,
        moment: EpochMoment,
        openings: Sequence[PromptOpening],
        places: range,
        kind: str,
        due_of: Callable[[float], float],
    ) -> None:
        """Begin whatever is due and was not begun."""
        names = self.rater.names(moment, places, kind)
        self._asking = {name: task for name, task in self._asking.items() if not task.done()}
        for challenge in challenges_of(openings, places, self.rater.terms.tokens):
            name = names[challenge.place]
            # They are in the order of their moments, which is not that in which a member's own questions are due.
            if due_of(challenge.moment) > moment.progress:
                continue
            if name not in self._asking and not self.rater.examiner.asked(name):
                self._asking[name] = asyncio.create_task(self._one(name, challenge), name=name)

    async def _one(self, name: str, challenge: Challenge) -> None:
        async with self._places:
            try:
                await self.rater.examiner.ask(name, challenge)
            except MISHAPS as error:
                log.info("a challenge was not asked: %s", error)

    # ---- leading

    async def _lead(self, moment: EpochMoment, part: int, proof: bytes) -> None:
        openings = await self._openings(moment)
        places = places_of(part, len(openings))
        if not moment.asked:
            self._ask(moment, openings, places, "challenge", moment.due_of_challenge)
        if not self._is_ready(moment, part, self.rater.names(moment, places)):
            return
        await self._hear_of_evidence(moment)
        examiner, names = self.rater.examiner, self.rater.names(moment, places)
        answers = [encode_answer(answer) for answer in examiner.answers(names)]
        examined = self.rater.fixed(moment) or ExaminedList()
        credits = await self.rater.credits(moment, examined, openings, answers, part) if answers else {}
        file = self._file(moment, {node: credit.value for node, credit in credits.items()}, proof)
        self.rater.keep_evidence(moment, file, credits)
        # First what is proposed, then the journal's word for it: a kill between them changes nothing.
        self.rater.keep(file, answers)
        log.info("epoch %d: %d answers, credits for %d nodes", file.epoch, len(answers), len(credits))
        await self._gather(moment, file, answers)

    async def _hear_of_evidence(self, moment: EpochMoment) -> None:
        """Ask what epochs have added up to, should this member have missed the last update."""
        last = moment.now.state.settled
        if last is None or self.rater.store.evidence(last.digest) is not None:
            return
        said = await others_evidence(self.others, last.digest, moment.now.epoch, moment.now.members)
        if said is not None:
            self.rater.believe(moment, said)

    def _is_ready(self, moment: EpochMoment, part: int, names: Mapping[int, str]) -> bool:
        """Whether it is time to propose: nothing is left to ask, or no time; and the first leader had its turn."""
        if part == 1 and not moment.seed_leads:
            return False
        begun = all(self.rater.examiner.asked(name) for name in names.values())
        waiting = any(name in self._asking for name in names.values()) or self.rater.examiner.under_way(names.values())
        return moment.asked or (begun and not waiting)

    async def _openings(self, moment: EpochMoment) -> list[PromptOpening]:
        """The prompts of this epoch; none where nothing was fixed, or where whoever knows them is away."""
        if moment.now.fixed == ZERO_HASH:
            return []
        fixed = self.rater.fixed(moment)
        if fixed is None:
            fixed = await missed_list(self.others, moment.now.fixed, moment.now.epoch)
            self.rater.store.keep_list(moment.now.epoch, moment.now.fixed, msgspec.json.encode(fixed))
        _, root = fixed.read()
        known = self.rater.opened(moment)
        if known is not None or root == ZERO_HASH:
            return known or []
        answer = await self.others.ask(moment.now.state.leader, HAND_OVER, b"", moment.now.epoch)
        found = self._handed(moment, answer, root)
        if found:
            self.rater.store.keep_openings(moment.now.epoch, found)
        return found

    @staticmethod
    def _handed(moment: EpochMoment, answer: bytes, root: Hash32) -> list[PromptOpening]:
        """The prompts that the last leader hands over; others than were fixed are as none."""
        try:
            found = msgspec.msgpack.decode(answer, type=Openings) if answer else []
            if found:
                require_openings(found, root)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, CommitteeError, ProtocolError) as error:
            log.warning("%s hands over other prompts: %s", moment.now.state.leader, error)
            return []
        return found

    def _file(self, moment: EpochMoment, credits: Mapping[Address, int], proof: bytes) -> EpochFile:
        nodes = self.rater.examiner.hosts(moment.first).listed(moment.now.seed)
        root = ZERO_HASH
        if nodes:
            terms, store = self.rater.terms, self.rater.store
            openings = self.rater.new_openings(moment, prompts_of_list(terms.prompts, len(nodes)))
            store.keep_openings(moment.now.epoch + 1, openings, terms.texts)
            if (warning := store.wear(terms.texts, terms.prompts).warning) is not None:
                log.warning("%s", warning)
            root = root_of(openings)
        after = ExaminedList(list(nodes), "0x" + root.hex())
        fixed = self.rater.fixed(moment)
        given = {str(node): credit for node, credit in credits.items()}
        return proposed(moment.now, ExaminedList() if fixed is None else fixed, given, after, proof)

    async def _gather(self, moment: EpochMoment, file: EpochFile, answers: Sequence[bytes]) -> None:
        """Sign, ask the others to sign, and settle once enough did."""
        rater = self.rater
        if rater.operator not in file.signatures:
            file = with_signature(moment.now, file, rater.secret, rater.journal)
            rater.note(moment, file)
            if silent := rater.silent(moment, file):
                file = with_silence(moment.now, file, rater.secret, silent)
            rater.keep(file, answers)
        proposal = EpochProposal(VERSION, file, rater.opened(moment) or [], list(answers))
        missing = committee.threshold(len(moment.now.members)) - len(file.signatures)
        given = await self.others.ask_all(REVIEW, encode_message(proposal), file.epoch, enough=missing)
        for operator, answer in given.items():
            file = self._joined(moment, file, operator, answer)
        rater.keep(file, answers)
        if not self._is_signed(moment, file):
            needed = committee.threshold(len(moment.now.members))
            raise EpochRefused(f"{needed} members must sign", len(file.signatures), "They are asked again.")
        # The others hear of it at the same time: should this member be killed now, one of them settles.
        tell = self.others.ask_all(SIGNED, encode_message(file), file.epoch, enough=0)
        _, settled = await asyncio.gather(tell, self._settle(moment, file), return_exceptions=True)
        if settled is not None:
            raise settled

    def _joined(self, moment: EpochMoment, file: EpochFile, operator: Address, answer: bytes) -> EpochFile:
        """The file with another member's word, where it is one."""
        rater = moment.now.state.raters.get(operator)
        if rater is None or not rater.counts(moment.now.epoch):
            # The chain refuses an update with a signature that does not count.
            return file
        try:
            said = msgspec.msgpack.decode(answer, type=Agreement)
            message, domain = file.update().message(), moment.now.domain
            typed_data.require_signer(message, domain, bytes.fromhex(said.signature.removeprefix("0x")), operator)
            joined = msgspec.structs.replace(file, signatures={**file.signatures, operator: said.signature})
            if said.silence is not None and self._may_count(moment, file, operator, said.silence):
                joined = msgspec.structs.replace(joined, silences={**file.silences, operator: said.silence})
        except (msgspec.MsgspecError, ProtocolError, ValueError, RecursionError) as error:
            log.warning("%s signed something else: %s", operator, error)
            return file
        return joined

    @staticmethod
    def _may_count(moment: EpochMoment, file: EpochFile, operator: Address, said: SilenceSaid) -> bool:
        """Whether a report is the member's, and calls nobody silent who has a credit: the chain would take neither."""
        try:
            alone = msgspec.structs.replace(file, silences={operator: said})
            bits = moment.now.read_silences(alone)[operator].silent
        except EpochRefused as error:
            log.warning("%s reports something else: %s", operator, error)
            return False
        scored = [number for number, credit in enumerate(file.update().credits) if credit != NOT_SCORED]
        return bits >> len(file.update().nodes) == 0 and not any(bits >> number & 1 for number in scored)

    # ---- on chain

    @staticmethod
    def _is_signed(moment: EpochMoment, file: EpochFile) -> bool:
        return len(file.signatures) >= committee.threshold(len(moment.now.members))

    async def _settle(self, moment: EpochMoment, file: EpochFile) -> None:
        await self.submit(moment.now.settlement(file))
        log.info("epoch %d is settled: %d signatures", file.epoch, len(file.signatures))

    async def _tell_left_out(self, moment: EpochMoment) -> None:
        """Tell the others what this member reported, where whoever settled the last epoch did not show it.

        Its leader alone had heard of it. Who does not answer is told again.
        """
        settled, file = moment.now.state.settled, self.rater.settled_file(moment)
        if settled is None or file is None or moment.block < self._tell_from:
            return
        if not moment.now.unheard(file, self.rater.operator):
            return
        everybody = frozenset(moment.now.members) - {self.rater.operator}
        if untold := self._untold.get(settled, everybody):
            self._tell_from = moment.block + PAUSE_BLOCKS
            body, number = encode_message(file), moment.now.epoch
            heard = await self.others.ask_all(SIGNED, body, number, enough=0, among=untold)
            self._untold = {settled: untold - heard.keys()}

    async def _show_left_out(self, moment: EpochMoment) -> None:
        """Bring reports of silence that whoever settled the last epoch did not show; nothing else waits for it."""
        settled = moment.now.state.settled
        file = self.rater.settled_file(moment) if settled != self._shown and moment.block >= self._show_from else None
        if file is None or not self._may_show(moment, file) or (call := moment.now.left_out(file)) is None:
            return
        log.warning("epoch %d was settled without reports of silence: they are brought", file.epoch)
        # Should this fail, or be mined late, they are not brought each second.
        self._show_from = moment.block + PAUSE_BLOCKS
        try:
            await self.submit(call)
            self._shown = settled
        except ChainRejected as error:
            # Another member was faster. What is refused for another reason may be taken later.
            self._shown = settled if error.name in TOO_LATE else self._shown
        except MISHAPS as error:
            log.warning("reports of silence were not brought: %s", error)

    def _may_show(self, moment: EpochMoment, file: EpochFile) -> bool:
        """The leader at once; the others when anybody would settle or in the next epoch, one after the other."""
        if file.leader == self.rater.operator:
            return True
        place = sorted(moment.now.state.raters).index(self.rater.operator)
        return moment.waited(file.epoch) >= place

    async def _tell(self) -> None:
        """Tell the others what a leader signed here: who shows each member something else is found out."""
        while self.rater.outbox:
            file = self.rater.outbox.pop()
            await self.others.ask_all(SIGNED, encode_message(file), file.epoch, enough=0)

    async def _expel(self, moment: EpochMoment) -> None:
        """Bring two signatures of one member to the chain, once by us; others may be faster."""
        known = tuple(self.rater.store.equivocations())
        self._tried.intersection_update(known)
        for found in known:
            if found.signer in moment.now.state.raters and found not in self._tried:
                log.warning("%s signed two updates for epoch %d", found.signer, found.epoch)
                with suppress(ChainRejected):
                    await self.submit(calls.expel(found.signer, found.epoch, found.seed, found.first, found.second))
                self._tried.add(found)
