"""Whoever should not pay from the wallet: pages in a browser, programs without the key, requests made to hurt."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.client_network import client_side, network
from support.gateway_stage import MESSAGES
from support.toy_tab_gateway import TabGateway, tab_gateway
from support.waiting import eventually

BODY = {"model": "toy", "messages": MESSAGES}
EVIL = "http://evil.example"


async def post(
    stage: TabGateway, headers: dict[str, str], content: bytes | None = None, path: str = ""
) -> httpx.Response:
    """A request with the key, unless `headers` says otherwise."""
    async with stage.client as client:
        raw = json.dumps(BODY).encode() if content is None else content
        return await client.post(path or "/v1/chat/completions", content=raw, headers=headers)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"origin": EVIL}, 403, "origin_refused"),
        ({"origin": "null"}, 403, "origin_refused"),
        ({"origin": "http://127.0.0.1:1"}, 403, "origin_refused"),
        ({"sec-fetch-site": "cross-site"}, 403, "origin_refused"),
        ({"sec-fetch-site": "same-site"}, 403, "origin_refused"),
        ({"host": "evil.example"}, 403, "host_refused"),
        ({"host": "evil.example:PORT"}, 403, "host_refused"),
        ({"host": "127.0.0.1"}, 403, "host_refused"),
        ({"host": "127.0.0.1:PORT.evil.example"}, 403, "host_refused"),
        ({"host": "localhost:PORT@evil.example"}, 403, "host_refused"),
        ({"authorization": ""}, 401, "invalid_api_key"),
        ({"authorization": "Bearer"}, 401, "invalid_api_key"),
        ({"authorization": "Bearer sk-troth-guess"}, 401, "invalid_api_key"),
        ({"authorization": "Basic KEY"}, 401, "invalid_api_key"),
        ({"authorization": "Bearer KEY\u00e9"}, 401, "invalid_api_key"),
    ],
)
async def test_strangers_are_turned_away(tmp_path: Path, headers: dict[str, str], status: int, code: str) -> None:
    async with tab_gateway(tmp_path) as stage:
        port, key = stage.gateway.gateway.base.rpartition(":")[2], str(stage.gateway.access.key)
        given = {name: value.replace("PORT", port).replace("KEY", key) for name, value in headers.items()}
        answer = await post(stage, {name: value.encode("latin-1") for name, value in given.items()})  # type: ignore[misc]
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert "access-control-allow-origin" not in answer.headers
        assert stage.stage.session.journal.all() == []


async def test_a_page_gets_no_permission_to_ask(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, with_key=False) as stage, stage.client as client:
        asked = {"origin": EVIL, "access-control-request-method": "POST"}
        preflight = await client.options("/v1/chat/completions", headers=asked)
        assert preflight.status_code == 403
        assert not any(name.startswith("access-control") for name in preflight.headers)
        # Even without a key a page cannot make the wallet pay with a request that needs no permission.
        simple = await client.post(
            "/v1/chat/completions", content=json.dumps(BODY), headers={"origin": EVIL, "content-type": "text/plain"}
        )
        assert simple.status_code == 403
        assert stage.stage.session.journal.all() == []
        assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"a": "' + b"x" * (5 * 2**20) + b'"}', 413),
        (b'{"a":' * 200_000, 400),
        (b"[" * 1_000_000, 400),
        (b'{"model": "toy", "messages": NaN}', 400),
        (json.dumps(BODY | {"stop": ["x"] * 1000}).encode(), 400),
        (json.dumps(BODY | {"n": 10**9}).encode(), 400),
        (json.dumps({"model": "toy", "messages": [{"role": "user", "content": "a" * 300_000}]}).encode(), 400),
        (json.dumps({"model": "x" * 100_000, "messages": MESSAGES}).encode(), 404),
        (b"\xff\xfe", 400),
    ],
)
async def test_requests_made_to_hurt_cost_nothing(tmp_path: Path, content: bytes, status: int) -> None:
    async with tab_gateway(tmp_path) as stage:
        answer = await post(stage, {}, content)
        assert answer.status_code == status, answer.text[:300]
        assert len(answer.content) < 2000
        assert stage.stage.session.journal.all() == []
        assert (await stage.post()).status_code == 200


async def test_a_slow_body_is_given_up(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, body_seconds=0.5) as stage:
        port = int(stage.gateway.gateway.base.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 100\r\n"
            f"authorization: Bearer {stage.gateway.access.key}\r\n\r\n{{"
        )
        writer.write(head.encode())
        status = await asyncio.wait_for(reader.readline(), 60)
        assert b"408" in status
        # The connection is not kept for the rest of the body.
        assert await asyncio.wait_for(reader.read(), 60)
        writer.close()


async def test_nothing_of_a_question_comes_back_in_an_error(tmp_path: Path) -> None:
    secret = "the password is hunter2"
    messages = [{"role": "user", "content": secret}, {"role": secret, "content": secret}]
    async with tab_gateway(tmp_path) as stage:
        for fields in ({"messages": messages}, {"temperature": secret}, {"stop": [secret, 7]}, {"stream": secret}):
            refused = await stage.post(**fields)
            assert refused.status_code == 400
            assert "hunter2" not in refused.text


async def test_a_hundred_requests_at_once_order_no_more_than_the_money_covers(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path / "priced") as stage:
        await stage.post()
        most = stage.stage.session.journal.all()[0].most
    async with tab_gateway(tmp_path, concurrent=64, options={"deposit": 3 * most + most // 2, "stall": 300}) as stage:
        # The scheduler says nothing, so nothing of what was authorised is given back.
        stage.stage.scheduler.tamper = lambda _one, _lines: [None]
        journal = stage.stage.session.journal
        asking = [asyncio.create_task(stage.post()) for _ in range(100)]
        await eventually(lambda: sum(one.done() for one in asking) >= 97 and len(journal.all()) >= 3)
        waiting = [one for one in asking if not one.done()]
        assert len(waiting) == len(journal.all()) == 3
        assert {one.result().status_code for one in asking if one.done()} <= {402, 429}
        assert stage.stage.book().authorised == 3 * most
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.chain
@pytest.mark.slow
async def test_the_command_refuses_other_addresses(anvil: Any, tmp_path: Path) -> None:
    async with network(anvil, tmp_path) as scene:
        side = await client_side(scene, tmp_path / "home")
        remote = await side.run("serve", "--host", "0.0.0.0")
        assert remote.code == 1
        assert "loopback addresses only" in remote.err
        both = await side.run("serve", "--host", "0.0.0.0", "--allow-remote", "--no-key")
        assert both.code == 1
        assert "Without a key" in both.err
