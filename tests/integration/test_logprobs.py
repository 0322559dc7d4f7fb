"""Log probabilities from the node that chooses to the client: right from real nodes, left out where one tells junk."""

from __future__ import annotations

import logging
import struct
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402
from support.client_network import network, toy_answer  # noqa: E402
from support.real_nodes import real_stage  # noqa: E402
from support.scheduler_stage import Stage, body_of, stage  # noqa: E402
from support.toy_node import VOCABULARY  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from troth.client.asking import Chosen, Finished, Text, Verdict, ask  # noqa: E402
from troth.client.choices import Choices  # noqa: E402
from troth.client.configuration import Configuration  # noqa: E402
from troth.client.home import Home  # noqa: E402
from troth.client.session import session  # noqa: E402
from troth.protocol.wire import Forward  # noqa: E402
from troth.scheduler.api import scheduler_app  # noqa: E402
from troth.scheduler.assembly import assembled  # noqa: E402
from troth.scheduler.lifecycle import Lifecycle  # noqa: E402

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PROMPT = (1, 2, 3)


async def token_lines(lifecycle: Lifecycle) -> list[dict[str, Any]]:
    lines = [line async for line in lifecycle.stream.lines()]
    assert lines[-1].get("outcome") == "accepted", lines[-1]
    return [line for line in lines if line["type"] == "token"]


def expected(folder: Path, tokens: list[int]) -> np.ndarray:
    """Log probabilities of what follows each position, by transformers alone."""
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder)).eval()
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    model.tie_weights()
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0].float()
    found: np.ndarray = torch.log_softmax(logits, dim=-1).numpy()
    return found


@pytest.mark.parametrize("fails", [False, True], ids=["", "an inferencer is replaced"])
async def test_real_nodes_say_what_transformers_says(deployed: Any, tmp_path: Path, fails: bool) -> None:
    async with real_stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(PROMPT, max_tokens=8, logprobs=5))
        if fails:
            scene.node(lifecycle.task.assignment.candidates(1)[0]).refuses_from = (Forward, 6)
        lines = await token_lines(lifecycle)
        assert (lifecycle.story.generated.attempt > 0) == fails
    tokens = [line["id"] for line in lines]
    truth = expected(tmp_path / "tiny", [*PROMPT, *tokens[:-1]])[len(PROMPT) - 1 :]
    for line, row in zip(lines, truth, strict=True):
        assert line["logprob"] == pytest.approx(row[line["id"]], abs=1e-4)
        assert [token for token, _ in line["top"]] == np.argsort(-row)[:5].tolist()
        np.testing.assert_allclose([value for _, value in line["top"]], np.sort(row)[::-1][:5], atol=1e-4)
        assert line["top"][0][0] == line["id"], "the order was greedy"


async def test_who_does_not_ask_is_told_nothing(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        for node in scene.nodes:
            node.faults.logprobs = bytes(4)
        for line in await token_lines(await scheduler.submit(await scene.order())):
            assert set(line) == {"type", "id", "position"}


@pytest.mark.parametrize("count", [0, 20])
async def test_all_that_may_be_asked_for_is_served(deployed: Any, tmp_path: Path, count: int) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lines = await token_lines(await scheduler.submit(await scene.order(logprobs=count)))
    assert [len(line["top"]) for line in lines] == [count] * 6


JUNK = {
    "empty": b"",
    "short": bytes(11),
    "long": bytes(21),
    "above zero": struct.pack("<fIfIf", 0.5, 1, -1.0, 2, -2.0),
    "not a number": struct.pack("<fIfIf", float("nan"), 1, -1.0, 2, -2.0),
    "infinite": struct.pack("<fIfIf", -3.0, 1, -1.0, 2, float("-inf")),
    "outside the vocabulary": struct.pack("<fIfIf", -3.0, VOCABULARY, -1.0, 2, -2.0),
    "unsorted": struct.pack("<fIfIf", -3.0, 1, -2.0, 2, -1.0),
    "more than certain": struct.pack("<fIfIf", -3.0, 1, -0.1, 2, -0.2),
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
async def test_junk_costs_the_log_probabilities_and_not_the_task(
    deployed: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, junk: bytes
) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        for node in scene.nodes:
            node.faults.logprobs = junk
        with caplog.at_level(logging.WARNING, "troth.scheduler"):
            lifecycle = await scheduler.submit(await scene.order(logprobs=2))
            lines = await token_lines(lifecycle)
    assert len(lines) == 6
    assert all(set(line) == {"type", "id", "position"} for line in lines)
    assert lifecycle.story.generated.attempt == 0
    warned = [record for record in caplog.records if "log probabilities" in record.getMessage()]
    assert len(warned) == 1, "a node cannot fill the log"
    assert lifecycle.task.assignment.candidates(1)[lifecycle.story.generated.inferencers[1]] in warned[0].getMessage()


async def test_more_than_a_message_may_hold_costs_the_attempt_like_any_bad_frame(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(logprobs=2))
        scene.node(lifecycle.task.assignment.candidates(1)[0]).faults.logprobs = bytes(200)
        assert [len(line["top"]) for line in await token_lines(lifecycle)] == [2] * 6


async def refused(scene: Stage, http: httpx.AsyncClient, value: object) -> str:
    answer = await http.post("/v1/orders", json={**body_of(await scene.order()), "logprobs": value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "bad_request")
    return str(error["message"])


async def test_a_hint_out_of_bounds_is_refused_by_name(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path, nodes=1) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        transport = httpx.ASGITransport(scheduler_app(scheduler))
        async with httpx.AsyncClient(transport=transport, base_url="https://scheduler") as http:
            for value in (-2, 21, 1.5, "3", True, None, [1]):
                assert "logprobs" in await refused(scene, http, value)
        assert scheduler.desk.journal.unfinished() == []


async def test_a_client_is_told_token_by_token(deployed: Any, tmp_path: Path) -> None:
    async with network(deployed, tmp_path) as (scene, _):
        home = Home(tmp_path / "home")
        home.create()
        async with session(home, Configuration(scene.chain.contract, scene.url)) as ready:
            question = [{"role": "user", "content": "word7 word9"}]
            signed = await ready.prepare(question, Choices(max_tokens=5, logprobs=3), scene.client)
            async with aclosing(ask(ready, signed)) as updates:
                came = [update async for update in updates]
    assert isinstance(came[-1], Verdict)
    assert came[-1].outcome == "accepted"
    texts = [update for update in came if isinstance(update, Text)]
    chosen = [one for text in texts for one in text.chosen]
    assert "".join(text.text for text in texts) == toy_answer("word7 word9", 5)
    assert [update.tokens for update in came if isinstance(update, Finished)] == [len(chosen)] == [5]
    assert all(one.top[0] == (one.token, one.logprob) and len(one.top) == 3 for one in chosen)
    assert len({one.logprob for one in chosen}) > 1
    assert all(isinstance(one, Chosen) for one in chosen)
