"""`troth network account`: the keyfile of whoever pays, made before there is any network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from troth.chain.errors import KeystoreError
from troth.chain.keystore import load_account
from troth.network.command import app

PASSWORD = "before any network"


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    return ["--password-file", str(password)]


@pytest.mark.slow
def test_the_printed_address_is_that_of_the_keyfile(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "founder.json"
    told = json.loads(CliRunner().invoke(app, ["account", str(path), "--json", *options]).stdout)
    assert told == {"account": load_account(path, PASSWORD).address, "keystore": str(path)}
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_no_keyfile_is_overwritten(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "founder.json"
    path.write_text("another key")
    found = CliRunner().invoke(app, ["account", str(path), *options])
    assert isinstance(found.exception, KeystoreError)
    assert path.read_text() == "another key"
