"""A gateway in direct mode, over real sockets, before nodes that do as they like."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.client_stage import DOMAIN, FAILED_LINE
from support.direct_client_stage import (
    NODES,
    OFFER,
    STRANGER,
    TOKENS,
    DirectGateway,
    Lines,
    candidates,
    direct_gateway,
    direct_lines,
    served_line,
    verifiers,
)
from support.gateway_session import said
from support.waiting import eventually

from troth.client import asking
from troth.client.gateway.ledger import Ledger, today
from troth.client.ordering import SignedOrder
from troth.client.receipts import Receipts
from troth.protocol.request import output_hash
from troth.protocol.settlement import Outcome

HELLO = [{"role": "user", "content": "hello"}]
FALSE = [*TOKENS[:-2], 1, TOKENS[-1]]


def spoken(answer: str, *more: str) -> list[dict[str, str]]:
    """The next turn of the conversation."""
    return [*HELLO, {"role": "assistant", "content": answer}, *({"role": "user", "content": one} for one in more)]


async def receipt(stage: DirectGateway, identifier: str) -> dict[str, Any]:
    found: dict[str, Any] = (await stage.get(f"/v1/receipts/{identifier}")).json()
    return found


async def settled(stage: DirectGateway) -> None:
    await eventually(lambda: not stage.running.gateway.intake._orders.running())


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_and_receipt_say_which_node_served(tmp_path: Path, stream: bool) -> None:
    async with direct_gateway(tmp_path) as stage:
        answer = await stage.chat(HELLO, stream=stream)
        body = said(answer.text)[-2] if stream else answer.json()
        (signed,) = stage.nodes.signed.values()
        assert body["troth"]["served_by"] == candidates(signed)[0]
        found = await receipt(stage, body["id"])
        assert found["tasks"][0]["served_by"] == candidates(signed)[0]
        assert (found["tasks"][0]["checked"], found["tasks"][0]["answer"]) == (True, "Hello!")
        assert (await stage.get("/v1/paths")).json()["mode"] == "direct"
        await settled(stage)
        assert (await receipt(stage, body["id"]))["outcome"] == "accepted"


async def test_tokens_come_as_the_node_sends_them(tmp_path: Path) -> None:
    gate = asyncio.Event()

    def script(signed: SignedOrder) -> Lines:
        lines = direct_lines(signed)
        lines.insert(5, gate)
        return lines

    async with direct_gateway(tmp_path) as stage, stage.client as client:
        stage.nodes.script = script
        body = {"model": "toy", "messages": HELLO, "stream": True, "max_tokens": 64}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            text = ""
            while '"l"' not in text:
                text += await anext(lines)
            assert '"stop"' not in text
            gate.set()
            rest = [line async for line in lines]
        assert "data: [DONE]" in rest


async def test_a_conversation_goes_on_where_it_was_served_and_another_does_not(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        for turn in range(4):
            stage.nodes.entered.clear()
            await stage.chat([{"role": "user", "content": f"question {turn}"}])
            signed = list(stage.nodes.signed.values())[-1]
            messages = [
                {"role": "user", "content": f"question {turn}"},
                {"role": "assistant", "content": "Hello!"},
                {"role": "user", "content": "go on"},
            ]
            await stage.chat(messages)
            assert stage.nodes.entered[1] == candidates(signed)[0]
            await settled(stage)
        stage.nodes.entered.clear()
        for number in range(16):
            await stage.chat([{"role": "user", "content": f"anew {number}"}])
            await settled(stage)
        # The same one sixteen times over: once in 10**12 runs.
        assert len(set(stage.nodes.entered)) > 1


async def test_a_cut_answer_is_recognised_as_its_reader_sends_it_back(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        body = (await stage.chat(HELLO, stop=["o"])).json()
        assert body["choices"][0]["message"]["content"] == "Hell"
        await settled(stage)
        (signed,) = stage.nodes.signed.values()
        await stage.chat(spoken("Hell", "on"))
        assert stage.nodes.entered[-1] == candidates(signed)[0]


async def test_a_node_that_is_no_longer_listed_is_not_entered(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        await stage.chat(HELLO)
        (signed,) = stage.nodes.signed.values()
        await settled(stage)
        stage.nodes.listed.discard(candidates(signed)[0])
        assert (await stage.chat(spoken("Hello!", "on"))).status_code == 200
        assert stage.nodes.entered[-1] != candidates(signed)[0]


async def test_a_node_that_failed_is_forgotten(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        await stage.chat(HELLO)
        (signed,) = stage.nodes.signed.values()
        await settled(stage)
        node = candidates(signed)[0]
        stage.nodes.scripts[node] = lambda one: [*direct_lines(one)[:4], ...]
        broken = await stage.chat(spoken("Hello!", "on"))
        error = broken.json()["error"]
        assert (stage.nodes.entered[-1], error["troth"]["hop"]) == (node, "node")
        assert (error["troth"]["charged"], broken.headers["x-should-retry"]) == (True, "false")
        for _ in range(4):
            assert (await stage.chat(spoken("Hello!", "on"))).status_code == 200
            assert stage.nodes.entered[-1] != node
            await settled(stage)
        assert stage.sessions == 1, "one node's failure costs no new circuits"


async def test_a_node_whose_answer_was_rejected_is_forgotten(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.outcome = Outcome.REJECTED
        await stage.chat(HELLO)
        await settled(stage)
        assert len(stage.running.gateway.intake._affinity) == 0


async def test_an_answer_that_was_made_up_in_a_node_s_place_is_caught_at_the_commit(tmp_path: Path) -> None:
    """With a hash that fits the made-up tokens, as a careful liar would."""
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.script = lambda signed: direct_lines(signed, FALSE, served=None)
        waited = await stage.chat(HELLO, troth={"wait": "verdict"})
        error = waited.json()["error"]
        assert (waited.status_code, error["code"], error["troth"]["hop"]) == (502, "node_contradicted", "node")
        assert error["troth"]["charged"] is True, "the chain accepted the true answer, which the receipt fetches"
        assert waited.headers["x-should-retry"] == "false"
        at_once = (await stage.chat(HELLO)).json()
        assert at_once["troth"]["served_by"] is None
        await settled(stage)
        found = await receipt(stage, at_once["id"])
        assert (found["tasks"][0]["answer"], found["tasks"][0]["checked"]) == ("Hello!", True)
        assert "not the one that was sent" in found["tasks"][0]["failure"]
        assert len(stage.running.gateway.intake._affinity) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_made_up_under_the_true_hash_is_caught_at_its_end(
    tmp_path: Path, stream: bool
) -> None:
    def script(signed: SignedOrder) -> Lines:
        lines = direct_lines(signed, FALSE, served=None)
        end = next(line for line in lines if line["type"] == "finished")
        end["output_hash"] = "0x" + output_hash(signed.salt, TOKENS).hex()
        return lines

    async with direct_gateway(tmp_path) as stage:
        stage.nodes.script, stage.nodes.outcome = script, None
        answer = await stage.chat(HELLO, stream=stream)
        error = (said(answer.text)[-1] if stream else answer.json())["error"]
        assert (error["code"], error["troth"]["charged"]) == ("node_contradicted", "unknown")


async def test_an_entry_that_keeps_the_signature_back_changes_nothing_but_the_name(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.script = lambda signed: direct_lines(signed, served=None)
        body = (await stage.chat(HELLO, troth={"wait": "verdict"})).json()
        assert (body["troth"]["outcome"], body["troth"]["served_by"]) == ("accepted", None)
        assert body["choices"][0]["message"]["content"] == "Hello!"
        assert (await receipt(stage, body["id"]))["tasks"][0]["served_by"] is None
        assert stage.running.gateway.intake._affinity.near(spoken("Hello!", "on")) is None


def verifier(signed: SignedOrder) -> Any:
    return served_line(signed, TOKENS, verifiers(signed)[0])


def stranger(signed: SignedOrder) -> Any:
    return served_line(signed, TOKENS, STRANGER.address, by=STRANGER)


@pytest.mark.parametrize("accomplice", [verifier, stranger])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_accomplice_s_signature_in_place_of_the_node_s_is_refused(
    tmp_path: Path, accomplice: Any, stream: bool
) -> None:
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.script = lambda signed: direct_lines(signed, served=accomplice(signed))
        answer = await stage.chat(HELLO, stream=stream)
        error = (said(answer.text)[-1] if stream else answer.json())["error"]
        assert (error["code"], error["troth"]["hop"]) == ("node_contradicted", "node")
        assert error["troth"]["retry_free"] is False
        receipts = Receipts(stage.home.receipts, DOMAIN)
        assert receipts.all()[0].served_by is None
        receipts.close()


@pytest.mark.parametrize("before", [0, 4], ids=["from the beginning", "in the middle"])
async def test_an_entry_that_stalls_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr(asking, "TOKEN_SILENCE_SECONDS", 1.0)
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.script, stage.nodes.outcome = lambda signed: [*direct_lines(signed)[:before], None], None
        answer = await stage.chat(HELLO)
        error = answer.json()["error"]
        assert (error["troth"]["hop"], error["troth"]["charged"]) == ("node", "unknown")
        assert error["troth"]["retry_free"] is False
        (stalled,) = stage.nodes.entered
        stage.nodes.script, stage.nodes.outcome = direct_lines, Outcome.ACCEPTED
        for _ in range(3):
            assert (await stage.chat(HELLO)).status_code == 200
            await settled(stage)
        assert stalled not in stage.nodes.entered[1:]


async def test_a_stream_lost_after_the_answer_leaves_the_verdict_to_the_chain(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.script = lambda signed: [*direct_lines(signed)[:-3], ...]
        body = (await stage.chat(HELLO, troth={"wait": "verdict"})).json()
        assert (body["troth"]["outcome"], body["usage"]["cost_wei"]) == ("accepted", str(OFFER.fee))


async def test_a_silent_scheduler_behind_a_node_may_still_charge(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.refusing = dict.fromkeys(NODES, (502, "scheduler_away"))
        answer = await stage.chat(HELLO)
        error = answer.json()["error"]
        assert (error["troth"]["hop"], error["troth"]["charged"]) == ("scheduler", "unknown")
        assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(("status", "code"), [(503, "busy"), (402, "insufficient_escrow"), (409, "other_split")])
async def test_that_an_order_was_refused_is_a_node_s_word_and_may_cost(tmp_path: Path, status: int, code: str) -> None:
    """A node could have the order served, by itself too, and say that it was refused: each retry would be paid."""
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.refusing = dict.fromkeys(NODES, (status, code))
        answer = await stage.chat(HELLO)
        error = answer.json()["error"]
        assert (error["troth"]["charged"], error["troth"]["retry_free"]) == ("unknown", False)
        assert answer.headers["x-should-retry"] == "false"
        # The fee counts against the budget until the chain has decided, or can no longer open the task.
        with closing(Ledger(stage.home.gateway_ledger)) as ledger:
            assert ledger.spent(today()) == OFFER.fee


async def test_no_node_to_enter_costs_nothing(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        stage.nodes.dead = set(NODES)
        answer = await stage.chat(HELLO)
        error = answer.json()["error"]
        assert (answer.status_code, error["troth"]["hop"], error["troth"]["charged"]) == (502, "node", False)
        assert error["troth"]["retry_free"] is True
        assert stage.nodes.entered == []


async def test_a_scheduler_s_refusal_keeps_its_word_and_shuns_nobody(tmp_path: Path) -> None:
    async with direct_gateway(tmp_path) as stage:
        await stage.chat(HELLO)
        await settled(stage)
        (signed,) = stage.nodes.signed.values()
        node = candidates(signed)[0]
        stage.nodes.scripts[node] = lambda one: [direct_lines(one)[0], FAILED_LINE]
        error = (await stage.chat(spoken("Hello!", "on"))).json()["error"]
        assert (error["code"], error["troth"]["hop"]) == ("busy", "scheduler")
        del stage.nodes.scripts[node]
        await stage.chat(spoken("Hello!", "on"))
        assert stage.nodes.entered[-2:] == [node, node]
