"""An epoch of reputation as one file that goes from member to member: proposed, signed, reported silences, settled.

The file says what docs/reference/reputation.md says. Nothing in it is believed: each command reads the chain, computes
leader, lists and digests itself, and a member signs one update for an epoch and seed, which its journal remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from troth.chain.adapter import Chain
from troth.chain.new_files import replace_file
from troth.chain.reputation import followed_reputation
from troth.committee.errors import EpochRefused, SignedOther
from troth.committee.records import open_records
from troth.protocol import committee_calls, typed_data, vrf
from troth.protocol import reputation_calls as calls
from troth.protocol.calls import Call
from troth.protocol.committee import reports_needed, threshold
from troth.protocol.errors import InvalidSignature, ProtocolError
from troth.protocol.market.signed import VrfProof
from troth.protocol.reputation import (
    MAXIMUM_NODES,
    NOT_SCORED,
    ONE,
    EpochUpdate,
    ReputationRules,
    SignedSilence,
    SilenceReport,
    leader_alpha,
    leader_by,
    list_hash,
)
from troth.protocol.reputation_events import ReputationState
from troth.protocol.struct_kinds import prepared
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32, address_to_bytes, to_address

LARGEST_FILE = 2**20
FORMAT = 1

Read = TypeVar("Read")
Value = TypeVar("Value")

_Text = Annotated[str, msgspec.Meta(max_length=2 * 65 + 2)]
_Nodes = Annotated[list[_Text], msgspec.Meta(max_length=MAXIMUM_NODES)]


class ExaminedList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom an epoch examines, and keccak256 over the commitments of its prompts."""

    nodes: _Nodes = []
    prompt_root: _Text = "0x" + ZERO_HASH.hex()

    def read(self) -> tuple[tuple[Address, ...], Hash32]:
        """Nodes, ascending, and root; raises EpochRefused."""
        try:
            root = bytes.fromhex(self.prompt_root.removeprefix("0x"))
            nodes = tuple(sorted({to_address(node) for node in self.nodes}, key=address_to_bytes))
        except (ValueError, ProtocolError) as error:
            raise EpochRefused("The list names something that is no address or hash", str(error)) from error
        if len(root) != 32:
            raise EpochRefused("A root of prompts has 32 bytes", self.prompt_root)
        return nodes, Hash32(root)

    @property
    def hash(self) -> Hash32:
        """What the chain keeps of it."""
        return list_hash(*self.read())


class SilenceSaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member's report: nodes as bits over the list, and its signature."""

    silent: _Text
    signature: _Text


class EpochFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What members hand to each other; hashes and signatures in hexadecimal, credits in parts of 10^9."""

    version: int
    contract: _Text
    epoch: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
    seed: _Text
    leader: _Text
    examined: ExaminedList
    credits: Annotated[dict[_Text, Annotated[int, msgspec.Meta(ge=0, le=ONE)]], msgspec.Meta(max_length=MAXIMUM_NODES)]
    next: ExaminedList
    proof: Annotated[str, msgspec.Meta(max_length=2 * 81 + 2)] = ""
    signatures: Annotated[dict[_Text, _Text], msgspec.Meta(max_length=64)] = {}
    silences: Annotated[dict[_Text, SilenceSaid], msgspec.Meta(max_length=64)] = {}

    def update(self) -> EpochUpdate:
        """What is signed; raises EpochRefused for credits of nodes that are not examined."""
        nodes, root = self.examined.read()
        credits = {to_address(node): credit for node, credit in self.credits.items()}
        if strangers := sorted(set(credits) - set(nodes)):
            raise EpochRefused("These nodes are not examined in this epoch", strangers, "Leave their credits out.")
        given = tuple(credits.get(node, NOT_SCORED) for node in nodes)
        seed, leader = Hash32(_unhex(self.seed)), to_address(self.leader)
        return EpochUpdate(self.epoch, seed, leader, root, nodes, given, self.next.hash)


def read_epoch(path: Path) -> EpochFile:
    """The file of an epoch; raises EpochRefused."""
    return _decoded(path, EpochFile)


def read_list(path: Path) -> ExaminedList:
    """The file of a list; raises EpochRefused."""
    return _decoded(path, ExaminedList)


def read_credits(path: Path) -> dict[str, int]:
    """Credits between 0 and 1 by node, as parts of 10^9; raises EpochRefused."""
    found = _decoded(path, dict[str, Annotated[float, msgspec.Meta(ge=0, le=1)]])
    return {to_address(node): round(credit * ONE) for node, credit in found.items()}


def write_json(path: Path, value: object) -> None:
    """Replace a file by one that people can read, with mode 0600, as prompts may be in it."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


