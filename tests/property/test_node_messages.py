"""Whatever a scheduler sends, in whatever order, with kills between: a node answers or refuses, and signs once."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.order_network import Network, Ordered, build
from support.order_node import Node
from support.toy_engine import ToyEngine

from troth.node.errors import PeerRefusal
from troth.protocol.errors import ProtocolError
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Hash32
from troth.protocol.wire import Decoded, Rows
from troth.protocol.wire_decoding import WantedText, WrittenPart, decode_parts, encode_wanted
from troth.protocol.wire_market import Advance, Conclude, Concluded, Dismiss, Hidden, Judged, Proceed, Redeemable

KILL = "kill"


async def script(network: Network, ordered: Ordered) -> tuple[Any, list[Any]]:
    """The node that infers, and every message that an honest scheduler, or a confused one, may send to it."""
    prompt = ordered.request.prompt_tokens
    papers = network.papers(ordered, 0)
    first = network.first(ordered, 0, papers, tokens_to_bytes(prompt), count=len(prompt), emit=True)
    other = network.first(ordered, 0, papers, tokens_to_bytes(prompt[:5]), count=5)
    texts = [ordered.tokens, ordered.tokens[:3], [1, 2, 3]]
    ends = [
        (Conclude(ordered.order_id, 0, len(prompt) + len(text) - 1, len(text)), tokens_to_bytes(text)) for text in texts
    ]
    steps = [
        (Advance(ordered.order_id, 0, "infer", 12 + offset, 1, emit=True), tokens_to_bytes([token]))
        for offset, token in enumerate((*ordered.tokens[:3], 7))
    ]
    alone = [
        (Proceed(1, 3), encode_wanted([WantedText(Hash32(ordered.order_id), position)])) for position in (12, 13, 15)
    ]
    noise = [
        (Redeemable(), b"{}"),
        (Dismiss(ordered.order_id), b""),
        (Advance(ordered.order_id, 0, "check", 0, 1), b""),
    ]
    return ordered.nodes[0], [first, first, other, *ends, *steps, *alone, *noise, KILL]


async def fed(node: Node, message: Any) -> Any:
    """The answer; None where it is refused, in words."""
    try:
        return await node.ask(*message)
    except (PeerRefusal, ProtocolError) as error:
        if not (error.what and error.remedy):
            raise AssertionError("a refusal without words") from error
        return None


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.integers(0, 16), min_size=1, max_size=14), st.sampled_from([1.0, 0.9]))
def test_one_chain_of_rows_and_one_result_whatever_comes(order: list[int], scale: float) -> None:
    """After a kill the machine may compute other bits: nothing that was signed before is signed differently."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_one_chain(Path(folder), order, scale))


async def _one_chain(folder: Path, order: list[int], scale: float) -> None:
    model = build(folder / "model", nodes=1, candidates=1)
    ordered = await model.infer(model.order())
    network = build(folder / "nodes", nodes=1, candidates=1)
    network.client, network.count = model.client, model.count
    operator, messages = await script(network, ordered)
    node, rows, words = network.nodes[operator], {}, set()
    for index in order:
        message = messages[index % len(messages)]
        if message == KILL:
            node.scale = scale
            await node.restart()
            continue
        answer = await fed(node, message)
        if answer is None:
            continue
        signed = [answer[0].row] if isinstance(answer[0], Rows) else []
        if isinstance(answer[0], Decoded):
            parts = decode_parts(answer[1], answer[0].texts)
            signed = [part.row for part in parts if isinstance(part, WrittenPart)]
        for row in signed:
            assert rows.setdefault(row.position, (row.row_hash, row.previous)) == (row.row_hash, row.previous)
        if isinstance(answer[0], Concluded):
            words.add(answer[1])
    assert len(words) <= 1
    node.context.stores.close()


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.sampled_from(["check", "recommit", "judge", KILL]), min_size=1, max_size=12), st.booleans())
def test_one_commitment_and_one_verdict_whatever_comes(order: list[str], sways: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_one_verdict(Path(folder), order, sways))


async def _one_verdict(folder: Path, order: list[str], sways: bool) -> None:
    network = build(folder, nodes=4)
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    node = network.nodes[verifier]
    messages = {
        "check": network.check_message(ordered, 0, verifier),
        "recommit": network.recommit_message(ordered, 0),
        "judge": network.judge_message(ordered, 0),
    }
    hidden, verdicts = set(), set()
    for step in order:
        if step == KILL:
            node.scale = 0.9 if sways else 1.0
            await node.restart()
            continue
        answer = await fed(node, messages[step])
        if answer is not None and isinstance(answer[0], Hidden):
            hidden.add(answer[1])
        if answer is not None and isinstance(answer[0], Judged):
            verdicts.add(answer[1])
    assert len(hidden) <= 1
    assert len(verdicts) <= 1


@pytest.mark.slow
@settings(max_examples=60)
@given(st.binary(max_size=400), st.integers(0, 500), st.integers(0, 500), st.integers(0, 2))
def test_damaged_papers_are_refused_in_words(noise: bytes, papers_size: int, at: int, kind: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_damaged(Path(folder), noise, (papers_size, at, kind)))


async def _damaged(folder: Path, noise: bytes, drawn: tuple[int, int, int]) -> None:
    papers_size, at, kind = drawn
    network = build(folder, nodes=1, candidates=1)
    ordered = network.order()
    prompt = ordered.request.prompt_tokens
    header, payload = network.first(ordered, 0, network.papers(ordered, 0), tokens_to_bytes(prompt), count=len(prompt))
    node = network.nodes[ordered.nodes[0]]
    if kind == 0:
        message = header, payload[:at] + noise + payload[at:]
    elif kind == 1:
        message = msgspec.structs.replace(header, papers_size=papers_size), payload
    else:
        message = msgspec.structs.replace(header, papers_size=len(noise), request_size=0), noise
    answer = await fed(node, message)
    assert answer is None or (kind == 0 and not noise)
    engine = node.engine
    assert isinstance(engine, ToyEngine)
    assert engine.calls == (0 if answer is None else 1)
