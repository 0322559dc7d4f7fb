"""Every command with wrong values: whatever a person types, the answer is wrong usage or an error with its fix.

All commands are walked as they are installed, so a new one is tried without a word here. Nothing answers at the chain
node's address, files hold other things than they should, and no home has a configuration.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp  # noqa: F401 -- loaded once here, and not by the first command that is tried
import pytest
from eth_account import Account

from troth.audit.display import guarded
from troth.audit.errors import AuditError
from troth.chain import retries
from troth.command import plugins
from troth.command.main import main
from troth.command.rendering import UNKNOWN, describe

pytestmark = pytest.mark.torch  # `troth calibrate` does

NOWHERE = "http://127.0.0.1:9"
PASSWORD = "a long enough password"
ADDRESS, HASH = "0x" + "11" * 20, "0x" + "22" * 32
LEFT_OUT = {
    ("node", "engine", "install"): "it would install",
    ("demo", "network"): "it would start a network",
    ("demo", "court"): "it would start a network",
    ("demo", "exact"): "it would start a network",
    ("demo", "pool"): "it would start a network",
    ("demo", "tickets"): "it would start a network",
    ("explorer", "serve"): "it shows a page that waits for the chain node, as it should",
}
WRONG_TEXTS = (
    *("nonsense", "0x12", "http://[::1", "https://x:99999", "0:999", "ж\u202e", "9" * 40),
    *("", "-1ether", "1e60ether", "0x52908400098527886E0F7030069857D2E4169Ee7"),  # the last has a wrong checksum
)
NOT_FORESEEN = "an error that it does not know"
"""How the root and the audit call an error that no package foresaw."""
TRIED = 2
WRONG_FILES = ("nowhere", "bytes", "list.json", "wrong.toml", "folder", "empty")
WRONG_NUMBERS = {int: ("-1", "9" * 30, "1.5"), float: ("-1", "nan", "inf")}


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
    for name, one in sorted((below or {}).items()):
        yield from walk(one, (*path, name))


COMMANDS = [
    pytest.param(path, command, id=" ".join(path))
    for name, point in plugins.plugins().items()
    for path, command in walk(plugins.load(point), (name,))
    if path not in LEFT_OUT
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything, and files that are wrong in each way."""
    for name in [name for name in os.environ if name.startswith("TROTH_")]:
        monkeypatch.delenv(name)
    # Four attempts at a chain node that is nowhere, without the pauses between them.
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.001)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    (tmp_path / "list.json").write_text("[1e999]")
    (tmp_path / "wrong.toml").write_text("a = [\n")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    for name, text in (("key.json", key_file()), ("password", PASSWORD)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("TROTH_PASSWORD_FILE", str(tmp_path / "password"))
    return tmp_path


def key_file() -> str:
    return json.dumps(Account.encrypt("0x" + "33" * 32, PASSWORD, kdf="scrypt", iterations=2))


def usual(parameter: Any, folder: Path) -> str:
    """A value that is right as far as it can be said from a parameter's name."""
    named = {
        "rpc": NOWHERE,
        "factory": ADDRESS,
        "keystore": str(folder / "key.json"),
        "home": str(folder / "home"),
        "port": "0",
        "endpoint": "https://127.0.0.1:9",
        "amount": "1ether",
    }
    if parameter.name in named:
        return named[parameter.name]
    if any(word in parameter.name for word in ("file", "path", "receipt", "evidence")):
        return str(folder / "list.json")
    return str(folder / "out") if parameter.name in {"folder", "output"} else HASH


def lines(path: tuple[str, ...], command: Any, folder: Path) -> Iterator[list[str]]:
    """Command lines: nothing at all, what is usual, and what is usual with one value that is wrong."""
    options, arguments, optional = [], [], []
    for one in command.params:
        if one.param_type_name == "argument":
            (arguments if one.required else optional).append(one)
        elif one.required or one.name in {"rpc", "factory", "keystore", "home", "port"}:
            options += [one.opts[0], usual(one, folder)]
    given = [usual(one, folder) for one in arguments]
    yield [*path]
    yield [*path, *options, *given]
    for number, one in enumerate(command.params):
        kind = one.type_descriptor.annotation
        if kind not in {Path, str, *WRONG_NUMBERS} or one.name == "help":
            continue
        values = [str(folder / name) for name in WRONG_FILES] if kind is Path else WRONG_NUMBERS.get(kind, WRONG_TEXTS)
        for wrong in some(values, number):
            if one.param_type_name == "option":
                yield [*path, *options, *named(one.opts[0], wrong), *given]
            else:
                others = [wrong if other is one else usual(other, folder) for other in arguments]
                yield [*path, *options, *others, *([wrong] if one in optional else [])]


def named(option: str, value: str) -> list[str]:
    """An option and its value, in one word where the value would be taken for another option."""
    return [f"{option}={value}"] if option.startswith("--") else [option, value]


def some(values: Sequence[str], number: int) -> list[str]:
    """Two of the values, others for the next parameter: all of all would take minutes."""
    return [values[(TRIED * number + turn) % len(values)] for turn in range(TRIED)]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_wrong_values_are_said_in_words(
    path: tuple[str, ...], command: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = []
    for line in lines(path, command, folder):
        with pytest.raises(SystemExit) as ended:
            main(line)
        said = capsys.readouterr()
        is_without_remedy = said.err.startswith("error:") and "to do:" not in said.err
        if NOT_FORESEEN in said.err or "Traceback" in said.err or (ended.value.code and is_without_remedy):
            faults.append((line, said.err))
    assert faults == []
    assert [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["case", "show", "--rpc", NOWHERE, "--factory", ADDRESS, "list.json"], "value: list.json"),
        (["audit", "receipt", "list.json"], "value: list.json"),
        (["audit", "watch", "--rpc", NOWHERE, "--factory", ADDRESS, "--home", "empty"], "is a file"),
    ],
)
def test_a_file_that_is_another_is_named(
    line: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(line)
    assert said in unframed(capsys.readouterr().err)


WITH_A_HOME = [one for one in COMMANDS if any("--home" in option.opts for option in one.values[1].params)]


@pytest.mark.slow
def test_a_home_that_would_lie_in_a_file_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(WITH_A_HOME) > 60
    for one in WITH_A_HOME:
        with pytest.raises(SystemExit) as ended:
            main([*one.values[0], "--home", str(folder / "empty" / "far" / "below")])
        assert ended.value.code == 2, one.id
        assert "cannot be a folder" in unframed(capsys.readouterr().err), one.id


@pytest.mark.parametrize("wrong", ["nowhere", "list.json", "folder", "bytes", "0x" + "5e" * 32])
def test_what_is_no_keyfile_is_wrong_usage_before_anything_is_asked(
    wrong: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = wrong if wrong.startswith("0x") else str(folder / wrong)
    with pytest.raises(SystemExit) as ended:
        main(["case", "carry", "--rpc", NOWHERE, "--factory", ADDRESS, "--keystore", named])
    said = unframed(capsys.readouterr().err)
    assert ended.value.code == 2
    assert "Invalid value for '--keystore'" in said
    assert "5e5e" not in said, "a private key is not repeated"


def unframed(said: str) -> str:
    """A parser's message stands in a frame, which breaks its lines."""
    return " ".join(said.replace("│", " ").split())


def test_what_no_command_foresaw_is_noticed() -> None:
    assert NOT_FORESEEN in UNKNOWN
    with pytest.raises(AuditError, match=NOT_FORESEEN):
        guarded(lambda: 1 / 0)
    assert describe(ZeroDivisionError("division by zero")).what == UNKNOWN


def test_a_package_that_a_newer_checkout_needs_is_named_with_how_to_install_it() -> None:
    shown = describe(ModuleNotFoundError("No module named 'immutables.map'", name="immutables.map"))
    assert (shown.what, shown.value) == ("A package that Troth needs is not installed", "immutables")
    assert "make setup" in shown.remedy
    assert describe(ModuleNotFoundError("No module named 'troth.gone'", name="troth.gone")).what == UNKNOWN


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (NotADirectoryError(20, "no", "/a/b"), "A file is where a folder should be"),
        (FileExistsError(17, "no", "/a/b"), "A file is where a folder should be"),
        (IsADirectoryError(21, "no", "/a/b"), "A folder is where a file should be"),
        (FileNotFoundError(2, "no", "/a/b"), "There is no such file"),
        (PermissionError(13, "no", "/a/b"), "This may not be read or written"),
        (OSError(28, "No space left on device", "/a/b"), "The disk is full"),
    ],
)
def test_what_the_system_says_about_a_path_is_in_words(error: OSError, what: str) -> None:
    shown = describe(error)
    assert (shown.what, shown.value, shown.exit_code) == (what, "/a/b", 1)
    assert shown.remedy


def test_every_command_says_what_it_does_and_every_group_is_listed() -> None:
    assert set(plugins.plugins()) == set(plugins.SUMMARIES)
    for one in COMMANDS:
        path, command = one.values
        assert command.help, path
        for parameter in command.params:
            assert parameter.param_type_name == "argument" or parameter.help, (path, parameter.name)
