"""One member as the others meet it in an epoch: what it proves, hands over, signs and keeps as evidence.

Nothing of another member is believed. A proposal is computed again before it is signed: prompts against the root that
was fixed, every answer against its signatures and the draw, every credit by a prefill of this member's own model, the
next list against the class's hosts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from troth.committee.corpus.prompts import LONGEST, MOST_PROMPTS
from troth.committee.corpus.texts import Corpus, shipped
from troth.committee.corpus.wear import CorpusWear, prompts_of_list
from troth.committee.errors import EpochRefused, RequestRefused
from troth.committee.rating.answers import LARGEST_ANSWER, decode_answer, require_distinct
from troth.committee.rating.asking import Examiner
from troth.committee.rating.challenges import (
    Openings,
    PromptOpening,
    new_openings,
    places_of,
    require_openings,
    writer_of,
)
from troth.committee.rating.epochs import (
    EpochFile,
    EpochJournal,
    ExaminedList,
    SilenceSaid,
    with_signature,
    with_silence,
)
from troth.committee.rating.evidence import NOTHING_YET, SURE, UNKNOWN, KnownEvidence
from troth.committee.rating.moments import EpochMoment
from troth.committee.rating.store import RECORDS, USUAL_NODES, EpochStore
from troth.protocol import typed_data
from troth.protocol.committee import threshold
from troth.protocol.credit import Credit
from troth.protocol.errors import InvalidSignature, ProtocolError
from troth.protocol.reputation import UpdateEvidence
from troth.protocol.types import ZERO_HASH, Address, Hash32, to_address

VERSION = 1


class EpochProposal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a leader asks others to sign: the epoch's file with its own signature, the prompts opened, the answers."""

    version: int
    file: EpochFile
    openings: Openings
    answers: Annotated[
        list[Annotated[bytes, msgspec.Meta(max_length=LARGEST_ANSWER)]], msgspec.Meta(max_length=MOST_PROMPTS)
    ]


class Agreement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member's signature over the update, and its report of nodes that did not answer its own attempts."""

    signature: Annotated[str, msgspec.Meta(max_length=2 * 65 + 2)]
    silence: SilenceSaid | None = None


@dataclass(frozen=True, slots=True)
class RatingTerms:
    """How epochs are carried out; the same at every member but for the last three.

    Attributes:
        prompts: for each listed node and leader.
        tokens: of an answer at most.
        attempts: prompts that this member asks by itself in each epoch, to know who is silent.
        characters: of the prompts that this member writes at most, where a class has a short context.
        corpus: of what this member makes its prompts; None for the one that ships.
    """

    prompts: int
    tokens: int
    attempts: int
    characters: int = LONGEST
    corpus: Corpus | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Of what this member makes its prompts."""
        return (self.corpus or shipped()).texts

    def wear_in(self, folder: Path) -> CorpusWear:
        """How worn the corpus is by what a member's home has; nothing is written where it never rated."""
        path = folder / RECORDS
        if not path.exists():
            return CorpusWear(len(self.texts), 0.0, prompts_of_list(self.prompts, USUAL_NODES))
        store = EpochStore(path)
        try:
            return store.wear(self.texts, self.prompts)
        finally:
            store.close()

    def new_openings(self, count: int, is_ours: Callable[[str], bool]) -> list[PromptOpening]:
        """Fresh prompts, of a fresh secret."""
        return new_openings(count, is_ours, self.characters, self.corpus)


