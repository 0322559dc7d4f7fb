"""`troth market` and `troth model register`: a deployment and a class, made and shown by the commands a founder has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tiny_llama import tiny_model
from typer.testing import CliRunner

from troth.chain import keystore
from troth.node import deployment_command, model_command

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PASSWORD = "a throw-away chain"


def troth(app: Any, *arguments: object, code: int = 0) -> Any:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"TROTH_JSON": "1"})
    assert found.exit_code == code, (found.output, found.exception)
    return json.loads(found.stdout) if found.stdout.startswith("{") else found.output


@pytest.fixture
def payer(anvil: Any, tmp_path: Path) -> tuple[object, ...]:
    keystore.create_account(tmp_path / "owner.json", PASSWORD, scrypt_n=keystore.DEMO_SCRYPT_N, key=anvil.keys[0])
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    anvil.mine(3)
    return (
        *("--rpc", anvil.url, "--keystore", tmp_path / "owner.json"),
        *("--password-file", tmp_path / "password"),
    )


def test_a_market_is_deployed_shown_and_given_a_class(anvil: Any, payer: tuple[object, ...], tmp_path: Path) -> None:
    tried = troth(deployment_command.app, "deploy", "--parameters", "demo", *payer)
    assert tried["sent"] is False
    assert "no money at stake" in tried["warning"]
    made = troth(deployment_command.app, "deploy", "--parameters", "demo", *payer, "--broadcast")
    shown = troth(deployment_command.app, "show", "--factory", made["factory"], "--rpc", anvil.url)
    assert (shown["bank"], shown["court"]) == (made["bank"], made["court"])
    assert shown["packaged"].startswith("these are")

    folder = tiny_model(tmp_path / "tiny").path
    register = ("register", folder, "--factory", made["factory"], *payer)
    dry = troth(model_command.app, *register)
    assert [one["sent"] for one in dry["transactions"]] == [False, False]
    added = troth(model_command.app, *register, "--broadcast")
    assert [one["sent"] for one in added["transactions"]] == [True, True]
    assert added["class_id"] == dry["class_id"]
    assert int(added["class"]["penalty"]) >= 2 * int(added["class"]["fee_cap"])
    again = troth(model_command.app, *register, "--broadcast")
    assert [one["note"] for one in again["transactions"]] == ["registered already"] * 2


def test_what_cannot_be_is_refused_with_words(anvil: Any, payer: tuple[object, ...], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    for text, words in (("lagg = 3", "lagg"), ('lag = "3"', "another type"), ("lag = ", "cannot be read")):
        wrong.write_text(text)
        found = CliRunner().invoke(deployment_command.app, ["deploy", "--parameters", str(wrong), *map(str, payer)])
        assert found.exit_code != 0
        assert words in str(found.exception), found.exception
    nowhere = "0x" + "11" * 20
    found = CliRunner().invoke(deployment_command.app, ["show", "--factory", nowhere, "--rpc", anvil.url])
    assert "0 deployments" in str(found.exception)
