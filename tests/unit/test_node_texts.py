"""A scheduler's questions to one node about all texts that it writes alone there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.waiting import eventually

from troth.protocol.errors import WireError
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32
from troth.protocol.wire import Decoded, Failure, Frame
from troth.protocol.wire_decoding import (
    DecodedPart,
    HaltedPart,
    WantedText,
    WrittenPart,
    decode_wanted,
    encode_parts,
)
from troth.protocol.wire_fields import RowSignature
from troth.protocol.wire_market import Proceed
from troth.scheduler.nodes.texts import NodeTexts
from troth.transport.errors import ChannelTimeout, ChannelUnavailable, RemoteFailure

A, B, C = (Hash32(keccak256(name)) for name in (b"a", b"b", b"c"))
Answer = Callable[[tuple[WantedText, ...]], list[DecodedPart]]


def part(wanted: WantedText) -> WrittenPart:
    row = RowSignature(wanted.start, bytes(32), bytes(32), bytes(65))
    return WrittenPart(wanted.order, wanted.start, (7,), row, bytes(8), 8)


@dataclass
class ScriptedNode:
    """A channel to a node that tells of all texts but those that are ``silent``; holds a question of silent ones."""

    silent: set[Hash32] = field(default_factory=set)
    answer: Answer | None = None
    breaks: int = 0
    away: bool = False
    endpoint: str = "https://node"
    questions: list[tuple[WantedText, ...]] = field(default_factory=list)
    newer: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, wait: float = 0.0) -> None:
        if self.away:
            raise ChannelUnavailable("connection refused")

    async def request(self, header: Proceed, payload: bytes, timeout: float) -> Frame:
        wanted = decode_wanted(payload, header.texts)
        self.questions.append(wanted)
        self.newer.set()
        self.newer = newer = asyncio.Event()
        await asyncio.sleep(0)
        if self.breaks:
            self.breaks -= 1
            raise ChannelUnavailable("the connection broke")
        told = self.answer(wanted) if self.answer else [part(one) for one in wanted if one.order not in self.silent]
        if not told and self.answer is None:
            async with asyncio.timeout(timeout):
                await newer.wait()
        return Frame(Decoded(len(told)), memoryview(encode_parts(told)))


def texts_of(node: ScriptedNode) -> NodeTexts:
    channel: Any = node
    return NodeTexts(lambda: channel)


async def follow(texts: NodeTexts, order: Hash32, positions: int, timeout: float = 5.0) -> int:
    for position in range(positions):
        assert (await texts.next(WantedText(order, position), timeout)).tokens == (7,)
    return positions


async def test_texts_share_their_questions() -> None:
    node = ScriptedNode()
    texts = texts_of(node)
    assert await asyncio.gather(*[follow(texts, order, 20) for order in (A, B, C)]) == [20, 20, 20]
    assert len(node.questions) < 30, "sixty parts, three in nearly every answer"
    await texts.close()


async def test_a_silent_text_loses_its_own_patience_only() -> None:
    node = ScriptedNode(silent={A})
    texts = texts_of(node)
    silent = asyncio.create_task(texts.next(WantedText(A, 0), 0.2))
    assert await asyncio.wait_for(follow(texts, B, 10), 1) == 10
    with pytest.raises(ChannelTimeout, match=r"nothing of this text within 0\.2"):
        await silent
    assert await asyncio.wait_for(follow(texts, C, 1), 1) == 1, "what was lost is not asked for any more"
    assert all(one.order != A for one in node.questions[-1])
    await texts.close()


async def test_what_a_node_gave_beside_what_was_taken_is_known_before_it_is_concluded() -> None:
    """A question that another text's beginning sends is answered, too, and with more: its answer is dropped."""
    held: list[asyncio.Event] = []

    def two(wanted: WantedText) -> WrittenPart:
        row = RowSignature(wanted.start + 1, bytes(32), bytes(32), bytes(65))
        return replace(part(wanted), tokens=(7, 7), row=row, rows=bytes(16))

    class Overlapping(ScriptedNode):
        async def request(self, header: Proceed, payload: bytes, timeout: float) -> Frame:
            wanted = decode_wanted(payload, header.texts)
            held.append(asyncio.Event())
            number = len(held)
            await held[-1].wait()
            told = [part(one) if number == 1 else two(one) for one in wanted]
            return Frame(Decoded(len(told)), memoryview(encode_parts(told)))

    texts = texts_of(Overlapping())
    first = asyncio.create_task(texts.next(WantedText(A, 0), 5.0))
    await eventually(lambda: len(held) == 1)
    beside = asyncio.create_task(texts.next(WantedText(B, 0), 5.0))
    await eventually(lambda: len(held) == 2)
    held[0].set()
    assert (await first).tokens == (7,)
    asked = asyncio.create_task(texts.took_all(A, 1))
    await asyncio.sleep(0)
    assert not asked.done(), "a question about it is open"
    held[1].set()
    assert (await beside).tokens == (7, 7)
    assert not await asked
    assert await texts.took_all(A, 2)
    await texts.close()


