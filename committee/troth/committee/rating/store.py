"""What a member must not forget of epochs (SQLite, WAL): prompts that are still hidden, proposals, who signed what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from troth.chain.formats import all_or_nothing
from troth.committee.corpus.wear import CorpusWear, prompts_of_list
from troth.committee.rating.challenges import Openings, PromptOpening, root_of
from troth.committee.rating.epochs import EpochFile, ExaminedList
from troth.committee.rating.evidence import KnownEvidence
from troth.committee.records import open_records
from troth.protocol.hashing import keccak256
from troth.protocol.reputation import UpdateEvidence
from troth.protocol.struct_kinds import prepared
from troth.protocol.types import Address, Hash32

FORMAT, RECORDS = 1, "rating.sqlite"
USUAL_NODES = 50
"""Of a list, as long as none was seen."""
KEPT_EPOCHS = 16
"""Proposals, openings and evidence of older epochs are forgotten: nobody can be expelled for them any more."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS openings (root BLOB PRIMARY KEY, epoch INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS lists (hash BLOB PRIMARY KEY, epoch INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS prompts (hash BLOB PRIMARY KEY, root BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS proposals (
    epoch INTEGER, seed BLOB, file BLOB NOT NULL, answers BLOB NOT NULL, PRIMARY KEY (epoch, seed)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signed (
    epoch INTEGER, seed BLOB, signer TEXT, digest BLOB, evidence BLOB NOT NULL,
    PRIMARY KEY (epoch, seed, signer, digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evidence (digest BLOB PRIMARY KEY, epoch INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS attempts (epoch INTEGER, seed BLOB, data BLOB NOT NULL, PRIMARY KEY (epoch, seed));
CREATE TABLE IF NOT EXISTS texts (hash BLOB PRIMARY KEY, prompts REAL NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two updates of one epoch and seed with one member's signature."""

    signer: Address
    epoch: int
    seed: Hash32
    first: UpdateEvidence
    second: UpdateEvidence


class EpochStore:
    """One member's file; calls from one event loop."""

    def __init__(self, path: Path) -> None:
        self._database = open_records(path, "The records of epochs", FORMAT, _SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # ---- prompts

    def is_new(self, prompt: str) -> bool:
        """Whether no list that this member knows of has this prompt."""
        return self._one("SELECT 1 FROM prompts WHERE hash = ?", keccak256(prompt.encode())) is None

    def is_new_to(self, prompt: str, root: Hash32) -> bool:
        """Whether no other list than that of ``root`` has it."""
        row = self._one("SELECT root FROM prompts WHERE hash = ?", keccak256(prompt.encode()))
        return row is None or bytes(row[0]) == root

    def keep_openings(self, epoch: int, openings: Sequence[PromptOpening], texts: Sequence[str] = ()) -> None:
        """Keep the prompts that an epoch asks; they are never written again. ``texts``: of which this member made them,
        where it did."""
        root, data = root_of(openings), msgspec.json.encode(list(openings))
        with all_or_nothing(self._database):
            self._database.execute("INSERT OR IGNORE INTO openings VALUES (?, ?, ?)", (root, epoch, data))
            self._remember(openings, root)
            self._note_used(texts, len(openings))

    def openings(self, root: Hash32) -> list[PromptOpening] | None:
        """The prompts of a root, once this member knows them."""
        row = self._one("SELECT data FROM openings WHERE root = ?", root)
        return None if row is None else msgspec.json.decode(row[0], type=prepared(Openings))

    def keep_attempts(
        self, epoch: int, seed: Hash32, openings: Sequence[PromptOpening], texts: Sequence[str] = ()
    ) -> None:
        """Keep what this member asks by itself in an epoch, made of ``texts``."""
        data = msgspec.json.encode(list(openings))
        with all_or_nothing(self._database):
            self._database.execute("INSERT OR IGNORE INTO attempts VALUES (?, ?, ?)", (epoch, seed, data))
            self._remember(openings, seed)
            self._note_used(texts, len(openings))

    def attempts(self, epoch: int, seed: Hash32) -> list[PromptOpening] | None:
        """What this member asks by itself in an epoch."""
        row = self._one("SELECT data FROM attempts WHERE epoch = ? AND seed = ?", epoch, seed)
        return None if row is None else msgspec.json.decode(row[0], type=prepared(Openings))

    def remember(self, openings: Sequence[PromptOpening], root: Hash32) -> None:
        """Note that a list of another member had these prompts: none of them is written again."""
        with all_or_nothing(self._database):
            self._remember(openings, root)

    def _remember(self, openings: Sequence[PromptOpening], root: bytes) -> None:
        rows = [(keccak256(one.prompt.encode()), root) for one in openings]
        self._database.executemany("INSERT OR IGNORE INTO prompts VALUES (?, ?)", rows)

    def uses(self, texts: Sequence[str]) -> float:
        """How many prompts this member made of each of some texts, on average."""
        asked = "SELECT prompts FROM texts WHERE hash = ?"
        found = (self._one(asked, keccak256(text.encode())) for text in texts)
        return sum(float(row[0]) for row in found if row is not None) / max(1, len(texts))

    def wear(self, texts: Sequence[str], prompts: int) -> CorpusWear:
        """How worn a corpus of these texts is, where so many prompts are asked of each node."""
        return CorpusWear(len(texts), self.uses(texts), prompts_of_list(prompts, self.longest_list() or USUAL_NODES))

    def _note_used(self, texts: Sequence[str], prompts: int) -> None:
        """A part for each text: a corpus that grows is as worn as its texts are."""
        rows = [(keccak256(text.encode()), prompts / len(texts)) for text in texts]
        change = "INSERT INTO texts VALUES (?, ?) ON CONFLICT (hash) DO UPDATE SET prompts = prompts + excluded.prompts"
        self._database.executemany(change, rows)

    # ---- lists and proposals

    def longest_list(self) -> int:
        """How many nodes the longest list has that is still kept; 0 where there is none."""
        rows = self._database.execute("SELECT data FROM lists").fetchall()
        return max((len(msgspec.json.decode(row[0], type=prepared(ExaminedList)).nodes) for row in rows), default=0)

    def keep_list(self, epoch: int, digest: Hash32, examined: bytes) -> None:
        """Keep the list that an update fixed for an epoch."""
        self._database.execute("INSERT OR IGNORE INTO lists VALUES (?, ?, ?)", (digest, epoch, examined))

    def fixed_list(self, digest: Hash32) -> bytes | None:
        """A list by its hash."""
        row = self._one("SELECT data FROM lists WHERE hash = ?", digest)
        return None if row is None else bytes(row[0])

    def keep_proposal(self, file: EpochFile, seed: Hash32, answers: Sequence[bytes]) -> None:
        """Keep what this member proposes, or what it knows of another one's, signatures included."""
        data, shown = msgspec.json.encode(file), msgspec.msgpack.encode(list(answers))
        self._database.execute("INSERT OR REPLACE INTO proposals VALUES (?, ?, ?, ?)", (file.epoch, seed, data, shown))

    def proposal(self, epoch: int, seed: Hash32) -> tuple[EpochFile, list[bytes]] | None:
        """The proposal that is kept for an epoch."""
        row = self._one("SELECT file, answers FROM proposals WHERE epoch = ? AND seed = ?", epoch, seed)
        if row is None:
            return None
        return msgspec.json.decode(row[0], type=prepared(EpochFile)), msgspec.msgpack.decode(row[1], type=list[bytes])

    def proposals(self, epoch: int) -> list[EpochFile]:
        """Files of an epoch, one for each seed that it had."""
        asked = "SELECT file FROM proposals WHERE epoch = ?"
        rows = self._database.execute(asked, (epoch,)).fetchall()
        return [msgspec.json.decode(data, type=prepared(EpochFile)) for (data,) in rows]

    # ---- what nodes' epochs add up to

    def keep_evidence(self, epoch: int, digest: Hash32, known: KnownEvidence) -> None:
        """Keep the evidence against nodes as it is if an update of this digest settles an epoch."""
        data = msgspec.msgpack.encode(known)
        self._database.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?, ?)", (digest, epoch, data))

    def evidence(self, digest: Hash32) -> KnownEvidence | None:
        """The same; None where this member did not judge that update."""
        row = self._one("SELECT data FROM evidence WHERE digest = ?", digest)
        return None if row is None else msgspec.msgpack.decode(row[0], type=prepared(KnownEvidence))

    # ---- who signed what

    def note_signed(self, epoch: int, seed: Hash32, signer: Address, digest: Hash32, evidence: UpdateEvidence) -> bool:
        """Keep a member's signature over an update; whether it is one that was not known."""
        asked = "SELECT digest FROM signed WHERE epoch = ? AND seed = ? AND signer = ?"
        known = [bytes(row[0]) for row in self._database.execute(asked, (epoch, seed, signer)).fetchall()]
        # Two convict; whoever signs a hundred does not fill the disk.
        if digest in known or len(known) > 1:
            return False
        data = msgspec.msgpack.encode(evidence)
        self._database.execute("INSERT INTO signed VALUES (?, ?, ?, ?, ?)", (epoch, seed, signer, digest, data))
        return True

    def equivocations(self) -> Iterator[Equivocation]:
        """Members that signed two updates for one epoch and seed."""
        rows = self._database.execute(
            "SELECT epoch, seed, signer FROM signed GROUP BY epoch, seed, signer HAVING COUNT(*) > 1"
        ).fetchall()
        for epoch, seed, signer in rows:
            asked = "SELECT evidence FROM signed WHERE epoch = ? AND seed = ? AND signer = ? ORDER BY digest LIMIT 2"
            found = self._database.execute(asked, (epoch, seed, signer)).fetchall()
            first, second = (msgspec.msgpack.decode(row[0], type=prepared(UpdateEvidence)) for row in found)
            yield Equivocation(Address(signer), epoch, Hash32(bytes(seed)), first, second)

    def forget_before(self, epoch: int) -> None:
        """Forget proposals, prompts and evidence of epochs long gone; that a prompt was asked is kept."""
        for table in ("proposals", "signed", "openings", "lists", "attempts", "evidence"):
            self._database.execute(f"DELETE FROM {table} WHERE epoch < ?", (epoch,))  # noqa: S608 - named above

    def _one(self, statement: str, *values: object) -> tuple[bytes, ...] | None:
        row: tuple[bytes, ...] | None = self._database.execute(statement, values).fetchone()
        return row
