"""The client's commands and options are those that its messages and its guide name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from msgspec import structs
from support.toy_market import FACTORY
from typer.testing import CliRunner

from troth.client.command import app
from troth.client.market_table import MarketTable
from troth.command.plugins import load, plugins

CLIENT = Path(__file__).parents[2] / "client" / "troth" / "client"
NAMED = re.compile(r"troth client ([a-z][a-z-]*)")


def test_asking_is_chatting_with_one_question(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heard: list[Any] = []

    async def chat(*named: Any, as_json: bool, resume: str) -> None:
        heard.append((*named[2:], as_json, resume))

    monkeypatch.setattr("troth.client.orders.terminal.chat", chat)
    table = ["--home", str(tmp_path)]
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "client.toml").write_text(
        f'version = 1\nrpc = "http://127.0.0.1:1"\n[market]\nfactory = "{FACTORY}"\n'
    )
    for name in ("chat", "ask"):
        assert CliRunner().invoke(app, [name, "why?", "--max-tokens", "9", *table]).exit_code == 0
    assert heard[0] == heard[1]
    assert "why?" in heard[0]
    assert CliRunner().invoke(app, ["ask", *table]).exit_code == 2
    assert len(heard) == 2


def test_every_command_that_the_client_names_exists() -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    named = {name for path in CLIENT.rglob("*.py") for name in NAMED.findall(path.read_text())}
    assert {"case", "ask", "summon", "top-up"} <= known
    assert named <= known, named - known


def test_every_command_of_the_guide_exists_with_its_options() -> None:
    commands = load(plugins()["client"]).commands  # with the root's --network
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "clients.md").read_text()
    for line in re.findall(r"troth client [a-z][^\n`#|]*", guide):
        name, *rest = line.split()[2:]
        assert name in commands, line
        options = {one for each in commands[name].params for one in (*each.opts, *each.secondary_opts)}
        assert {one for one in rest if one.startswith("--")} <= options, line


def test_the_guide_explains_every_key_of_the_table_and_its_default() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "clients.md").read_text()
    table = guide[guide.index("### The table `[market]`") :]
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", table, re.MULTILINE))
    for one in structs.fields(MarketTable):
        assert one.name in rows, one.name
        if isinstance(one.default, int):
            assert rows[one.name] == str(one.default), one.name
