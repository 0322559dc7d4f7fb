"""Taking files of a stranger's folder over: each is opened once, looked at where it is open, and taken from there.

Whoever can write into the folder may put a link in the place of a file between a look at its name and its use. So a
name is never looked up twice: folders are held open, links are read and followed here, step by step, and the last step
follows none. Links of Hugging Face's cache lead into its `blobs`, and no further.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

from troth.node.errors import ModelError
from troth.node.models.texts import LARGEST

OTHER_SOURCE = "Fetch the model again from its source."
WEIGHTS = ".safetensors"
MOST_LINKS = 8
PIECE = 1 << 24
FICLONE = 0x40049409
"""The request of Linux to share a file's blocks (ioctl_ficlone(2))."""

Report = Callable[[str], None]


class OpenFolder:
    """A model's folder, held open; see `open_source`."""

    def __init__(self, home: Path, held: Mapping[Path, int]) -> None:
        """`held`: descriptors of the folders that files may lie in, by their paths without links."""
        self._home = home
        self._held = held

    @contextmanager
    def file(self, name: str) -> Iterator[BinaryIO]:
        """One file, read from its begin.

        Raises:
            ModelError: there is none, it is none (a pipe, a device), or a link leads out of the folders.
        """
        folder, own = self._home, name
        for _ in range(MOST_LINKS):
            try:
                opened = os.open(own, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._held[folder])
            except OSError as error:
                if error.errno == errno.ELOOP:
                    folder, own = self._followed(folder, own, name)
                    continue
                if error.errno == errno.ENXIO:
                    _refuse_kind(self._home / name)
                raise ModelError(
                    "a file of the model is missing", f"{self._home / name}: {error}", OTHER_SOURCE
                ) from error
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                os.close(opened)
                _refuse_kind(self._home / name)
            with open(opened, "rb") as file:  # noqa: PTH123 - of a descriptor
                yield file
            return
        raise ModelError("links of the model lead in circles: a file is missing", str(self._home / name), OTHER_SOURCE)

    def take(self, name: str, target: Path, report: Report) -> None:
        """Have a file at `target`: weights as a reflink or a hard link, all else as a copy; raises ModelError."""
        with self.file(name) as file:
            report(f"{_taken(file, target)} {name}")

    def _followed(self, folder: Path, own: str, name: str) -> tuple[Path, str]:
        """Where a link leads, which has to be directly into one of the folders."""
        try:
            led = folder / os.readlink(own, dir_fd=self._held[folder])
            parent = led.parent.resolve()
        except (OSError, RuntimeError) as error:  # it was a link a moment ago
            raise ModelError("a file of the model changes while it is taken", name, OTHER_SOURCE) from error
        if parent not in self._held:
            raise ModelError("a link leads out of the model's folder", f"{name} -> {led}", OTHER_SOURCE)
        return parent, led.name


@contextmanager
def open_source(folder: Path) -> Iterator[OpenFolder]:
    """Hold a folder open, and the blobs beside it if it is a snapshot of Hugging Face's cache."""
    home = folder.resolve()
    with ExitStack() as stack:
        held = {home: _open_folder(home, stack)}
        blobs = home.parent.parent / "blobs"
        if home.parent.name == "snapshots" and blobs.is_dir() and not blobs.is_symlink():
            held[blobs] = _open_folder(blobs, stack)
        yield OpenFolder(home, held)


def _open_folder(path: Path, stack: ExitStack) -> int:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise ModelError("the model's folder cannot be opened", str(error), OTHER_SOURCE) from error
    stack.callback(os.close, opened)
    return opened


def _refuse_kind(path: Path) -> NoReturn:
    raise ModelError("this is no file, as a model's are", str(path), OTHER_SOURCE)


def _taken(file: BinaryIO, target: Path) -> str:
    size = os.fstat(file.fileno()).st_size
    if target.suffix != WEIGHTS and size > LARGEST:
        raise ModelError(f"a file of the model is larger than {LARGEST} bytes", target.name, OTHER_SOURCE)
    with target.open("xb") as made:
        try:
            fcntl.ioctl(made.fileno(), FICLONE, file.fileno())
        except OSError:
            pass  # a file system that shares no blocks, or another one than the source's
        else:
            return "sharing"
    if target.suffix == WEIGHTS and _linked(file, target):
        return "linking"
    free = shutil.disk_usage(target.parent).free
    if size >= free:
        remedy = "Make room, or put the model on the file system of the home folder, where it is linked."
        raise ModelError(
            f"a file of the model has {size} bytes, and there is room for", f"{free} ({target.name})", remedy
        )
    _copy(file, target, size)
    return "copying"


def _linked(file: BinaryIO, target: Path) -> bool:
    """Whether `target` could become one more name of the very file that is open."""
    target.unlink()
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(f"/proc/self/fd/{file.fileno()}", target.name, dst_dir_fd=folder, follow_symlinks=True)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _copy(file: BinaryIO, target: Path, size: int) -> None:
    """So many bytes, and no more: it may grow meanwhile."""
    with target.open("wb") as made:
        while size > 0 and (data := file.read(min(PIECE, size))):
            made.write(data)
            size -= len(data)
    if size:
        raise ModelError("a file of the model was cut while it was taken", target.name, OTHER_SOURCE)
