"""The plugin of the `llm` command beside what is no gateway: commands of other models go on."""

from __future__ import annotations

import importlib.util
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("llm")

PLUGIN = Path(__file__).resolve().parents[2] / "plugins" / "llm-troth" / "llm_troth" / "__init__.py"
LISTED = json.dumps({"data": [{"id": "toy"}]})


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    found = importlib.util.spec_from_file_location("llm_troth_of_a_test", PLUGIN)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@contextmanager
def answering(said: bytes, *, piece: int = 1 << 20, pause: float = 0.0) -> Iterator[str]:
    """Something that listens where a gateway would, and says this to everybody, in pieces."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            with suppress(OSError):
                for begin in range(0, len(said), piece):
                    self.request.sendall(said[begin : begin + piece])
                    time.sleep(pause)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def http(body: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


def registered(plugin: ModuleType) -> list[str]:
    """The models that a command of LLM hears of; every command asks."""
    found: list[str] = []
    plugin.register_models(lambda model, _asynchronous: found.append(model.model_id))
    return found


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{",
        http("[" * 200_000),
        http('{"data": 7}'),
        b"HTTP/1.1 500 No\r\ncontent-length: 99\r\n\r\n{",
    ],
    ids=["another service", "cut off", "nested without end", "no list", "an error that is cut off"],
)
def test_whatever_listens_at_the_gateways_port_breaks_no_other_command(
    plugin: ModuleType, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    with answering(said) as address:
        monkeypatch.setenv("TROTH_GATEWAY_URL", address)
        assert registered(plugin) == []


@pytest.mark.parametrize("status", ["200 OK", "500 No"])
def test_nor_does_what_answers_byte_by_byte(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """A socket's limit is for each of them."""
    head = f"HTTP/1.1 {status}\r\ncontent-length: 9999\r\n\r\n".encode()
    with answering(head + b"{" * 9999, piece=len(head), pause=0.2) as address:
        monkeypatch.setenv("TROTH_GATEWAY_URL", address)
        monkeypatch.setattr(plugin, "LARGEST_ANSWER", 1 << 20)
        before = time.monotonic()
        with pytest.raises(plugin.GatewaySilent):
            plugin.fetched("/v1/models", 0.5)
        assert time.monotonic() - before < 20, "each piece comes in time, all of them take more than half a minute"


@pytest.mark.parametrize("address", ["file:///etc/passwd", "http://[::1", "http://127.0.0.1:99999"])
def test_nor_does_an_address_that_is_none(
    plugin: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Also where a gateway was listed before."""
    (tmp_path / plugin.CACHE).write_text(LISTED)
    monkeypatch.setenv("TROTH_GATEWAY_URL", address)
    assert registered(plugin) in ([], ["troth/toy"])


def test_nor_does_a_list_that_cannot_be_written(
    plugin: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a folder that cannot be written."""
    (tmp_path / plugin.CACHE).mkdir()
    with answering(http(LISTED)) as address:
        monkeypatch.setenv("TROTH_GATEWAY_URL", address)
        assert registered(plugin) == ["troth/toy"]
