"""A real gateway process and the tab behind it: what is paid, what is not, and what stays after a restart."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.client_network import ClientSide, Network, client_side, network, toy_answer
from support.gateway_stage import MESSAGES, MODEL, QUESTION, events, serving_gateway
from support.tabs_stage import PARAMETERS
from support.waiting import SECONDS, eventually, leases_end

from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.signed import Opinion

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(anvil, tmp_path_factory.mktemp("money")) as made:
        yield made


async def test_receipts_stay_over_a_kill_and_a_restart(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    with scene.still():
        async with serving_gateway(side, "--check", "always") as gateway:
            answer = (await gateway.chat()).json()
            # Killed before the answer is paid, or after: what is owed is paid once.
            gateway.process.kill()
            await gateway.process.wait()
            key = gateway.key
        leases_end(side.home)
        async with serving_gateway(side) as gateway:
            assert gateway.key == key
            receipt = await gateway.receipt(answer["id"])
            (order,) = receipt["tasks"]
            assert (receipt["outcome"], order["answer"]) == ("checked", toy_answer(QUESTION, 4))
            assert order["paid_units"] == answer["troth"]["cost_units"]
            missing = await gateway.get("/v1/receipts/chatcmpl-0123")
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "receipt_not_found")
    assert side.book.spent == int(answer["troth"]["cost_units"])


@pytest.mark.parametrize(
    ("blocks", "outcome"),
    [(DRAW_AGE + 1, "checked"), (PARAMETERS.lag + 1, "check refused")],
    ids=["in time", "too late"],
)
async def test_killed_before_the_draw_it_is_drawn_afresh_or_not_acknowledged(
    scene: Network, blocks: int, outcome: str, tmp_path: Path
) -> None:
    """Within half of the lag a fresh draw decides; later no secret counts, and nobody is doubted for that."""
    side = await client_side(scene, tmp_path / "home")
    with scene.still():
        identifier = await _killed_under_way(scene, side)
        (history,) = side.orders
        await eventually(lambda: history.drawn is not None)
        leases_end(side.home)
        await scene.pass_by(blocks)
        async with serving_gateway(side) as gateway:
            receipt = await gateway.receipt(identifier)
            assert receipt["outcome"] == outcome
            assert receipt["tasks"][0]["answer"] == toy_answer(QUESTION, 20)
            assert side.book.spent == (history.answered.fee if outcome == "checked" else 0)
            again = await gateway.chat()
            assert again.status_code == 200, again.text


async def _killed_under_way(scene: Network, side: ClientSide) -> str:
    """A gateway that dies under its first tokens; the completion's id."""
    scene.drip(0.1)
    try:
        async with serving_gateway(side, "--check", "always") as gateway:
            body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 20, "stream": True}
            async with gateway.client as client, client.stream("POST", "/v1/chat/completions", json=body) as answer:
                identifier = events(await anext(answer.aiter_text()))[0]["id"]
                gateway.process.kill()
                await gateway.process.wait()
    finally:
        scene.drip(0)
    return str(identifier)


async def test_a_tab_that_is_short_names_shortfall_and_command(scene: Network, tmp_path: Path) -> None:
    most = await most_of(scene, tmp_path)
    side = await client_side(scene, tmp_path / "home", deposit=most - 7)
    async with serving_gateway(side, "--check", "always") as gateway:
        for stream in (False, True):
            short = await gateway.chat(stream=stream)
            error = short.json()["error"]
            found = (short.status_code, error["code"], error["type"])
            assert found == (402, "insufficient_balance", "insufficient_quota")
            assert error["troth"]["shortfall_units"] == "7"
        assert side.book.sequence == 0
        # The command is taken as it stands, and then the same request is served.
        topped = await side.run(*error["troth"]["command"].split()[2:])
        assert topped.code == 0, topped.err
        await eventually(lambda: side.state.balance == most)
        async with asyncio.timeout(SECONDS):
            while (await gateway.chat()).status_code != 200:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)


async def most_of(scene: Network, folder: Path) -> int:
    """What the requests of these tests may cost, as a refused one says."""
    side = await client_side(scene, folder / "asking")
    async with serving_gateway(side, "--max-cost", "1units", "--check", "always") as gateway:
        refused = await gateway.chat()
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (402, "cost_limit_exceeded")
        assert error["troth"] == {"remedy": error["troth"]["remedy"], "charged": False, "retry_free": True}
        assert side.book.sequence == 0
    async with serving_gateway(side, "--check", "always") as gateway:
        assert (await gateway.chat()).status_code == 200
        return side.orders[0].order.max_fee


