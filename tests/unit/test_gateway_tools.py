"""Tools: what a request may say of them, what the model is shown, and its calls read from text however it is split."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.byte_language import END, LANGUAGE, VOCABULARY, tokenizer

from troth.client.gateway.chat_request import read_chat
from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.intake import with_grammar
from troth.client.gateway.request import Defaults, GatewayRequest
from troth.client.gateway.tool_calls import CallReader, whole_calls
from troth.client.gateway.tools import LLAMA, TAGGED, dialect_of, grammar_of, shown
from troth.client.template import render
from troth.protocol.masks import TextRules
from troth.protocol.request import Request
from troth.protocol.transforms import Transforms
from troth.protocol.types import ZERO_HASH

USER = {"role": "user", "content": "hello"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"$ref": "#/$defs/Place"}},
            "required": ["place"],
            "additionalProperties": False,
            "$defs": {"Place": {"type": "string", "enum": ["Bern", "Rome"]}},
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
KNOWING = "{% if tools %}TOOLS {{ tools | tojson }} {% endif %}{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
LIKE_LLAMA = KNOWING + '{# Respond in the format {"name": function name, "parameters": dictionary} #}'


def chat(**fields: Any) -> GatewayRequest:
    return read_chat({"model": "toy", "messages": [USER]} | fields, Defaults())


# ------------------------------------------------------------------------------------------------------------- reading


def test_choices_of_tools() -> None:
    tools = [WEATHER, CLOCK]
    assert chat(tools=tools).tools.choice == "auto"
    assert chat(tools=tools, tool_choice="none").tools.tools == ()
    assert not chat(tools=tools).tools.forced
    named = chat(tools=tools, tool_choice={"type": "function", "function": {"name": "clock"}}).tools
    assert (named.choice, named.forced) == ("=clock", True)
    assert not chat(tools=tools, parallel_tool_calls=False).tools.parallel


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [WEATHER, WEATHER]}, "tools"),
    ({"tools": "weather"}, "tools"),
    ({"tools": [CLOCK] * 129}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, None),  # an empty one is none
    ({"tools": [CLOCK], "tool_choice": "always"}, "tool_choice"),
    ({"tools": [CLOCK], "tool_choice": {"function": {"name": "weather"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function.arguments"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
    ({"response_format": {"type": "grammar"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}}, "response_format"),
    ({"repetition_penalty": 0.5}, "repetition_penalty"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"3": 101}}, "logit_bias.3"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=str)
def test_what_cannot_be_is_refused_with_its_name(fields: dict[str, Any], param: str | None) -> None:
    if param is None:
        chat(**fields)
        return
    with pytest.raises(InvalidParameter) as refused:
        chat(**fields)
    assert (refused.value.http_status, refused.value.param) == (400, param)


def test_numbers_become_transforms() -> None:
    wanted = chat(presence_penalty=0.5, frequency_penalty=-1, repetition_penalty=1.1, logit_bias={"7": -100, "3": 0})
    assert wanted.choices.transforms == Transforms(500_000, -1_000_000, 1_100_000, ((7, -100_000_000),))
    assert not chat(presence_penalty=0, logit_bias={}).choices.transforms.any


def test_what_does_not_compile_is_refused_before_it_is_ordered() -> None:
    """With the reason, which the compiler gives."""
    schema = {"type": "string", "pattern": "a{1000}{1000}{1000}", "minLength": 3}
    wanted = chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    with pytest.raises(Unsupported) as refused:
        with_grammar(LANGUAGE, VOCABULARY, wanted)
    assert refused.value.param == "response_format"
    assert "regex" in str(refused.value.value)
    with pytest.raises(InvalidParameter, match="none of the model"):
        with_grammar(LANGUAGE, VOCABULARY, chat(logit_bias={"9999": 1}))
    kept = with_grammar(LANGUAGE, VOCABULARY, chat(response_format={"type": "json_object"}))
    assert kept.transforms.grammar is not None


# ---------------------------------------------------------------------------------------------- what the model is shown

HISTORY = [
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Bern"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "snow"},
]


def test_a_template_that_knows_tools_is_given_them() -> None:
    wanted = chat(messages=HISTORY, tools=[WEATHER])
    (messages,) = wanted.prompts
    told, tools = shown(KNOWING, messages, wanted.tools)  # type: ignore[arg-type]
    text = render(KNOWING, told, {}, tools)
    assert text.startswith('TOOLS [{"type": "function", "function": {"name": "weather"')
    assert '"arguments": {"place": "Bern"}' in text
    assert '"tool_call_id": "c1"' in text


def test_any_other_reads_them_in_the_system_message() -> None:
    wanted = chat(messages=[{"role": "system", "content": "Be brief."}, *HISTORY], tools=[WEATHER, CLOCK])
    (messages,) = wanted.prompts
    told, tools = shown(LANGUAGE.chat_template, messages, wanted.tools)  # type: ignore[arg-type]
    assert tools == []
    assert [one["role"] for one in told] == ["system", "user", "assistant", "user"]
    assert told[0]["content"].startswith("Be brief.\n\n# Tools")
    assert '"name": "clock"' in told[0]["content"]
    assert told[2]["content"] == '<tool_call>\n{"name": "weather", "arguments": {"place": "Bern"}}\n</tool_call>'
    assert told[3]["content"] == "<tool_response>\nsnow\n</tool_response>"
    without, _ = shown(LANGUAGE.chat_template, messages, chat().tools)  # type: ignore[arg-type]
    assert without[0]["content"] == "Be brief."


# ------------------------------------------------------------------------------------------------------- forced calls


def forced(template: str, **fields: Any) -> TextRules:
    wanted = chat(**fields)
    grammar = grammar_of(wanted.tools, template, wanted.choices.transforms.grammar)
    assert grammar is not None
    request = Request(ZERO_HASH, (1,), 400, 0, 1_000_000, (END,), Transforms(grammar=grammar))
    return TextRules(request, VOCABULARY, tokenizer().to_str())


def follows(rules: TextRules, text: str) -> bool:
    """Whether a whole text is one that the grammar lets through."""
    tokens = [*LANGUAGE.tokenizer.encode(text, add_special_tokens=False).ids, END]
    return all(rule.place(token) is not None for rule, token in zip(rules.along(tokens), tokens, strict=True))


BERN = '{"name": "weather", "arguments": {"place": "Bern"}}'
TIME = '{"name": "clock", "arguments": {}}'
REQUIRED = {"tools": [WEATHER, CLOCK], "tool_choice": "required"}


def test_required_calls_are_calls_of_the_tools() -> None:
    def tagged(*calls: str) -> str:
        return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)

    assert follows(forced("", **REQUIRED), tagged(BERN))
    assert follows(forced("", **REQUIRED), tagged(TIME, BERN))
    assert not follows(forced("", **REQUIRED), tagged(BERN.replace("Bern", "Oslo")))
    assert not follows(forced("", **REQUIRED), "It snows.")
    assert not follows(forced("", **REQUIRED, parallel_tool_calls=False), tagged(TIME, BERN))
    named = {"tools": [WEATHER, CLOCK], "tool_choice": {"type": "function", "function": {"name": "clock"}}}
    assert follows(forced("", **named), tagged(TIME))
    assert not follows(forced("", **named), tagged(BERN))
    assert follows(forced(LIKE_LLAMA, **REQUIRED), BERN.replace("arguments", "parameters"))
    assert dialect_of(LIKE_LLAMA) == LLAMA
    assert dialect_of(KNOWING) == dialect_of("") == TAGGED


def test_a_format_beside_tools_leaves_the_choice_to_the_model() -> None:
    """As agents ask that have tools and an output of a type."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}
    free = {"tools": [WEATHER, CLOCK], "response_format": form}
    for text in ("42", f"<tool_call>\n{BERN}\n</tool_call>"):
        assert follows(forced("", **free), text)
    assert not follows(forced("", **free), "It snows.")
    assert not follows(forced("", **free | {"tool_choice": "required"}), "42")
    assert not follows(forced("", **free | {"tool_choice": "none"}), f"<tool_call>\n{BERN}\n</tool_call>")
    assert follows(forced(LIKE_LLAMA, **free), BERN.replace("arguments", "parameters"))
    assert follows(forced(LIKE_LLAMA, **free), "42")


