"""Folders of work that is not finished: hidden, locked by whoever works in them, and removed later if nobody does.

A process that is killed leaves its folder behind, which may be as large as a model. The lock ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = ".unfinished-"


@contextmanager
def unfinished(parent: Path, name: str) -> Iterator[Path]:
    """A new folder `.NAME.unfinished-…` in ``parent``, which is gone when the block ends, unless it was renamed.

    What killed processes left there of the same name is removed first.
    """
    for left in parent.iterdir():
        if left.name.startswith(f".{name}{MARK}"):
            _remove_if_left(left)
    folder, lock = _made(parent, name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made(parent: Path, name: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{name}{MARK}", dir=parent))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # another process took it for one that was left, in the moment before the lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return  # it is gone, or it is no folder of ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return  # somebody works in it
    finally:
        os.close(lock)
