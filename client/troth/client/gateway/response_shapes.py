"""Answers of POST /v1/responses: OpenAI's response, and the events that build it up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from troth.client.gateway.choice import Delta, WholeChoice
from troth.client.gateway.completion import Completion
from troth.client.gateway.errors import GatewayRefusal
from troth.client.gateway.response_request import StoredResponses, answered
from troth.client.gateway.shapes import ReplyShapes, event
from troth.client.gateway.tool_calls import CallDelta, whole_calls


class ResponseShapes(ReplyShapes):
    """See ``shapes.ReplyShapes``. An answer is one message, where it has text, and an item for each call of a tool."""

    def __init__(self, completion: Completion, base: str, stored: StoredResponses) -> None:
        super().__init__(completion, base)
        self._stored = stored
        self._sequence = 0
        self._text = ""
        self._pieces: list[CallDelta] = []
        self._message_at = -1
        self._calls_at: list[int] = []
        self._closed: set[int] = set()

    def whole(self, answers: Sequence[WholeChoice]) -> dict[str, Any]:
        """The answer in one object."""
        (answer,) = answers
        items = [self._message(answer.text)] if answer.text else []
        items += [self._call(number, call) for number, call in enumerate(answer.calls)]
        return self._done(items, answer.text, answer.calls)

    def begun(self) -> Iterator[bytes]:
        """The response without output."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response("in_progress", []))

    def said(self, number: int, delta: Delta) -> Iterator[bytes]:
        """More text, or more of a call."""
        if delta.text:
            yield from self._more_text(delta.text)
        for call in delta.calls:
            self._pieces.append(call)
            if call.name:
                yield from self._close_calls()
                self._calls_at.append(self._items)
                item = self._call(call.index, call, "in_progress")
                yield self._event("response.output_item.added", output_index=self._calls_at[-1], item=item)
            if call.arguments:
                yield self._event(
                    "response.function_call_arguments.delta",
                    item_id=self._name("fc", call.index),
                    output_index=self._calls_at[call.index],
                    delta=call.arguments,
                )

    def closed(self, number: int, *, last: bool) -> Iterator[bytes]:
        """The last item is whole, and so is the response."""
        yield from self._close_message()
        yield from self._close_calls()
        items = sorted([*([self._message_at] if self._message_at >= 0 else []), *self._calls_at])
        calls = whole_calls(self._pieces)
        output = [
            self._message(self._text)
            if place == self._message_at
            else self._call(self._calls_at.index(place), calls[self._calls_at.index(place)])
            for place in items
        ]
        done = self._done(output, self._text, calls)
        yield self._event(f"response.{done['status']}", response=done)

    def ended(self) -> Iterator[bytes]:
        """Nothing follows."""
        return iter(())

    def failed(self, refusal: GatewayRefusal) -> bytes:
        """The end of a stream that failed."""
        said = refusal.to_json()["error"]
        return self._event(
            "error", code=said["code"], message=said["message"], param=said["param"], troth=said["troth"]
        )

    # -------------------------------------------------------------------------------------------------------- items

    @property
    def _items(self) -> int:
        return len(self._calls_at) + (self._message_at >= 0)

    def _more_text(self, text: str) -> Iterator[bytes]:
        if self._message_at < 0:
            self._message_at = self._items
            item = self._message("", "in_progress") | {"content": []}
            yield self._event("response.output_item.added", output_index=self._message_at, item=item)
            yield self._of_text("response.content_part.added", part=_part(""))
        self._text += text
        yield self._of_text("response.output_text.delta", delta=text, logprobs=[])

    def _of_text(self, kind: str, **fields: Any) -> bytes:
        place = {"item_id": self._name("msg", 0), "output_index": self._message_at, "content_index": 0}
        return self._event(kind, **place, **fields)

    def _close_message(self) -> Iterator[bytes]:
        """At the end alone: a model may speak before and after its calls."""
        if self._message_at >= 0:
            yield self._of_text("response.output_text.done", text=self._text, logprobs=[])
            yield self._of_text("response.content_part.done", part=_part(self._text))
            item = self._message(self._text)
            yield self._event("response.output_item.done", output_index=self._message_at, item=item)

    def _close_calls(self) -> Iterator[bytes]:
        """Every call that is open is whole: what follows stands in another item."""
        calls = whole_calls(self._pieces)
        for number, place in enumerate(self._calls_at):
            if place in self._closed:
                continue
            self._closed.add(place)
            item = self._call(number, calls[number])
            yield self._event(
                "response.function_call_arguments.done",
                item_id=item["id"],
                output_index=place,
                arguments=item["arguments"],
                name=item["name"],
            )
            yield self._event("response.output_item.done", output_index=place, item=item)

    def _message(self, text: str, status: str = "completed") -> dict[str, Any]:
        return {
            "id": self._name("msg", 0),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_part(text)],
        }

    def _call(self, number: int, call: CallDelta, status: str = "completed") -> dict[str, Any]:
        return {
            "id": self._name("fc", number),
            "type": "function_call",
            "call_id": call.identifier,
            "name": call.name,
            "arguments": call.arguments,
            "status": status,
        }

    def _name(self, kind: str, number: int) -> str:
        return f"{kind}_{self._completion.identifier.removeprefix('resp_')}{number:02d}"

    # ----------------------------------------------------------------------------------------------------- response

    def _done(self, items: list[dict[str, Any]], text: str, calls: Sequence[CallDelta]) -> dict[str, Any]:
        """The whole response, which is kept unless the request says otherwise."""
        short = self._completion.choices[0].reason == "length"
        response = self._response("incomplete" if short else "completed", items)
        if short:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        response |= {"usage": self._counts(), "troth": self.troth()}
        told = self._completion.wanted.told
        if told["store"]:
            self._stored.keep(response, answered(told["conversation"], text, calls))
        return response

    def _response(self, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        completion = self._completion
        repeated = {name: value for name, value in completion.wanted.told.items() if name != "conversation"}
        return repeated | {
            "id": completion.identifier,
            "object": "response",
            "created_at": completion.created,
            "status": status,
            "model": completion.model,
            "output": items,
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }

    def _counts(self) -> dict[str, Any]:
        written, prompt = self._completion.choices[0].tokens, self._completion.prompt_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": self._completion.cached},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + written,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return event({"type": kind, "sequence_number": self._sequence - 1} | fields, kind)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