async def test_a_text_that_breaks_off_says_why_and_others_go_on() -> None:
    def answer(wanted: tuple[WantedText, ...]) -> list[DecodedPart]:
        refusal = Failure("out_of_order", "no such session", "Order\x1b again.")
        return [HaltedPart(one.order, one.start, refusal) if one.order == A else part(one) for one in wanted]

    node = ScriptedNode(answer=answer)
    texts = texts_of(node)
    broken = asyncio.create_task(follow(texts, A, 3))
    assert await follow(texts, B, 3) == 3
    with pytest.raises(RemoteFailure, match="no such session") as refused:
        await broken
    assert "\x1b" not in str(refused.value), "a stranger's words do not steer a terminal"
    await texts.close()


async def test_a_part_that_nobody_asked_for_is_no_answer() -> None:
    for other in (WantedText(C, 0), WantedText(A, 1)):
        texts = texts_of(ScriptedNode(answer=lambda _wanted, other=other: [part(other)]))
        with pytest.raises(WireError, match="not asked for"):
            await texts.next(WantedText(A, 0), 1.0)
        await texts.close()


async def test_texts_go_on_over_a_connection_that_stands_again() -> None:
    node = ScriptedNode(breaks=1)
    texts = texts_of(node)
    assert await asyncio.gather(follow(texts, A, 3), follow(texts, B, 3)) == [3, 3]
    node.breaks = 2
    for outcome in await asyncio.gather(follow(texts, A, 1), follow(texts, B, 1), return_exceptions=True):
        assert isinstance(outcome, ChannelUnavailable)
    node.breaks, node.away = 0, True
    with pytest.raises(ChannelUnavailable):
        await texts.next(WantedText(A, 0), 1.0)
    node.away = False
    assert await follow(texts, A, 1) == 1, "a later order finds the node again"
    await texts.close()


async def test_a_text_that_begins_is_asked_for_while_others_wait() -> None:
    node = ScriptedNode(silent={A})
    texts = texts_of(node)
    silent = asyncio.create_task(texts.next(WantedText(A, 0), 5.0))
    await asyncio.sleep(0.02)
    assert await asyncio.wait_for(follow(texts, B, 1), 1) == 1
    node.silent.clear()
    assert (await asyncio.wait_for(silent, 1)).order == A
    await texts.close()


async def test_a_node_that_is_overloaded_is_asked_again() -> None:
    busy = [2]

    def answer(wanted: tuple[WantedText, ...]) -> list[DecodedPart]:
        if busy[0]:
            busy[0] -= 1
            raise RemoteFailure("https://node", "overloaded", "128 requests are in flight", "Try again in a second.")
        return [part(one) for one in wanted]

    texts = texts_of(ScriptedNode(answer=answer))
    assert await follow(texts, A, 2) == 2
    busy[0] = 10**6
    with pytest.raises(ChannelTimeout):
        await texts.next(WantedText(A, 2), 0.1)
    await texts.close()


async def test_a_node_with_empty_answers_does_not_set_the_pace() -> None:
    node = ScriptedNode(answer=lambda _wanted: [])
    texts = texts_of(node)
    with pytest.raises(ChannelTimeout):
        await texts.next(WantedText(A, 0), 0.2)
    assert len(node.questions) < 40
    await texts.close()


async def test_a_node_that_answers_and_has_nothing_yet_is_slow_and_not_dead() -> None:
    """An honest node with twenty texts, on a machine that does much else, lost them all after ten seconds."""
    ready = time.monotonic() + 3.0

    def answer(wanted: tuple[WantedText, ...]) -> list[DecodedPart]:
        return [part(one) for one in wanted] if time.monotonic() >= ready else []

    texts = texts_of(ScriptedNode(answer=answer))
    assert (await texts.next(WantedText(A, 0), 2.0, 60.0)).tokens == (7,)
    ready += 3600.0
    with pytest.raises(ChannelTimeout, match=r"has too much to do: .* within 2\.5 s"):
        await texts.next(WantedText(B, 0), 2.0, 2.5)
    await texts.close()


async def test_a_node_that_answers_no_question_is_given_up_however_slow_it_may_be() -> None:
    texts = texts_of(ScriptedNode(silent={A}))
    began = time.monotonic()
    with pytest.raises(ChannelTimeout, match=r"nothing within 0\.1 s"):
        await texts.next(WantedText(A, 0), 0.1, 60.0)
    assert time.monotonic() - began < 30
    await texts.close()


async def test_whoever_waits_hears_that_it_was_closed() -> None:
    texts = texts_of(ScriptedNode(silent={A}))
    waiting = asyncio.create_task(texts.next(WantedText(A, 0), 5.0))
    await asyncio.sleep(0.01)
    await texts.close()
    with pytest.raises(ChannelUnavailable, match="closed"):
        await waiting
