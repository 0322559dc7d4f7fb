"""Agents, tools and structured answers as unmodified programs ask for them, over a network whose toy model can spell.

What the model says is gibberish by itself; that it is JSON of the right form is the grammar's doing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx
import jsonschema
import pytest
import pytest_asyncio
from pydantic import BaseModel, ConfigDict
from support.agent_programs import AGENTS, LANGCHAIN, LITELLM, NODE, PYDANTIC, SMOLAGENTS
from support.client_network import LETTERS, SPECIAL, Network, client_side, network, write_spelling_model
from support.gateway_stage import Gateway, events, eventually, needed, run_program, serving_gateway

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
ROOT = Path(__file__).resolve().parents[2]
ASKED: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "is it cold in rome?"}]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["bern", "rome", "oslo"]},
        "degrees": {"type": "integer", "minimum": 0, "maximum": 40},
        "cold": {"type": "boolean"},
    },
    "required": ["city", "degrees", "cold"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA, "strict": True},
}


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: Literal["bern", "rome"]
    sights: list[Literal["a bridge", "a bear"]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(anvil, tmp_path_factory.mktemp("programs"), write_spelling_model) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def gateway(scene: Network, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    side = await client_side(scene, tmp_path_factory.mktemp("home"))
    async with serving_gateway(side, "--max-tokens", 200) as made:
        yield made


def client(gateway: Gateway) -> Any:
    openai = pytest.importorskip("openai", reason="openai is not installed")
    return openai.AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.key, max_retries=4)


async def test_structured_answers(gateway: Gateway) -> None:
    async with client(gateway) as openai:
        form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
        answer = await openai.chat.completions.create(**ASKED, response_format=form)
        assert answer.choices[0].finish_reason == "stop"
        jsonschema.validate(json.loads(answer.choices[0].message.content), SCHEMA)
        parsed = await openai.chat.completions.parse(**ASKED, response_format=City, frequency_penalty=1.5)
        assert isinstance(parsed.choices[0].message.parsed, City)
        cut = await openai.chat.completions.create(**ASKED, response_format=form, max_tokens=9)
        assert cut.choices[0].finish_reason == "length"
        stream = await openai.chat.completions.create(**ASKED, response_format=form, stream=True)
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert said == answer.choices[0].message.content


async def test_a_format_beside_tools(gateway: Gateway) -> None:
    """Either one, as the model likes, and never anything else."""
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": City.model_json_schema()}}
    async with client(gateway) as openai:
        for letter, calls in (("<", True), ("{", False)):
            answer = await openai.chat.completions.create(
                **ASKED, response_format=form, tools=[TOOL], parallel_tool_calls=False,
                logit_bias={str(len(SPECIAL) + LETTERS.index(letter)): 20}, frequency_penalty=1.5,
            )  # fmt: skip
            said = answer.choices[0].message
            assert bool(said.tool_calls) is calls
            if said.tool_calls:
                jsonschema.validate(json.loads(said.tool_calls[0].function.arguments), SCHEMA)
            else:
                City.model_validate_json(said.content)


async def test_a_schema_that_cannot_be_kept_costs_nothing(gateway: Gateway) -> None:
    import openai as package

    before = len(gateway.side.orders)
    for schema in ({"not": {"type": "string"}}, {"type": "string", "pattern": "a{1000}{1000}{1000}", "minLength": 3}):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        async with client(gateway) as openai:
            with pytest.raises(package.BadRequestError) as refused:
                await openai.chat.completions.create(**ASKED, response_format=form)
        assert (refused.value.code, refused.value.param) == ("unsupported_value", "response_format")
    assert len(gateway.side.orders) == before


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
async def test_forced_calls_whole_and_streamed(gateway: Gateway, choice: Any) -> None:
    fields = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    async with client(gateway) as openai:
        answer = (await openai.chat.completions.create(**ASKED, **fields)).choices[0]
        (call,) = answer.message.tool_calls
        assert (answer.finish_reason, answer.message.content, call.function.name) == ("tool_calls", None, "weather")
        jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
        async with openai.chat.completions.stream(**ASKED, **fields) as stream:
            pieces = [event async for event in stream if event.type == "tool_calls.function.arguments.delta"]
            final = (await stream.get_final_completion()).choices[0]
        assert len(pieces) > 3
        assert final.message.tool_calls[0].function.arguments == call.function.arguments
        history = [
            *ASKED["messages"],
            {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": "it snows"},
        ]
        again = await openai.chat.completions.create(model="toy", messages=history, tools=[TOOL], max_tokens=5)
        assert again.choices[0].finish_reason == "length"


async def test_penalties_and_biases_change_what_is_said(gateway: Gateway) -> None:
    async with client(gateway) as openai:
        plain = (await openai.chat.completions.create(**ASKED, max_tokens=30)).choices[0].message.content
        for change in ({"frequency_penalty": 2}, {"logit_bias": {"5": 100}}):
            said = (await openai.chat.completions.create(**ASKED, max_tokens=30, **change)).choices[0].message.content
            assert said != plain
        assert said == "a" * 30


def environment(gateway: Gateway) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": gateway.base_url,
        "OPENAI_API_KEY": gateway.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


async def ran(gateway: Gateway, package: str, code: str, folder: Path) -> Any:
    needed(package)
    out = await run_program(code, environment=environment(gateway), folder=folder)
    return json.loads(out.splitlines()[-1])


async def test_langchain(gateway: Gateway, tmp_path: Path) -> None:
    assert await ran(gateway, "langchain_openai", LANGCHAIN, tmp_path) == ["city"] * 3


async def test_litellm(gateway: Gateway, tmp_path: Path) -> None:
    code = f"SCHEMA = {json.dumps(json.dumps(SCHEMA))}\n{LITELLM}"
    answer, name = await ran(gateway, "litellm", code, tmp_path)
    jsonschema.validate(answer, SCHEMA)
    assert name == "weather"


async def test_openai_agents_run_a_tool(gateway: Gateway, tmp_path: Path) -> None:
    found = await ran(gateway, "agents", AGENTS, tmp_path)
    assert found.keys() == {"OpenAIChatCompletionsModel", "OpenAIResponsesModel"}
    for kind, ((city,), said) in found.items():
        assert said == f"it snows in {city}", kind


async def test_smolagents(gateway: Gateway, tmp_path: Path) -> None:
    """An agent of one tool: what that says is what it is told next."""
    name, arguments, calls, asked, tokens = await ran(gateway, "smolagents", SMOLAGENTS, tmp_path)
    assert name == "weather"
    assert arguments["city"] in {"bern", "rome"}
    assert set(calls) == {"weather"}
    assert len(asked) == len(calls) >= 1
    assert tokens > 10


async def test_pydantic_ai(gateway: Gateway, tmp_path: Path) -> None:
    name, city = await ran(gateway, "pydantic_ai", PYDANTIC, tmp_path)
    assert name == "City"
    assert city in {"bern", "rome"}


async def test_openai_node(gateway: Gateway, tmp_path: Path) -> None:
    package, node = ROOT / "node_modules" / "openai", ROOT / "node_modules" / ".bin" / "node"
    if not package.is_dir():
        pytest.skip("the npm package openai is not installed")
    variables = environment(gateway) | {"PACKAGE": str(package), "SCHEMA": json.dumps(SCHEMA)}
    out = await run_program(None, str(node), "-e", NODE, environment=variables, folder=tmp_path)
    whole, streamed, called, response, refused, models = json.loads(out.splitlines()[-1])
    for said in (whole, called["arguments"], response):
        jsonschema.validate(json.loads(said), SCHEMA)
    assert streamed == whole
    assert called["name"] == "weather"
    assert refused == "BadRequestError 400 unsupported_value functions"
    assert models == ["toy-float32"]


OPEN_WEBUI: tuple[dict[str, Any], ...] = (
    {
        "stream": True,
        "model": "toy-float32",
        "messages": [{"role": "system", "content": "be brief."}, {"role": "user", "content": "is it cold?"}],
        "stream_options": {"include_usage": True},
        "temperature": 0.8,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["###"],
        "max_tokens": 20,
    },
    {
        "stream": True,
        "model": "toy-float32",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "is it cold in rome?"}]}],
        "tools": [{"type": "function", "function": {"name": "weather", "description": "x", "parameters": SCHEMA}}],
        "max_tokens": 20,
    },
    {
        "model": "toy-float32",
        "messages": [
            {"role": "user", "content": '### Task:\nGenerate a title. JSON format: { "title": "your title" }'}
        ],
        "stream": False,
        "max_tokens": 100,
    },
)
"""What Open WebUI 0.12 sends for a chat, for one with a tool, and for the title of a chat (open_webui/routers)."""


async def test_open_webui_replayed(gateway: Gateway) -> None:
    """Its own server asks, not the browser: without an Origin, and with a client's usual headers."""
    headers = {"authorization": f"Bearer {gateway.key}", "user-agent": "Python/3.11 aiohttp/3.13", "accept": "*/*"}
    async with httpx.AsyncClient(base_url=gateway.base_url, headers=headers, timeout=60, trust_env=False) as client:
        listed = (await client.get("/models", headers={"content-type": "application/json"})).json()["data"]
        assert [one["id"] for one in listed] == ["toy-float32"]
        chat, tooled, title = [await client.post("/chat/completions", json=body) for body in OPEN_WEBUI]
    for streamed in (chat, tooled):
        assert streamed.headers["content-type"].startswith("text/event-stream")
        *chunks, done = events(streamed.text)
        assert done == "[DONE]"
        assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert events(chat.text)[-2]["usage"]["completion_tokens"] == 20
    assert title.json()["choices"][0]["message"]["role"] == "assistant"


