"""node.toml: what init writes can be read, and each mistake is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troth.chain.errors import KeystoreError, RawKeyRefused
from troth.chain.keystore import DEMO_SCRYPT_N, create_account, load_account
from troth.node.configuration import FILE, NodeInitOptions, load, render, with_engine
from troth.node.errors import ConfigError
from troth.node.registration.setup import set_up
from troth.protocol.amounts import lines, readable
from troth.protocol.market.parts import MarketPlace
from troth.protocol.reputation import ReputationPlace
from troth.protocol.types import Address, Segment

CHOICES = NodeInitOptions(
    rpc="http://127.0.0.1:8545",
    factory="0x5FbDB2315678afecb367f032d93F642f64180aa3",
    execution_class="0x" + "ab" * 32,
    model='a "quoted" name',
    slice="0:15",
    segments=("0:15", "5:15"),
    host="127.0.0.1",
    port=9443,
    endpoint="https://127.0.0.1:9443",
    device="cpu",
    threads=1,
    start_block=7,
)


def written(tmp_path: Path, old: str = "", new: str = "") -> Path:
    text = render(CHOICES)
    assert old in text
    (tmp_path / FILE).write_text(text.replace(old, new, 1) if old else text)
    return tmp_path


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    configuration = load(written(tmp_path))
    assert configuration.model == CHOICES.model
    assert configuration.slice == Segment(0, 15)
    assert configuration.segments == (Segment(0, 15), Segment(5, 15))
    assert configuration.execution_class == b"\xab" * 32
    assert configuration.operator_keystore == tmp_path / "keys" / "operator.json"
    assert configuration.threads == 1
    assert configuration.market == MarketPlace(Address(CHOICES.factory), None, 7)


def test_a_reputation_is_named_with_its_contract(tmp_path: Path) -> None:
    table = f'[reputation]\ncontract = "{CHOICES.factory}"\nstart_block = 3\n\n[node]'
    assert load(written(tmp_path)).reputation is None
    assert load(written(tmp_path, "[node]", table)).reputation == ReputationPlace(Address(CHOICES.factory), 3)
    with pytest.raises(ConfigError, match=r"reputation\.contract"):
        load(written(tmp_path, "[node]", '[reputation]\ncontract = "0x12"\n\n[node]'))


def test_the_engine_of_the_file_can_be_overruled(tmp_path: Path) -> None:
    assert load(written(tmp_path)).engine == "torch"
    configuration = load(written(tmp_path, 'name = "torch"', 'name = "vllm"'))
    assert with_engine(configuration, "").engine == "vllm"
    assert with_engine(configuration, "torch").engine == "torch"
    with pytest.raises(ConfigError, match="no such engine"):
        with_engine(configuration, "abacus")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("threads = 1", "treads = 1", "treads"),
        ("threads = 1", "threads = -1", "threads"),
        ("version = 1", "version = 2", "version"),
        ('name = "torch"', 'name = "abacus"', "name"),
        ('slice = "0:15"', 'slice = "0-15"', "slice"),
        ('segments = ["0:15", "5:15"]', 'segments = ["5:16"]', "outside of the slice"),
        ('segments = ["0:15", "5:15"]', 'segments = ["9:9"]', "FIRST:END"),
        ('endpoint = "https', 'endpoint = "http', "endpoint"),
        ('factory = "0x5FbD', 'factory = "0x5fbD', "factory"),
        ("[limits]", "[limit]", "limit"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(written(tmp_path, old, new))


def with_entry(tmp_path: Path, **changes: Any) -> Path:
    entry = {"committee": CHOICES.factory, "overlay_address": "node.example.org:9555", **changes}
    (tmp_path / FILE).write_text(render(replace(CHOICES, **entry)))
    return tmp_path


def test_an_overlay_entry_is_written_and_read(tmp_path: Path) -> None:
    assert load(written(tmp_path)).overlay is None
    entry = load(with_entry(tmp_path)).overlay
    assert entry is not None
    assert entry.address == ("node.example.org", 9555)
    assert (entry.host, entry.port, entry.publish_seconds) == ("127.0.0.1", 9555, 1800.0)
    assert entry.committee == CHOICES.factory
    plain = load(with_entry(tmp_path, overlay_address="", overlay_port=9777)).overlay
    assert plain is not None
    assert (plain.address, plain.port) == (("127.0.0.1", 9777), 9777)
    shared = load(with_entry(tmp_path, overlay_address="", endpoint="https://[2001:db8::7]")).overlay
    assert shared is not None
    assert (shared.shares, shared.address) == (True, ("2001:db8::7", 443))


def test_an_own_port_needs_the_address_of_proxies(tmp_path: Path) -> None:
    path = with_entry(tmp_path, overlay_address="") / FILE
    path.write_text(path.read_text() + "port = 9777\n")
    with pytest.raises(ConfigError, match=r"overlay\.address is missing"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"committee": "0x12"}, "overlay.committee"),
        ({"overlay_address": "node.example.org"}, "overlay.address"),
        ({"overlay_address": ":9555"}, "overlay.address"),
        ({"overlay_address": "node.example.org:70000"}, "overlay.address"),
        ({"overlay_port": 70_000}, "port"),
    ],
)
def test_mistakes_in_an_overlay_entry_are_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(with_entry(tmp_path, **changes))


def test_a_raw_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RawKeyRefused):
        load(written(tmp_path, '"keys/operator.json"', '"0x' + "1f" * 32 + '"'))


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="troth node init"):
        load(tmp_path)


@pytest.mark.parametrize("layers", ["15:5", "7:7", "abc", "0-15"])
def test_init_says_in_words_how_layers_are_written(tmp_path: Path, layers: str) -> None:
    with pytest.raises(ConfigError, match="FIRST:END"):
        set_up(tmp_path / "home", replace(CHOICES, slice=layers, segments=(layers,)), None, None)
    assert not (tmp_path / "home").exists()


def test_init_imports_a_key_once_and_never_replaces_anything(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    key = create_account(tmp_path / "key.json", "secret", scrypt_n=DEMO_SCRYPT_N)
    home = tmp_path / "home"
    wrong = tmp_path / "wrong"
    wrong.write_text("other\n")
    wrong.chmod(0o600)
    with pytest.raises(KeystoreError):
        set_up(home, CHOICES, tmp_path / "key.json", wrong)
    told = set_up(home, CHOICES, tmp_path / "key.json", password)
    assert told["operator"] == key.address
    assert (home / "keys" / "operator.json").stat().st_mode & 0o777 == 0o600
    assert (home / "tls" / "tls-key.pem").stat().st_mode & 0o777 == 0o600
    assert (home / FILE).stat().st_mode & 0o777 == 0o600
    before = (home / FILE).read_text()
    with pytest.raises(ConfigError, match="configured already"):
        set_up(home, CHOICES, tmp_path / "key.json", password)
    assert (home / FILE).read_text() == before


def test_init_that_is_interrupted_at_the_password_can_be_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("troth.node.registration.setup.read_password", interrupted)
    with pytest.raises(KeyboardInterrupt):
        set_up(tmp_path / "home", CHOICES, None, None)
    assert not (tmp_path / "home" / FILE).exists()


def test_what_is_left_to_do_after_init_is_one_step_a_line(tmp_path: Path) -> None:
    password, home = tmp_path / "password", tmp_path / "home"
    password.touch(mode=0o600)
    password.write_text("secret\n")
    (home / "keys").mkdir(parents=True)
    for name in ("operator", "owner"):
        create_account(home / "keys" / f"{name}.json", "secret", scrypt_n=DEMO_SCRYPT_N)
    told = set_up(home, CHOICES, None, password)
    model, stake, gas, register = told["next"]
    assert model.startswith("import the model")
    assert (stake, gas) == (f"send the stake to {told['owner']}", f"send some coins for gas to {told['operator']}")
    assert register == f"troth node register --home {home} --broadcast"
    assert all(line.endswith(one) for line, one in zip(list(lines(readable(told)))[-4:], told["next"], strict=True))


@pytest.mark.slow
def test_init_makes_the_owner_s_key_beside_an_operator_s_that_is_there(tmp_path: Path) -> None:
    """As after an init that was cut off between the two keys."""
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    home = tmp_path / "home"
    (home / "keys").mkdir(parents=True)
    operator = create_account(home / "keys" / "operator.json", "secret", scrypt_n=DEMO_SCRYPT_N)
    told = set_up(home, CHOICES, None, password, new_owner=True)
    assert told["operator"] == operator.address
    assert load_account(home / "keys" / "owner.json", "secret").address == told["owner"]


def test_init_refuses_to_import_a_key_beside_another_operator_s(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    home = tmp_path / "home"
    (home / "keys").mkdir(parents=True)
    there = create_account(home / "keys" / "operator.json", "secret", scrypt_n=DEMO_SCRYPT_N)
    create_account(tmp_path / "key.json", "secret", scrypt_n=DEMO_SCRYPT_N)
    with pytest.raises(ConfigError, match="another operator's key is there"):
        set_up(home, CHOICES, tmp_path / "key.json", password)
    assert not (home / FILE).exists()
    assert set_up(home, CHOICES, home / "keys" / "operator.json", password)["operator"] == there.address


@pytest.mark.parametrize(
    ("endpoint", "tunnel", "told"),
    [
        ("https://127.0.0.1:9443", "", None),
        ("https://node.example.org:9444", "", "port 9444 of the endpoint has to lead to 127.0.0.1:9443"),
        ("https://node.example.org", "", "port 443 of"),
        ("https://lent.example.org:20000", "0x" + "33" * 20, None),
    ],
)
def test_init_says_what_has_to_lead_to_the_port_it_listens_on(
    tmp_path: Path, endpoint: str, tunnel: str, told: str | None
) -> None:
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("secret\n")
    found = set_up(tmp_path / "home", replace(CHOICES, endpoint=endpoint, tunnel=tunnel), None, password)
    assert found.get("forward", "").startswith(told or "") is True
    assert ("forward" in found) is (told is not None)
