"""What the processes of one network are told: a JSON file, and keys that follow from names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from troth.chain.keystore import Key
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Hash32, Segment, segments_from_ends, to_address

POLL_SECONDS = 0.15
CONTEXT = 512


def key_of(name: str) -> Key:
    """Every account of a network of adversaries, by its name."""
    return Key.from_secret(keccak256(b"tabs stage " + name.encode()))


VRF_SECRET = keccak256(b"vrf")


@dataclass(frozen=True, slots=True)
class Plan:
    """One network.

    Args:
        model: folder of converted weights, "" for the toy engine.
        ends: where segments end.
        ports: of the nodes, by number, and of the scheduler at last.
        collects: scheduler and nodes redeem and claim whatever they are owed, however small it is.
        log_seconds: after which an entry of the scheduler's log is posted.
    """

    folder: str
    rpc: str
    factory: str
    bank: str
    class_id: str
    model: str
    ends: tuple[int, ...]
    ports: tuple[int, ...]
    collects: bool
    log_seconds: float

    @property
    def root(self) -> Path:
        """Where everything lies."""
        return Path(self.folder)

    @property
    def notes(self) -> Path:
        """The conspirators' notes."""
        return self.root / "notes"

    @property
    def execution_class(self) -> Hash32:
        """The class that all serve."""
        return Hash32(bytes.fromhex(self.class_id))

    @property
    def addresses(self) -> tuple[Address, Address]:
        """Factory and Bank."""
        return to_address(self.factory), to_address(self.bank)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The parts of the model that each node hosts: all of them."""
        return segments_from_ends(self.ends, self.ends[-1])

    def home(self, name: str) -> Path:
        """The files of one party."""
        return self.root / name

    def ready(self, name: str) -> Path:
        """A file that a process writes once it serves."""
        return self.root / f"{name}.ready"

    def write(self) -> Path:
        """As a file for the processes."""
        path = self.root / "plan.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Plan:
        """As it was written."""
        found = json.loads(path.read_text())
        return cls(**{**found, "ends": tuple(found["ends"]), "ports": tuple(found["ports"])})
