"""Reading POST /v1/chat/completions. Unknown fields are accepted; what would silently change the answer is not."""

from __future__ import annotations

from typing import Any

from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.request import (
    MOST_ALTERNATIVES,
    MOST_CHOICES,
    Defaults,
    Fields,
    GatewayRequest,
    kind_of,
    missing,
    read_check,
    read_choices,
    read_length,
    read_stops,
    read_text,
    read_wait,
)
from troth.client.gateway.tools import read_calls, read_tools
from troth.client.template import Message

MOST_MESSAGES = 4096
MOST_PARTS = 1024
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def read_chat(body: object, defaults: Defaults) -> GatewayRequest:
    """What is wanted. Raises InvalidParameter or Unsupported, naming the field."""
    fields = Fields(body)
    _refuse(fields)
    stream, tools = fields.flag("stream"), read_tools(fields)
    choices = read_choices(fields, read_length(fields, ("max_completion_tokens", "max_tokens"), defaults.max_tokens))
    return GatewayRequest(
        kind="chat",
        model=fields.text("model"),
        prompts=(_messages(fields),),
        choices=choices,
        count=_count(fields),
        stops=read_stops(fields),
        logprobs=_logprobs(fields),
        stream=stream,
        include_usage=stream and fields.inner("stream_options").flag("include_usage"),
        wait=read_wait(fields, defaults.wait),
        check=read_check(fields),
        tools=tools,
    )


def _count(fields: Fields) -> int:
    if isinstance(fields.get("n"), int) and fields.get("n") > MOST_CHOICES:
        what = f"'n' is at most {MOST_CHOICES}: each choice is an order of its own"
        raise Unsupported(what, fields.get("n"), "Ask several times.", param="n")
    return fields.whole("n", 1, MOST_CHOICES, 1)


def _logprobs(fields: Fields) -> int:
    top = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES, 0)
    if fields.flag("logprobs"):
        return top
    if top:
        raise InvalidParameter("'top_logprobs' needs 'logprobs'", top, "Set logprobs to true.", param="top_logprobs")
    return -1


def _refuse(fields: Fields) -> None:
    if fields.get("audio") is not None or fields.get("modalities") not in (None, ["text"]):
        name = "audio" if fields.get("audio") is not None else "modalities"
        raise Unsupported("Only text comes out", name, "Leave it out.", param=name)
    if fields.get("web_search_options") is not None:
        what, remedy = "The model cannot search the web", "Leave it out, or send a tool of yours that searches."
        raise Unsupported(what, "", remedy, param="web_search_options")


def _messages(fields: Fields) -> list[Message]:
    given = fields.get("messages")
    if given is None:
        raise missing("messages")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_MESSAGES:
        shown = len(given) if isinstance(given, list) else kind_of(given)
        what = f"'messages' should be a list of 1 to {MOST_MESSAGES}"
        remedy = f"Send fewer: at most {MOST_MESSAGES}." if given and isinstance(given, list) else "Send at least one."
        raise InvalidParameter(what, shown, remedy, param="messages")
    return [_message(Fields(one, f"messages[{number}]")) for number, one in enumerate(given)]


def _message(fields: Fields) -> Message:
    role = fields.text("role")
    if role not in _ROLES:
        place = fields.param("role")
        what = "A message's role is developer, system, user, assistant or tool"
        raise Unsupported(what, "", "Send one of these roles.", param=place)
    for name in ("function_call", "audio"):
        if fields.get(name):
            raise Unsupported(f"'{name}' cannot be shown to the model", "", "Leave it out.", param=fields.param(name))
    if role == "assistant" and fields.get("tool_calls"):
        said = "" if fields.get("content") is None else _content(fields)
        return {"role": role, "content": said, "tool_calls": read_calls(fields)}
    named = {"tool_call_id": fields.text("tool_call_id")} if role == "tool" else {}
    return {"role": _ROLES[role], "content": _content(fields)} | named


def _content(fields: Fields) -> str:
    content, place = fields.get("content"), fields.param("content")
    if isinstance(content, list) and 0 < len(content) <= MOST_PARTS:
        return "".join(_part(part, f"{place}[{number}]") for number, part in enumerate(content))
    return read_text(content, place)


def _part(part: Any, place: str) -> str:
    fields = Fields(part, place)
    if fields.text("type") != "text":
        raise Unsupported("Only parts of type text can be shown to the model", "", "Leave it out.", param=place)
    return fields.text("text")
