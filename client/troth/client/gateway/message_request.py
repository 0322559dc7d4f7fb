"""Reading POST /v1/messages, as Anthropic's clients send it: the same question as a chat's, in other words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from troth.client.gateway.chat_request import read_chat
from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.request import Defaults, Fields, GatewayRequest, kind_of, missing, read_text

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_KEPT = ("model", "temperature", "top_p", "top_k", "min_p", "stream", "troth")


def read_message(body: object, defaults: Defaults) -> GatewayRequest:
    """What is wanted. Raises InvalidParameter or Unsupported, naming the field."""
    fields = Fields(body)
    if fields.inner("thinking").get("type") not in (None, "disabled"):
        raise Unsupported("'thinking' is not supported", "", "Leave it out.", param="thinking")
    if fields.get("max_tokens") is None:
        raise missing("max_tokens")
    chat = {name: fields.get(name) for name in _KEPT} | {
        "max_tokens": fields.get("max_tokens"),
        "stop": fields.get("stop_sequences"),
        "messages": [*_system(fields), *_messages(fields)],
    }
    return replace(read_chat(chat | _tools(fields), defaults), kind="message")


def read_counted(body: object, defaults: Defaults) -> GatewayRequest:
    """POST /v1/messages/count_tokens: the same without a length. Raises as ``read_message`` does."""
    return read_message(body | {"max_tokens": 1} if isinstance(body, dict) else body, defaults)


def _system(fields: Fields) -> Iterator[dict[str, Any]]:
    value = fields.get("system")
    if value is not None:
        yield {"role": "system", "content": value if isinstance(value, str) else _texts(value, "system")}


def _messages(fields: Fields) -> Iterator[dict[str, Any]]:
    given = fields.get("messages")
    if given is None:
        raise missing("messages")
    if not isinstance(given, list):
        raise InvalidParameter("'messages' should be a list", kind_of(given), "Correct it.", param="messages")
    for number, one in enumerate(given):
        inner = Fields(one, f"messages[{number}]")
        role, place = inner.text("role"), inner.param("content")
        if role not in {"user", "assistant"}:
            raise Unsupported("A message's role is user or assistant", "", "Correct it.", param=inner.param("role"))
        content = inner.get("content")
        if isinstance(content, str):
            yield {"role": role, "content": content}
        elif isinstance(content, list):
            yield from _blocks(role, [Fields(part, f"{place}[{index}]") for index, part in enumerate(content)])
        else:
            raise InvalidParameter("Content is text or a list", kind_of(content), "Correct it.", param=place)


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
        raise InvalidParameter("This is text, or a list of parts", kind_of(value), "Correct it.", param=place)
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
        raise InvalidParameter("'tools' should be a list", kind_of(given), "Correct it.", param="tools")
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
        raise InvalidParameter("'tool_choice' is auto, any, tool or none", "", "Correct it.", param="tool_choice")
    named = {"type": "function", "function": {"name": choice.text("name", "")}}
    return {
        "tools": tools,
        "tool_choice": (named if kind == "tool" else _CHOICES[kind]) if tools else None,
        "parallel_tool_calls": not choice.flag("disable_parallel_tool_use"),
    }