async def test_a_rejected_answer_is_an_error_and_nothing_is_paid_at_once(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    scene.accept(Opinion.REJECT)
    try:
        async with serving_gateway(side, "--wait", "verdict", "--check", "always") as gateway:
            answer = await gateway.chat(stream=True)
            last = events(answer.text)[-1]
            assert last["error"]["code"] == "answer_rejected", answer.text
            assert last["error"]["troth"]["cost_units"] == "0"
            assert "troth client case" in last["error"]["troth"]["advice"][0]
            assert side.book.spent == 0
    finally:
        scene.accept()


async def test_repeated_requests_are_orders_of_their_own_and_no_more(scene: Network, tmp_path: Path) -> None:
    most = await most_of(scene, tmp_path)
    side = await client_side(scene, tmp_path / "home")
    async with serving_gateway(side, "--budget", f"{2 * most}units", "--check", "always") as gateway:
        answers = await asyncio.gather(*(gateway.chat(seed=1) for _ in range(4)))
        assert sorted(one.status_code for one in answers) == [200, 200, 402, 402]
        refused = next(one.json()["error"] for one in answers if one.status_code == 402)
        assert refused["code"] == "budget_exceeded"
        served = [one.json() for one in answers if one.status_code == 200]
        assert len({one["troth"]["task"] for one in served}) == 2
        for one in served:
            assert (await gateway.receipt(one["id"]))["outcome"] == "checked"
        assert len(side.orders) == 2
        assert side.book.spent == sum(int(one["usage"]["cost_units"]) for one in served)


async def test_a_reader_that_leaves_pays_for_what_was_written_and_finds_it(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    scene.drip(0.2)
    try:
        async with serving_gateway(side, "--check", "always") as gateway:
            body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 40, "stream": True}
            async with gateway.client as client, client.stream("POST", "/v1/chat/completions", json=body) as answer:
                identifier = events(await anext(answer.aiter_text()))[0]["id"]
            receipt = await gateway.receipt(identifier)
            assert receipt["outcome"] == "checked"
            answered, whole = receipt["tasks"][0]["answer"], toy_answer(QUESTION, 40)
            assert whole.startswith(answered)
            assert 0 < len(answered) < len(whole)
            assert "the reader left" in receipt["note"]
            assert side.book.spent == int(receipt["tasks"][0]["paid_units"]) > 0
    finally:
        scene.drip(0)


async def test_a_stop_signal_lets_a_stream_end(scene: Network, tmp_path: Path) -> None:
    side = await client_side(scene, tmp_path / "home")
    scene.drip(0.05)
    try:
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
    finally:
        scene.drip(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_stop_signal_ends_a_stream_in_an_error_and_a_restart_pays_it_once(
    scene: Network, tmp_path: Path, number: signal.Signals
) -> None:
    side = await client_side(scene, tmp_path / "home")
    # Half a lag of blocks would be over before a loaded machine has started the gateway again.
    with scene.still():
        scene.drip(0.4)
        try:
            async with serving_gateway(side, "--check", "always") as gateway:
                body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 40, "stream": True}
                async with gateway.client as client, client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    pieces = answer.aiter_text()
                    text = await anext(pieces)
                    whole = asyncio.create_task(gateway.chat(max_tokens=40))
                    await eventually(lambda: len(side.orders) == 2)
                    gateway.process.send_signal(number)
                    # A second signal that comes before the first one was taken is no second one.
                    async with asyncio.timeout(SECONDS):
                        while "stopping" not in (await gateway.get("/readyz")).text:  # noqa: ASYNC110 - another process
                            await asyncio.sleep(0.02)
                    gateway.process.send_signal(number)
                    text += "".join([piece async for piece in pieces])
                errors = (await gateway.stop()).decode()
                assert gateway.process.returncode == 0
                assert "Traceback" not in errors
                refused = await whole
        finally:
            scene.drip(0)
        begun, ended = events(text)[0], events(text)[-1]["error"]
        assert (ended["type"], ended["code"], ended["troth"]["charged"]) == ("api_error", "gateway_stopped", "unknown")
        assert ended["troth"]["tasks"] == ["0x" + side.orders[0].order_id.hex()]
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_stopped")
        assert refused.headers["x-should-retry"] == "false"
        leases_end(side.home)
        async with serving_gateway(side) as gateway:
            receipt = await gateway.receipt(begun["id"])
            assert receipt["outcome"] == "checked"
            assert receipt["tasks"][0]["answer"] == toy_answer(QUESTION, 40)
            await eventually(lambda: all(one.answered is not None for one in side.orders))
            await eventually(lambda: side.book.spent == sum(one.answered.fee for one in side.orders))
            assert len(side.orders) == 2
