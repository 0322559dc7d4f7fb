"""A Postgres server of the tests' own, in a folder that goes with it; skipped aloud where none is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

OTHER_THAN_ROOT = "nobody"
"""Postgres refuses to run as root."""


def programs() -> Path | None:
    """The folder of Postgres' programs; Debian keeps them out of the path, by version."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: int(one.parts[-3]))
    return versions[-1].parent if versions else None


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server; ``url`` is without a database's name: ``f"{url}/postgres"`` is one that is there."""

    url: str
    programs: Path
    folder: Path
    options: str
    user: str | None

    def start(self) -> None:
        """Start it, also after it was killed."""
        words = ["-D", self.folder / "data", "-w", "-t", "60", "-l", self.folder / "log", "-o", self.options, "start"]
        _run([self.programs / "pg_ctl", *words], self.user)

    def stop(self) -> None:
        """As a crash, without a last checkpoint."""
        _run([self.programs / "pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop"], self.user)

    def kill(self) -> None:
        """kill -9 of its first process and, at once, of all others, as a machine does that runs out of memory."""
        first = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        processes = [psutil.Process(first), *psutil.Process(first).children(recursive=True)]
        for one in processes:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(processes, 30)


@contextmanager
def server() -> Iterator[str]:
    """A running server's URL, without a database's name: ``f"{url}/postgres"`` is one that is there."""
    with killable_server() as one:
        yield one.url


@contextmanager
def killable_server() -> Iterator[PostgresServer]:
    """The same, with what ends and begins it."""
    at = programs()
    if at is None:
        pytest.skip("no Postgres here: install it (Debian: apt-get install postgresql) to test the explorer over it")
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install -e '.[postgres]'")
    user = OTHER_THAN_ROOT if os.geteuid() == 0 else None
    # Not below pytest's folders, which other users may not enter; and a socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder:
        home = Path(folder) / "data"
        home.mkdir(mode=0o700)
        if user is not None:
            owner = pwd.getpwnam(user)
            for one in (Path(folder), home):
                os.chown(one, owner.pw_uid, owner.pw_gid)
        _run([at / "initdb", "-D", home, "-U", "troth", "-A", "trust", "-E", "UTF8", "--no-sync"], user)
        port = _free_port()
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        made = PostgresServer(f"postgresql://troth@127.0.0.1:{port}", at, Path(folder), options, user)
        made.start()
        try:
            yield made
        finally:
            made.stop()


def _run(words: list[object], user: str | None) -> None:
    done = subprocess.run(
        [str(one) for one in words], user=user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
