"""Keyfiles that a command made, written again so that they open in hundredths of a second.

A command's own keyfiles take a second of processor time each time they are opened, by intention. A test of twenty
commands would spend half a minute on that and learn nothing by it; test_keystore.py holds what a new keyfile costs.
"""

from __future__ import annotations

import json
from pathlib import Path

from troth.chain.keystore import (
    DEMO_SCRYPT_N,
    SCRYPT_N,
    create_account,
    create_vrf_secret,
    load_account,
    load_vrf_secret,
    read_password,
)


def lighten(folder: Path, password_file: Path) -> None:
    """Each keyfile of the folder holds the same secret under the same password at DEMO_SCRYPT_N."""
    password = read_password(password_file)
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        assert content["crypto"]["kdfparams"]["n"] == SCRYPT_N, f"{path} opens fast already"
        if "purpose" in content:
            secret = load_vrf_secret(path, password)
            path.unlink()
            create_vrf_secret(path, password, scrypt_n=DEMO_SCRYPT_N, secret=secret)
        else:
            key = load_account(path, password)
            path.unlink()
            create_account(path, password, scrypt_n=DEMO_SCRYPT_N, key=key)
