"""client.toml: what is written reads back, what is wrong is named."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.client.command import app
from troth.client.configuration import ClientConfiguration, load, save
from troth.client.errors import ConfigurationError
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.options import read_configuration

FACTORY = "0x" + "ab" * 20
TABLE = MarketTable(FACTORY, start_block=7)
WHOLE = ClientConfiguration(TABLE, "https://user:pass@rpc.example/key?x=1", "0x" + "cd" * 20, "0x" + "ef" * 32)
MARKET = f'[market]\nfactory = "{FACTORY}"\n'


def test_a_configuration_reads_back_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    save(path, WHOLE)
    assert load(path) == WHOLE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.slow
def test_init_writes_what_is_asked_of_a_group(tmp_path: Path) -> None:
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text("secret")
    create_account(tmp_path / "key.json", "secret", scrypt_n=DEMO_SCRYPT_N, key=Key.generate())
    given = ["--password-file", str(tmp_path / "password"), "--import-key", str(tmp_path / "key.json")]
    for name, asked in (("a", ("--seats", "10", "--outside", "1000")), ("b", ())):
        home = ["--factory", FACTORY, "--home", str(tmp_path / name)]
        assert CliRunner().invoke(app, ["init", *home, *given, *asked]).exit_code == 0
    small, usual = (load(Home(tmp_path / name).configuration).market for name in "ab")
    assert (small.seats, small.outside) == (10, 1000)
    assert usual == MarketTable(FACTORY)
    assert CliRunner().invoke(app, ["init", "--factory", FACTORY, "--outside", "10001"]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"version = 2\n{MARKET}", "another version"),
        (MARKET, "version"),
        (f'version = 1\nprivate_key = "0x1"\n{MARKET}', "private_key"),
        (f"version = 1\nrpc = 5\n{MARKET}", "rpc"),
        (f'version = 1\n{MARKET}start_block = "5"\n', "start_block"),
        (f"version = 1\n{MARKET}start_block = -1\n", "start_block"),
        (f'version = 1\nexecution_class = "1"\n{MARKET}', "--execution-class"),
        ('version = 1\n[market]\nfactory = "0x12"\n', "'factory'"),
        ("version = 1\n", "market"),
        ("version = [", "cannot be used"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        load(path)


def test_a_missing_configuration_says_which_command_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="troth client init"):
        load(tmp_path / "client.toml")


@pytest.mark.parametrize("rpc", ["ftp://x", "http://", 'http://x"\ny = 1', "http://a b", ""])
def test_an_rpc_address_that_could_not_be_one_is_refused_and_not_repeated(rpc: str) -> None:
    with pytest.raises(ConfigurationError, match="not shown"):
        ClientConfiguration(TABLE, rpc).checked()


def test_options_go_before_the_file_and_may_replace_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert read_configuration(home, factory=FACTORY) == ClientConfiguration(MarketTable(FACTORY))
    home.create()
    save(home.configuration, WHOLE)
    other = read_configuration(home, rpc="http://other")
    assert (other.rpc, other.scheduler, other.market) == ("http://other", WHOLE.scheduler, TABLE)
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700


COMMITTEE = "0x" + "12" * 20


def test_direct_mode_reads_back_and_an_older_file_is_without_it(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    direct = ClientConfiguration(TABLE, committee=COMMITTEE, mode="direct")
    save(path, direct)
    assert load(path) == direct
    assert load(path).direct
    path.write_text(f"version = 1\n{MARKET}")
    assert not load(path).direct


@pytest.mark.parametrize("fields", [{}, {"committee": COMMITTEE, "overlay": "off"}])
def test_direct_mode_without_the_overlay_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="through the overlay alone") as raised:
        ClientConfiguration(TABLE, mode="direct", **fields).checked()
    assert "--no-direct" in raised.value.remedy


def test_another_mode_is_refused_with_the_options_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match="--no-direct or --confidential"):
        ClientConfiguration(TABLE, mode="sideways").checked()


def test_the_option_goes_before_the_file_in_both_directions(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    save(home.configuration, ClientConfiguration(TABLE, committee=COMMITTEE))
    assert not read_configuration(home).direct
    assert read_configuration(home, direct=True).direct
    save(home.configuration, ClientConfiguration(TABLE, committee=COMMITTEE, mode="direct"))
    assert read_configuration(home).direct
    assert not read_configuration(home, direct=False).direct
    assert not read_configuration(home, overlay="off", direct=False).anonymous
    with pytest.raises(ConfigurationError, match="through the overlay alone"):
        read_configuration(home, overlay="off")


def test_the_overlay_is_not_left_silently() -> None:
    committee = "0x" + "12" * 20
    assert not ClientConfiguration(TABLE).checked().anonymous
    assert ClientConfiguration(TABLE, committee=committee).checked().anonymous
    assert ClientConfiguration(TABLE, committee=committee, overlay="on").checked().anonymous
    assert not ClientConfiguration(TABLE, committee=committee, overlay="off").checked().anonymous
    with pytest.raises(ConfigurationError, match="no committee"):
        ClientConfiguration(TABLE, overlay="on").checked()


def test_overlay_on_without_a_committee_is_refused_on_the_command_line(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    save(home.configuration, ClientConfiguration(TABLE))
    with pytest.raises(ConfigurationError, match="no committee"):
        read_configuration(home, overlay="on")
    assert read_configuration(home, overlay="on", committee="0x" + "12" * 20).anonymous


RIGHT = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
"""Of EIP-55's own examples."""


@pytest.mark.parametrize("option", ["--factory", "--bank", "--scheduler", "--committee"])
def test_init_refuses_a_mistyped_address(option: str, tmp_path: Path) -> None:
    given = {"--factory": FACTORY} | {option: RIGHT.replace("5aA", "5aa")}
    words = [word for pair in given.items() for word in pair]
    refused = CliRunner().invoke(app, ["init", *words, "--home", str(tmp_path)])
    assert isinstance(refused.exception, ConfigurationError)
    assert "checksum" in str(refused.exception)
    assert not (tmp_path / "client").exists(), "no wallet is left behind"
    ClientConfiguration(MarketTable(RIGHT), scheduler=RIGHT).checked()