class EpochJournal:
    """What this member signed: one update for an epoch and seed, also after kill -9 (SQLite, synchronous)."""

    def __init__(self, path: Path) -> None:
        schema = (
            "CREATE TABLE IF NOT EXISTS signed (contract TEXT, epoch INTEGER, seed BLOB, digest BLOB NOT NULL, "
            "PRIMARY KEY (contract, epoch, seed)) WITHOUT ROWID"
        )
        self._database = open_records(path, "The journal of epochs", FORMAT, schema)

    def claim(self, contract: Address, epoch: int, seed: Hash32, digest: Hash32) -> None:
        """Note what gets our signature, before it does; raises SignedOther, and then nothing may be signed."""
        self._database.execute("INSERT OR IGNORE INTO signed VALUES (?, ?, ?, ?)", (contract, epoch, seed, digest))
        asked = "SELECT digest FROM signed WHERE contract = ? AND epoch = ? AND seed = ?"
        ((known,),) = self._database.execute(asked, (contract, epoch, seed)).fetchall()
        if known != digest:
            what = f"This member signed another update for epoch {epoch}; a second one would cost its bond"
            raise SignedOther(what, known.hex(), "Wait for the next epoch.")

    def signed(self, contract: Address, epoch: int, seed: Hash32) -> Hash32 | None:
        """The digest that got our signature; None before."""
        asked = "SELECT digest FROM signed WHERE contract = ? AND epoch = ? AND seed = ?"
        row = self._database.execute(asked, (contract, epoch, seed)).fetchone()
        return None if row is None else Hash32(bytes(row[0]))

    def close(self) -> None:
        """Close the file."""
        self._database.close()