@dataclass(eq=False)
class RatingMember:
    """A member's part in epochs; all calls from one event loop."""

    secret: bytes = field(repr=False)
    vrf_secret: bytes = field(repr=False)
    moment: Callable[[], Awaitable[EpochMoment]]
    journal: EpochJournal
    store: EpochStore
    examiner: Examiner
    terms: RatingTerms
    outbox: list[EpochFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operator: Address = typed_data.address_of(self.secret)
        self._judging = asyncio.Lock()

    # ---- what others ask for

    async def prove(self, epoch: int) -> bytes:
        """The proof that draws this epoch's leader, of the member that led last; raises RequestRefused."""
        moment = await self._at(epoch)
        if moment.now.state.leader != self.operator or not moment.has_last_leader:
            raise RequestRefused("Another member led last", moment.now.state.leader, "Ask that one.")
        return moment.now.lead(self.vrf_secret)

    async def hand_over(self, sender: Address, epoch: int) -> list[PromptOpening]:
        """The prompts of this epoch, for the two who may lead it and for nobody else; raises RequestRefused."""
        moment = await self._at(epoch)
        if sender not in {moment.now.leader(await self.prove(epoch)), moment.now.leader(b"")}:
            raise RequestRefused("The prompts are for the epoch's leader", sender, "Wait for your turn.")
        return self.opened(moment) or []

    def listed(self, digest: Hash32) -> bytes:
        """A list that was fixed, by its hash; raises RequestRefused for one that this member does not know."""
        data = self.store.fixed_list(digest)
        if data is None:
            raise RequestRefused("This member does not know that list either", digest.hex(), "Ask another.")
        return data

    def added_up(self, digest: Hash32) -> bytes:
        """What epochs up to a settled update have added up to; raises RequestRefused where this is not sure of it."""
        known = self.store.evidence(digest)
        if known is None or known.judged < SURE:
            raise RequestRefused("This member missed an epoch, too", digest.hex(), "Ask another.")
        return encode_message(known)

    def opened(self, moment: EpochMoment) -> list[PromptOpening] | None:
        """The prompts of the current epoch as far as this member has them."""
        fixed = self.fixed(moment)
        return None if fixed is None else self.store.openings(fixed.read()[1])

    def fixed(self, moment: EpochMoment) -> ExaminedList | None:
        """The list of the current epoch; an empty one where none was fixed, None where this member does not know it."""
        if moment.now.fixed == ZERO_HASH:
            return ExaminedList()
        data = self.store.fixed_list(moment.now.fixed)
        return None if data is None else msgspec.json.decode(data, type=ExaminedList)

    async def review(self, sender: Address, proposal: EpochProposal) -> Agreement:
        """Our signature under a leader's proposal, once all of it is right; raises EpochRefused or SignedOther."""
        moment = await self._at(proposal.file.epoch)
        update = proposal.file.update()
        moment.now.require(update, _hex(proposal.file.proof), proposal.file.contract)
        if sender != update.leader:
            raise EpochRefused(f"{update.leader} leads this epoch", sender, "Let it propose.")
        if not proposal.file.proof and not moment.seed_leads:
            raise EpochRefused("It is the turn of the leader whom the last one's VRF draws", sender, "Wait for yours.")
        # Before anything else: two proposals of one leader convict it, whether or not they are right.
        if self.note(moment, proposal.file):
            self.outbox.append(proposal.file)
        await self._require_right(moment, proposal)
        return self._agreement(moment, proposal.file)

    def note(self, moment: EpochMoment, file: EpochFile) -> bool:
        """Keep each signature under an update of this epoch; whether one is new. Raises EpochRefused for a forged one.

        All are checked before one is kept.
        """
        found = self._signed_in(moment, file)
        new = [self.store.note_signed(file.epoch, moment.now.seed, *one) for one in found]
        return any(new)

    def _signed_in(self, moment: EpochMoment, file: EpochFile) -> list[tuple[Address, Hash32, UpdateEvidence]]:
        update = file.update()
        message = update.message()
        if (update.epoch, update.seed) != (moment.now.epoch, moment.now.seed):
            raise EpochRefused(f"It is epoch {moment.now.epoch}", update.epoch, "Show files of this epoch.")
        if update.leader not in file.signatures:
            raise EpochRefused("The leader signs first", update.leader, "Sign before asking others.")
        digest, found = typed_data.struct_hash(message), []
        for signer, shown in file.signatures.items():
            try:
                signature = _hex(shown)
                typed_data.require_signer(message, moment.now.domain, signature, to_address(signer))
            except (InvalidSignature, ProtocolError) as error:
                raise EpochRefused(f"{signer} did not sign this", error, "Take it out.") from error
            if to_address(signer) in moment.now.state.raters:
                found.append((to_address(signer), digest, UpdateEvidence.of(message, signature)))
        return found

    async def hear(self, file: EpochFile) -> None:
        """Keep signatures that another member saw; a file that enough signed, which anybody settles in the end; and
        reports of silence that whoever settled the last epoch did not show.

        Raises EpochRefused.
        """
        moment = await self.moment()
        is_last = moment.now.takes_reports(file.update())
        if not is_last or file.epoch == moment.now.epoch:
            # Also of an epoch that is settled: who signed two updates is convicted afterwards.
            self.note(moment, file)
        file = moment.now.counted(file)
        if is_last:
            self._hear_reports(moment, file)
        elif len(file.signatures) >= threshold(len(moment.now.members)) and not moment.settled:
            # As the chain would take it, or not at all.
            moment.now.settlement(file)
            self.keep(file, ())

    def _hear_reports(self, moment: EpochMoment, file: EpochFile) -> None:
        """Keep what members reported of an epoch that is settled: a leader may have shown it to nobody."""
        kept = self.settled_file(moment)
        if kept is not None and file.silences.keys() <= kept.silences.keys():
            return
        moment.now.read_silences(file)
        if any(moment.now.unheard(file, Address(sender)) for sender in file.silences):
            # Nothing else of it was looked at, and should blocks be undone, this member settles with what it has.
            known = msgspec.structs.replace(file, signatures={}) if kept is None else kept
            self.keep(msgspec.structs.replace(known, silences=file.silences), ())

    def keep(self, file: EpochFile, answers: Sequence[bytes]) -> None:
        """Keep a file and the list that it fixes, with what was kept of the same update: who shows it with fewer
        reports or signatures has nobody forget the others."""
        # A file of the last epoch comes in the next one, too, which has another seed.
        seed = file.update().seed
        kept = self.store.proposal(file.epoch, seed)
        if kept is not None and _digest(kept[0]) == _digest(file):
            before, answers = kept[0], answers or kept[1]
            signatures, silences = {**file.signatures, **before.signatures}, {**file.silences, **before.silences}
            # The digest leaves out the proof, and how addresses are written: theirs is right that was looked at whole.
            looked_at = before if before.signatures else file
            file = msgspec.structs.replace(looked_at, signatures=signatures, silences=silences)
        self.store.keep_list(file.epoch + 1, file.next.hash, msgspec.json.encode(file.next))
        # What more signed may settle the epoch, also where this member signed another leader's update meanwhile.
        if kept is None or len(file.signatures) >= len(kept[0].signatures):
            self.store.keep_proposal(file, seed, answers)

    def settled_file(self, moment: EpochMoment) -> EpochFile | None:
        """The file of the update that was settled last, if this member has it."""
        last = moment.now.state.settled
        kept = [] if last is None else self.store.proposals(last.epoch)
        return next((file for file in kept if last is not None and _digest(file) == last.digest), None)

    # ---- what this member thinks

    def names(self, moment: EpochMoment, places: range, kind: str = "challenge") -> dict[int, str]:
        """Under which names the client's journal has what was asked, by place."""
        run = f"{moment.now.domain.contract}-{moment.now.epoch}-{moment.now.seed.hex()[:16]}"
        return {place: f"{kind}-{run}-{place}" for place in places}

    def attempts(self, moment: EpochMoment) -> list[PromptOpening]:
        """What this member asks by itself, so that it knows who is silent."""
        now = moment.now
        made = self.store.attempts(now.epoch, now.seed)
        if made is None:
            made = self.new_openings(moment, self.terms.attempts)
            self.store.keep_attempts(now.epoch, now.seed, made, self.terms.texts)
        return made

    def new_openings(self, moment: EpochMoment, count: int) -> list[PromptOpening]:
        """Fresh prompts that no other member writes, and that none is known to have asked."""

        def is_ours(text: str) -> bool:
            return self.store.is_new(text) and writer_of(text, moment.now.members) == self.operator

        return self.terms.new_openings(count, is_ours)

    def silent(self, moment: EpochMoment, file: EpochFile) -> list[Address]:
        """Nodes of the list that did not answer this member in this epoch, and that nobody scored."""
        nodes, _ = file.examined.read()
        asked = list(self.names(moment, range(len(self.opened(moment) or ()))).values())
        asked += self.names(moment, range(self.terms.attempts), "attempt").values()
        found = self.examiner.silent(asked)
        return sorted(found & set(nodes) - {to_address(node) for node in file.credits})

    def known(self, moment: EpochMoment) -> KnownEvidence:
        """What nodes' epochs have added up to, as far as this member judged them."""
        last = moment.now.state.settled
        return NOTHING_YET if last is None else self.store.evidence(last.digest) or UNKNOWN

    def believe(self, moment: EpochMoment, others: KnownEvidence) -> None:
        """Begin with what others say of the update that was settled last; it stays as unsure as knowing nothing."""
        last = moment.now.state.settled
        if last is not None and self.store.evidence(last.digest) is None:
            self.store.keep_evidence(last.epoch, last.digest, msgspec.structs.replace(others, judged=0))

    def keep_evidence(self, moment: EpochMoment, file: EpochFile, credits: Mapping[Address, Credit]) -> None:
        """Keep what it adds up to with an update, should that one settle the epoch."""
        self.store.keep_evidence(file.epoch, _digest(file), self.known(moment).after(credits))

    async def credits(
        self,
        moment: EpochMoment,
        examined: ExaminedList,
        openings: Sequence[PromptOpening],
        answers: Sequence[bytes],
        part: int,
    ) -> dict[Address, Credit]:
        """What a leader's answers are worth, by node of the list; raises EpochRefused where one is not right."""
        shown = [decode_answer(answer) for answer in answers]
        require_distinct(shown, places_of(part, len(openings)))
        async with self._judging:
            known = self.known(moment).nodes
            found = await self.examiner.credits(shown, openings, moment.first, known)
        nodes, _ = examined.read()
        return {node: credit for node, credit in found.items() if node in nodes}

    async def _require_right(self, moment: EpochMoment, proposal: EpochProposal) -> None:
        file = proposal.file
        _, root = file.examined.read()
        # Our journal says what we signed: what was right before needs no second prefill.
        if self.journal.signed(moment.now.domain.contract, moment.now.epoch, moment.now.seed) == _digest(file):
            return
        if proposal.openings:
            require_openings(proposal.openings, root)
            if repeated := [one for one in proposal.openings if not self.store.is_new_to(one.prompt, root)]:
                raise EpochRefused("A prompt was asked before", repeated[0].prompt, "Write new ones.")
        elif proposal.answers or file.credits:
            raise EpochRefused("There are credits without prompts", len(file.credits), "Open the prompts.")
        found = await self.credits(moment, file.examined, proposal.openings, proposal.answers, 0 if file.proof else 1)
        given = {to_address(node): credit for node, credit in file.credits.items()}
        if set(found) != set(given):
            raise EpochRefused("Other nodes have answers", sorted(set(found) ^ set(given)), "Score whoever answered.")
        known = self.known(moment)
        if wrong := [node for node in found if not known.allows(found[node], given[node])]:
            seen = f"{wrong[0]}: {given[wrong[0]]}, and here {found[wrong[0]].value}"
            raise EpochRefused("A credit is not what the answers are worth", seen, "Compute it again.")
        self._require_next(moment, file)
        self.store.remember(proposal.openings, root)
        self.keep_evidence(moment, file, found)

    def _require_next(self, moment: EpochMoment, file: EpochFile) -> None:
        nodes, root = file.next.read()
        self.examiner.hosts(moment.first).require(nodes, moment.now.seed)
        if (root == ZERO_HASH) != (not nodes):
            raise EpochRefused("The next list has nodes and prompts, or neither", root.hex(), "Commit to prompts.")

    def _agreement(self, moment: EpochMoment, file: EpochFile) -> Agreement:
        # Of what a leader shows beside its own signature nothing is checked yet.
        leader = file.update().leader
        led = msgspec.structs.replace(file, signatures={leader: file.signatures[leader]}, silences={})
        signed = with_signature(moment.now, led, self.secret, self.journal)
        self.note(moment, signed)
        if silent := self.silent(moment, file):
            signed = with_silence(moment.now, signed, self.secret, silent)
        # The leader may show our report to nobody: after the epoch was settled so, the others hear of it from us.
        self.keep(signed, ())
        return Agreement(signed.signatures[self.operator], signed.silences.get(self.operator))

    async def _at(self, epoch: int) -> EpochMoment:
        moment = await self.moment()
        if moment.now.epoch != epoch:
            raise RequestRefused(f"Here it is epoch {moment.now.epoch}", epoch, "Compare the chain nodes.")
        if moment.settled:
            raise EpochRefused(f"Epoch {epoch} is settled", epoch, "Wait for the next one.")
        return moment


def encode_message(value: object) -> bytes:
    """The bytes of what members send each other in an epoch."""
    return msgspec.msgpack.encode(value)


def decode_proposal_of_epoch(data: bytes) -> EpochProposal:
    """A proposal, nothing in it checked; raises RequestRefused."""
    try:
        proposal = msgspec.msgpack.decode(data, type=EpochProposal)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused("The bytes are no proposal of an epoch", error) from error
    if proposal.version != VERSION:
        raise RequestRefused(f"The proposal has version {proposal.version}, this is for {VERSION}")
    return proposal


def _digest(file: EpochFile) -> Hash32:
    return typed_data.struct_hash(file.update().message())


def _hex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits.removeprefix("0x"))
    except ValueError as error:
        raise EpochRefused("This is no hexadecimal number", digits[:80]) from error
