"""Hashing the rows of a model's weights, in programs of their own where a model is large.

Threads hash at the same time, but between two rows each needs the interpreter, and is woken late where another one has
it. Programs need nothing of each other. Each gets pieces of tensors as lines of JSON and answers with the root of the
part of the tree above each. It is nicer than other programs, since a node that answers a court hashes while it serves.
A program that loses its parent reads the end of its input, and ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import sha3

from troth.node.errors import ModelError
from troth.node.models.tensor_files import RawTensor, pieces, row_blocks, rows_of_a_piece
from troth.protocol.hashing import keccak256
from troth.protocol.weight_rows import ROW_TAG, part_root, tree_root

SMALL = 64 << 20
"""Bytes that are hashed here, in as long as programs take to start."""
MOST_PROGRAMS = 16
"""So many read from most disks as fast as these can."""
NICENESS = 10
SECONDS_TO_END = 10.0
"""A piece takes milliseconds, and longer where a disk is slow."""
UNREADABLE = "Let this user read it, or import the model again."


@dataclass(frozen=True, slots=True)
class PartRoot:
    """The root of the part of a tensor's tree above rows `first` to `end`."""

    tensor: RawTensor
    first: int
    end: int
    root: bytes


def row_leaves(tensor: RawTensor, first: int, end: int) -> list[bytes]:
    """The leaves of some rows."""
    begun, leaves = sha3.keccak_256(ROW_TAG + keccak256(tensor.name.encode())), []
    for place, row in enumerate(row_blocks(tensor, first, end), first):
        # Not joined before: a row is not copied, and what all rows begin with is hashed once.
        leaf = begun.copy()
        leaf.update(place.to_bytes(4, "big"))
        leaf.update(row)
        leaves.append(leaf.digest())
    return leaves


def part_of(tensor: RawTensor, first: int, end: int) -> bytes:
    """The root above a piece, or of the whole tree where the tensor has no other piece.

    Raises:
        ModelError: the file cannot be read, or was cut.
    """
    try:
        leaves, size = row_leaves(tensor, first, end), rows_of_a_piece(tensor)
    except OSError as error:
        what = "a file of the weights cannot be read"
        raise ModelError(what, f"{tensor.path}: {error.strerror}", UNREADABLE) from error
    return tree_root(leaves) if tensor.rows <= size else part_root(leaves, size)


def parts(tensors: Sequence[RawTensor], programs: int | None = None) -> Generator[PartRoot]:
    """All pieces of all tensors in their order; a large model's in so many programs, or one for each core.

    Raises:
        ModelError: a file was cut meanwhile, or a program was ended.
    """
    count = min(os.cpu_count() or 1, MOST_PROGRAMS) if programs is None else programs
    if count < 2 or sum(tensor.length for tensor in tensors) <= SMALL:
        for tensor in tensors:
            for first, end in pieces(tensor):
                yield PartRoot(tensor, first, end, part_of(tensor, first, end))
        return
    with ExitStack() as stack:
        idle: SimpleQueue[HashingProgram] = SimpleQueue()
        for _ in range(count):
            program = HashingProgram()
            stack.callback(program.close)
            idle.put(program)
        pool = ThreadPoolExecutor(count, thread_name_prefix="weights")
        stack.callback(pool.shutdown, cancel_futures=True)
        yield from _in_turn(pool, idle, tensors, 2 * count)


def _in_turn(
    pool: ThreadPoolExecutor, idle: SimpleQueue[HashingProgram], tensors: Sequence[RawTensor], ahead: int
) -> Iterator[PartRoot]:
    def asked(tensor: RawTensor, first: int, end: int) -> PartRoot:
        program = idle.get()
        try:
            return PartRoot(tensor, first, end, program.part_of(tensor, first, end))
        finally:
            idle.put(program)

    waiting: deque[Future[PartRoot]] = deque()
    for tensor in tensors:
        for first, end in pieces(tensor):
            waiting.append(pool.submit(asked, tensor, first, end))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class HashingProgram:
    """`part_of` in another process, for one thread at a time."""

    def __init__(self) -> None:
        # A group of its own: who interrupts a command reaches the command only, and that ends its programs.
        command = [sys.executable, "-P", "-m", "troth.node.models.roots.weight_hashing"]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0)
        except OSError as error:
            what = "a program that hashes weights cannot be started"
            raise ModelError(what, error.strerror, "Let other programs end, then repeat the command.") from error

    def part_of(self, tensor: RawTensor, first: int, end: int) -> bytes:
        """The root above a piece; raises ModelError as `part_of` does, or where the process has ended."""
        asked = {**asdict(tensor), "path": str(tensor.path), "first": first, "end": end}
        try:
            _write(self._process.stdin, asked)
            answer = json.loads(self._process.stdout.readline() if self._process.stdout else b"")
        except (OSError, ValueError) as error:
            what = "a program that hashes weights was ended"
            raise ModelError(what, f"exit status {self.close()}", "Free memory, then repeat the command.") from error
        if "refused" in answer:
            raise ModelError(*answer["refused"])
        return bytes.fromhex(answer["root"])

    def close(self) -> int:
        """Ends the process; its exit status."""
        for pipe in (self._process.stdin, self._process.stdout):
            # What a process that was killed has not read is written once more when its pipe is closed.
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            return self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _write(pipe: IO[bytes] | None, told: dict[str, Any]) -> None:
    assert pipe is not None
    pipe.write(json.dumps(told).encode() + b"\n")
    pipe.flush()


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    first, end = asked.pop("first"), asked.pop("end")
    tensor = RawTensor(**{**asked, "shape": tuple(asked["shape"]), "path": Path(asked["path"])})
    try:
        return {"root": part_of(tensor, first, end).hex()}
    except ModelError as error:
        return {"refused": [error.what, error.value, error.remedy]}


def main() -> None:
    """Answer until the input ends."""
    os.nice(NICENESS)
    for line in sys.stdin.buffer:
        _write(sys.stdout.buffer, _answer(json.loads(line)))


if __name__ == "__main__":
    main()
