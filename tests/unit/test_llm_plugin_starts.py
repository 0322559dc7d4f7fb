"""The plugin of `llm` while it is loaded, which is before each of llm's commands: nothing that is wrong stops them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODEL = {"id": "smollm2-135m/bfloat16"}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("llm")
    monkeypatch.syspath_prepend(ROOT / "plugins" / "llm-troth")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("TROTH_GATEWAY_KEY", "sk-troth-none")
    import llm_troth

    (tmp_path / llm_troth.CACHE).write_text(json.dumps({"data": [MODEL]}))
    return llm_troth


def registered(plugin: ModuleType) -> list[Any]:
    found: list[Any] = []
    plugin.register_models(lambda *both: found.append(both[0]))
    return found


@contextmanager
def saying(words: bytes) -> Iterator[str]:
    """The address of a program that answers whatever it is asked with these words."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(words)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize("address", ["127.0.0.1:11711", "localhost:11711", "http://[::1", "http://127.0.0.1:x"])
def test_an_address_that_cannot_be_leaves_llm_its_other_models(
    plugin: ModuleType, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are models of last time, and no address for them."""
    monkeypatch.setenv("TROTH_GATEWAY_URL", address)
    assert registered(plugin) == []
    with pytest.raises(plugin.GatewaySilent, match="TROTH_GATEWAY_URL is no address"):
        plugin.fetched("/v1/models", 2.0)


@pytest.mark.parametrize("words", [b"SSH-2.0-OpenSSH_9.2\r\n", b'HTTP/1.0 200 OK\r\ncontent-length: 90\r\n\r\n{"da'])
def test_another_program_at_the_address_is_no_gateway(
    plugin: ModuleType, words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saying(words) as address:
        monkeypatch.setenv("TROTH_GATEWAY_URL", address)
        assert [one.model_id for one in registered(plugin)] == ["troth/smollm2-135m/bfloat16"], "as it was listed last"


def test_a_list_that_cannot_be_kept_is_used_all_the_same(
    plugin: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / plugin.CACHE).unlink()
    (tmp_path / plugin.CACHE).mkdir()
    told = json.dumps({"data": [MODEL]}).encode()
    with saying(b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(told), told)) as address:
        monkeypatch.setenv("TROTH_GATEWAY_URL", address)
        assert len(registered(plugin)) == 1


@pytest.mark.parametrize("kept", ["5", "null", '{"data": 5}', '{"data": [5, {"id": 5}]}', "{", ""])
def test_a_kept_list_that_is_none_counts_as_none(
    plugin: ModuleType, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / plugin.CACHE).write_text(kept)
    monkeypatch.setenv("TROTH_GATEWAY_URL", "http://127.0.0.1:9")
    assert registered(plugin) == []
