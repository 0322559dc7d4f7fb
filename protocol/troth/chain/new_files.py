"""New files that are there whole or not at all: keys and configurations, of which half would be worse than none."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
"""What file systems say that have no second names of a file."""


def create_file(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600; it is on the disk when this returns, and not there if this fails or is killed.

    Raises FileExistsError where a file is there, and OSError with the file's name for a full disk, say: the corrected
    command can be given again.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    writing = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write(writing, content)
        try:
            os.link(writing, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write_there(path, content)
    except FileExistsError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        writing.unlink(missing_ok=True)
    _settle(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """The same for a file that may be there: the old one stays until the new one is whole."""
    writing = path.with_name(path.name + ".writing")
    writing.unlink(missing_ok=True)
    create_file(writing, content)
    writing.replace(path)
    _settle(path.parent)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_there(path: Path, content: bytes) -> None:
    """Where a file has one name, a kill may leave half of it, and nothing else does."""
    try:
        _write(path, content)
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
