"""The client's HTTPS side against servers that answer too much, too little, or something else."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from support.client_stage import CLASS, ENDS, SCHEDULER, language_files

from troth.client import https_calls
from troth.client.api import SchedulerApi, connected
from troth.client.errors import (
    InsufficientBalance,
    ModelUnavailable,
    SchedulerRefused,
    SchedulerUnreachable,
    StreamError,
    WrongSchedulerKey,
)
from troth.client.https_calls import LARGEST_LINE, LARGEST_REFUSAL
from troth.overlay.identity import create_identity
from troth.overlay.server import TlsServer, serving
from troth.protocol.types import Hash32

TASK, SALT = Hash32(b"\x01" * 32), Hash32(b"\x02" * 32)
Answer = Callable[[httpx.Request], httpx.Response] | Callable[[httpx.Request], Awaitable[httpx.Response]]


def answering(answer: Answer) -> SchedulerApi:
    client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="https://scheduler")
    return SchedulerApi(client, "https://scheduler")


def sending(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> SchedulerApi:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answering(lambda _: httpx.Response(status, content=in_pieces(content), headers=headers))


async def in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 65_536):
        yield content[start : start + 65_536]


async def lines_of(api: SchedulerApi) -> list[dict[str, Any]]:
    return [line async for line in api.order({})]


async def test_served_classes_are_read() -> None:
    assert await sending({"classes": [{"id": "0x" + CLASS.hex(), "ends": list(ENDS), "fee": "1"}]}).classes() == {
        CLASS: ENDS
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"classes": 5},
        {"classes": [5]},
        {"classes": [{}]},
        {"classes": [{"id": "0x12", "ends": [1]}]},
        {"classes": [{"id": "0x" + "00" * 32, "ends": [10**400]}]},
        {"classes": [{"id": "0x" + "00" * 32, "ends": [-1]}]},
        {"classes": [{"id": "0x" + "00" * 32, "ends": list(range(1, 200))}]},
        {"classes": [{}] * 10_000},
        [],
        b"<html>",
        b"",
        b"[" * 100_000,
        b"9" * 5_000,
        b"\xff",
    ],
    ids=lambda body: repr(body)[:30],
)
async def test_a_malformed_offer_is_an_error_with_a_remedy(body: Any) -> None:
    with pytest.raises(StreamError) as raised:
        await sending(body).classes()
    assert raised.value.remedy
    assert len(str(raised.value)) < 400


async def test_the_salt_travels_in_its_header_and_the_task_in_the_path() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=in_pieces(b'{"tokens":[1]}'))

    assert await answering(answer).task(TASK, SALT) == {"tokens": [1]}
    assert seen[0].url.path == f"/v1/tasks/0x{TASK.hex()}"
    assert seen[0].headers["troth-salt"] == "0x" + SALT.hex()
    assert seen[0].headers["accept-encoding"] == "identity"


async def test_language_files_come_whole_or_not_at_all() -> None:
    files = language_files()
    body = {"tokenizer": files.tokenizer, "chat_template": files.chat_template, "config": files.config}
    assert await sending(body).language(CLASS) == files
    with pytest.raises(ModelUnavailable):
        await sending(body | {"config": None}).language(CLASS)


async def test_lines_are_put_together_from_any_pieces() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in b'{"a":1}\n{"b":"\xc3\xa9"}\n':
            yield bytes([byte])

    api = answering(lambda _: httpx.Response(200, content=pieces()))
    assert await lines_of(api) == [{"a": 1}, {"b": "é"}]


async def test_an_endless_line_is_cut_off_early() -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65_536
            yield b"x" * 65_536

    with pytest.raises(StreamError, match="too long"):
        await lines_of(answering(lambda _: httpx.Response(200, content=pieces())))
    assert sent <= 2 * LARGEST_LINE


async def test_compressed_answers_are_not_unfolded() -> None:
    packed = {"content-encoding": "gzip"}
    with pytest.raises(StreamError, match="not JSON"):
        await sending(gzip.compress(b'{"classes":[]}'), headers=packed).classes()
    with pytest.raises(StreamError):
        await lines_of(sending(gzip.compress(b"{}\n"), headers=packed))


@pytest.mark.parametrize("body", [b'{"a":', b"\n\n", b"[1]\n", b"5\n"])
async def test_a_stream_that_is_not_lines_of_objects_is_refused(body: bytes) -> None:
    with pytest.raises(StreamError):
        await lines_of(sending(body))


async def test_a_huge_body_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https_calls, "LARGEST_FILES", 1000)
    with pytest.raises(StreamError, match="too large"):
        await sending(b"x" * 1001).classes()
    with pytest.raises(StreamError, match="too large"):
        await lines_of(sending(b"x" * (LARGEST_REFUSAL + 1), status=500))


async def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https_calls, "ANSWER_SECONDS", 0.02)

    async def dribble() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.001)

    with pytest.raises(SchedulerUnreachable, match="did not finish"):
        await answering(lambda _: httpx.Response(200, content=dribble())).classes()


async def test_a_shortfall_says_how_to_top_up() -> None:
    error = {"code": "insufficient_escrow", "message": "too little", "remedy": "x", "shortfall": "77"}
    with pytest.raises(InsufficientBalance) as raised:
        await lines_of(sending({"error": error}, status=402))
    assert "troth client deposit 77wei --broadcast" in raised.value.remedy
    for forged in ("1; rm -rf /", "-5", 77, "٧"):
        with pytest.raises(SchedulerRefused) as refused:
            await lines_of(sending({"error": error | {"shortfall": forged}}, status=402))
        assert "rm" not in refused.value.remedy


@pytest.mark.parametrize("status", [302, 404, 500, 503])
async def test_refusals_are_told_without_the_schedulers_escape_sequences(status: int) -> None:
    error = {"code": "busy", "message": "try\x1b]0;later\n" + "x" * 100_000, "remedy": "wait"}
    body = {"error": error | {"message": error["message"][:60_000]}}
    with pytest.raises(SchedulerRefused) as raised:
        await lines_of(sending(body, status=status))
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 1000
    with pytest.raises(SchedulerRefused, match=f"HTTP {status}"):
        await lines_of(sending(b"<html>", status=status))
    with pytest.raises(SchedulerRefused, match=f"HTTP {status}"):
        await lines_of(sending({"error": 5}, status=status))


async def test_nobody_there_is_told_and_an_order_may_have_arrived() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(SchedulerUnreachable):
        await answering(refuse).classes()
    with pytest.raises(SchedulerUnreachable, match="may have arrived"):
        await lines_of(answering(refuse))


async def test_the_registered_tls_key_is_the_only_one_that_is_talked_to(tmp_path: Path) -> None:
    identity, other = create_identity(tmp_path / "a"), create_identity(tmp_path / "b")
    app = FastAPI()

    @app.post("/v1/orders")
    async def orders() -> StreamingResponse:
        return StreamingResponse(iter([b'{"type":"token"}\n']))

    server = TlsServer(app, identity, "127.0.0.1", 0)
    async with serving(server):
        here = replace(
            SCHEDULER, endpoint=f"https://127.0.0.1:{server.port}", tls_key_hash=Hash32(identity.spki_sha256)
        )
        async with connected(here) as api:
            assert await lines_of(api) == [{"type": "token"}]
        async with connected(replace(here, tls_key_hash=Hash32(other.spki_sha256))) as api:
            with pytest.raises(WrongSchedulerKey, match="Nothing was sent"):
                await lines_of(api)
