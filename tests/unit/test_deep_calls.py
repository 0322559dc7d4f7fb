"""Calls of tools as a dishonest model may write them: nested without end, or cut, or with numbers that JSON has not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from troth.client.gateway.message_shapes import arguments_of
from troth.client.gateway.tool_calls import CallReader
from troth.client.gateway.tools import TAGGED


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("depth", [101, 900, 940, 960, 970, 980, 985, 990, 995, 1_000, 100_000])
def test_arguments_that_are_nested_without_end_are_none(depth: int) -> None:
    assert arguments_of(nested(depth)) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (nested(100), json.loads(nested(100))),
        ('{"city":"Bern"}', {"city": "Bern"}),
        ("", {}),
        ('{"city":"Be', {}),
        ('{"n":' + "9" * 5_000 + "}", {}),
        ('{"n":NaN}', {}),
        ('{"n":Infinity}', {}),
        ("[1]", {}),
        (r'{"a":"\ud800"}', {}),
        (r'{"a":"\ud83d\ude00"}', {"a": "\U0001f600"}),
    ],
)
def test_arguments_are_an_object_or_empty(text: str, found: Any) -> None:
    assert arguments_of(text) == found


@pytest.mark.parametrize("call", [r'{"arguments":{},"name":"\ud800"}', r'{"arguments":{"a":"\ud800"},"name":"b"}'])
def test_a_whole_call_that_is_no_text_is_passed_on_as_it_was_written(call: str) -> None:
    reader = CallReader(TAGGED, 1)
    said = [reader.feed(f"<tool_call>{call}</tool_call>"), reader.finish()]
    "".join(
        text for one in said for text in (one.text, *(f"{made.name}{made.arguments}" for made in one.calls))
    ).encode()


@pytest.mark.parametrize("depth", range(900, 1_020, 3))
def test_a_whole_call_that_cannot_be_written_again_is_text(depth: int) -> None:
    # In this order a call is only read once it is whole.
    text = f'<tool_call>{{"arguments":{nested(depth)},"name":"weather"}}</tool_call>'
    reader = CallReader(TAGGED, 1)
    said = [reader.feed(text), reader.finish()]
    calls = [call for one in said for call in one.calls]
    assert calls or "".join(one.text for one in said) == text
