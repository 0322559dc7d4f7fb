"""The gateway on tabs: nothing changes for programs, costs are by tokens, and refusals say what is missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.toy_market import CLASS_ID, PARAMETERS
from support.toy_tab_gateway import MESSAGES, TabGateway, said, tab_gateway
from support.waiting import eventually

from troth.client.gateway import questions
from troth.client.gateway.guard import SpendingLimits
from troth.client.orders.wishes import PriceLimit
from troth.protocol.market.signed import Opinion

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def openai(stage: TabGateway) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=stage.gateway.base_url, api_key=stage.gateway.access.key, max_retries=0)


@pytest.mark.slow
async def test_the_openai_package_asks_streams_and_reads_the_cost(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        client = openai(stage)
        (model,) = (await client.models.list()).data
        assert model.id == "toy-float32"
        answer = await client.chat.completions.create(model=model.id, messages=MESSAGES, max_tokens=64)  # type: ignore[arg-type]
        assert answer.choices[0].message.content == "hello world"
        assert answer.choices[0].finish_reason == "stop"
        usage = answer.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == 3
        assert usage.completion_tokens == 12
        entry = stage.stage.session.journal.all()[0]
        assert usage.cost_units == str(entry.fee)  # type: ignore[attr-defined]
        assert usage.cost == entry.fee / 10**6  # type: ignore[attr-defined,operator]
        streamed = await client.chat.completions.create(
            model=model.id,
            messages=MESSAGES,  # type: ignore[arg-type]
            max_tokens=64,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in streamed]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hello world"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.prompt_tokens_details is not None
        completed = await client.completions.create(model=model.id, prompt="hel", max_tokens=64)
        assert completed.choices[0].text == "lo world"
        await client.close()


@pytest.mark.slow
async def test_models_show_pricing_as_openrouter_does(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        (model,) = (await stage.get("/v1/models")).json()["data"]
        assert model["pricing"] == {
            "prompt": "0.00000109",
            "completion": "0.00000209",
            "input_cache_read": "0.00000019",
        }
        assert model["troth"]["execution_class"] == "0x" + CLASS_ID.hex()
        assert (await stage.get("/v1/models/other")).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropics_programs_read_at_which_stop_an_answer_ended(stream: bool, tmp_path: Path) -> None:
    """An agent goes on where its own stop was met, and takes any other end for the answer's."""
    async with tab_gateway(tmp_path) as stage:
        asked = {"model": "toy-float32", "max_tokens": 64, "messages": MESSAGES, "stop_sequences": ["xyz", "wor"]}
        answer = await stage.post("/v1/messages", **asked, stream=stream)
        if stream:
            (ended,) = (one for one in said(answer.text) if one.get("type") == "message_delta")
            found = ended["delta"]
        else:
            assert answer.json()["content"][0]["text"] == "hello "
            found = answer.json()
        assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", "wor")


