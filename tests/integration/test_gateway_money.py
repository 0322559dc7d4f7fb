"""A real gateway process and the wallet behind it: what is paid, what is not, and what stays after a restart."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from support.client_network import CheatingNode, client_side, network, toy_answer
from support.gateway_stage import MESSAGES, MODEL, QUESTION, events, serving_gateway
from support.waiting import eventually

from troth.protocol.calls.views import escrow_of

pytestmark = [pytest.mark.chain, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_receipts_stay_over_a_kill_and_a_restart(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, scheduler):
        side = client_side(scene, tmp_path / "home", scene.client)
        before = await scene.chain.read(escrow_of(side.address))
        async with serving_gateway(side) as gateway:
            answer = (await gateway.chat()).json()
            assert answer["troth"]["outcome"] == "pending"
            # Killed while the answer is being verified: nobody writes down the verdict.
            gateway.process.kill()
            await gateway.process.wait()
            key = gateway.key
        await eventually(lambda: not scheduler.desk.journal.unfinished())
        async with serving_gateway(side) as gateway:
            assert gateway.key == key
            receipt = await gateway.receipt(answer["id"])
            (task,) = receipt["tasks"]
            assert (receipt["outcome"], task["paid_wei"]) == ("accepted", str(scene.fee))
            assert (task["answer"], task["checked"]) == (toy_answer(QUESTION, 4), True)
            missing = await gateway.get("/v1/receipts/chatcmpl-0123")
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "receipt_not_found")
        assert before - await scene.chain.read(escrow_of(side.address)) == scene.fee


async def test_too_small_a_balance_names_shortfall_and_command(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, scheduler):
        side = client_side(scene, tmp_path / "home", deployed.anvil.keys[6])
        await side.run("deposit", f"{scene.fee - 7}wei", "--broadcast")
        async with serving_gateway(side) as gateway:
            for stream in (False, True):
                short = await gateway.chat(stream=stream)
                error = short.json()["error"]
                assert (short.status_code, error["code"], error["type"]) == (
                    402,
                    "insufficient_balance",
                    "insufficient_quota",
                )
                assert error["troth"]["shortfall_wei"] == "7"
            assert scheduler.desk.journal.unfinished() == []
            # The command is taken as it stands, and then the same request is served.
            await side.run(*error["troth"]["command"].split()[2:])
            assert (await gateway.chat()).status_code == 200


async def test_a_rejected_answer_is_an_error_that_costs_nothing(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path, node=CheatingNode) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        before = await scene.chain.read(escrow_of(side.address))
        async with serving_gateway(side, "--wait", "verdict") as gateway:
            answer = await gateway.chat(stream=True)
            last = events(answer.text)[-1]
            assert last["error"]["code"] == "answer_rejected"
            assert last["error"]["troth"]["charged"] is False
            assert ": keep-alive" in answer.text
        assert await scene.chain.read(escrow_of(side.address)) == before


async def test_repeated_requests_are_orders_of_their_own_and_no_more(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        before = await scene.chain.read(escrow_of(side.address))
        async with serving_gateway(side, "--budget", f"{2 * scene.fee}wei") as gateway:
            answers = await asyncio.gather(*(gateway.chat(seed=1) for _ in range(4)))
            codes = sorted(one.status_code for one in answers)
            assert codes == [200, 200, 402, 402]
            refused = next(one.json()["error"] for one in answers if one.status_code == 402)
            assert refused["code"] == "budget_exceeded"
            served = [one.json() for one in answers if one.status_code == 200]
            assert len({one["troth"]["task"] for one in served}) == 2
            for one in served:
                assert (await gateway.receipt(one["id"]))["outcome"] == "accepted"
        assert before - await scene.chain.read(escrow_of(side.address)) == 2 * scene.fee


async def test_a_reader_that_leaves_pays_for_the_answer_and_finds_it(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        async with serving_gateway(side) as gateway:
            body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 40, "stream": True}
            async with gateway.client as client, client.stream("POST", "/v1/chat/completions", json=body) as answer:
                identifier = events(await anext(answer.aiter_text()))[0]["id"]
            receipt = await gateway.receipt(identifier)
            assert receipt["outcome"] == "accepted"
            assert receipt["tasks"][0]["answer"] == toy_answer(QUESTION, 40)


async def test_a_stop_signal_lets_a_stream_end(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        side = client_side(scene, tmp_path / "home", scene.client)
        for node in scene.nodes:
            node.faults.drips = 0.02
        async with serving_gateway(side) as gateway:
            body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 30, "stream": True}
            async with gateway.client as client, client.stream("POST", "/v1/chat/completions", json=body) as answer:
                pieces = answer.aiter_text()
                text = await anext(pieces)
                gateway.process.send_signal(signal.SIGTERM)
                text += "".join([piece async for piece in pieces])
            assert events(text)[-1] == "[DONE]"
            errors = (await gateway.stop()).decode()
            assert gateway.process.returncode == 0
            # Questions and answers are in no log.
            assert "word7" not in errors
            assert "Traceback" not in errors
