"""Where a keystore's password comes from: a named file, an environment variable that names a file, or a terminal.

Never a command-line argument and never the environment's own text: both show in the process list or are inherited.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path

from troth.chain.errors import PasswordMissing
from troth.chain.private_files import read_private

ENVIRONMENT = "TROTH_PASSWORD_FILE"
"""Names the file that holds the password; ``--password-file`` goes before it."""


def read_password(
    password_file: Path | None = None,
    *,
    confirm: bool = False,
    purpose: str = "the keystore",
    ask: Callable[[str], str] = getpass.getpass,
) -> str:
    """The password, without the line break at its end.

    ``confirm`` asks twice, for a new key. Raises PasswordMissing if no source has one, KeystoreExposed if others can
    read the file.
    """
    path = password_file or _from_environment()
    if path is not None:
        return _from_file(path)
    if not sys.stdin.isatty():
        raise PasswordMissing(
            f"There is no password for {purpose}",
            "no terminal",
            f"Use --password-file, or let {ENVIRONMENT} name a file with the password (mode 0600).",
        )
    return _from_terminal(purpose, confirm, ask)


def _from_environment() -> Path | None:
    named = os.environ.get(ENVIRONMENT)
    return Path(named) if named else None


def _from_file(path: Path) -> str:
    password = read_private(path).decode("utf-8", errors="surrogateescape").rstrip("\r\n")
    if not password:
        raise PasswordMissing("The password file is empty", path, "Write the password into its first line.")
    return password


def _from_terminal(purpose: str, confirm: bool, ask: Callable[[str], str]) -> str:
    password = ask(f"Password for {purpose}: ")
    if not password:
        raise PasswordMissing("The password is empty", purpose, "Type a password.")
    if confirm and ask("The same again: ") != password:
        raise PasswordMissing("The two passwords differ", purpose, "Start again.")
    return password
