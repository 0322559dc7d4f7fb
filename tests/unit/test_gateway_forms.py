"""Requests in the words of the Responses API and of Anthropic's: the same question, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from troth.client.gateway.errors import InvalidParameter, NotFound
from troth.client.gateway.message_request import read_message
from troth.client.gateway.request import Defaults, GatewayRequest
from troth.client.gateway.response_request import MOST_KEPT, StoredResponses, answered, read_response
from troth.client.gateway.tool_calls import CallDelta

TOOL = {"name": "weather", "description": "of a city", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"a": 1}}}


def response(stored: StoredResponses | None = None, **fields: Any) -> GatewayRequest:
    return read_response({"model": "toy", "input": "hello"} | fields, Defaults(), stored or StoredResponses())


def message(**fields: Any) -> GatewayRequest:
    asked = {"model": "toy", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    return read_message(asked | fields, Defaults())


def test_a_response_is_a_chats_question() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hel"}, {"type": "input_text", "text": "lo"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "snow"},
    ]
    wanted = response(input=items, instructions="be brief", tools=[{"type": "function"} | TOOL], max_output_tokens=7)
    assert wanted.prompts == (
        [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "snow", "tool_call_id": "c1"},
        ],
    )
    assert (wanted.kind, wanted.choices.max_tokens, wanted.tools.choice) == ("response", 7, "auto")
    form = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}}
    assert response(text=form).choices.transforms.grammar is not None
    named = response(tools=[{"type": "function"} | TOOL], tool_choice={"type": "function", "name": "weather"})
    assert named.tools.choice == "=weather"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
        ({"input": [{"role": "nobody", "content": "x"}], "instructions": "be brief"}, "input"),
        ({"tools": [{"type": "function", "name": 7}]}, "tools[0].name"),
        ({"text": {"format": {"type": "poem"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": 7}}}, "text.format"),
        ({"temperature": 9}, "temperature"),
    ],
)
def test_what_is_wrong_with_a_response_is_named_as_a_response_has_it(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        response(**fields)
    assert caught.value.param == param
    said = caught.value.to_json()["error"]["message"]
    for chat in ("max_tokens", "messages", "response_format", "function.name"):
        assert chat not in said


def test_a_response_goes_on_from_a_stored_one() -> None:
    stored = StoredResponses()
    first = response(stored).told["conversation"]
    call = CallDelta(0, '{"a": 1}', "weather", "c1")
    stored.keep({"id": "resp_1"}, answered(first, "let me see", [call]))
    on = response(stored, input=[{"type": "function_call_output", "call_id": "c1", "output": "snow"}],
                  previous_response_id="resp_1", instructions="new")  # fmt: skip
    (messages,) = on.prompts
    assert [one["role"] for one in messages] == ["system", "user", "assistant", "tool"]  # type: ignore[index]
    assert messages[2]["tool_calls"] == [CALL]  # type: ignore[index]
    with pytest.raises(NotFound):
        response(stored, previous_response_id="resp_2")


@pytest.mark.slow
def test_the_oldest_responses_are_forgotten() -> None:
    stored = StoredResponses()
    for number in range(MOST_KEPT + 1):
        stored.keep({"id": f"resp_{number}"}, [])
    with pytest.raises(NotFound):
        stored.response("resp_0")
    assert stored.response("resp_1") == {"id": "resp_1"}
    large = [{"role": "user", "content": "x" * (40 << 20)}]
    stored.keep({"id": "large"}, large)
    stored.keep({"id": "larger"}, large)
    with pytest.raises(NotFound):
        stored.conversation("large")
    assert stored.drop("larger")
    assert not stored.drop("larger")


def test_a_message_is_a_chats_question() -> None:
    history = [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "let me see"},
            {"type": "tool_use", "id": "c1", "name": "weather", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "snow"}]},
            {"type": "text", "text": "so?"},
        ]},
    ]  # fmt: skip
    tools = [{"name": "weather", "input_schema": {"type": "object", "properties": {}}}]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    wanted = message(messages=history, system=[{"type": "text", "text": "be brief"}], tools=tools, tool_choice=choice,
                     stop_sequences=["\n"], temperature=0.5)  # fmt: skip
    assert wanted.prompts == (
        [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "let me see", "tool_calls": [CALL]},
            {"role": "tool", "content": "snow", "tool_call_id": "c1"},
            {"role": "user", "content": "so?"},
        ],
    )
    assert (wanted.kind, wanted.tools.choice, wanted.tools.parallel, wanted.stops) == (
        "message", "required", False, ("\n",),
    )  # fmt: skip


IMAGE = {"type": "image", "source": {}}
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (response, {"input": 7}, "input"),
    (response, {"input": []}, "input"),
    (response, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    (response, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
    (response, {"background": True}, "background"),
    (response, {"conversation": "conv_1"}, "conversation"),
    (response, {"tools": [{"type": "web_search"}]}, "tools[0].type"),
    (response, {"text": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "text.format"),
    (message, {"max_tokens": None}, "max_tokens"),
    (message, {"top_k": 0.5}, "top_k"),
    (response, {"min_p": 1.5}, "min_p"),
    (message, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
    (message, {"messages": "hello"}, "messages"),
    (
        message,
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "{"}]},
        "messages[1].role",
    ),
    (message, {"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
    (message, {"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type"),
    (message, {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    (message, {"system": [IMAGE]}, "system[0].type"),
    (message, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    (message, {"tool_choice": {"type": "always"}}, "tool_choice"),
]


@pytest.mark.parametrize(("read", "fields", "param"), REFUSED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_what_cannot_be_is_refused_with_its_name(read: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read(**fields)
    assert (refused.value.http_status, refused.value.param) == (400, param)
    assert "hello" not in str(refused.value)
