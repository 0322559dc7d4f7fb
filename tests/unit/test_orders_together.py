"""What a node answers when one scheduler asks for several texts at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.order_market import PROMPT
from support.order_network import Network, Ordered, build
from support.order_node import Node

from troth.node.engine.interface import Computed
from troth.node.orders import gathering
from troth.protocol.errors import WireError
from troth.protocol.market.rows import RowHashes, verify_rows
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Hash32
from troth.protocol.wire_decoding import (
    DecodedPart,
    HaltedPart,
    WantedText,
    WrittenPart,
    decode_parts,
    encode_wanted,
)
from troth.protocol.wire_market import Proceed

ROW = 4 * 32


async def begun(tmp_path: Path, count: int = 2) -> tuple[Network, Node, list[Ordered]]:
    """One node that has read the prompts of so many orders, and has chosen their first tokens."""
    network = build(tmp_path, nodes=1, candidates=1)
    orders = [network.order(max_tokens=6 + number) for number in range(count)]
    node = network.nodes[orders[0].nodes[0]]
    for ordered in orders:
        message = network.first(
            ordered, 0, network.papers(ordered, 0), tokens_to_bytes(PROMPT), count=len(PROMPT), emit=True
        )
        reply, rows = await node.ask(*message)
        ordered.rows, ordered.tokens = [rows], [reply.token]
    return network, node, orders


async def asked(node: Node, *texts: tuple[bytes, int], most: int = 64) -> list[DecodedPart]:
    wanted = [WantedText(Hash32(order), start) for order, start in texts]
    reply, data = await node.ask(Proceed(len(wanted), most), encode_wanted(wanted))
    return list(decode_parts(data, reply.texts))


async def all_of(node: Node, *texts: tuple[bytes, int]) -> dict[bytes, list[DecodedPart]]:
    """Asked for until each has finished or halted."""
    left, found = dict(texts), {order: list[DecodedPart]() for order, _ in texts}
    while left:
        for part in await asked(node, *left.items()):
            found[part.order].append(part)
            if isinstance(part, HaltedPart) or part.finished:
                del left[part.order]
            else:
                left[part.order] += len(part.tokens)
    return found


async def test_several_texts_are_told_in_one_answer_and_each_is_signed(tmp_path: Path) -> None:
    _, node, orders = await begun(tmp_path, 3)
    found = await all_of(node, *[(ordered.order_id, 12) for ordered in orders])
    for ordered in orders:
        chain, _ = RowHashes(ordered.order_id, 0).extend(ordered.rows[0], ROW, PROMPT)
        last = ordered.tokens[0]
        for part in found[ordered.order_id]:
            assert isinstance(part, WrittenPart)
            bound = (last, *part.tokens[:-1])
            chain = verify_rows(chain, part.rows, ROW, part.row, signer=node.address, domain=node.domain, tokens=bound)
            last = part.tokens[-1]
        assert chain.position == 12 + ordered.request.max_tokens - 1


async def test_a_text_that_is_not_there_holds_up_no_other(tmp_path: Path) -> None:
    _, node, (first, _) = await begun(tmp_path)
    found = await all_of(node, (bytes(32), 12), (first.order_id, 12))
    (halted,) = found[bytes(32)]
    assert isinstance(halted, HaltedPart)
    assert "no such session" in halted.failure.message
    assert all(isinstance(part, WrittenPart) for part in found[first.order_id])


async def test_a_text_that_says_nothing_holds_up_no_other(tmp_path: Path) -> None:
    _, node, (silent, other) = await begun(tmp_path)
    plain, never = node.engine.forward, asyncio.Event()

    async def forward(key: Any, *rest: Any) -> Computed:
        if key.task_id == silent.order_id:
            await never.wait()
        return await plain(key, *rest)

    node.engine.forward = forward
    async with asyncio.timeout(3):
        end, texts = 12, [(silent.order_id, 12), (other.order_id, 12)]
        while end is not None:
            (part,) = await asked(node, *texts)
            assert isinstance(part, WrittenPart)
            assert part.order == other.order_id
            end = None if part.finished else part.start + len(part.tokens)
            texts[1] = (other.order_id, end or 0)
    await node.service.end([node.engine.slice])


async def test_a_newer_question_takes_the_place_of_the_one_that_waits(tmp_path: Path) -> None:
    _, node, (silent, other) = await begun(tmp_path)
    plain, go = node.engine.forward, asyncio.Event()

    async def forward(*given: Any) -> Computed:
        await go.wait()
        return await plain(*given)

    node.engine.forward = forward
    older = asyncio.create_task(asked(node, (silent.order_id, 12)))
    await asyncio.sleep(0.01)
    newer = asyncio.create_task(asked(node, (silent.order_id, 12), (other.order_id, 12)))
    assert await asyncio.wait_for(older, 1) == []
    assert not newer.done()
    go.set()
    parts = await asyncio.wait_for(newer, 1)
    assert {part.order for part in parts} == {silent.order_id, other.order_id}


async def test_a_question_that_nothing_can_be_said_to_is_not_held_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, node, (first, _) = await begun(tmp_path)
    never = asyncio.Event()
    monkeypatch.setattr(gathering, "HOLD_SECONDS", 0.02)
    monkeypatch.setattr(node.engine, "forward", lambda *_: never.wait())
    assert await asyncio.wait_for(asked(node, (first.order_id, 12)), 1) == []
    await node.service.end([node.engine.slice])


async def test_an_answer_is_bounded_and_who_was_left_out_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, node, orders = await begun(tmp_path, 3)
    monkeypatch.setattr(gathering, "ANSWER_BYTES", ROW)
    left, served = {ordered.order_id: 12 for ordered in orders}, []
    await asked(node, *left.items(), most=1)
    for _ in range(3):
        (part,) = await asked(node, *left.items(), most=1)
        assert isinstance(part, WrittenPart)
        assert len(part.rows) == ROW
        left[part.order] += 1
        served.append(part.order)
    assert set(served) == set(left)


async def test_rows_that_are_no_numbers_are_never_signed(tmp_path: Path) -> None:
    _, node, (broken, other) = await begun(tmp_path)
    plain = node.engine.forward

    async def forward(key: Any, *rest: Any) -> Computed:
        computed = await plain(key, *rest)
        if key.task_id == broken.order_id:
            return Computed(np.full_like(computed.rows, np.nan), 0.001)
        return computed

    node.engine.forward = forward
    found = await all_of(node, (broken.order_id, 12), (other.order_id, 12))
    (halted,) = found[broken.order_id]
    assert isinstance(halted, HaltedPart)
    assert "NaN" in halted.failure.message
    assert all(isinstance(part, WrittenPart) for part in found[other.order_id])


async def test_a_lost_answer_is_given_again_with_what_came_since(tmp_path: Path) -> None:
    _, node, (first, _) = await begun(tmp_path)
    (lost,) = await asked(node, (first.order_id, 12), most=2)
    (again,) = await asked(node, (first.order_id, 12), most=2)
    (whole,) = await asked(node, (first.order_id, 12))
    assert isinstance(lost, WrittenPart)
    assert isinstance(again, WrittenPart)
    assert isinstance(whole, WrittenPart)
    assert (lost.row, lost.rows, lost.tokens) == (again.row, again.rows, again.tokens)
    assert bytes(whole.rows)[: len(lost.rows)] == lost.rows
    (skipped,) = await asked(node, (first.order_id, 99))
    assert isinstance(skipped, HaltedPart)
    assert "next position" in skipped.failure.message


async def test_a_damaged_question_is_refused_as_a_whole(tmp_path: Path) -> None:
    _, node, (first, _) = await begun(tmp_path)
    wanted = encode_wanted([WantedText(first.order_id, 12)])
    for count, payload in ((2, wanted), (1, wanted[:-1]), (0, b""), (2, wanted * 2)):
        with pytest.raises(WireError):
            await node.ask(Proceed(count, 64), payload)
