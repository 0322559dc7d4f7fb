"""What a client is told when nothing is answered: the status and the words that its library looks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.gateway_stage import MESSAGES
from support.toy_tab_gateway import tab_gateway

BODY = {"model": "toy", "max_tokens": 4, "messages": MESSAGES}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models/toy", "GET"),
        ("POST", "/v1/models", "GET"),
        ("GET", "/v1/messages", "POST"),
    ],
)
async def test_a_wrong_method_is_no_unknown_address(tmp_path: Path, method: str, path: str, allowed: str) -> None:
    async with tab_gateway(tmp_path) as stage, stage.client as client:
        answer = await client.request(method, path)
        error = answer.json()["error"]
        assert (answer.status_code, answer.headers["allow"], error["code"]) == (405, allowed, "method_not_allowed")
        assert f"does not take {method}" in error["message"]
        assert f"Use {allowed}." in error["message"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/chat/completions", "with /v1 at its end"),
        ("/v1/v1/messages", "without /v1"),
        ("/v1/nonsense", "docs/how-to/gateway.md"),
        ("/v1/audio/speech", "text alone"),
        ("/v1/responses/resp_1/cancel", "End the connection"),
        ("/v1/responses/resp_1/input_items", "GET /v1/responses/ID"),
        ("/v1/chat/completions/chatcmpl-1", "GET /v1/receipts/ID"),
        ("/v1/files", "Nothing is stored"),
        ("/v1/threads/runs", "previous_response_id"),
    ],
)
async def test_the_usual_mistakes_in_an_address_are_named(tmp_path: Path, path: str, said: str) -> None:
    async with tab_gateway(tmp_path) as stage, stage.client as client:
        answer = await client.post(path, json=BODY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
        assert said in answer.json()["error"]["message"]


async def test_too_many_tokens_are_named_as_the_request_has_them(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        for path, fields, limit in (
            ("/v1/responses", {"input": "hello", "max_output_tokens": 1000}, "max_output_tokens"),
            ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1000}, "max_tokens"),
            ("/v1/completions", {"prompt": "hello", "max_tokens": 1000}, "max_tokens"),
        ):
            async with stage.client as client:
                answer = await client.post(path, json={"model": "toy"} | fields)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
            assert f"Prompt and {limit} need" in error["message"]
            assert f"a smaller {limit}:" in error["message"]


async def test_anthropics_clients_read_their_own_words(tmp_path: Path) -> None:
    """Theirs look for `type` at the top, and tell errors apart by the type inside."""
    async with tab_gateway(tmp_path) as stage, stage.client as client:
        path, huge = "/v1/messages", json.dumps(BODY | {"system": "x" * 5 * 2**20})
        long = BODY | {"messages": [{"role": "user", "content": "x " * 200_000}]}
        answers = [
            await client.post(path, json=BODY, headers={"authorization": "Bearer sk-troth-guess"}),
            await client.post(path, json=BODY, headers={"origin": "http://evil.example"}),
            await client.post(path, json=BODY | {"model": "nobody"}),
            await client.post(path, content=huge),
            await client.post(path, json=long),
            await client.post(f"{path}/count_tokens", json=long),
            await client.get(path),
            await client.post(f"{path}/batches", json=BODY),
        ]
    told = [(one.status_code, one.json()["type"], one.json()["error"]["type"]) for one in answers]
    assert told == [
        (401, "error", "authentication_error"),
        (403, "error", "permission_error"),
        (404, "error", "not_found_error"),
        (413, "error", "request_too_large"),
        (400, "error", "invalid_request_error"),
        (400, "error", "invalid_request_error"),
        (405, "error", "invalid_request_error"),
        (404, "error", "not_found_error"),
    ]


async def test_a_prompt_that_is_too_long_names_its_field(tmp_path: Path) -> None:
    """400 with this code is what programs shorten a conversation for; 413 is for bodies that nobody reads."""
    long = "x " * 1_500_000
    async with tab_gateway(tmp_path) as stage, stage.client as client:
        chat = await client.post("/v1/chat/completions", json=BODY | {"messages": [{"role": "user", "content": long}]})
        text = await client.post("/v1/completions", json={"model": "toy", "prompt": long})
        body = await client.post("/v1/completions", json={"model": "toy", "prompt": long * 2})
    told = [(one.status_code, one.json()["error"]["code"], one.json()["error"]["param"]) for one in (chat, text, body)]
    assert told == [
        (400, "context_length_exceeded", "messages"),
        (400, "context_length_exceeded", "prompt"),
        (413, "request_too_large", None),
    ]


async def test_a_model_is_found_by_its_whole_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients put the name into the path as it is, or with its slashes as %2F."""
    monkeypatch.setattr("troth.client.gateway.catalogue.names", lambda _offer: {"toy/torch/float32"})
    async with tab_gateway(tmp_path) as stage, stage.client as client:
        for path in ("toy/torch/float32", "toy%2Ftorch%2Ffloat32"):
            assert (await client.get(f"/v1/models/{path}")).json()["object"] == "model"
        assert (await client.get("/v1/models/")).json()["object"] == "list"
        missing = await client.get("/v1/models/no/such%2Fmodel")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
