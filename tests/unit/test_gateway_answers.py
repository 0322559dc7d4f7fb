"""What a gateway answers, over a real socket, when the scheduler behind it follows a script."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import FAILED_LINE, OFFER, assigned_line, honest_lines, record, tokens_of
from support.gateway_session import Staged, answering, said, staged
from support.waiting import eventually

from troth.client.errors import OverlayFailed, SchedulerRefused, SchedulerUnreachable, StreamError
from troth.client.gateway.limits import Limits
from troth.client.gateway.request import Defaults
from troth.client.ordering import SignedOrder
from troth.overlay.errors import CircuitFailed, CircuitSilent
from troth.protocol.settlement import Outcome

FEE = OFFER.fee


async def test_a_whole_answer_has_usage_cost_and_receipt(tmp_path: Path) -> None:
    async with staged(tmp_path, answering("Hello!")) as stage:
        answer = await stage.post()
        body = answer.json()
        assert answer.status_code == 200
        assert body["object"] == "chat.completion"
        assert body["choices"][0] == {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello!", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
        assert body["usage"]["completion_tokens"] == len(tokens_of("Hello!"))
        assert (body["usage"]["cost"], body["usage"]["cost_wei"]) == (FEE / 10**18, str(FEE))
        assert answer.headers["x-troth-task"] == body["troth"]["task"]
        receipt = (await stage.get(body["troth"]["receipt"])).json()
        assert (receipt["id"], receipt["tasks"][0]["answer"]) == (body["id"], "Hello!")
        assert receipt["tasks"][0]["checked"] is True


@pytest.mark.parametrize("include_usage", [True, False])
async def test_a_stream_begins_with_the_role_and_ends_with_done(tmp_path: Path, include_usage: bool) -> None:
    async with staged(tmp_path, answering("Hello!")) as stage:
        answer = await stage.post(stream=True, stream_options={"include_usage": include_usage})
        *chunks, done = said(answer.text)
        assert done == "[DONE]"
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(one["choices"][0]["delta"].get("content", "") for one in chunks if one["choices"]) == "Hello!"
        last = chunks[-1]
        if include_usage:
            assert all(one["usage"] is None for one in chunks[:-1])
            assert last["choices"] == []
            assert last["usage"]["cost_wei"] == str(FEE)
            assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
        else:
            assert last["choices"][0]["finish_reason"] == "stop"
            assert "usage" not in last
        assert last["troth"]["task"] == answer.headers["x-troth-task"]
        assert {one["id"] for one in chunks} == {last["id"]}


async def test_a_stop_cuts_and_the_rest_is_verified_unheard(tmp_path: Path) -> None:
    async with staged(tmp_path, answering("one, two, three")) as stage:
        body = (await stage.post(stop=[", th", "four"])).json()
        assert body["choices"][0]["message"]["content"] == "one, two"
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == len("one, two, th")
        receipt = (await stage.get(f"/v1/receipts/{body['id']}")).json()
        assert receipt["outcome"] == "accepted"


async def test_each_choice_is_an_order_and_all_are_one_completion(tmp_path: Path) -> None:
    async with staged(tmp_path, answering("Hi")) as stage:
        body = (await stage.post(n=3)).json()
        assert [one["message"]["content"] for one in body["choices"]] == ["Hi"] * 3
        assert len(set(body["troth"]["tasks"])) == 3
        assert body["usage"]["cost_wei"] == str(3 * FEE)
        chunks = said((await stage.post(n=2, stream=True)).text)[:-1]
        assert {one["choices"][0]["index"] for one in chunks} == {0, 1}
        assert sum(one["choices"][0]["finish_reason"] == "stop" for one in chunks) == 2
        assert [("troth" in one) for one in chunks].count(True) == 1


async def test_raw_prompts_are_continued(tmp_path: Path) -> None:
    async with staged(tmp_path, answering(" world")) as stage:
        answer = await stage.post("/v1/completions", prompt=["Hello", [72, 73]], echo=True, max_tokens=32)
        body = answer.json()
        assert body["object"] == "text_completion"
        assert body["choices"][0]["text"] == "Hello world"
        assert body["usage"]["prompt_tokens"] == 7
        unknown = await stage.post("/v1/completions", prompt=[99_999])
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "prompt")


async def test_comments_keep_the_connection_alive_before_the_first_token(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with staged(tmp_path, answering("Hello!", before=2, gate=gate)) as stage, stage.client as client:
        body = {"model": "toy", "messages": [{"role": "user", "content": "hello"}], "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            seen = [await anext(lines)]
            while ": keep-alive" not in seen:
                seen.append(await anext(lines))
            gate.set()
            rest = [line async for line in lines]
        assert '"role":"assistant"' in seen[0]
        assert rest[-2:] == ["data: [DONE]", ""] or rest[-1] == "data: [DONE]"


async def test_waiting_for_the_verdict_holds_the_end_back(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script = answering("Hello!", before=-2, gate=gate)
    async with staged(tmp_path, script, defaults=Defaults(wait=True)) as stage, stage.client as client:
        body = {"model": "toy", "messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 32}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            text = ""
            while ": keep-alive" not in text or '"!"' not in text:
                text += await anext(lines)
            assert '"stop"' not in text
            gate.set()
            rest = [line async for line in lines]
        chunks = said("\n".join(rest))
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
        assert chunks[-2]["troth"]["outcome"] == "accepted"


async def test_a_rejected_answer_ends_in_an_error_for_who_waited(tmp_path: Path) -> None:
    rejected = Outcome.REJECTED
    async with staged(tmp_path, answering("Hello!", rejected), outcome=rejected) as stage:
        waited = await stage.post(troth={"wait": "verdict"})
        error = waited.json()["error"]
        assert (waited.status_code, error["code"]) == (502, "answer_rejected")
        assert (error["troth"]["charged"], error["troth"]["retry_free"]) == (False, True)
        last = said((await stage.post(troth={"wait": "verdict"}, stream=True)).text)[-1]
        assert last["error"]["code"] == "answer_rejected"
        at_once = (await stage.post()).json()
        assert at_once["troth"]["outcome"] == "pending"
        await eventually(lambda: not stage.running.gateway.intake._orders.running())
        assert (await stage.get(f"/v1/receipts/{at_once['id']}")).json()["outcome"] == "rejected"


CIRCUIT = CircuitFailed("middle", 2, "gone away")
FAILURES: list[tuple[list[Any], int, str, str, object]] = [
    ([SchedulerRefused("It is busy", "HTTP 503, busy", "")], 503, "busy", "scheduler", False),
    ([SchedulerRefused("No", "HTTP 400, expired", "")], 502, "expired", "scheduler", False),
    ([SchedulerUnreachable("Nobody answers", "x", "")], 503, "scheduler_unreachable", "scheduler", "unknown"),
    ([OverlayFailed("Lost", "x", "", hop="proxy", delivered="no")], 502, "hop_failed", "proxy", False),
    ([OverlayFailed("Lost", "x", "", hop="path", delivered="unknown")], 502, "hop_failed", "path", "unknown"),
    ([CIRCUIT], 502, "hop_failed", "middle", "unknown"),
    ([CircuitSilent("guard", 1, "silent")], 504, "hop_failed", "guard", "unknown"),
]


@pytest.mark.parametrize(("lines", "status", "code", "hop", "charged"), FAILURES)
async def test_a_failure_before_the_first_word_has_its_status(
    tmp_path: Path, lines: list[Any], status: int, code: str, hop: str, charged: object
) -> None:
    async with staged(tmp_path, lambda _: lines) as stage:
        for stream in (False, True):
            answer = await stage.post(stream=stream)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["troth"]["hop"]) == (status, code, hop)
            assert error["troth"]["charged"] == charged
            assert error["troth"]["retry_free"] is (charged is False)
            assert error["troth"]["task"] == answer.headers["x-troth-task"]
            # OpenAI's client repeats a request after any 5xx, unless it is told not to.
            assert answer.headers.get("x-should-retry") == (None if charged is False else "false")


async def test_a_failure_in_the_middle_is_the_last_event(tmp_path: Path) -> None:
    broken = StreamError("It broke off", "x", "See the receipt.")
    async with staged(tmp_path, lambda signed: [*honest_lines(signed, tokens_of("Hello"))[:4], broken]) as stage:
        *chunks, last = said((await stage.post(stream=True)).text)
        assert last["error"]["code"] == "scheduler_stream_broken"
        assert last["error"]["troth"]["charged"] == "unknown"
        assert "".join(one["choices"][0]["delta"]["content"] for one in chunks) == "He"
        whole = await stage.post()
        assert (whole.status_code, whole.json()["error"]["code"]) == (502, "scheduler_stream_broken")
        receipt = (await stage.get(f"/v1/receipts/{chunks[0]['id']}")).json()
        assert (receipt["tasks"][0]["state"], receipt["tasks"][0]["failure"]) == ("not opened", "It broke off")


async def test_a_stream_lost_after_the_answer_leaves_the_verdict_to_the_chain(tmp_path: Path) -> None:
    broken = StreamError("It broke off", "x", "See the receipt.")
    tokens = tokens_of("Hello")
    committed: list[list[int]] = [tokens, tokens_of("Other")]

    def script(signed: SignedOrder) -> list[Any]:
        stage.follower.put(signed, record(signed, committed.pop(0), Outcome.ACCEPTED))
        return [*honest_lines(signed, tokens)[:-3], broken]

    async with staged(tmp_path, script) as stage:
        kept = (await stage.post(troth={"wait": "verdict"})).json()
        assert (kept["troth"]["outcome"], kept["choices"][0]["message"]["content"]) == ("accepted", "Hello")
        # Another answer was committed than the one that was sent: accepted, and not to be believed.
        other = await stage.post(troth={"wait": "verdict"})
        assert (other.status_code, other.json()["error"]["troth"]["charged"]) == (502, True)


async def test_nodes_that_fail_are_named_as_inferencers(tmp_path: Path) -> None:
    failed = FAILED_LINE | {"code": "no_candidate_left"}
    async with staged(tmp_path, lambda signed: [assigned_line(signed), failed]) as stage:
        error = (await stage.post()).json()["error"]
        assert (error["code"], error["troth"]["hop"]) == ("no_candidate_left", "inferencer")
        assert error["troth"]["charged"] is False


async def test_a_failed_session_is_made_anew_and_its_users_keep_theirs(tmp_path: Path) -> None:
    gate = asyncio.Event()
    broken = SchedulerUnreachable("Nobody answers", "x", "")
    scripts = iter([answering("Slow", before=2, gate=gate), lambda _: [broken], answering("Fast")])

    def script(signed: SignedOrder) -> list[Any]:
        return next(scripts)(signed)

    async with staged(tmp_path, script) as stage:
        slow = asyncio.create_task(stage.post())
        await eventually(lambda: len(stage.api.orders) == 1)
        assert (await stage.post()).status_code == 503
        assert (await stage.post()).json()["choices"][0]["message"]["content"] == "Fast"
        assert stage.sessions == 2
        gate.set()
        assert (await slow).json()["choices"][0]["message"]["content"] == "Slow"


async def test_more_than_the_places_are_turned_away_for_a_while(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with staged(tmp_path, answering("Hello!", before=3, gate=gate), concurrent=2) as stage:
        first = [asyncio.create_task(stage.post()) for _ in range(2)]
        await eventually(lambda: len(stage.api.orders) == 2)
        refused = await stage.post()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert (await stage.post(n=3)).status_code == 400
        gate.set()
        assert [one.status_code for one in await asyncio.gather(*first)] == [200, 200]
        assert (await stage.post()).status_code == 200
        assert "troth_gateway_running_orders 0.0" in (await stage.get("/metrics")).text


async def test_the_same_money_is_not_promised_twice(tmp_path: Path) -> None:
    gate = asyncio.Event()
    # Until a task is opened the chain's balance still holds its fee.
    lines = [None]
    async with staged(tmp_path, lambda _: lines, escrow=3 * FEE - 1) as stage:
        first = asyncio.create_task(stage.post(n=2))
        await eventually(lambda: len(stage.api.orders) == 2)
        short = await stage.post()
        error = short.json()["error"]
        assert (short.status_code, error["code"]) == (402, "insufficient_balance")
        assert error["troth"]["shortfall_wei"] == "1"
        assert error["troth"]["command"] == "troth client deposit 1wei --broadcast"
        assert len(stage.api.orders) == 2
        gate.set()
        first.cancel()


async def test_limits_of_cost_are_kept_over_a_restart(tmp_path: Path) -> None:
    limits = Limits(request=FEE, day=2 * FEE)
    async with staged(tmp_path, answering("Hi"), limits=limits) as stage:
        two = await stage.post(n=2)
        assert (two.status_code, two.json()["error"]["code"]) == (402, "cost_limit_exceeded")
        made = [(await stage.post()).json()["id"] for _ in range(2)]
        assert (await stage.post()).json()["error"]["code"] == "budget_exceeded"
        assert len(stage.api.orders) == 2
    async with staged(tmp_path, answering("Hi"), limits=limits) as stage:
        assert (await stage.post()).json()["error"]["code"] == "budget_exceeded"
        for identifier in made:
            assert (await stage.get(f"/v1/receipts/{identifier}")).json()["id"] == identifier
        assert (await stage.get("/v1/receipts/chatcmpl-other")).status_code == 404


async def test_a_rejected_answer_does_not_count_against_the_budget(tmp_path: Path) -> None:
    rejected = Outcome.REJECTED
    limits = Limits(day=FEE)
    async with staged(tmp_path, answering("Hi", rejected), outcome=rejected, limits=limits) as stage:
        for _ in range(3):
            assert (await stage.post(troth={"wait": "verdict"})).json()["error"]["code"] == "answer_rejected"


def with_logprobs(signed: SignedOrder) -> list[Any]:
    """An honest stream in which the likeliest token was chosen each time."""
    lines = answering("Hello")(signed)
    for line in lines:
        if line["type"] == "token" and signed.logprobs >= 0:
            line |= {"logprob": -0.5, "top": [[line["id"], -0.5]][: signed.logprobs]}
    return lines


async def test_log_probabilities_in_both_forms(tmp_path: Path) -> None:
    async with staged(tmp_path, with_logprobs) as stage:
        chat = (await stage.post(logprobs=True, top_logprobs=1, stop="lo")).json()["choices"][0]
        assert [one["token"] for one in chat["logprobs"]["content"]] == ["H", "e", "l"]
        assert chat["logprobs"]["content"][0]["top_logprobs"] == [{"token": "H", "logprob": -0.5, "bytes": [72]}]
        raw = (await stage.post("/v1/completions", prompt="x", logprobs=1, max_tokens=9)).json()["choices"][0]
        assert raw["logprobs"] == {
            "tokens": list("Hello"),
            "token_logprobs": [-0.5] * 5,
            "top_logprobs": [{letter: -0.5} for letter in "Hello"],
            "text_offset": [0, 1, 2, 3, 4],
        }
        chunks = said((await stage.post(logprobs=True, stream=True)).text)[:-1]
        streamed = [one["choices"][0]["logprobs"] for one in chunks]
        assert [entry["token"] for one in streamed if one for entry in one["content"]] == list("Hello")
        assert (await stage.post()).json()["choices"][0]["logprobs"] is None


async def test_log_probabilities_that_no_node_serves_are_null(tmp_path: Path) -> None:
    async with staged(tmp_path, answering("Hello")) as stage:
        assert (await stage.post(logprobs=True)).json()["choices"][0]["logprobs"] is None


async def test_a_reader_that_leaves_is_noted_and_the_order_goes_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with staged(tmp_path, answering("Hello!", before=4, gate=gate)) as stage:
        for stream in (True, False):
            gate.clear()
            await _leave_early(stage, stream=stream)
            gate.set()
            await eventually(lambda: not stage.running.gateway.intake._orders.running())
        identifiers = [row for (row,) in stage.running.gateway.ledger._execute("SELECT id FROM completions").fetchall()]
        receipts = [(await stage.get(f"/v1/receipts/{one}")).json() for one in identifiers]
        assert ["left before the end" in (one["note"] or "") for one in receipts] == [True, True]
        assert [one["outcome"] for one in receipts] == ["accepted", "accepted"]


async def _leave_early(stage: Staged, *, stream: bool) -> None:
    before = stage.running.gateway.metrics.gone._value.get()
    asking = asyncio.create_task(stage.post(stream=stream))
    await eventually(lambda: len(stage.running.gateway.intake._orders.running()) == 1)
    asking.cancel()
    await eventually(lambda: stage.running.gateway.metrics.gone._value.get() == before + 1)


async def test_draining_lets_a_stream_end_and_takes_nothing_more(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with staged(tmp_path, answering("Hello!", before=4, gate=gate)) as stage:
        asking = asyncio.create_task(stage.post(stream=True))
        await eventually(lambda: len(stage.api.orders) == 1)
        draining = asyncio.create_task(stage.running.gateway.drain())
        await eventually(lambda: stage.running.gateway.stopping)
        refused = await stage.post()
        assert (refused.status_code, refused.json()["error"]["troth"]["hop"]) == (503, "gateway")
        assert (await stage.get("/readyz")).json() == {"ready": False, "reasons": ["the gateway is stopping"]}
        assert not draining.done()
        gate.set()
        assert said((await asking).text)[-1] == "[DONE]"
        await draining


async def test_models_answer_to_several_names(tmp_path: Path) -> None:
    async with staged(tmp_path, answering("Hi")) as stage:
        (model,) = (await stage.get("/v1/models")).json()["data"]
        assert (model["id"], model["object"], model["owned_by"]) == ("toy", "model", "troth")
        assert model["troth"]["fee_wei"] == str(FEE)
        for name in (model["id"], model["troth"]["execution_class"], model["troth"]["family"]):
            assert (await stage.get(f"/v1/models/{name}")).json()["id"] == "toy"
            assert (await stage.post(model=name)).json()["model"] == "toy"
        missing = (await stage.get("/v1/models/gpt-4o")).json()["error"]
        assert missing["code"] == "model_not_found"
        assert (await stage.get("/v1/nothing")).json()["error"]["type"] == "invalid_request_error"
