"""What a program is told to send instead: each refusal of a field names it as its interface does, and says what to do;
and what would change an answer unsaid is refused, or done."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from support.sources import PACKAGES, sources

from troth.client.gateway.chat_request import read_chat
from troth.client.gateway.completion_request import read_completion
from troth.client.gateway.embeddings import read_embedding
from troth.client.gateway.errors import InvalidParameter
from troth.client.gateway.message_request import read_message
from troth.client.gateway.request import Defaults, GatewayRequest
from troth.client.gateway.response_request import StoredResponses, read_response

USER = {"role": "user", "content": "hello"}
DEFAULTS = Defaults()
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {}}}


def chat(**fields: Any) -> GatewayRequest:
    return read_chat({"model": "toy", "messages": [USER]} | fields, DEFAULTS)


def completion(**fields: Any) -> GatewayRequest:
    return read_completion({"model": "toy", "prompt": "hello"} | fields, DEFAULTS)


def embedding(**fields: Any) -> GatewayRequest:
    return read_embedding({"model": "toy", "input": "hello"} | fields, DEFAULTS)


def message(**fields: Any) -> GatewayRequest:
    return read_message({"model": "toy", "messages": [USER], "max_tokens": 5} | fields, DEFAULTS)


def response(**fields: Any) -> GatewayRequest:
    return read_response({"model": "toy", "input": "hello"} | fields, DEFAULTS, StoredResponses())


@pytest.mark.slow
def test_no_error_says_only_correct_it() -> None:
    """Whoever reads it has to be told what to write."""
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources(*PACKAGES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and node.value == "Correct it."
    ]
    assert not found, "\n".join(found)


REFUSED: list[tuple[Any, dict[str, Any], str, str]] = [
    (chat, {"messages": [USER] * 5000}, "messages", "Send fewer: at most 4096."),
    (chat, {"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "Send one of these roles."),
    (chat, {"stop": list("abcde")}, "stop", "Send at most 4 texts."),
    (chat, {"stop": [""]}, "stop", "Leave empty texts out, and shorten longer ones."),
    (chat, {"response_format": {"type": "grammar"}}, "response_format", 'Send {"type": "text"}, or another of these.'),
    (chat, {"tool_choice": "any"}, "tool_choice", "Send one of these, or leave it out."),
    (chat, {"troth": {"check": "often"}}, "troth.check", 'Send "5%", "always", "self" or "court", or leave it out.'),
    (completion, {"prompt": [[-1]]}, "prompt[0]", "Send ids of the model's tokens."),
    (completion, {"prompt": []}, "prompt", "Send a text."),
    (embedding, {"encoding_format": "int8"}, "encoding_format", "Send one of these, or leave it out."),
    (message, {"messages": "hello"}, "messages", 'Send [{"role": "user", "content": "…"}].'),
    (message, {"messages": [{"role": "system", "content": "x"}]}, "messages[0].role", "What the model is told"),
    (message, {"messages": []}, "messages", "Send at least one."),
    (message, {"tools": [TOOL], "tool_choice": {"type": "all"}}, "tool_choice", 'Send {"type": "auto"}, or'),
    (response, {"input": []}, "input", "Send a text, or items."),
    (response, {"tools": "x"}, "tools", "Send a list, or leave it out."),
]


@pytest.mark.parametrize(("read", "fields", "param", "said"), REFUSED)
def test_a_refusal_says_what_to_send(read: Any, fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read(**fields)
    assert refused.value.param == param
    assert refused.value.remedy.startswith(said)


ANTHROPIC_NAMES: list[tuple[dict[str, Any], str]] = [
    ({"stop_sequences": list("abcde")}, "stop_sequences"),
    ({"stop_sequences": [7]}, "stop_sequences"),
    ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
    ({"tools": [TOOL | {"input_schema": "x"}]}, "tools[0].input_schema"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
]


@pytest.mark.parametrize(("fields", "param"), ANTHROPIC_NAMES)
def test_anthropics_programs_are_told_of_their_own_fields(fields: dict[str, Any], param: str) -> None:
    """They were told of `stop` and `tools[0].function.name`, which they never sent."""
    with pytest.raises(InvalidParameter) as refused:
        message(**fields)
    assert refused.value.param == param
    assert "'stop'" not in refused.value.what


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": NUMBER}}},
        {"output_format": {"type": "json_schema", "schema": NUMBER}},
    ],
)
def test_a_form_that_anthropics_programs_ask_for_is_kept(fields: dict[str, Any]) -> None:
    """It was left out without a word, and the program read text where it had asked for JSON."""
    wanted = chat(response_format={"type": "json_schema", "json_schema": {"schema": NUMBER}})
    assert message(**fields).choices.transforms.grammar == wanted.choices.transforms.grammar is not None


IGNORED_BEFORE: list[tuple[Any, dict[str, Any], str]] = [
    (chat, {"web_search_options": {}}, "web_search_options"),
    (message, {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}, "mcp_servers"),
    (message, {"tool_choice": {"type": "any"}}, "tool_choice"),
    (message, {"output_config": {"format": {"type": "xml"}}}, "output_config"),
]


@pytest.mark.parametrize(("read", "fields", "param"), IGNORED_BEFORE)
def test_what_the_answer_would_lack_is_refused(read: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read(**fields)
    assert refused.value.param == param


@pytest.mark.parametrize("name", ["background", "conversation", "prompt", "max_tool_calls"])
def test_each_field_of_responses_is_refused_for_its_own_reason(name: str) -> None:
    """All four were refused since "this gateway answers at once"."""
    with pytest.raises(InvalidParameter) as refused:
        response(**{name: True})
    assert refused.value.param == name
    assert ("answers at once" in refused.value.what) == (name == "background")
