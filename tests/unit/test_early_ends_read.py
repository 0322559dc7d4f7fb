"""The gateway ends an answer when its reader leaves or a stop is met, and delivers what it had by then."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.toy_tab_gateway import MESSAGES, TabGateway, said, tab_gateway
from support.waiting import eventually
from unit.test_early_ends import held_open

from troth.client.gateway import application, completion
from troth.client.gateway.ledger import today
from troth.client.orders.session import TabContext


async def whole_answer(stage: TabGateway) -> str:
    return str((await stage.post()).json()["choices"][0]["message"]["content"])


async def test_the_gateway_orders_nothing_for_a_reader_that_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "READER_SECONDS", 0.05)
    async with tab_gateway(tmp_path, keep_alive=0.05) as stage:
        session, gateway = stage.stage.session, stage.gateway.gateway
        place, placed, left, asked = session.open_tab_context, asyncio.Event(), asyncio.Event(), []

        async def placing(tab_context: TabContext, **options: Any) -> Any:
            # The first look is for the price, before the request is taken in.
            asked.append(tab_context)
            if len(asked) > 1:
                placed.set()
                await left.wait()
            return await place(tab_context, **options)

        session.open_tab_context = placing  # type: ignore[method-assign]
        async with stage.client as client:
            wanted = {"model": "toy-float32", "messages": MESSAGES, "max_tokens": 64}
            asking = asyncio.create_task(client.post("/v1/chat/completions", json=wanted))
            await placed.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        assert gateway.ledger.spent(today()) > 0
        await eventually(lambda: not gateway.delivered)
        left.set()
        await eventually(lambda: gateway.ledger.spent(today()) == 0)
        assert "order" not in stage.stage.scheduler.calls_of
        assert session.journal.all() == []
        assert await whole_answer(stage) == "hello world", "its place is free"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_costs_no_more_once_its_stop_is_met(tmp_path: Path, stream: bool) -> None:
    async with tab_gateway(tmp_path) as stage:
        scheduler = stage.stage.scheduler
        scheduler.writes, scheduler.tamper = 7, held_open(scheduler)
        answer = await stage.post(
            stop=["lo"], stream=stream, stream_options={"include_usage": True} if stream else None
        )
        pieces = said(answer.text)[:-1] if stream else [answer.json()]
        choices = [one["choices"][0] for one in pieces if one["choices"]]
        assert choices[-1]["finish_reason"] == "stop"
        # Not what all of it might have cost.
        usage = next(one["usage"] for one in reversed(pieces) if one.get("usage"))
        assert usage["cost_units"] == str(stage.stage.session.journal.all()[0].fee)
        await eventually(lambda: stage.stage.session.journal.all()[0].fee)
        (entry,) = stage.stage.session.journal.all()
        assert len(json.loads(entry.evidence["tokens"])) == 7 < len(scheduler.answer)
        assert scheduler.calls_of.count("end") == 1


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
async def test_the_last_text_before_a_stop_is_read_before_its_cost_is_known(
    tmp_path: Path, path: str, usage: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "COUNTED_SECONDS", 60.0)
    async with tab_gateway(tmp_path) as stage:
        scheduler, signing = stage.stage.scheduler, asyncio.Event()
        scheduler.writes, scheduler.tamper = 7, lambda _one, lines: [*lines[:-2], signing, *lines[-2:]]
        question = {"prompt": "hello"} if path == "/v1/completions" else {"messages": MESSAGES}
        asked = {"model": "toy-float32", "max_tokens": 64, "stream": True} | question
        # The blank is held back until the letter after it shows that it belongs to no stop, and is one itself.
        asked |= {"stop_sequences" if path == "/v1/messages" else "stop": [" wx", "w"]}
        whole = " " if path == "/v1/completions" else "hello "
        if usage and path != "/v1/messages":
            asked["stream_options"] = {"include_usage": True}
        text = ""
        async with asyncio.timeout(20), stage.client as client, client.stream("POST", path, json=asked) as answer:
            async for piece in answer.aiter_text():
                text += piece
                if shown_of(text) == whole:
                    signing.set()
        assert shown_of(text) == whole
        (entry,) = stage.stage.session.journal.all()
        assert f'"cost_units":"{entry.fee}"' in text


def shown_of(stream: str) -> str:
    """The text of a stream's whole events, in whichever interface's form."""
    found = []
    for one in said(stream[: stream.rfind("\n\n") + 2]):
        inside = one.get("choices") if isinstance(one, dict) else None
        choice = inside[0] if inside else one if isinstance(one, dict) else {}
        delta = choice.get("delta") or {}
        found.append(choice.get("text") or delta.get("content") or delta.get("text") or "")
    return "".join(found)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reader_that_leaves_pays_for_no_more(
    tmp_path: Path, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "READER_SECONDS", 0.05)
    async with tab_gateway(tmp_path) as stage:
        scheduler = stage.stage.scheduler
        scheduler.writes, scheduler.tamper = 3, held_open(scheduler)
        asked = {"model": "toy-float32", "messages": MESSAGES, "max_tokens": 64, "stream": stream}
        async with stage.client as client:
            if stream:
                async with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
                    async for line in answer.aiter_lines():
                        if "hel" in line or "l" in line:
                            break
            else:
                with pytest.raises(httpx.ReadTimeout):
                    await client.post("/v1/chat/completions", json=asked, timeout=0.5)
        await eventually(lambda: "end" in scheduler.calls_of)
        await eventually(lambda: stage.stage.session.journal.all()[0].fee)
        (entry,) = stage.stage.session.journal.all()
        assert len(json.loads(entry.evidence["tokens"])) == 3
