"""Reading POST /v1/responses: the same question as a chat's, in the words of OpenAI's Responses API; and stored turns.

A response is kept with its whole conversation, so that `previous_response_id` can go on from it. It is kept in memory
alone, the newest ones, until the gateway ends: questions and answers are written to no file.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from troth.client.gateway.chat_request import read_chat
from troth.client.gateway.errors import InvalidParameter, NotFound, Unsupported
from troth.client.gateway.request import A_LIST, Defaults, Fields, GatewayRequest, kind_of

MOST_KEPT = 256
"""Responses that are kept."""
MOST_BYTES = 64 * 2**20
"""Of all of them together, as JSON."""
_KEPT = (
    "model", "temperature", "top_p", "top_k", "min_p", "stream", "troth", "presence_penalty", "frequency_penalty",
    "logit_bias",
)  # fmt: skip
_TOLD: dict[str, Any] = {
    "instructions": None, "metadata": {}, "previous_response_id": None, "parallel_tool_calls": True, "tools": [],
    "tool_choice": "auto", "max_output_tokens": None, "temperature": 1.0, "top_p": 1.0, "store": True,
    "text": {"format": {"type": "text"}}, "truncation": "disabled", "reasoning": None, "user": None,
}  # fmt: skip
"""Fields that a response repeats, and what they are where they are left out."""
_NAMES = (
    (r"response_format(\.json_schema)?", "text.format"),
    (r"messages(\[.*)?", "input"),
    (r"max_tokens", "max_output_tokens"),
    (r"(tools\[\d+\])\.function", r"\1"),
)
"""Fields of a chat by their names in a response."""
_REFUSED = {
    "background": "this gateway answers at once",
    "conversation": "no conversations are kept; previous_response_id goes on from a response",
    "prompt": "there are no stored prompts; send its text as instructions or input",
    "max_tool_calls": "your program calls the tools, and can stop by itself",
}
"""Fields of the Responses API that nothing here does, and why."""
_TEXTS = {"input_text", "output_text", "text"}


class StoredResponses:
    """Responses by their ids: each with the conversation that led to it, its own answer last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[dict[str, Any], list[dict[str, Any]], int]] = OrderedDict()
        self._bytes = 0

    def keep(self, response: dict[str, Any], conversation: list[dict[str, Any]]) -> None:
        """Keep one; the oldest go where there are too many."""
        size = len(json.dumps([response, conversation]))
        self.drop(response["id"])
        self._kept[response["id"]] = (response, conversation, size)
        self._bytes += size
        while len(self._kept) > MOST_KEPT or self._bytes > MOST_BYTES:
            self.drop(next(iter(self._kept)))

    def drop(self, identifier: str) -> bool:
        """Forget one; whether it was there."""
        found = self._kept.pop(identifier, None)
        self._bytes -= found[2] if found is not None else 0
        return found is not None

    def response(self, identifier: str) -> dict[str, Any]:
        """One of them; NotFound."""
        return self._find(identifier)[0]

    def conversation(self, identifier: str) -> list[dict[str, Any]]:
        """The messages up to its answer; NotFound."""
        return self._find(identifier)[1]

    def _find(self, identifier: str) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
        if identifier not in self._kept:
            remedy = "Send the whole conversation: the newest responses are kept, and only while the gateway runs."
            raise NotFound("There is no such response", identifier[:80], remedy, code="response_not_found")
        return self._kept[identifier]