# ------------------------------------------------------------------------------------------------------- reading calls


def read(pieces: list[str], dialect: Any = TAGGED, most: int = 16) -> tuple[str, list[tuple[str, Any]]]:
    reader, text, calls = CallReader(dialect, most), "", []
    for said in [*(reader.feed(piece) for piece in pieces), reader.finish()]:
        text += said.text
        calls += said.calls
    assert all(bool(one.name) == bool(one.identifier) for one in calls)
    return text, [(one.name, json.loads(one.arguments)) for one in whole_calls(calls)]


def split(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)] or [text]


SPOKEN = f"Let me see.\n<tool_call>\n{BERN}\n</tool_call>\n<tool_call>\n{TIME}\n</tool_call>"
TEXTS: list[tuple[str, str, list[tuple[str, Any]]]] = [
    (SPOKEN, "Let me see.\n", [("weather", {"place": "Bern"}), ("clock", {})]),
    ("no call, a < b and <tool", "no call, a < b and <tool", []),
    ("<tool_call>not JSON</tool_call> after", "<tool_call>not JSON</tool_call> after", []),
    ('<tool_call>{"arguments": {"a": "}"}, "name": "f"}</tool_call>', "", [("f", {"a": "}"})]),
    ('<tool_call>{"name": "f", "arguments": {"a": "\\"}{", "b": [{}]}}', "", [("f", {"a": '"}{', "b": [{}]})]),
    ('<tool_call>{"name": "f", "arguments": {"a": "<tool_call>"}}</tool_call>', "", [("f", {"a": "<tool_call>"})]),
    (f'<tool_call>{BERN}</tool_call>\n<tool_call>\n{{"name": "cl', "", [("weather", {"place": "Bern"})]),
    (f"<tool_call>{BERN}</tool_call>\n<tool_c", "", [("weather", {"place": "Bern"})]),
    (f"<tool_call>{BERN}</tool_call>\n<tools", "\n<tools", [("weather", {"place": "Bern"})]),
    ('<tool_call>\n{"name": "cl', '<tool_call>\n{"name": "cl', []),
    (
        '<tool_call>{"arguments": 7, "name": "f"}</tool_call>',
        '<tool_call>{"arguments": 7, "name": "f"}</tool_call>',
        [],
    ),
]


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 400), max_size=12))
def test_calls_are_the_same_however_the_text_is_split(case: Any, cuts: list[int]) -> None:
    text, said, calls = case
    assert read(split(text, cuts)) == (said, calls)


