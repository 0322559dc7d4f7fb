"""Parameters of a deployment by name or from a file: what a file may say, and how what it may not is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from troth.network.errors import CreationRefused
from troth.network.parameters import ParametersFile, read_parameters
from troth.protocol.market.shipped import BLOCK_SECONDS, DEMO, MAIN, stretched
from troth.protocol.market.types import Parameters

TOKEN = "0x5FbDB2315678afecb367f032d93F642f64180aa3"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "parameters.toml"


def test_a_file_may_name_every_parameter() -> None:
    assert {field.name for field in fields(Parameters)} == set(ParametersFile.__struct_fields__)


def test_shipped_sets_have_names() -> None:
    assert read_parameters("main", "", BLOCK_SECONDS) == MAIN
    assert read_parameters("demo", "", 2.0) == DEMO
    assert read_parameters("main", "", 2.0) == stretched(MAIN, 2.0)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "scheduler_stake, gas_price"),
        ("gas_price = 5\n", "scheduler_stake"),
        ("scheduler_stake = 5\n", "gas_price"),
    ],
)
def test_money_of_a_token_is_named(file: Path, text: str, missing: str) -> None:
    """The shipped sets' money is in wei: five ether would be five million million of a coin with six decimals."""
    file.write_text(text)
    with pytest.raises(CreationRefused, match=f"worth: {missing}. Name both"):
        read_parameters(str(file), TOKEN, BLOCK_SECONDS)
    file.write_text(f'{text}asset = "{TOKEN}"\n')
    with pytest.raises(CreationRefused, match=f"worth: {missing}. Name both"):
        read_parameters(str(file), "", BLOCK_SECONDS)


def test_a_shipped_set_has_no_money_of_a_token(file: Path) -> None:
    for name in ("main", "demo"):
        with pytest.raises(CreationRefused, match="scheduler_stake, gas_price"):
            read_parameters(name, TOKEN, BLOCK_SECONDS)
    file.write_text("scheduler_stake = 5\ngas_price = 6\n")
    chosen = read_parameters(str(file), TOKEN, BLOCK_SECONDS)
    assert (chosen.asset, chosen.scheduler_stake, chosen.gas_price) == (TOKEN, 5, 6)


def test_a_file_changes_single_fields(file: Path) -> None:
    file.write_text(f'scheduler_stake = {10**20}\ngas_price = 8\nunbonding = 7\nasset = "{TOKEN.lower()}"\n')
    chosen = read_parameters(str(file), "", 2.0)
    assert (chosen.scheduler_stake, chosen.unbonding, chosen.asset) == (10**20, 7, TOKEN)
    # A window that the file leaves out lasts as long as ever; one that it names has as many blocks as it says.
    assert chosen.answer_window == stretched(MAIN, 2.0).answer_window


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lag = 1.5", "lag"),
        ("lag = -1", "lag"),
        ("lag = 4294967296", "lag"),
        ('lag = "long"', "lag"),
        ("lag = true", "lag"),
        ("gas_price = -1", "gas_price"),
        ("unbounding = 7", "unbounding"),
        ('asset = "0x12"', "asset"),
        ("asset = 7", "asset"),
        ("lag = ", "cannot be used"),
        ("lag = 5\nlag = 6", "cannot be used"),
    ],
)
def test_what_a_file_may_not_say_is_named(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(CreationRefused, match=told):
        read_parameters(str(file), "", BLOCK_SECONDS)


def test_a_file_that_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe lag")
    with pytest.raises(CreationRefused, match="cannot be used"):
        read_parameters(str(file), "", BLOCK_SECONDS)


def test_a_name_that_is_no_set_and_no_file_says_what_there_is() -> None:
    with pytest.raises(CreationRefused, match="Name main, demo, or a TOML file"):
        read_parameters("mian", "", BLOCK_SECONDS)
