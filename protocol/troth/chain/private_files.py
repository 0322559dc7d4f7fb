"""Files that only their owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from troth.chain.errors import KeystoreExists, KeystoreExposed, KeystoreMalformed, KeystoreMissing

LARGEST = 64 * 1024
"""Bytes; a keyfile has about 500."""


def read_private(path: Path) -> bytes:
    """Content of ``path``; raises KeystoreMissing, KeystoreExposed or, over 64 KiB, KeystoreMalformed."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise KeystoreMalformed("This is no regular file", path, "Name the keystore file itself.")
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                shown = f"{path}, mode {stat.S_IMODE(mode):04o}"
                raise KeystoreExposed("Other users of this machine can reach the file", shown, f"Run: chmod 600 {path}")
            content = file.read(LARGEST + 1)
    except IsADirectoryError as error:
        raise KeystoreMalformed("This is a folder", path, "Name the keystore file itself.") from error
    except OSError as error:
        raise KeystoreMissing(f"The file cannot be read: {error.strerror}", path, "Check the path.") from error
    if len(content) > LARGEST:
        raise KeystoreMalformed("The file is too long for a keystore", path, "Name the keystore file itself.")
    return content


def create_private(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600; raises KeystoreExists rather than replace one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise KeystoreExists(
            "A file is there already", path, "Choose another path, or move the old key away."
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
