"""A port that another program holds is said at once, before keys are asked for, with the setting that changes it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troth.command.main import main
from troth.committee import running as committee_running
from troth.node import configuration as node_configuration
from troth.overlay.relay.initialisation import RelayInitOptions, initialise
from troth.scheduler import running as scheduler_running
from troth.transport.errors import ChannelUnavailable
from troth.transport.listener import require_free

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as holder:
        yield holder.getsockname()[1]


def exit_code(words: list[str]) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def asked_for_no_key(*_: Any, **__: Any) -> None:
    raise AssertionError("a key was asked for before the port was looked at")


def test_a_taken_port_is_named_with_its_setting(taken: int) -> None:
    with pytest.raises(ChannelUnavailable) as refused:
        require_free(HOST, taken, "--port")
    assert str(taken) in str(refused.value)
    assert refused.value.remedy == "Stop what holds the port, perhaps this program itself, or change --port."


def test_a_free_port_is_left_free(taken: int) -> None:
    require_free(HOST, 0, "--port")
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
    require_free(HOST, port, "--port")
    socket.create_server((HOST, port)).close()


def test_an_address_of_another_machine_is_said(taken: int) -> None:
    with pytest.raises(ChannelUnavailable, match=r"192\.0\.2\.1"):
        require_free("192.0.2.1", 0, "--host")


def test_a_relay_says_it(taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    initialise(tmp_path, RelayInitOptions(HOST, taken, f"{HOST}:{taken}", None, proxy=True, committee=None))
    assert exit_code(["relay", "start", "--home", str(tmp_path)]) == 1
    assert f"change listen.port in {tmp_path / 'relay.toml'}" in capsys.readouterr().err


def test_a_relay_says_it_of_its_metrics(taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    initialise(tmp_path, RelayInitOptions(HOST, 0, f"{HOST}:9001", taken, proxy=True, committee=None))
    assert exit_code(["relay", "start", "--home", str(tmp_path)]) == 1
    assert f"change listen.metrics_port in {tmp_path / 'relay.toml'}" in capsys.readouterr().err


def test_an_explorer_says_it(taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explorer", "serve", "--factory", "0x" + "11" * 20, "--home", str(tmp_path / "home")]
    assert exit_code([*words, "--port", str(taken)]) == 1
    assert "change --port" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("module", "loads", "serve", "file"),
    [
        (scheduler_running, "load_market", "serve_market", "scheduler.toml"),
        (committee_running, "load", "serve", "committee.toml"),
    ],
)
def test_schedulers_and_members_say_it_before_they_open_keys(
    module: Any, loads: str, serve: str, file: str, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, loads, lambda folder: SimpleNamespace(host=HOST, port=taken))
    monkeypatch.setattr(module, "read_password", asked_for_no_key)
    with pytest.raises(ChannelUnavailable) as refused:
        asyncio.run(getattr(module, serve)(tmp_path, None))
    assert str(tmp_path / file) in refused.value.remedy


def test_a_node_says_it_before_it_opens_keys(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node_configuration, "load", lambda home: SimpleNamespace(host=HOST, port=taken))
    monkeypatch.setattr(node_configuration, "with_engine", lambda found, engine: found)
    monkeypatch.setattr("troth.chain.keystore.read_password", asked_for_no_key)
    assert exit_code(["node", "start", "--home", str(tmp_path)]) == 1
    assert f"change listen.port in {tmp_path / 'node.toml'}" in capsys.readouterr().err
