from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from troth.chain.errors import (
    KeystoreExists,
    KeystoreExposed,
    KeystoreMalformed,
    KeystoreMissing,
    RawKeyRefused,
    WrongPassword,
)
from troth.chain.keystore import (
    DEMO_SCRYPT_N,
    SCRYPT_N,
    Key,
    address_in,
    create_account,
    create_vrf_secret,
    keystore_path,
    load_account,
    load_vrf_secret,
)
from troth.protocol import vrf

PASSWORD = "correct horse 馬"


@pytest.fixture
def account(tmp_path: Path) -> tuple[Path, Key]:
    path = tmp_path / "keys" / "operator.json"
    return path, create_account(path, PASSWORD, scrypt_n=DEMO_SCRYPT_N)


def test_account_comes_back_with_its_password(account: tuple[Path, Key]) -> None:
    path, key = account
    assert load_account(path, PASSWORD) == key
    assert address_in(path) == key.address
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_keyfile_is_version_3_with_scrypt(account: tuple[Path, Key]) -> None:
    content = json.loads(account[0].read_text())
    assert content["version"] == 3
    assert content["crypto"]["kdf"] == "scrypt"
    assert content["crypto"]["kdfparams"]["n"] == DEMO_SCRYPT_N
    assert SCRYPT_N == 2**18
    assert account[1].secret.hex() not in account[0].read_text()


def test_given_key_is_imported(tmp_path: Path) -> None:
    key = Key.from_secret(b"\x07" * 32)
    create_account(tmp_path / "imported.json", PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=key)
    assert load_account(tmp_path / "imported.json", PASSWORD) == key


def test_wrong_password_is_named(account: tuple[Path, Key]) -> None:
    with pytest.raises(WrongPassword, match=r"operator\.json"):
        load_account(account[0], "something else")


def test_a_key_is_never_overwritten(account: tuple[Path, Key]) -> None:
    before = account[0].read_bytes()
    with pytest.raises(KeystoreExists):
        create_account(account[0], PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    assert account[0].read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_file_that_others_can_reach_is_refused(account: tuple[Path, Key], mode: int) -> None:
    account[0].chmod(mode)
    with pytest.raises(KeystoreExposed, match=r"chmod 600") as caught:
        load_account(account[0], PASSWORD)
    assert f"{mode:04o}" in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(KeystoreMissing, match=r"nowhere\.json"):
        load_account(tmp_path / "nowhere.json", PASSWORD)
    with pytest.raises(KeystoreMalformed):
        load_account(tmp_path, PASSWORD)


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"[]",
        b'{"version": 4, "crypto": {}}',
        b'{"version": 3, "crypto": {}}',
        b'{"version": 3}',
        b'{"version": 3, "crypto": {"kdf": "scrypt", "kdfparams": {}, "ciphertext": "zz", "mac": ""}}',
        b"x" * 70_000,
    ],
)
def test_malformed_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeystoreMalformed, match=r"odd\.json"):
        load_account(path, PASSWORD)


def test_swapped_address_is_noticed(account: tuple[Path, Key]) -> None:
    content = json.loads(account[0].read_text())
    content["address"] = "00" * 20
    account[0].write_text(json.dumps(content))
    with pytest.raises(KeystoreMalformed, match="address"):
        load_account(account[0], PASSWORD)


def test_raw_keys_are_refused_and_not_shown(tmp_path: Path) -> None:
    raw = "0x" + "ab" * 32
    with pytest.raises(RawKeyRefused) as caught:
        keystore_path(raw)
    assert "abab" not in str(caught.value)
    path = tmp_path / "raw"
    path.write_text(raw + "\n")
    path.chmod(0o600)
    with pytest.raises(RawKeyRefused) as caught:
        load_account(path, PASSWORD)
    assert "abab" not in str(caught.value)
    assert keystore_path("~/keys/operator.json") == Path.home() / "keys" / "operator.json"


def test_secret_stays_out_of_repr() -> None:
    key = Key.generate()
    assert key.secret.hex() not in repr(key)
    assert repr(key.secret) not in repr(key)


def test_vrf_secret_is_kept_apart_from_accounts(tmp_path: Path, account: tuple[Path, Key]) -> None:
    path = tmp_path / "vrf.json"
    secret = create_vrf_secret(path, PASSWORD, scrypt_n=DEMO_SCRYPT_N)
    assert load_vrf_secret(path, PASSWORD) == secret
    assert vrf.public_key(load_vrf_secret(path, PASSWORD)) == vrf.public_key(secret)
    assert address_in(path) is None
    with pytest.raises(KeystoreMalformed, match="no account"):
        load_account(path, PASSWORD)
    with pytest.raises(KeystoreMalformed, match="no VRF key"):
        load_vrf_secret(account[0], PASSWORD)
