"""The gateway's smaller parts: its key, its record, its bodies, tokens as bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.byte_language import LANGUAGE, tokens_of
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from troth.client.errors import ConfigurationError, ReceiptsUnreadable
from troth.client.gateway import catalogue
from troth.client.gateway.body import DEEPEST, parse
from troth.client.gateway.completion import PricedQuestion, new_question
from troth.client.gateway.errors import InvalidParameter
from troth.client.gateway.guard import access_key
from troth.client.gateway.ledger import CompletionLedger, today
from troth.client.gateway.serving import GatewaySettings
from troth.client.gateway.shapes import token_bytes, token_text, whole_amount


def test_the_key_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    path = tmp_path / "gateway.key"
    made = access_key(path)
    assert made.startswith("sk-troth-")
    assert path.stat().st_mode & 0o777 == 0o600
    assert access_key(path) == made
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="Others can read"):
        access_key(path)
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        access_key(path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_only_loopback_is_listened_on_unless_allowed(host: str) -> None:
    with pytest.raises(ConfigurationError, match="loopback"):
        GatewaySettings(host=host).checked()
    assert GatewaySettings(host=host, allow_remote=True).checked().host == host
    with pytest.raises(ConfigurationError, match="Without a key"):
        GatewaySettings(host=host, allow_remote=True, with_key=False).checked()
    for own in ("127.0.0.1", "::1", "localhost"):
        GatewaySettings(host=own).checked()


def test_the_ledger_survives_and_counts_what_was_paid(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sqlite3"
    orders = [PricedQuestion(new_question(), 70), PricedQuestion(new_question(), 70)]
    first = CompletionLedger(path)
    first.ordered("chatcmpl-1", "toy", orders)
    first.close()
    assert path.stat().st_mode & 0o077 == 0
    again = CompletionLedger(path)
    entry = again.find("chatcmpl-1")
    assert entry is not None
    assert entry.tasks == tuple("0x" + one.task_id.hex() for one in orders)
    assert again.spent(today()) == 2 * orders[0].fee
    again.paid(entry.tasks[0], 0)
    assert again.spent(today()) == orders[0].fee
    assert again.spent("1999-01-01") == 0
    assert again.find("chatcmpl-2") is None
    with pytest.raises(ReceiptsUnreadable):
        again.ordered("chatcmpl-3", "toy", [PricedQuestion(new_question(), 1), orders[0]])
    # All of a completion is written down, or nothing.
    assert again.find("chatcmpl-3") is None
    again.close()
    path.write_bytes(b"something else, and long enough to be no database" * 100)
    with pytest.raises(ReceiptsUnreadable):
        CompletionLedger(path)


@pytest.mark.slow
def test_bodies_are_json_and_not_deep() -> None:
    assert parse(b'{"a": ["[[[", "\\"[", {"b": 1.5}]}') == {"a": ["[[[", '"[', {"b": 1.5}]}
    assert parse(b"[" * DEEPEST + b"]" * DEEPEST) != 1
    for raw in (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), b'{"a":' * 100_000, b"[" * 2_000_000):
        with pytest.raises(InvalidParameter, match="nested too deeply"):
            parse(raw)
    for raw in (b"", b"{", b"nan", b'{"a": NaN}', b'{"a": Infinity}', b"\xff", b'"\xc3"', b"{}{}", b"1e999999"):
        with pytest.raises(InvalidParameter, match="not JSON"):
            parse(raw)


def test_tokens_are_the_bytes_they_stand_for() -> None:
    tokens = tokens_of("ñ🙂 a\n")[:-1]
    assert b"".join(token_bytes(LANGUAGE, token) for token in tokens) == "ñ🙂 a\n".encode()
    assert token_text(LANGUAGE, tokens[0]) == "\N{REPLACEMENT CHARACTER}"
    assert token_bytes(LANGUAGE, 10**6) == b""
    fallback = Tokenizer(WordLevel({"<0xE2>": 0, "word": 1}, unk_token="word"))
    language = replace(LANGUAGE, tokenizer=fallback)
    assert (token_bytes(language, 0), token_bytes(language, 1)) == (b"\xe2", b"word")


def test_units_as_a_number_of_whole_coins() -> None:
    assert whole_amount(24_000_000_000, 18) == 2.4e-08
    assert whole_amount(1_500_000, 6) == 1.5


@pytest.mark.parametrize("asked", ["smollm2/torch/float32", "smollm2-torch-float32", "0x" + "00" * 32, "llama"])
def test_a_model_is_found_by_each_of_its_names(asked: str) -> None:
    execution = SimpleNamespace(name="smollm2/torch/float32", model=bytes(32))
    described = SimpleNamespace(architecture="llama/0x00")
    offer: Any = SimpleNamespace(execution_class=execution, class_id=bytes(31) + b"1", model=described)
    assert catalogue.require_model(offer, asked) == "smollm2-torch-float32"