def read_response(body: object, defaults: Defaults, stored: StoredResponses) -> GatewayRequest:
    """What is wanted. Raises InvalidParameter, Unsupported or NotFound, naming the field."""
    fields = Fields(body)
    for name, why in _REFUSED.items():
        fields.refuse_unless(name, [False], why)
    before = fields.get("previous_response_id")
    messages = list(stored.conversation(fields.text("previous_response_id"))) if before is not None else []
    messages += _messages(fields)
    instructions = fields.get("instructions")
    told = [{"role": "system", "content": fields.text("instructions")}] if instructions is not None else []
    chat = {name: fields.get(name) for name in _KEPT} | {
        "max_tokens": fields.get("max_output_tokens"),
        "messages": [*told, *messages],
        "response_format": _format(fields.inner("text").inner("format")),
        "tools": _tools(fields),
        "tool_choice": _choice(fields.get("tool_choice")),
        "parallel_tool_calls": fields.get("parallel_tool_calls"),
    }
    try:
        wanted = read_chat(chat, defaults)
    except InvalidParameter as error:
        _rename(error)
        raise
    repeated = {name: default if fields.get(name) is None else fields.get(name) for name, default in _TOLD.items()}
    return replace(wanted, kind="response", told=repeated | {"conversation": messages})


def _rename(error: InvalidParameter) -> None:
    """Have an error about a chat name what is wrong as the response has it that the chat was read from."""
    if error.param:
        before = error.param
        for chat, response in _NAMES:
            error.param = re.sub(rf"^{chat}(?=$|\.)", response, error.param)
        error.what = error.what.replace(f"'{before}'", f"'{error.param}'")


def _messages(fields: Fields) -> Iterator[dict[str, Any]]:
    given = fields.get("input")
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    if not isinstance(given, list) or not given:
        shown = "an empty list" if isinstance(given, list) else kind_of(given)
        raise InvalidParameter(
            "'input' should be text or a list of items", shown, "Send a text, or items.", param="input"
        )
    calls: list[dict[str, Any]] = []
    for number, one in enumerate(given):
        item = Fields(one, f"input[{number}]")
        kind = item.text("type", "message")
        if kind == "function_call":
            function = {"name": item.text("name"), "arguments": item.text("arguments")}
            calls.append({"id": item.text("call_id"), "type": "function", "function": function})
            continue
        if calls:
            yield {"role": "assistant", "content": None, "tool_calls": calls}
            calls = []
        if kind == "function_call_output":
            said = _content(item, "output")
            yield {"role": "tool", "tool_call_id": item.text("call_id"), "content": said}
        elif kind == "message":
            yield {"role": item.text("role"), "content": _content(item, "content")}
        elif kind != "reasoning":
            what = "An item of the input is a message, a function_call or its output"
            raise Unsupported(what, "", "Leave it out.", param=item.param("type"))
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}


def _content(item: Fields, name: str) -> str:
    content = item.get(name)
    if not isinstance(content, list):
        return item.text(name)
    found = []
    for number, one in enumerate(content):
        part = Fields(one, f"{item.param(name)}[{number}]")
        if part.text("type") not in _TEXTS:
            raise Unsupported("Only text can be shown to the model", "", "Leave it out.", param=part.param("type"))
        found.append(part.text("text"))
    return "".join(found)


def _format(given: Fields) -> dict[str, Any] | None:
    """`text.format` as a chat's `response_format`."""
    kind = given.get("type")
    if kind != "json_schema":
        return None if kind is None else {"type": given.text("type")}
    return {"type": kind, "json_schema": {"name": given.get("name"), "schema": given.get("schema")}}


def _tools(fields: Fields) -> list[dict[str, Any]]:
    given = fields.get("tools") or []
    if not isinstance(given, list):
        raise InvalidParameter("'tools' should be a list", kind_of(given), A_LIST, param="tools")
    found = []
    for number, one in enumerate(given):
        tool = Fields(one, f"tools[{number}]")
        function = {name: tool.get(name) for name in ("name", "description", "parameters")}
        found.append({"type": tool.text("type"), "function": function})
    return found


def _choice(value: Any) -> Any:
    """`tool_choice` as a chat has it."""
    if isinstance(value, Mapping) and value.get("type") == "function":
        return {"type": "function", "function": {"name": value.get("name")}}
    return value


def answered(conversation: Sequence[dict[str, Any]], text: str, calls: Sequence[Any]) -> list[dict[str, Any]]:
    """A conversation with its answer, as it goes on."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        written = [
            {"id": one.identifier, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in calls
        ]
        message["tool_calls"] = written
    return [*conversation, message]
