"""The files of a model held open, in a folder of links that lead to them and to nothing else.

Whoever may rename a folder above a model can put another model in its place while somebody reads, and take it away
again: neither the files nor their folder bear a trace. So a node opens each file once. It hashes by these links, and so
reads its engine, vLLM's processes too: `/proc/PID/fd/N` is the open file, however it and what is above it are named.
What is written into a file in place moves its stamp.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from troth.node.models.folder import ModelFolder
from troth.node.models.sources import require_own_files, wanted_files
from troth.node.models.taking import open_source


class HeldFiles:
    """Open files and their links, until nobody has this object any more."""

    def __init__(self, folder: Path) -> None:
        """Open what makes the model, and nothing else that may lie beside it.

        Raises:
            ModelError: a file is missing, is none, or is a link that leads out of the folder.
        """
        self.path = Path(tempfile.mkdtemp(prefix="troth-model-"))
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


def held(folder: ModelFolder) -> ModelFolder:
    """The same model, read from files that stay open as long as somebody has it; raises ModelError as `HeldFiles`.

    Systems without /proc have no such names: there it is read from its own folder.
    """
    if not Path("/proc/self/fd").is_dir():
        require_own_files(folder)
        return folder
    files = HeldFiles(folder.path)
    return replace(folder, path=files.path, named=folder.path, files=files)
