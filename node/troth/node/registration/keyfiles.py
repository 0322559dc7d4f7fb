"""Keyfiles that a command was told of."""

from __future__ import annotations

from pathlib import Path

from troth.chain.keystore import Key, load_account, read_password
from troth.node.errors import ConfigError


def open_keystore(keystore: Path | None, password_file: Path | None, purpose: str, option: str) -> Key:
    """The account of a keyfile; ConfigError if none was named."""
    if keystore is None:
        raise ConfigError(f"no keyfile for {purpose}", "none named", f"Name it with {option}.")
    return load_account(keystore, read_password(password_file, purpose=purpose))
