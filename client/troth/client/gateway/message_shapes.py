"""Answers of POST /v1/messages: Anthropic's message, and the events that build it up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from troth.client.gateway.choice import Delta, WholeChoice
from troth.client.gateway.errors import GatewayRefusal
from troth.client.gateway.questions import TabCompletion, TabShapes
from troth.client.gateway.refusals import anthropic_form
from troth.client.gateway.shapes import event
from troth.client.gateway.tool_calls import CallDelta

MOST_NESTED = 100
"""Levels of a call's arguments: readers and writers of JSON give up at some hundreds."""
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageShapes(TabShapes):
    """See ``shapes.Shapes``. A block is open at a time: text, or a call of a tool."""

    def __init__(self, completion: TabCompletion, base: str) -> None:
        super().__init__(completion, base)
        self._blocks = 0
        self._open = ""

    def whole(self, answers: Sequence[WholeChoice]) -> dict[str, Any]:
        """The answer in one object."""
        (answer,) = answers
        content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
        content += [_call(call) | {"input": arguments_of(call.arguments)} for call in answer.calls]
        return self._message(content, self._reason()) | {"troth": self.troth()}

    def begun(self) -> Iterator[bytes]:
        """The message without content."""
        yield _event("message_start", message=self._message([], None))

    def said(self, number: int, delta: Delta) -> Iterator[bytes]:
        """More text, or more of a call."""
        if delta.text:
            if self._open != "text":
                yield from self._start("text", {"type": "text", "text": ""})
            yield self._piece({"type": "text_delta", "text": delta.text})
        for call in delta.calls:
            if call.name:
                yield from self._start("call", _call(call) | {"input": {}})
            if call.arguments:
                yield self._piece({"type": "input_json_delta", "partial_json": call.arguments})

    def closed(self, number: int, *, last: bool) -> Iterator[bytes]:
        """The last block is whole."""
        yield from self._stop()
        yield _event(
            "message_delta",
            delta={"stop_reason": self._reason(), "stop_sequence": self._completion.choices[0].stop},
            usage=self._counts(),
            troth=self.troth(),
        )

    def ended(self) -> Iterator[bytes]:
        """The message is whole."""
        yield _event("message_stop")

    def failed(self, refusal: GatewayRefusal) -> bytes:
        """The end of a stream that failed."""
        return event(anthropic_form(refusal.to_json(), refusal.http_status), "error")

    def _start(self, kind: str, block: dict[str, Any]) -> Iterator[bytes]:
        yield from self._stop()
        self._open = kind
        yield _event("content_block_start", index=self._blocks, content_block=block)

    def _piece(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._blocks, delta=delta)

    def _stop(self) -> Iterator[bytes]:
        if self._open:
            yield _event("content_block_stop", index=self._blocks)
            self._blocks, self._open = self._blocks + 1, ""

    def _reason(self) -> str | None:
        choice = self._completion.choices[0]
        if choice.stop is not None and choice.reason == "stop":
            return "stop_sequence"
        return _REASONS.get(choice.reason, "end_turn") if choice.reason else None

    def _counts(self) -> dict[str, int]:
        cached = self._tabs.cached
        written = self._completion.choices[0].tokens
        counted = {"input_tokens": self._completion.prompt_tokens - cached, "cache_read_input_tokens": cached}
        return counted | {"cache_creation_input_tokens": 0, "output_tokens": written}

    def _message(self, content: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
        return {
            "id": self._completion.identifier,
            "type": "message",
            "role": "assistant",
            "model": self._completion.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": self._completion.choices[0].stop,
            "usage": self._counts(),
        }


def _call(call: CallDelta) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.identifier, "name": call.name}


def arguments_of(text: str) -> dict[str, Any]:
    """A call's arguments; empty where the answer was cut in the middle of them, or where they are no JSON object that
    whoever reads the answer can read: the model may write what it likes."""
    try:
        found = json.loads(text or "{}", parse_constant=_no_number)
        if not isinstance(found, dict) or not _is_shallow(found):
            return {}
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError):
        return {}
    return found


def _is_shallow(value: Any) -> bool:
    inside = [value]
    for _ in range(MOST_NESTED + 1):
        inside = [one for part in inside for one in _parts(part)]
        if not inside:
            return True
    return False


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind} | fields, kind)
