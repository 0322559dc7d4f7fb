"""Reading POST /v1/messages, as Anthropic's clients send it: the same question as a chat's, in other words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from troth.client.gateway.chat_request import read_chat
from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.request import (
    A_LIST,
    Defaults,
    Fields,
    GatewayRequest,
    kind_of,
    missing,
    read_stops,
    read_text,
)

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_NAMES = {"response_format": "output_config"}
"""Fields of a chat by their names in a message."""
_KEPT = ("model", "temperature", "top_p", "top_k", "min_p", "stream", "troth")


def read_message(body: object, defaults: Defaults) -> GatewayRequest:
    """What is wanted. Raises InvalidParameter or Unsupported, naming the field."""
    fields = _asked(body)
    if fields.get("max_tokens") is None:
        raise missing("max_tokens")
    _require_question(fields)
    return _read(fields, defaults)


def read_counted(body: object, defaults: Defaults) -> GatewayRequest:
    """POST /v1/messages/count_tokens: the same without a length. Raises as ``read_message`` does."""
    return _read(_asked(body | {"max_tokens": 1} if isinstance(body, dict) else body), defaults)


def _asked(body: object) -> Fields:
    """What was sent; raises Unsupported where it asks for what there is not."""
    fields = Fields(body)
    if fields.inner("thinking").get("type") not in (None, "disabled"):
        raise Unsupported("'thinking' is not supported", "", "Leave it out.", param="thinking")
    fields.refuse_unless("mcp_servers", [[]], "your program calls the tools")
    return fields


def _require_question(fields: Fields) -> None:
    """Anthropic's older models go on with a last message of the assistant; here it would be a turn that is over."""
    given = fields.get("messages")
    last = given[-1] if isinstance(given, list) and given else None
    if isinstance(last, dict) and last.get("role") == "assistant":
        what = "The last message is the assistant's, and no answer goes on from words that you give"
        param = f"messages[{len(given) - 1}].role"
        raise Unsupported(what, "", "End with a user's message.", param=param)


def _read(fields: Fields, defaults: Defaults) -> GatewayRequest:
    chat = {name: fields.get(name) for name in _KEPT} | {
        "max_tokens": fields.get("max_tokens"),
        "stop": list(read_stops(fields, "stop_sequences")),
        "messages": [*_system(fields), *_messages(fields)],
        "response_format": _form(fields),
    }
    try:
        return replace(read_chat(chat | _tools(fields), defaults), kind="message")
    except InvalidParameter as error:
        error.param = _own_name(error.param)
        raise


def _own_name(param: str | None) -> str | None:
    """A chat's field by its name in a message."""
    if param is None:
        return None
    own = _NAMES.get(param, param)
    return own.replace(".function.parameters", ".input_schema").replace(".function.", ".")


def _form(fields: Fields) -> dict[str, Any] | None:
    """`output_config.format`, or `output_format` as it was called before, as a chat's `response_format`."""
    config = fields.inner("output_config")
    given = config.inner("format") if config.get("format") is not None else fields.inner("output_format")
    kind = given.get("type")
    if kind is None and given.get("schema") is None:
        return None
    if kind != "json_schema":
        raise Unsupported(
            "The form of an answer is a json_schema",
            "",
            'Send {"type": "json_schema", "schema": …}.',
            param="output_config",
        )
    return {"type": kind, "json_schema": {"schema": given.get("schema")}}


def _system(fields: Fields) -> Iterator[dict[str, Any]]:
    value = fields.get("system")
    if value is not None:
        yield {"role": "system", "content": value if isinstance(value, str) else _texts(value, "system")}


def _messages(fields: Fields) -> Iterator[dict[str, Any]]:
    given = fields.get("messages")
    if given is None:
        raise missing("messages")
    if not isinstance(given, list):
        remedy = 'Send [{"role": "user", "content": "…"}].'
        raise InvalidParameter("'messages' should be a list", kind_of(given), remedy, param="messages")
    for number, one in enumerate(given):
        inner = Fields(one, f"messages[{number}]")
        role, place = inner.text("role"), inner.param("content")
        if role not in {"user", "assistant"}:
            remedy = "What the model is told beforehand goes into 'system'."
            raise Unsupported("A message's role is user or assistant", "", remedy, param=inner.param("role"))
        content = inner.get("content")
        if isinstance(content, str):
            yield {"role": role, "content": content}
        elif isinstance(content, list):
            yield from _blocks(role, [Fields(part, f"{place}[{index}]") for index, part in enumerate(content)])
        else:
            remedy = "Send a text, or a list of blocks."
            raise InvalidParameter("Content is text or a list", kind_of(content), remedy, param=place)


def _blocks(role: str, blocks: list[Fields]) -> Iterator[dict[str, Any]]:
    """A message in parts; results of tools are messages of their own."""
    texts, calls = [], []
    for block in blocks:
        kind = block.text("type")
        if kind == "text":
            texts.append(block.text("text"))
        elif kind == "tool_use" and role == "assistant":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            function = {"name": block.text("name"), "arguments": arguments}
            calls.append({"id": block.text("id"), "type": "function", "function": function})
        elif kind == "tool_result" and role == "user":
            content = block.get("content") or ""
            said = content if isinstance(content, str) else _texts(content, block.param("content"))
            yield {"role": "tool", "tool_call_id": block.text("tool_use_id"), "content": said}
        elif kind not in {"thinking", "redacted_thinking"}:
            raise Unsupported("This part cannot be shown to the model", "", "Leave it out.", param=block.param("type"))
    if calls:
        yield {"role": role, "content": "".join(texts), "tool_calls": calls}
    elif texts:
        yield {"role": role, "content": "".join(texts)}


def _texts(value: Any, place: str) -> str:
    if not isinstance(value, list):
        remedy = 'Send a text, or [{"type": "text", "text": "…"}].'
        raise InvalidParameter("This is text, or a list of parts", kind_of(value), remedy, param=place)
    found = []
    for number, one in enumerate(value):
        part = Fields(one, f"{place}[{number}]")
        if part.text("type") != "text":
            raise Unsupported("Only text can be shown to the model", "", "Leave it out.", param=part.param("type"))
        found.append(read_text(part.get("text"), part.param("text")))
    return "".join(found)


def _tools(fields: Fields) -> dict[str, Any]:
    given = fields.get("tools") or []
    if not isinstance(given, list):
        raise InvalidParameter("'tools' should be a list", kind_of(given), A_LIST, param="tools")
    tools = []
    for number, one in enumerate(given):
        tool = Fields(one, f"tools[{number}]")
        if tool.text("type", "custom") != "custom":
            raise Unsupported(
                "Only tools of your own can be called here", "", "Leave it out.", param=tool.param("type")
            )
        function = {"name": tool.text("name"), "description": tool.text("description", "")}
        tools.append({"type": "function", "function": function | {"parameters": tool.get("input_schema")}})
    choice = fields.inner("tool_choice")
    kind = choice.text("type", "auto")
    if kind not in _CHOICES and kind != "tool":
        remedy = 'Send {"type": "auto"}, or another of these.'
        raise InvalidParameter("'tool_choice' is of type auto, any, tool or none", "", remedy, param="tool_choice")
    named = {"type": "function", "function": {"name": choice.text("name", "")}}
    return {
        "tools": tools,
        "tool_choice": named if kind == "tool" else _CHOICES[kind],
        "parallel_tool_calls": not choice.flag("disable_parallel_tool_use"),
    }
