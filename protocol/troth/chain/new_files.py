"""Files that are there whole or not at all: keys, configurations, records, of which half would be worse than none.

Until a file is whole it lies beside its place, hidden, and locked by the process that writes it. The lock ends with the
process, so what a killed one left is told from what another one is about to finish.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
"""What file systems say that have no second names of a file."""
_RANDOM_BYTES = 8
"""In the name of a file that is being written."""


def create_file(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600; it is on the disk when this returns, and not there if this fails or is killed.

    Raises FileExistsError where a file is there, and OSError with the file's name for a full disk, say: the corrected
    command can be given again.
    """
    remove_unfinished(path)
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    writing = _beside(path)
    try:
        with _opened(writing) as file:
            file.write(content)
            _sync(file)
            _give_name(writing, path, content)
    except FileExistsError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        writing.unlink(missing_ok=True)
    _settle(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left of writing this file: a part of it, or a second name of all of it."""
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _RANDOM_BYTES}}}")
    with contextlib.suppress(OSError):  # there is no such folder, or nobody may write there
        for left in path.parent.iterdir():
            if unfinished.fullmatch(left.name) and left.is_file() and not left.is_symlink():
                _remove_unless_locked(left)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that may be there, mode 0600; see ``replacing``."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file for what is to stand at ``path``: the old one stays until the block ends and the new one is on the disk.

    Where the block fails, or the process is killed, the old one stays for good. Of several that write at once the last
    one stays, whole.

    Args:
        mode: of a new file, less what the umask takes away.

    Raises OSError with the file's name.
    """
    remove_unfinished(path)
    writing = _beside(path)
    try:
        with _opened(writing, mode) as file:
            yield file
            _sync(file)
            writing.replace(path)  # while it is locked, or another process would take it for one that was left
    except OSError as error:
        if error.errno is None:
            raise  # numpy's, of a full disk: it says in its words how much was written
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        writing.unlink(missing_ok=True)
    _settle(path.parent)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(_RANDOM_BYTES)}")


def _opened(path: Path, mode: int = 0o600) -> BinaryIO:
    """A new file that is locked until it is closed."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        _lock(descriptor, wait=True)
        if path.exists():
            return os.fdopen(descriptor, "wb")
        os.close(descriptor)  # another process took it for one that was left, in the moment before the lock


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _give_name(writing: Path, path: Path, content: bytes) -> None:
    try:
        os.link(writing, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _write_there(path, content)


def _remove_unless_locked(left: Path) -> None:
    descriptor = os.open(left, os.O_RDONLY)
    try:
        if _lock(descriptor, wait=False):
            left.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Whether this process has the file locked now; it cannot where system or file system have no locks."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write_there(path: Path, content: bytes) -> None:
    """Where a file has one name, a kill may leave half of it, and nothing else does."""
    try:
        with _opened(path) as file:
            file.write(content)
            _sync(file)
    except FileExistsError:
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _settle(folder: Path) -> None:
    """The names in a folder on disk: a file that was written, and whose name was not, is lost with the power."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # some file systems have no such thing
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
