"""New files that are there whole or not at all: keys and configurations, of which half would be worse than none."""

from __future__ import annotations

import os
from pathlib import Path


def create_file(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600; it is on the disk when this returns, and gone where this fails.

    Raises FileExistsError where a file is there, and OSError with the file's name for a full disk, say: the corrected
    command can be given again.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes) -> None:
    """The same for a file that may be there: the old one stays until the new one is whole."""
    writing = path.with_name(path.name + ".writing")
    writing.unlink(missing_ok=True)
    create_file(writing, content)
    writing.replace(path)