@given(st.lists(st.integers(0, 400), max_size=12))
def test_calls_without_tags(cuts: list[int]) -> None:
    plain = '{"name": "weather", "parameters": {"place": "Rome"}}'
    assert read(split(plain, cuts), LLAMA) == ("", [("weather", {"place": "Rome"})])
    assert read(split("It snows {in Bern}.", cuts), LLAMA) == ("It snows {in Bern}.", [])
    assert read(split("{no call}", cuts), LLAMA) == ("{no call}", [])


def test_no_more_calls_than_are_wanted() -> None:
    assert read([SPOKEN], most=1)[1] == [("weather", {"place": "Bern"})]


def test_arguments_come_as_they_are_written() -> None:
    reader = CallReader(TAGGED, 16)
    pieces = [reader.feed(letter).calls for letter in SPOKEN]
    sizes = [len(one.arguments) for calls in pieces for one in calls]
    assert len(sizes) > 15
    assert max(sizes) == 1


def test_the_schema_of_a_tool_stays_its_own() -> None:
    """References of two tools' schemas lead into their own definitions."""
    grammar = grammar_of(chat(**REQUIRED).tools, "")
    assert grammar is not None
    schema = json.loads(grammar.schema)
    jsonschema.validate(json.loads(BERN), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "weather", "arguments": {"place": "Oslo"}}, schema)
