"""A contract in the middle of a random course: its parties' keys, their secrets, and what was done and refused."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from troth.chain.errors import ChainRejected
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.protocol.calls import Call
from troth.protocol.contract_types import (
    Opening,
)
from troth.protocol.hashing import keccak256
from troth.protocol.state import TaskRecord
from troth.protocol.task import Phase
from troth.protocol.types import (
    ExecutionClass,
    Hash32,
    Segment,
)

UNIT = 10**9
LAYERS = 2
SPLITS = ((2,), (1, 2))
SEGMENTS = (Segment(0, 2), Segment(0, 1), Segment(1, 2))
PARTIES = 5


@dataclass(frozen=True)
class Course:
    """What a world is made from."""

    seed: int = 0
    exact: bool = True


@dataclass
class World:
    """A contract, its parties' keys, and the secrets that the parties of the current tasks keep."""

    deployed: Any
    follower: EventFollower
    random: random.Random
    execution_class: ExecutionClass
    vrf_secret: bytes
    keys: dict[str, Key] = field(default_factory=dict)
    openings: dict[Hash32, list[Opening]] = field(default_factory=dict)
    count: int = 0
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def chain(self) -> Any:
        return self.deployed.chain

    @property
    def scheduler(self) -> Key:
        return self.deployed.anvil.keys[1]

    @property
    def client(self) -> Key:
        return self.deployed.anvil.keys[2]

    @property
    def owner(self) -> Key:
        return self.deployed.anvil.keys[3]

    def fresh(self, label: str) -> Hash32:
        self.count += 1
        return Hash32(keccak256(f"{label} {self.count} {self.random.random()}".encode()))

    async def run(self, call: Call, key: Key) -> bool:
        """Send; False and a note if the contract refuses."""
        try:
            await self.chain.execute(call, key)
        except ChainRejected as error:
            if error.name in ("StateMismatch", "Unknown"):
                raise
            self.refused[f"{call.function}: {error.name}"] += 1
            return False
        self.done[call.function] += 1
        await self.follower.catch_up()
        return True

    def live(self, *phases: Phase) -> list[tuple[Hash32, TaskRecord]]:
        tasks = self.follower.state.tasks.items()
        return [(key, record) for key, record in tasks if record.live and record.task.progress.phase in phases]

    def operator(self) -> Key:
        return self.keys[self.random.choice(sorted(self.follower.state.nodes))]
