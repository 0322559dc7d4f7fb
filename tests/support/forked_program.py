"""A program of Troth in a forked process, in the words that asyncio has for processes.

A new interpreter takes seconds of processor time to import what a gateway needs; see ``troth.testnet.forked``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from troth.testnet import forked

LOOK_SECONDS = 0.02


class ForkedProgram:
    """One process; what it prints goes into two files of a folder. Make it with ``start_forked``."""

    def __init__(self, process: forked.Forked, stdout: Path, stderr: Path) -> None:
        self.pid = process.pid
        self.send_signal, self.terminate, self.kill = process.send_signal, process.terminate, process.kill
        self.stdout, self.stderr = Printed(self, stdout), Printed(self, stderr)
        self._process = process

    @property
    def returncode(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Its exit code once it has ended."""
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 - nothing tells of another process's end
            await asyncio.sleep(LOOK_SECONDS)
        return code


class Printed:
    """What a program prints into a file, from the beginning."""

    def __init__(self, program: ForkedProgram, path: Path) -> None:
        self._program, self._path = program, path
        self._place = 0

    async def readline(self) -> bytes:
        """The next line; what there is of it where the program has ended."""
        while True:
            ended = self._program.returncode is not None
            line = self._rest().partition(b"\n")
            if line[1] or ended:
                found = line[0] + line[1]
                self._place += len(found)
                return found
            await asyncio.sleep(LOOK_SECONDS)

    async def read(self) -> bytes:
        """The rest, once the program has ended."""
        await self._program.wait()
        found = self._rest()
        self._place += len(found)
        return found

    def _rest(self) -> bytes:
        with self._path.open("rb") as file:
            file.seek(self._place)
            return file.read()


async def start_forked(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> ForkedProgram:
    """Start a command line that begins with `python -c CODE` or `python -m MODULE`; its files lie in the folder."""
    stdout, stderr = folder / "stdout", folder / "stderr"
    return ForkedProgram(await asyncio.to_thread(forked.start, command, environment, stdout, stderr), stdout, stderr)
