"""Handing an answer to its reader: whole, or as server-sent events with comments that keep the connection alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from troth.client.gateway.choice import WholeChoice
from troth.client.gateway.completion import Completion
from troth.client.gateway.errors import GatewayRefusal
from troth.client.gateway.shapes import ReplyShapes
from troth.client.gateway.tool_calls import CallDelta, whole_calls
from troth.client.orders.chosen import AnswerToken

KEEP_ALIVE = b": keep-alive\n\n"


async def whole(completion: Completion, shapes: ReplyShapes) -> dict[str, Any]:
    """The answer in one object; raises GatewayRefusal."""
    texts: list[list[str]] = [[] for _ in completion.asked]
    chosen: list[list[AnswerToken]] = [[] for _ in completion.asked]
    calls: list[list[CallDelta]] = [[] for _ in completion.asked]
    while not completion.whole:
        number, delta = await completion.next()
        if delta is not None:
            texts[number].append(delta.text)
            chosen[number] += delta.chosen
            calls[number] += delta.calls
    await completion.counted()
    answers = zip(texts, chosen, calls, strict=True)
    return shapes.whole(
        [WholeChoice("".join(text), tuple(said), whole_calls(called)) for text, said, called in answers]
    )


async def streamed(completion: Completion, shapes: ReplyShapes, silence: float) -> AsyncGenerator[bytes, None]:
    """The answer as events; an error in the middle is the last event. A comment is sent after `silence` seconds."""
    try:
        for one in shapes.begun():
            yield one
        open_choices = set(range(len(completion.asked)))
        while not completion.whole:
            coming = asyncio.ensure_future(completion.next())
            try:
                while not (await asyncio.wait({coming}, timeout=silence))[0]:
                    yield KEEP_ALIVE
            finally:
                # Only when the reader left: an update that has come is never thrown away.
                coming.cancel()
            number, delta = coming.result()
            if delta is not None:
                for one in shapes.said(number, delta):
                    yield one
            if completion.whole:
                # The text is out; only its cost is waited for.
                await completion.counted()
            for one in _closed(completion, shapes, open_choices, number):
                yield one
        for number in sorted(open_choices):
            for one in shapes.closed(number, last=number == max(open_choices)):
                yield one
        for one in shapes.ended():
            yield one
    except GatewayRefusal as refusal:
        yield shapes.failed(refusal)


def _closed(completion: Completion, shapes: ReplyShapes, open_choices: set[int], number: int) -> Iterator[bytes]:
    # With a verdict to wait for, no choice ends before all of it is decided.
    if completion.choices[number].reason is not None and number in open_choices and not completion.wanted.wait:
        open_choices.discard(number)
        yield from shapes.closed(number, last=not open_choices)
