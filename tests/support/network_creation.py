"""`troth network` called as a user does, and what an account has sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from troth.chain import keystore
from troth.chain.keystore import Key

PASSWORD = "a throw-away chain"
TRANSACTIONS = 14
"""Of a network without anything beside it."""


def troth(application: Any, *arguments: object, code: int = 0) -> Any:
    found = CliRunner().invoke(application, [str(argument) for argument in arguments], env={"TROTH_JSON": "1"})
    assert found.exit_code == code, (found.output, found.exception)
    return json.loads(found.stdout) if found.stdout.startswith("{") else found.output


def account(folder: Path, key: Key) -> tuple[object, ...]:
    """The options of who pays."""
    keystore.create_account(folder / "owner.json", PASSWORD, scrypt_n=keystore.DEMO_SCRYPT_N, key=key)
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o600)
    return ("--keystore", folder / "owner.json", "--password-file", folder / "password")


def sent_by(node: Any, key: Key) -> int:
    return int(node.rpc("eth_getTransactionCount", key.address, "latest"), 16)
