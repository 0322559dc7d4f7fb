"""What the gateway accepts, and what it refuses because the answer would silently be another one."""

from __future__ import annotations

from typing import Any

import pytest

from troth.client.errors import ContextTooShort
from troth.client.gateway.chat_request import read_chat
from troth.client.gateway.completion_request import read_completion
from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.failures import refusal_of
from troth.client.gateway.request import Defaults, GatewayRequest

USER = {"role": "user", "content": "hello"}
DEFAULTS = Defaults(max_tokens=99)


def chat(**fields: Any) -> GatewayRequest:
    return read_chat({"model": "toy", "messages": [USER]} | fields, DEFAULTS)


def completion(**fields: Any) -> GatewayRequest:
    return read_completion({"model": "toy", "prompt": "hello"} | fields, DEFAULTS)


def test_defaults_are_those_of_openai() -> None:
    wanted = chat()
    assert (wanted.choices.temperature_millionths, wanted.choices.top_p_millionths) == (1_000_000, 1_000_000)
    assert (wanted.choices.max_tokens, wanted.count, wanted.stops, wanted.logprobs) == (99, 1, (), -1)
    assert (wanted.stream, wanted.include_usage, wanted.wait) == (False, False, False)
    assert completion().choices.max_tokens == 16


def test_top_k_and_min_p_are_those_of_vllm() -> None:
    for read in (chat, completion):
        choices = read(top_k=40, min_p=0.05).choices
        assert (choices.top_k, choices.min_p_millionths) == (40, 50_000)
    assert chat(top_k=-1, min_p=0) == chat(top_k=0) == chat()


def test_roles_and_parts_of_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    given = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts, "name": "Ada"}]
    assert chat(messages=given).prompts == (
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ab"}],
    )


@pytest.mark.parametrize(
    ("fields", "tokens"), [({"max_tokens": 5}, 5), ({"max_tokens": 5, "max_completion_tokens": 7}, 7), ({}, 99)]
)
def test_either_name_limits_the_answer(fields: dict[str, Any], tokens: int) -> None:
    assert chat(**fields).choices.max_tokens == tokens


def test_null_counts_as_absent_and_unknown_fields_are_ignored() -> None:
    ignored = {"seed": 7, "user": "ada", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "x": [1]}
    nothing = dict.fromkeys(("temperature", "stop", "n", "max_tokens", "logprobs", "tools", "stream_options"))
    assert chat(**ignored, **nothing) == chat()
    harmless = {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "response_format": {"type": "text"}}
    assert chat(**harmless, tools=[], tool_choice="none", modalities=["text"]) == chat()


IMAGE = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[1]"),
    ({"messages": [USER, {"role": "function", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"role": "assistant", "content": "", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"response_format": {"type": "grammar"}}, "response_format"),
    ({"n": 9}, "n"),
    ({"audio": {"voice": "alloy"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"troth": {"wait": "forever"}}, "troth.wait"),
]


@pytest.mark.parametrize(("fields", "param"), UNSUPPORTED)
def test_what_would_change_the_answer_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Unsupported) as refused:
        chat(**fields)
    error = refused.value.to_json()["error"]
    assert (refused.value.http_status, error["code"], error["param"]) == (400, "unsupported_value", param)


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
    ({"messages": [USER] * 5000}, "messages"),
    ({"model": 7}, "model"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 2**32}, "top_k"),
    ({"top_k": "40"}, "top_k"),
    ({"min_p": 1.01}, "min_p"),
    ({"min_p": float("nan")}, "min_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"n": "2"}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"stop": ["x"] * 1000}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"stop": "x" * 257}, "stop"),
    ({"stop": [7]}, "stop"),
    ({"stop": {"a": 1}}, "stop"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"troth": "wait"}, "troth"),
]


@pytest.mark.parametrize(("fields", "param"), INVALID)
def test_what_cannot_be_is_refused_with_its_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        chat(**fields)
    assert refused.value.param == param
    # What somebody asked never comes back in an error, and so never in a log.
    assert "hello" not in str(refused.value)


@pytest.mark.parametrize("body", [None, [], "x", 7, {}])
def test_a_body_that_is_no_request(body: object) -> None:
    with pytest.raises(InvalidParameter):
        read_chat(body, DEFAULTS)


def test_prompts_of_all_kinds() -> None:
    assert completion(prompt="a").prompts == ("a",)
    assert completion(prompt=["a", "b"]).prompts == ("a", "b")
    assert completion(prompt=[1, 2]).prompts == ((1, 2),)
    assert completion(prompt=[[1, 2], [3]]).prompts == ((1, 2), (3,))
    assert completion(prompt=["a", "b"], n=2, logprobs=0, stop="x").orders == 4


REFUSED_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": [[-1]]}, "prompt[0]"),
    ({"prompt": [1, "a"]}, "prompt[0]"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": ["a"] * 9}, "prompt"),
    ({"prompt": ["a"] * 3, "n": 3}, "n"),
    ({"suffix": "end"}, "suffix"),
    ({"best_of": 2}, "best_of"),
    ({"echo": True, "logprobs": 1}, "echo"),
    ({"logprobs": 6}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED_COMPLETIONS)
def test_completions_that_are_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        completion(**fields)
    assert refused.value.param == param


def test_what_is_missing_or_wrong_is_told_with_what_to_send() -> None:
    """A client without `messages` read that they "should be a list (nothing). Correct it."."""
    for body, said in (
        ({"model": "toy"}, "'messages' is missing: . Send it."),
        ({"messages": [USER]}, "'model' is missing: . Send it."),
    ):
        with pytest.raises(InvalidParameter) as refused:
            read_chat(body, DEFAULTS)
        assert f"{refused.value.what}: {refused.value.value}. {refused.value.remedy}" == said
    with pytest.raises(InvalidParameter) as refused:
        chat(temperature=9)
    assert refused.value.remedy == "Send a number from 0 to 2."


def test_a_prompt_that_does_not_fit_is_told_in_a_program_s_words() -> None:
    """It named --max-tokens, which is the command's."""
    told = refusal_of(ContextTooShort(30_051, 8_192), param="messages")
    assert (told.http_status, told.code) == (400, "context_length_exceeded")
    assert told.what == "Prompt and max_tokens need 30051 positions"
    assert "max_tokens: 21859 less" in told.remedy
    assert "--" not in told.remedy