async def test_always_checks_and_waiting_holds_the_end_until_it_is_done(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        body = {"check": "always", "wait": "verdict"}
        answer = (await stage.post(troth=body)).json()
        assert answer["troth"]["outcome"] == "checked"
        assert stage.stage.scheduler.checks == 1
        receipt = (await stage.get(f"/v1/receipts/{answer['id']}")).json()
        assert receipt["outcome"] == "checked"
        (order,) = receipt["tasks"]
        assert (order["checked"], order["acknowledged"], order["answer"]) == (True, True, "hello world")
        assert receipt["cost_units"] == answer["usage"]["cost_units"] == order["paid_units"]


async def test_a_wrong_check_is_refused_by_name(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        refused = await stage.post(troth={"check": "sometimes"})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "troth.check"


@pytest.mark.parametrize("stream", [False, True])
async def test_who_waits_is_told_of_a_rejection_and_that_nothing_is_paid(stream: bool, tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, check="always") as stage:
        stage.stage.scheduler.node_noise, stage.stage.scheduler.opinion = 1.0, Opinion.REJECT
        answer = await stage.post(troth={"wait": "verdict"}, stream=stream)
        error = said(answer.text)[-1]["error"] if stream else answer.json()["error"]
        assert error["code"] == "answer_rejected"
        assert (error["troth"]["outcome"], error["troth"]["cost_units"]) == ("rejected", "0")
        assert "troth client case" in error["troth"]["advice"][0]


async def test_a_tab_that_is_short_is_402_with_the_shortfall_and_the_command(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, options={"deposit": 100}) as stage:
        refused = await stage.post()
        assert refused.status_code == 402
        error = refused.json()["error"]
        assert error["type"] == "insufficient_quota"
        assert int(error["troth"]["shortfall_units"]) > 0
        assert error["troth"]["command"].startswith("troth client top-up 0x")
        assert not stage.stage.session.journal.all()


async def test_a_shortfall_that_only_the_scheduler_knows_is_402_too(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        stage.stage.scheduler.refusing = {"code": "tab_short", "message": "short", "shortfall": "5", "status": 402}
        refused = await stage.post()
        assert refused.status_code == 402
        assert refused.json()["error"]["troth"]["shortfall_units"] == "5"


async def test_no_tab_says_how_to_open_one(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, options={"schedulers": 0}) as stage:
        refused = await stage.post()
        assert refused.status_code == 402
        assert "troth client open" in refused.json()["error"]["message"]


@pytest.mark.slow
async def test_limits_of_cost_price_and_day_are_kept(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path / "a", limits=SpendingLimits(request=10)) as stage:
        assert (await stage.post()).json()["error"]["code"] == "cost_limit_exceeded"
    async with tab_gateway(tmp_path / "b", price=PriceLimit(10**9, 10**9)) as stage:
        assert "--max-price" in (await stage.post()).json()["error"]["message"]
    async with tab_gateway(tmp_path / "c", limits=SpendingLimits(day=300)) as stage:
        assert (await stage.post()).status_code == 200
        codes = [(await stage.post()).status_code for _ in range(4)]
        assert 402 in codes


@pytest.mark.slow
async def test_one_tab_serves_many_requests_at_once(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, options={"stall": 300}) as stage:
        answers = await asyncio.gather(*(stage.post(n=2) for _ in range(8)))
        assert [answer.status_code for answer in answers] == [200] * 8
        numbers = sorted(entry.sequence for entry in stage.stage.session.journal.all())
        assert numbers == list(range(1, 17))


async def test_an_answer_that_breaks_off_goes_on_at_the_second_tab_in_the_same_stream(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, check="always", options={"schedulers": 2}) as stage:
        first, second = stage.stage.schedulers
        first.tamper = lambda _one, lines: lines[:6]
        events = said((await stage.post(stream=True, troth={"wait": "verdict"})).text)
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1] if event["choices"])
        assert text == "hello world"
        identifier = events[0]["id"]
        orders = (await stage.get(f"/v1/receipts/{identifier}")).json()["tasks"]
        assert [order["state"] for order in orders] == ["admitted", "checked"]
        assert len(second.served) == 1


async def test_a_scheduler_that_lies_is_a_502_and_costs_nothing(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        stage.stage.scheduler.tamper = lambda _one, lines: [lines[1], *lines]
        refused = await stage.post()
        assert refused.status_code == 502
        error = refused.json()["error"]
        assert (error["code"], error["troth"]["charged"]) == ("scheduler_contradicted", False)


@pytest.mark.slow
async def test_undrawn_answers_are_paid_after_the_lag_by_the_gateway_itself(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path) as stage:
        for _ in range(3):
            await stage.post()
        stage.stage.world.block += PARAMETERS.lag
        toy = stage.stage.scheduler
        await eventually(lambda: not toy.books[stage.stage.tab].exposure and len(toy.served) == 3)
        assert toy.books[stage.stage.tab].payable == stage.stage.book().spent


async def test_nothing_of_prompt_or_answer_is_in_metrics(tmp_path: Path) -> None:
    async with tab_gateway(tmp_path, with_key=False) as stage:
        await stage.post()
        metrics = (await stage.get("/metrics")).text
        assert "troth_gateway_answers" in metrics
        assert "hello" not in metrics
        body: Any = (await stage.get("/readyz")).text
        assert "hello" not in json.dumps(body)


async def test_an_error_that_nobody_foresaw_is_told_to_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that hears nothing would wait for ever; what it costs is then unknown, and its place is free again."""

    async def broken(*arguments: object) -> AsyncGenerator[object, None]:
        if arguments:
            raise KeyError("what nobody foresaw")
        yield

    async with tab_gateway(tmp_path) as stage:
        monkeypatch.setattr(questions, "ask", broken)
        async with asyncio.timeout(30):
            refused = await stage.post()
        assert refused.status_code == 500
        error = refused.json()["error"]
        assert (error["code"], error["troth"]["hop"], error["troth"]["charged"]) == ("unforeseen", "gateway", "unknown")
        monkeypatch.undo()
        assert (await stage.post()).status_code == 200
