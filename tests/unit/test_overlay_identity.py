"""TLS identities on disk."""

from __future__ import annotations

import hashlib
import stat
import subprocess
from pathlib import Path

import pytest

from troth.transport.errors import IdentityUnusable
from troth.transport.identity import (
    CERTIFICATE_FILE,
    KEY_FILE,
    create_identity,
    load_identity,
    load_or_create_identity,
)


def test_the_pin_is_what_openssl_computes(tmp_path: Path) -> None:
    identity = create_identity(tmp_path)
    public = subprocess.run(
        ["openssl", "pkey", "-in", identity.key_path, "-pubout", "-outform", "DER"], check=True, capture_output=True
    ).stdout
    assert identity.spki_sha256 == hashlib.sha256(public).digest()


def test_the_key_is_private_and_survives_loading(tmp_path: Path) -> None:
    made = create_identity(tmp_path)
    assert stat.S_IMODE(made.key_path.stat().st_mode) == 0o600
    assert load_identity(tmp_path) == load_or_create_identity(tmp_path) == made


def test_a_readable_key_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    create_identity(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(IdentityUnusable, match="chmod 600"):
        load_identity(tmp_path)


def test_an_existing_key_is_never_overwritten(tmp_path: Path) -> None:
    before = create_identity(tmp_path).key_path.read_bytes()
    with pytest.raises(IdentityUnusable, match="already there"):
        create_identity(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == before


def test_a_foreign_certificate_is_noticed(tmp_path: Path) -> None:
    create_identity(tmp_path / "a")
    create_identity(tmp_path / "b")
    (tmp_path / "a" / CERTIFICATE_FILE).write_bytes((tmp_path / "b" / CERTIFICATE_FILE).read_bytes())
    with pytest.raises(IdentityUnusable, match="another key"):
        load_identity(tmp_path / "a")


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityUnusable, match=KEY_FILE):
        load_identity(tmp_path)
    create_identity(tmp_path)
    (tmp_path / KEY_FILE).write_text("nonsense")
    with pytest.raises(IdentityUnusable):
        load_identity(tmp_path)