FLAT = {"type": "function"} | TOOL["function"]


async def test_responses(gateway: Gateway) -> None:
    """Whole, streamed, with a schema, with a tool, and going on from a stored one."""
    import openai as package

    form = {"format": {"type": "json_schema", "name": "weather", "schema": SCHEMA, "strict": True}}
    async with client(gateway) as openai:
        first = await openai.responses.create(model="toy", input="is it cold?", instructions="ask.", text=form)
        jsonschema.validate(json.loads(first.output_text), SCHEMA)
        assert (first.status, first.instructions, first.usage.total_tokens > 20) == ("completed", "ask.", True)
        assert (await openai.responses.retrieve(first.id)).output_text == first.output_text
        called = await openai.responses.create(
            model="toy", input="and now?", previous_response_id=first.id, tools=[FLAT], tool_choice="required",
            parallel_tool_calls=False,
        )  # fmt: skip
        (call,) = called.output
        assert (call.type, call.name) == ("function_call", "weather")
        assert called.usage.input_tokens > first.usage.input_tokens
        async with openai.responses.stream(
            model="toy", previous_response_id=called.id, text=form,
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "it snows"}],
        ) as stream:  # fmt: skip
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        jsonschema.validate(json.loads(final.output_text), SCHEMA)
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert kinds.count("response.output_text.delta") > 5
        cut = await openai.responses.create(model="toy", input="is it cold?", max_output_tokens=4, store=False)
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        with pytest.raises(package.NotFoundError):
            await openai.responses.create(model="toy", input="on", previous_response_id=cut.id)
        await openai.responses.delete(first.id)
        with pytest.raises(package.NotFoundError):
            await openai.responses.retrieve(first.id)


