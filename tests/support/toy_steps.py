"""The arithmetic of the contract ``ToySteps``: a number is three times the one before it, plus the number of its
tensor; and what each side makes of it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from eth_abi.abi import encode
from numpy.typing import NDArray

from troth.protocol.calls import Call
from troth.protocol.disputes.game import SeenTrace
from troth.protocol.disputes.tree import WordTree, depth_over
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

ROOT = Path(__file__).parents[2]
COLUMNS = 24


def toy_steps() -> Call:
    """What creates the contract, compiled anew."""
    script = ROOT / "tests" / "contracts" / "compile_library_harness.mjs"
    command = [ROOT / "node_modules" / ".bin" / "node", script, ROOT, "contracts/test/disputes/ToySteps.sol"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    return Call("deployment of ToySteps", bytes.fromhex(json.loads(finished.stdout)["bytecode"]))


def shape_of(tensors: int, columns: int = COLUMNS) -> bytes:
    """The encoded shape."""
    return encode(["uint32", "uint32"], [tensors, columns])


@dataclass
class ToyTrace:
    """Tensors of ``rows`` rows; ``wrong`` replaces single numbers, from which all that follow go on.

    With a ``nudge`` there are as many again behind them.
    """

    tensors: int
    rows: int
    columns: int = COLUMNS
    wrong: dict[tuple[int, int, int], int] = field(default_factory=dict)
    nudge: int = 0

    @cached_property
    def numbers(self) -> list[NDArray[np.uint32]]:
        made: list[NDArray[np.uint32]] = []
        for tensor in range(self.count):
            if number := tensor % self.tensors:
                more = self.nudge if tensor == 2 * self.tensors - 1 else 0
                table = made[-1] * np.uint32(3) + np.uint32(number + more)
            else:
                table = np.add.outer(1000 * np.arange(self.rows), np.arange(self.columns)).astype(np.uint32)
            for (where, row, column), value in self.wrong.items():
                if where == tensor:
                    table[row, column] = value
            made.append(table)
        return made

    @property
    def count(self) -> int:
        return 2 * self.tensors if self.nudge else self.tensors

    @cached_property
    def top(self) -> WordTree:
        roots = [self.tensor(number).root for number in range(self.count)]
        return WordTree(b"".join(roots), depth_over(self.count))

    def tensor(self, number: int) -> WordTree:
        across = 1 << depth_over(-(-self.columns // 8))
        padded = np.zeros((self.rows, across * 8), ">u4")
        padded[:, : self.columns] = self.numbers[number]
        return WordTree(padded.tobytes(), depth_over(self.rows) + depth_over(across))

    def signed(self) -> tuple[bytes, Hash32]:
        """The last row as it is signed, and the hash that stands for its head."""
        tensor, place = self.last
        row = self.tensor(tensor).open(place, 1).words
        return row, Hash32(keccak256(row))

    @property
    def last(self) -> tuple[int, int]:
        """Tensor and word of the row that is signed."""
        return self.tensors - 1, (self.rows - 1) << self._across

    @property
    def _across(self) -> int:
        return depth_over(-(-self.columns // 8))


def step_of(seen: SeenTrace, tensor: int, place: int, element: int, tensors: int = 1 << 32) -> bytes:
    """The opening by which a number of a word is computed; ``tensors`` of the plain trace."""
    words, siblings = _open(seen, tensor - 1, place) if tensor % tensors else (b"", ())
    return encode(["(uint8,bytes,bytes32[])"], [(element, words, siblings)])


def opening_of(seen: SeenTrace, trace: ToyTrace, row: bytes) -> bytes:
    """A signed row beside the trace's last, and the nudged one's where there is one."""
    tensor, place = trace.last
    nudged = _open(seen, tensor + trace.tensors, place) if trace.nudge else (b"", ())
    opening = "(bytes,bytes32[])"
    return encode(["bytes", opening, opening], [row, _open(seen, tensor, place), nudged])


def _open(seen: SeenTrace, tensor: int, place: int) -> tuple[bytes, tuple[Hash32, ...]]:
    found = seen.open(tensor, place, 1)
    return found.words, found.siblings
