"""The gateway's API key: made on first start, readable by its owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from troth.client.errors import ConfigurationError

PREFIX = "sk-troth-"
LONGEST_FILE = 256


def access_key(path: Path) -> str:
    """The key in a file, which is made if there is none. ConfigurationError if others can read it, or it is no key."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return _read(path)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        key = PREFIX + secrets.token_urlsafe(32)
        file.write(key + "\n")
    return key


def _read(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise ConfigurationError("Others can read the gateway's API key", path, f"Run `chmod 600 {path}`.")
    with path.open("rb") as file:
        key = file.read(LONGEST_FILE).decode("ascii", "replace").strip()
    if not key.startswith(PREFIX) or len(key) < len(PREFIX) + 32:
        raise ConfigurationError("The gateway's API key cannot be used", path, "Remove the file; a new key is made.")
    return key