async def test_embeddings_of_a_batch(gateway: Gateway) -> None:
    """The same text has the same state, another one another; the cost is that of the orders."""
    before = len(gateway.side.orders)
    async with client(gateway) as openai:
        made = await openai.embeddings.create(model="toy", input=["is it cold?", "it snows", "is it cold?"])
    first, other, again = (one.embedding for one in made.data)
    assert first == again != other
    assert sum(one * one for one in first) == pytest.approx(1, abs=1e-5)
    assert made.usage.prompt_tokens == made.usage.total_tokens > 20
    assert len(gateway.side.orders) == before + 3
    receipt = await gateway.receipt(made.troth["receipt"].rpartition("/")[2])
    assert (len(receipt["tasks"]), receipt["cost_units"]) == (3, made.usage.cost_units)


async def test_embeddings_of_langchain(gateway: Gateway) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    embeddings = langchain.OpenAIEmbeddings(
        model="toy", base_url=gateway.base_url, api_key=gateway.key, check_embedding_ctx_length=False, chunk_size=64
    )
    vectors = await embeddings.aembed_documents(["is it cold?", "it snows"])
    assert vectors[0] == await embeddings.aembed_query("is it cold?")


async def test_streamed_calls_of_responses(gateway: Gateway) -> None:
    async with (
        client(gateway) as openai,
        openai.responses.stream(
            model="toy", input="is it cold?", tools=[FLAT], tool_choice={"type": "function", "name": "weather"}
        ) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    jsonschema.validate(json.loads(final.output[0].arguments), SCHEMA)
    assert kinds.count("response.function_call_arguments.delta") > 3


async def test_messages_of_anthropic(gateway: Gateway) -> None:
    anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
    asked: dict[str, Any] = {"model": "toy", "max_tokens": 120, "system": "be brief."}
    tool = {"name": "weather", "description": "of a city", "input_schema": SCHEMA}
    async with anthropic.AsyncAnthropic(base_url=gateway.root, api_key=gateway.key, max_retries=2) as claude:
        question = {"role": "user", "content": [{"type": "text", "text": "is it cold in rome?"}]}
        plain = await claude.messages.create(
            **asked | {"max_tokens": 6}, messages=[question], extra_body={"temperature": 0.5}
        )
        assert (plain.stop_reason, plain.usage.output_tokens, plain.content[0].type) == ("max_tokens", 6, "text")
        counted = await claude.messages.count_tokens(model="toy", system="be brief.", messages=[question])
        assert counted.input_tokens == plain.usage.input_tokens
        forced = {"tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}}
        counted = await claude.messages.count_tokens(model="toy", system="be brief.", messages=[question], **forced)
        called = await claude.messages.create(**asked, messages=[question], **forced)
        (call,) = called.content
        assert counted.input_tokens == called.usage.input_tokens > plain.usage.input_tokens
        assert (called.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "weather")
        jsonschema.validate(call.input, SCHEMA)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "it snows"}
        history = [question, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
        async with claude.messages.stream(**asked, messages=history, **forced) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_message()
        jsonschema.validate(final.content[0].input, SCHEMA)
        assert kinds.count("content_block_delta") > 3
        with pytest.raises(anthropic.BadRequestError, match="top_k"):
            await claude.messages.create(**asked, messages=[question], extra_body={"top_k": -2})
        with pytest.raises(anthropic.NotFoundError, match="does not exist"):
            await claude.messages.count_tokens(model="other", messages=[question])
        with pytest.raises(anthropic.AuthenticationError):
            await claude.with_options(api_key="other").messages.create(**asked, messages=[question])


async def test_orders_with_grammars_are_checked_and_paid(gateway: Gateway) -> None:
    """The request that verifiers and the chain's hash know has the grammar in it."""
    await eventually(lambda: not gateway.side.book.bounds)
    assert gateway.side.book.spent > 0