@dataclass(frozen=True, slots=True)
class EpochNow:
    """The current epoch as the chain says it."""

    domain: Domain
    state: ReputationState
    members: tuple[Address, ...]
    epoch: int
    seed: Hash32

    @property
    def rules(self) -> ReputationRules:
        """The deployment's."""
        assert self.state.deployed is not None
        return self.state.deployed.rules

    @property
    def fixed(self) -> Hash32:
        """What the epoch before fixed; zero if it was not settled."""
        return self.state.next_list if self.state.through == self.epoch else ZERO_HASH

    def randomness(self, proof: bytes) -> bytes:
        """What draws the leader: the output of the last leader's proof, or without one the seed."""
        if not proof:
            return self.seed
        last = self.state.raters.get(self.state.leader)
        if last is None:
            raise EpochRefused("The last leader is not enrolled any more", self.state.leader, "Leave the proof out.")
        return vrf.verify((last.vrf_x, last.vrf_y), leader_alpha(self.domain, self.epoch, self.seed), proof)

    def leader(self, proof: bytes) -> Address:
        """Who leads this epoch."""
        return leader_by(self.state.raters, self.members, self.epoch, self.randomness(proof))

    def lead(self, secret: bytes) -> bytes:
        """The last leader's proof for this epoch."""
        return vrf.prove(secret, leader_alpha(self.domain, self.epoch, self.seed))

    def require(self, update: EpochUpdate, proof: bytes, contract: str) -> None:
        """Raise EpochRefused unless the chain would take this update with enough signatures."""
        if to_address(contract) != self.domain.contract:
            raise EpochRefused("The file is of another contract", contract, "Name the one of --reputation.")
        if self.state.through > self.epoch:
            raise EpochRefused(f"Epoch {self.epoch} is settled", update.epoch, "Wait for the next one.")
        if (update.epoch, update.seed) != (self.epoch, self.seed):
            what = f"It is epoch {self.epoch} with seed 0x{self.seed.hex()}"
            raise EpochRefused(what, f"{update.epoch}, 0x{update.seed.hex()}", "Propose anew.")
        examined = list_hash(update.nodes, update.prompt_root)
        nobody = not update.nodes and update.prompt_root == ZERO_HASH
        if examined != self.fixed and not (nobody and self.fixed == ZERO_HASH):
            what = (
                "The epoch before fixed another list" if self.fixed != ZERO_HASH else "The epoch before fixed no list"
            )
            raise EpochRefused(
                what, "0x" + self.fixed.hex(), "Name the file of the list that was fixed; none, if none."
            )
        if update.leader != (drawn := self.leader(proof)):
            raise EpochRefused(f"{drawn} leads this epoch", update.leader, "Let it propose.")

    def read_silences(self, file: EpochFile) -> dict[Address, SilenceReport]:
        """The reports in a file, signatures checked; raises EpochRefused."""
        nodes, root = file.examined.read()
        listed = list_hash(nodes, root)
        update, found = file.update(), {}
        for sender, said in file.silences.items():
            report = SilenceReport(update.epoch, update.seed, listed, int.from_bytes(_unhex(said.silent), "big"))
            _require_signed(report, self.domain, said.signature, to_address(sender))
            found[to_address(sender)] = report
        return found

    def settlement(self, file: EpochFile) -> Call:
        """The call that settles the epoch; raises EpochRefused where the contract would refuse it."""
        update, proof = file.update(), _unhex(file.proof)
        self.require(update, proof, file.contract)
        message = update.message()
        for signer, signature in file.signatures.items():
            _require_signed(message, self.domain, signature, to_address(signer))
        needed = threshold(len(self.members))
        if len(file.signatures) < needed:
            raise EpochRefused(f"{needed} members must sign", len(file.signatures), "Hand the file to the others.")
        signatures = _ordered({to_address(one): _unhex(made) for one, made in file.signatures.items()})
        return calls.settle(update, self._hinted(proof), _ordered(self._reports(file, update)), signatures)

    def left_out(self, file: EpochFile) -> Call | None:
        """The call that rates whom reports in a file call silent, where whoever settled the epoch did not show them;
        None where there is nobody, or where the file is not of the epoch that was settled last."""
        update, enough = file.update(), reports_needed(len(self.members))
        # Signatures come last: this is asked each second.
        if not self.takes_reports(update) or not self._unrated(update, self._claimed(file), enough):
            return None
        reports = self._reports(file, update)
        said = {sender: report.silent for sender, report in reports.items()}
        return calls.report_silence(update, _ordered(reports)) if self._unrated(update, said, enough) else None

    def takes_reports(self, update: EpochUpdate) -> bool:
        """Whether the chain takes reports of silence beside this update: it settled the last epoch that was settled,
        and the one after it is not over."""
        last = self.state.settled
        settled = last is not None and last.digest == typed_data.struct_hash(update.message())
        return settled and self.epoch <= update.epoch + 1

    def unheard(self, file: EpochFile, operator: Address) -> bool:
        """Whether a member's report in a file names a node that nobody rated, while the chain takes reports."""
        update, said = file.update(), self._claimed(file).get(operator, 0)
        return bool(said) and self.takes_reports(update) and bool(self._unrated(update, {operator: said}, 1))

    def counted(self, file: EpochFile) -> EpochFile:
        """The file with the words of members that count alone, each under its address as it is written here.

        Raises EpochRefused for a name that is no address.
        """
        try:
            named = {name: to_address(name) for name in (*file.signatures, *file.silences)}
        except ProtocolError as error:
            raise EpochRefused("A word is under a name that is no address", error, "Take it out.") from error
        ours = {name: str(one) for name, one in named.items() if self._counts(one, file.epoch)}
        signatures = {ours[name]: made for name, made in file.signatures.items() if name in ours}
        silences = {ours[name]: said for name, said in file.silences.items() if name in ours}
        return msgspec.structs.replace(file, signatures=signatures, silences=silences)

    @staticmethod
    def _claimed(file: EpochFile) -> dict[Address, int]:
        """Whom reports call silent, by who is named as their signer."""
        return {to_address(name): int.from_bytes(_unhex(said.silent), "big") for name, said in file.silences.items()}

    def _reports(self, file: EpochFile, update: EpochUpdate) -> dict[Address, SignedSilence]:
        """The reports in a file that the chain takes: one that it does not would spoil all others."""
        unscored = sum(1 << place for place, credit in enumerate(update.credits) if credit == NOT_SCORED)
        made = {to_address(name): _unhex(said.signature) for name, said in file.silences.items()}
        return {
            sender: SignedSilence(report.silent, made[sender])
            for sender, report in self.read_silences(file).items()
            if self._counts(sender, update.epoch) and not report.silent & ~unscored
        }

    def _counts(self, operator: Address, epoch: int) -> bool:
        rater = self.state.raters.get(operator)
        return rater is not None and rater.counts(epoch) and operator in self.members

    def _unrated(self, update: EpochUpdate, silent: Mapping[Address, int], enough: int) -> list[Address]:
        """Nodes that so many members report and that nobody rated in the update's epoch."""
        found = []
        for place, node in enumerate(update.nodes):
            standing = self.state.standings.get(node)
            is_rated = standing is not None and standing.last_epoch == update.epoch
            if not is_rated and sum(bits >> place & 1 for bits in silent.values()) >= enough:
                found.append(node)
        return found

    def _hinted(self, proof: bytes) -> VrfProof:
        if not proof:
            return calls.NO_PROOF
        last, alpha = self.state.raters[self.state.leader], leader_alpha(self.domain, self.epoch, self.seed)
        return VrfProof(proof, tuple(vrf.hints((last.vrf_x, last.vrf_y), alpha, proof)))


