"""What `--help` says of every command: lists that cut nothing off, and examples that its own parser reads."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from support.network_files import NETWORK
from support.shown_commands import shown_in_texts, wrong_in

from troth.command import plugins
from troth.command.examples import EXAMPLES
from troth.command.root import app
from troth.network import networks, option
from troth.network.services import SERVICES, ServicePlace
from troth.protocol.types import ZERO_HASH, to_address

pytestmark = pytest.mark.torch

COLUMNS = 80
PACKAGES = [path for path in Path(__file__).parents[2].glob("*/troth") if path.is_dir()]
ELSEWHERE = {"factory", "rpc", "committee", "bank", "tickets", "reputation", "organisations", "home", "keystore"}
"""What a command needs, and a network's file or the environment may give."""


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*path, name))


ALL = [pair for name, point in plugins.plugins().items() for pair in walk(plugins.load(point), (name,))]
LEAVES = {" ".join(path): command for path, command in ALL if not hasattr(command, "commands")}


def help_of(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    written = io.StringIO()
    with redirect_stdout(written), pytest.raises(SystemExit):
        typer.main.get_command(app).main(args=[*path, "--help"], prog_name="troth")
    return written.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_help_fits_a_terminal_and_cuts_nothing_off(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = help_of(path, monkeypatch)
    assert [line for line in shown.splitlines() if len(line) > COLUMNS] == []
    assert re.findall(r"\w+,?\.\.\.$", shown, re.MULTILINE) == []
    said = " ".join(shown.replace("\\\n", " ").split())
    for line in EXAMPLES.get(" ".join(path), ()):
        assert f"troth {line}" in said


def test_a_command_that_is_often_typed_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    assert help_of(("models",), monkeypatch) == help_of(("client", "models"), monkeypatch)
    assert re.search(r"models +List models on offer", help_of((), monkeypatch))


def test_every_command_has_an_example_and_no_example_is_of_another() -> None:
    assert set(EXAMPLES) == set(LEAVES)
    assert all(line.startswith(f"{path} ") or line == path for path, lines in EXAMPLES.items() for line in lines)


def test_what_sends_a_transaction_says_in_its_first_words_that_it_is_a_dry_run() -> None:
    sending = {path: command for path, command in LEAVES.items() if has(command, "--broadcast")}
    assert len(sending) > 30
    silent = [path for path, command in sending.items() if "dry run" not in summary_of(command)]
    # `node start` sends only with --auto, and says so below.
    assert set(silent) <= {"node start", "node run", "node serve"}


def test_every_doctor_says_how_it_exits() -> None:
    doctors = [command for path, command in LEAVES.items() if path.endswith("doctor")]
    assert len(doctors) == 4
    assert all("Exit code 1" in command.help for command in doctors)


def test_the_root_says_how_commands_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    said = " ".join(help_of((), monkeypatch).split())
    assert all(part in said for part in ("0 done", "2 wrong usage", "130 interrupted", "until --broadcast"))


SERVED = (
    *("audit watch", "case carry", "client serve", "committee start", "explorer serve", "node page", "node run"),
    *("node serve", "node start", "relay start", "scheduler run", "scheduler start"),
)
"""What runs until it is stopped: units and containers set its options by variables."""
ANYWHERE = {
    *("--bank", "--broadcast", "--factory", "--home", "--import-key", "--json", "--keystore", "--log-level"),
    *("--network", "--owner-keystore", "--owner-password-file", "--password-file", "--rpc", "--start-block"),
}
"""Options that say where things are and who pays: the same for many calls."""
OTHERWISE = {("network create", "--factory")}
"""There the factory is one that a new network is built on, and not the deployment that a shell works with."""


def test_each_option_that_outlasts_a_call_has_a_variable_and_help_names_it() -> None:
    """The rule of docs/how-to/services.md#variables."""
    options = [(path, one) for path, command in LEAVES.items() for one in command.params if one.opts[0][:2] == "--"]
    lacking = {
        (path, one.opts[0])
        for path, one in options
        if not one.envvar and (path in SERVED or one.opts[0] in ANYWHERE) and one.opts[0] != "--help"
    }
    assert lacking == OTHERWISE
    assert {path for path, _ in options} >= set(SERVED)
    assert all(re.fullmatch("TROTH_[A-Z_]+", one.envvar) for _, one in options if one.envvar)


def test_a_variable_means_one_thing_in_every_command() -> None:
    """A shell that has it set for one command would change or break another one."""
    meanings: dict[str, set[tuple[str, bool]]] = {}
    for command in LEAVES.values():
        for one in command.params:
            if one.envvar:
                meanings.setdefault(one.envvar, set()).add((one.opts[0].lstrip("-"), one.multiple))
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_an_option_that_is_left_out_says_what_stands_for_it() -> None:
    said = {
        "node register": ("--owner-keystore", "--owner-password-file", "--password-file"),
        "client open": ("--password-file",),
        "relay init": ("--metrics-port",),
        "calibrate": ("--out",),
        "audit log": ("--data",),
    }
    for path, options in said.items():
        for one in LEAVES[path].params:
            assert one.opts[0] not in options or "Default: " in one.help, (path, one.opts[0])


def has(command: Any, option: str) -> bool:
    return any(option in one.opts for one in command.params)


def summary_of(command: Any) -> str:
    return " ".join(command.help.split("\n\n")[0].split())


@pytest.mark.parametrize("path", sorted(EXAMPLES))
def test_examples_are_read_by_their_commands(path: str) -> None:
    """Unknown options, missing values and missing arguments are refused; nothing is carried out."""
    command = LEAVES[path]
    for line in EXAMPLES[path]:
        words = shlex.split(line.split(" < ")[0])[len(path.split()) :]
        context = typer.Context(command, info_name=path)
        given, left, _ = command.make_parser(context).parse_args(words)
        assert not left, (line, left)
        needed = {one.name for one in command.params if one.required}
        for name in needed - (ELSEWHERE if given.get("network") else set()):
            assert given.get(name), (line, name)
        for one in command.params:
            kind = one.type_descriptor.annotation
            if given.get(one.name) is not None and kind in {int, float}:
                kind(given[one.name])


PLACES = {"0x…": "0x" + "11" * 20, "URL": "http://127.0.0.1:8545", "https://…": "https://member.example.org"}
"""What stands for a value in an example."""


def filled_in(line: str) -> list[str]:
    """The words of an example with a value for each that stands for one."""
    words = shlex.split(line.partition(" < ")[0])
    for shown, value in PLACES.items():
        words = [word.replace(shown, value) for word in words]
    return [re.sub("0x[A-Z]+", PLACES["0x…"], word) for word in words]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the keyfiles that examples name, a network called NET, and no variable of Troth's."""
    named = {word for lines in EXAMPLES.values() for line in lines for word in line.split()}
    for name in sorted(word for word in named if re.fullmatch(r"\w+\.(json|jsonl|list|evidence|receipt|txt)", word)):
        (tmp_path / name).write_text(json.dumps({"address": "22" * 20, "version": 3, "crypto": {}}))
        (tmp_path / name).chmod(0o600)
    (tmp_path / "in").mkdir()
    standing = ServicePlace(to_address(PLACES["0x…"]), ZERO_HASH, None)
    network = replace(
        NETWORK,
        rpc=(PLACES["URL"],),
        services=dict.fromkeys(SERVICES, standing),
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(networks, "find", lambda name: network)
    # Nothing is asked: the chain node of the example does not run.
    monkeypatch.setattr(option, "require_network", lambda network, options: None)
    return tmp_path


@pytest.mark.parametrize("path", sorted(EXAMPLES))
def test_examples_reach_their_command_through_the_whole_command_line(
    path: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a person would type them: values are read and looked at by every callback, and what they reach is called."""
    for line in EXAMPLES[path]:
        reached: list[dict[str, Any]] = []
        monkeypatch.setattr(LEAVES[path], "callback", lambda reached=reached, **given: reached.append(given))
        typer.main.get_command(app).main(args=filled_in(line), prog_name="troth", standalone_mode=False)
        assert len(reached) == 1, line


def test_commands_in_errors_and_help_exist_with_their_options() -> None:
    lines = {
        line: path.name
        for folder in sorted(PACKAGES)
        for path in sorted(folder.rglob("*.py"))
        for line in shown_in_texts(path.read_text(encoding="utf-8"))
    }
    assert len(lines) > 100
    assert [(name, wrong) for line, name in lines.items() if (wrong := wrong_in(line))] == []


def test_a_wrong_command_in_an_error_is_noticed() -> None:
    text = 'raise Wrong("No tab", tab, f"Run `troth client opne {amount}` or `troth client tabs --jsno`.")'
    assert [wrong_in(line).split(" in:")[0] for line in shown_in_texts(text)] == [
        "no command 'opne'",
        "no option ['--jsno']",
    ]
