"""The files of a model held open, in a folder of links that lead to them and to nothing else.

Whoever may rename a folder above a model can put another model in its place while somebody reads, and take it away
again: neither the files nor their folder bear a trace. So a node opens each file once. It hashes by these links, and so
reads its engine, vLLM's processes too: `/proc/PID/fd/N` is the open file, however it and what is above it are named.
What is written into a file in place moves its stamp.

A process that is killed leaves its links, which lead nowhere then. The next one takes them away: whoever lives holds
the lock of its folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from troth.node.models.folder import ModelFolder
from troth.node.models.sources import require_own_files, wanted_files
from troth.node.models.taking import open_source

PREFIX = "troth-model-"


class HeldFiles:
    """Open files and their links, until nobody has this object any more."""

    def __init__(self, folder: Path) -> None:
        """Open what makes the model, and nothing else that may lie beside it.

        Raises:
            ModelError: a file is missing, is none, or is a link that leads out of the folder.
        """
        sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        opened: list[int] = []
        self._end = weakref.finalize(self, _let_go, self.path, opened, os.getpid())
        # Who cleans folders of temporary files leaves those that are locked.
        opened.append(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY))
        fcntl.flock(opened[0], fcntl.LOCK_EX)
        with open_source(folder) as source:
            for name in wanted_files(folder):
                with source.file(name) as file:
                    opened.append(os.dup(file.fileno()))
                    (self.path / name).symlink_to(f"/proc/{os.getpid()}/fd/{opened[-1]}")


def _let_go(path: Path, opened: Sequence[int], owner: int) -> None:
    if os.getpid() != owner:
        return  # a process that this one began, and that ends before it
    for one in opened:
        os.close(one)
    shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Take away the links of this account's dead processes below a folder; what cannot be taken away stays."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            _sweep_one(path)


def _sweep_one(path: Path) -> None:
    # Anybody may put a name here that leads elsewhere.
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(opened).st_uid != os.getuid():
            return
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = os.listdir(opened)  # noqa: PTH208 -- by the open folder, not by its name
        if not names or not all(_is_of_a_process(name, opened) for name in names):
            return  # empty: just made, and about to be locked
        for name in names:
            os.unlink(name, dir_fd=opened)
        path.rmdir()
    finally:
        os.close(opened)


def _is_of_a_process(name: str, opened: int) -> bool:
    return re.fullmatch(r"/proc/\d+/fd/\d+", os.readlink(name, dir_fd=opened)) is not None


def held(folder: ModelFolder) -> ModelFolder:
    """The same model, read from files that stay open as long as somebody has it; raises ModelError as `HeldFiles`.

    Systems without /proc have no such names: there it is read from its own folder.
    """
    if not Path("/proc/self/fd").is_dir():
        require_own_files(folder)
        return folder
    files = HeldFiles(folder.path)
    return replace(folder, path=files.path, named=folder.path, files=files)