async def epoch_now(rpc: str, contract: Address, start_block: int = 0) -> EpochNow:
    """Read the chain; raises ChainError, and EpochRefused while the seed cannot be read."""
    async with followed_reputation(rpc, contract, start_block=start_block) as follower:
        state = follower.state
    assert state.deployed is not None
    async with await Chain.connect(rpc, contract) as chain, await Chain.connect(rpc, state.deployed.committee) as other:
        epoch = await chain.read(calls.epoch_now())
        seed = await chain.read(calls.seed_of(epoch))
        members = tuple(member.operator for member in await other.read(committee_calls.members()))
        return EpochNow(chain.domain, state, members, epoch, seed)


def proposed(
    now: EpochNow, examined: ExaminedList, credits: Mapping[str, int], after: ExaminedList, proof: bytes
) -> EpochFile:
    """The file of this epoch, without signatures; raises EpochRefused for what the chain would not take."""
    leader = now.leader(proof)
    seed = "0x" + now.seed.hex()
    shown = "0x" + proof.hex() if proof else ""
    file = EpochFile(FORMAT, now.domain.contract, now.epoch, seed, leader, examined, dict(credits), after, shown)
    now.require(file.update(), proof, file.contract)
    return file


def with_signature(now: EpochNow, file: EpochFile, secret: bytes, journal: EpochJournal) -> EpochFile:
    """The file with our signature; the journal knows it before it leaves. Raises EpochRefused or SignedOther."""
    update = file.update()
    now.require(update, _unhex(file.proof), file.contract)
    operator = require_rater(now, secret)
    message = update.message()
    journal.claim(now.domain.contract, now.epoch, now.seed, typed_data.struct_hash(message))
    signature = "0x" + typed_data.sign(message, now.domain, secret).hex()
    return msgspec.structs.replace(file, signatures={**file.signatures, operator: signature})


def with_silence(now: EpochNow, file: EpochFile, secret: bytes, silent: list[Address]) -> EpochFile:
    """The file with our report that these nodes did not answer us."""
    nodes, root = file.examined.read()
    now.require(file.update(), _unhex(file.proof), file.contract)
    operator = require_rater(now, secret)
    if strangers := sorted(set(silent) - set(nodes)):
        raise EpochRefused("These nodes are not examined in this epoch", strangers)
    bits = sum(1 << nodes.index(node) for node in set(silent))
    report = SilenceReport(now.epoch, now.seed, list_hash(nodes, root), bits)
    signature = "0x" + typed_data.sign(report, now.domain, secret).hex()
    said = SilenceSaid("0x" + bits.to_bytes(32, "big").hex(), signature)
    return msgspec.structs.replace(file, silences={**file.silences, operator: said})


def require_rater(now: EpochNow, secret: bytes) -> Address:
    """Our operator; raises EpochRefused unless it counts in this epoch."""
    operator = typed_data.address_of(secret)
    rater = now.state.raters.get(operator)
    if operator not in now.members or rater is None or not rater.counts(now.epoch):
        what = f"This member does not count in epoch {now.epoch}"
        raise EpochRefused(what, operator, "Enroll: troth committee reputation enroll; it counts from the next epoch.")
    return operator


def _ordered(by_signer: Mapping[Address, Value]) -> list[Value]:
    return [by_signer[one] for one in sorted(by_signer, key=address_to_bytes)]


def _require_signed(message: object, domain: Domain, signature: str, signer: Address) -> None:
    try:
        typed_data.require_signer(message, domain, _unhex(signature), signer)
    except InvalidSignature as error:
        raise EpochRefused(f"{signer} did not sign this", error.what, "Let it sign again, or take it out.") from error


def _unhex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits.removeprefix("0x"))
    except ValueError as error:
        raise EpochRefused("This is no hexadecimal number", digits[:80]) from error


def _decoded(path: Path, kind: type[Read]) -> Read:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise EpochRefused(f"A file of an epoch has at most {LARGEST_FILE} bytes", path)
        return msgspec.json.decode(path.read_bytes(), type=prepared(kind))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EpochRefused(f"{path} cannot be read: {error}", path, "See docs/reference/reputation.md.") from error
