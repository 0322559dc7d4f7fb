"""The gateway as unmodified programs use it: the clients of OpenAI, LangChain and LiteLLM."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.client_network import ClientSide, Network, client_side, network, toy_answer
from support.gateway_stage import MESSAGES, MODEL, QUESTION, Gateway, eventually, needed, run_program, serving_gateway

ROOT = Path(__file__).resolve().parents[2]
NAME = "toy-float32"
pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(anvil, tmp_path_factory.mktemp("clients")) as made:
        yield made


async def test_openai_python(scene: Network, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai", reason="openai is not installed")
    side = await client_side(scene, tmp_path / "home")
    async with (
        serving_gateway(side, "--check", "always") as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.key, max_retries=8) as client,
    ):
        (model,) = (await client.models.list()).data
        assert (model.id, model.owned_by) == (NAME, "troth")
        assert (await client.models.retrieve(MODEL)).id == NAME
        await one_answer(client, gateway)
        await the_same_streamed(client, gateway)
        await several_answers_and_prompts(client, side)
        await log_probabilities(client)
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="gpt-4o", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES, functions=[{"name": "f"}])
        assert (refused.value.code, refused.value.param) == ("unsupported_value", "functions")
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="sk-other").models.list()
        # Every answer was paid for, and nothing else: on the tab, without a transaction.
        await eventually(lambda: not side.book.bounds)
        fees = [history.answered.fee for history in side.orders if history.answered is not None]
        assert side.book.spent == sum(fees)
        assert len(fees) == 8


async def one_answer(client: Any, gateway: Gateway) -> None:
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=5)
    answer = raw.parse()
    assert answer.choices[0].message.content == toy_answer(QUESTION, 5)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 5)
    assert answer.usage.prompt_tokens == 4
    assert raw.headers["x-troth-task"] == answer.troth["task"]
    receipt = await gateway.receipt(answer.id)
    assert answer.troth["receipt"].endswith(f"/v1/receipts/{answer.id}")
    (order,) = receipt["tasks"]
    assert (receipt["outcome"], order["order"], order["checked"]) == ("checked", answer.troth["task"], True)
    assert receipt["cost_units"] == order["paid_units"] == answer.usage.cost_units == answer.usage.cost_wei


async def the_same_streamed(client: Any, gateway: Gateway) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert said == toy_answer(QUESTION, 5)
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 9
    receipt = await gateway.receipt(chunks[0].id)
    assert chunks[-1].troth["cost_units"] == receipt["cost_units"] == receipt["tasks"][0]["fee_units"]


def _fees(side: ClientSide) -> dict[str, int]:
    return {
        "0x" + history.order_id.hex(): history.answered.fee for history in side.orders if history.answered is not None
    }


async def several_answers_and_prompts(client: Any, side: ClientSide) -> None:
    two = await client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2, max_tokens=4, stop=[" wor"])
    assert [one.finish_reason for one in two.choices] == ["stop", "stop"]
    assert [one.message.content for one in two.choices] == [toy_answer(QUESTION, 1)] * 2
    assert len(set(two.troth["tasks"])) == 2
    # What is cut at a stop word goes on at the scheduler until its own end.
    await eventually(lambda: set(two.troth["tasks"]) <= set(_fees(side)))
    fees = _fees(side)
    assert two.usage.cost_units == str(sum(fees[order] for order in two.troth["tasks"]))

    raw_text = await client.completions.create(model=MODEL, prompt=["word7", [7, 8]], max_tokens=3, echo=True)
    assert [one.index for one in raw_text.choices] == [0, 1]
    assert raw_text.choices[0].text.startswith("word7")
    pieces = await client.completions.create(model=MODEL, prompt="word7", max_tokens=3, stream=True)
    assert "".join([one.choices[0].text async for one in pieces]) == raw_text.choices[0].text[5:]


async def log_probabilities(client: Any) -> None:
    """Of the model itself: with temperature 0 the token is the likeliest of those shown."""
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=3, logprobs=True, top_logprobs=2
    )
    told = answer.choices[0].logprobs.content
    assert [one.token for one in told] == toy_answer(QUESTION, 3).split()
    for one in told:
        assert bytes(one.bytes).decode() == one.token
        assert one.top_logprobs[0].token == one.token
        assert one.top_logprobs[0].logprob == one.logprob
        assert one.top_logprobs[1].logprob <= one.logprob <= 0


LANGCHAIN = """
import json, sys
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="toy", max_tokens=5, timeout=60, max_retries=8)
answer = model.invoke(sys.argv[1])
chunks = list(model.stream(sys.argv[1], stream_usage=True))
total = chunks[0]
for chunk in chunks[1:]:
    total += chunk
print(json.dumps([answer.content, answer.usage_metadata["total_tokens"], total.content,
                  total.usage_metadata["total_tokens"]]))
"""

LITELLM = """
import json, sys
import litellm
asked = {"model": "openai/toy", "messages": [{"role": "user", "content": sys.argv[1]}], "max_tokens": 5,
         "timeout": 60, "num_retries": 3}
answer = litellm.completion(**asked)
chunks = list(litellm.completion(**asked, stream=True, stream_options={"include_usage": True}))
said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
print(json.dumps([answer.choices[0].message.content, answer.usage.total_tokens, said, chunks[-1].usage.total_tokens]))
"""


@pytest.mark.parametrize(("package", "code"), [("langchain_openai", LANGCHAIN), ("litellm", LITELLM)])
async def test_programs_through_other_packages(scene: Network, tmp_path: Path, package: str, code: str) -> None:
    needed(package)
    side = await client_side(scene, tmp_path / "home")
    async with serving_gateway(side) as gateway:
        environment = {
            "OPENAI_BASE_URL": gateway.base_url,
            "OPENAI_API_KEY": gateway.key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        out = await run_program(code, QUESTION, environment=environment, folder=tmp_path)
        expected = toy_answer(QUESTION, 5)
        assert json.loads(out.splitlines()[-1]) == [expected, 9, expected, 9]


SHOWN_MODEL = "smollm2-135m"


def blocks(language: str) -> list[str]:
    """The examples of docs/how-to/gateway.md in a language."""
    text = (ROOT / "docs" / "how-to" / "gateway.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


async def test_the_documents_examples_run(scene: Network, tmp_path: Path) -> None:
    for package in ("openai", "langchain_openai", "litellm"):
        needed(package)
    side = await client_side(scene, tmp_path / "home")
    async with serving_gateway(side, "--max-tokens", 8) as gateway:
        environment = {
            "OPENAI_BASE_URL": gateway.base_url,
            "OPENAI_API_KEY": gateway.key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        for example in blocks("python"):
            # The documents name the tutorials' model.
            assert SHOWN_MODEL in example
            await run_program(example.replace(SHOWN_MODEL, "toy"), environment=environment, folder=tmp_path)
        assert (await side.run("receipts", "--json")).json[2]["tokens"] == 8
