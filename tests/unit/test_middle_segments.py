"""Segments that are not shown the request: what they know of an answer's length, and what they are paid for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.order_network import MODEL, Network, Ordered, build
from support.toy_engine import ToyEngine
from unit.test_early_end_money import books_of, refusal_of

from troth.node.errors import BadInput
from troth.node.orders.context import LendingLimits
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed, tab_id
from troth.protocol.market.signed import Result, Work
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Segment
from troth.protocol.wire_market import Advance, Conclude, Dismiss

LAYERS, MIDDLE, CHUNK = 3, 1, 4
DEARER = {"prompt_price": 2_000_000_000, "cached_price": 200_000_000, "written_price": 4_000_000_000}
"""Enough for three nodes."""


class ThreeLayers(ToyEngine):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(Segment(0, LAYERS), scale)
        self.layers = LAYERS


def three_parts(folder: Path) -> Network:
    network = build(folder, ends=(1, 2, 3), model=replace(MODEL, layers=LAYERS))
    for node in network.nodes.values():
        node.make = ThreeLayers
    return network


async def passed(network: Network, ordered: Ordered, start: int, tokens: tuple[int, ...], *, emit: bool) -> Any:
    """Once through all segments."""
    data, upstream = tokens_to_bytes(tokens), None
    for segment, node in enumerate(ordered.nodes):
        fields = {"count": len(tokens), "emit": emit and segment == LAYERS - 1, "upstream": upstream}
        if start == 0:
            papers = network.papers(ordered, segment)
            message = network.first(ordered, segment, papers, data, **fields)
        else:
            message = Advance(ordered.order_id, segment, "infer", start, **fields), data
        reply, rows = await network.nodes[node].ask(*message)
        upstream, data = reply.row, (tokens_to_bytes(tokens) if segment == 0 else b"") + rows
    return reply


async def in_chunks(network: Network, ordered: Ordered) -> Ordered:
    """The whole answer; its prompt comes in several messages, as a scheduler sends one that is long."""
    prompt, reply = ordered.request.prompt_tokens, None
    for start in range(0, len(prompt), CHUNK):
        part = prompt[start : start + CHUNK]
        reply = await passed(network, ordered, start, part, emit=start + CHUNK >= len(prompt))
    assert reply is not None
    ordered.tokens.append(reply.token)
    while reply.finished is None:
        reply = await passed(network, ordered, ordered.positions, (ordered.tokens[-1],), emit=True)
        ordered.tokens.append(reply.token)
    return ordered


async def result_of(network: Network, ordered: Ordered, positions: int, written: int) -> Result:
    node = network.nodes[ordered.nodes[MIDDLE]]
    _, word = await node.ask(Conclude(ordered.order_id, MIDDLE, positions, written))
    return canonical.decode(Signed[Result], word, 1 << 16).message


@pytest.mark.parametrize("length", [8, 12, 13])
@pytest.mark.parametrize("written", [1, 2, 6])
async def test_a_prompt_in_several_messages_is_paid_as_a_prompt(tmp_path: Path, length: int, written: int) -> None:
    network = three_parts(tmp_path)
    ordered = network.order(prompt=tuple(range(10, 10 + length)), max_tokens=written, **DEARER)
    await in_chunks(network, ordered)
    result = await result_of(network, ordered, ordered.positions, written)
    assert (result.prompt, result.written) == (length, written)
    (tab,) = books_of(network, ordered.nodes[MIDDLE]).tabs()
    assert books_of(network, ordered.nodes[MIDDLE]).forfeited(tab) == 0


async def test_what_was_written_and_is_concluded_as_a_prompt_counts_as_forfeited(tmp_path: Path) -> None:
    """A scheduler says how much was written; a segment without the request counts its messages."""
    network = three_parts(tmp_path)
    ordered = network.order(**DEARER)
    middle = ordered.nodes[MIDDLE]
    network.nodes[middle].limits = LendingLimits(unpaid=20)
    await network.infer(ordered)

    def lost() -> int:
        return int(books_of(network, middle).forfeited(tab_id(ordered.pays[middle, MIDDLE, Work.INFERENCE].tab)))

    async def concluded_as_prompt() -> None:
        before, ordered = lost(), await network.infer(next(one for one in more(network) if one.nodes[MIDDLE] == middle))
        assert (await result_of(network, ordered, ordered.positions, 1)).written == 1
        assert lost() > before
        leaf = books_of(network, middle).leaf(ordered.order_id, MIDDLE, Work.INFERENCE)
        await network.acknowledge(ordered, middle, MIDDLE, Work.INFERENCE, leaf.worth)

    assert "never asked for the result" in await refusal_of(concluded_as_prompt)


def more(network: Network) -> Iterator[Ordered]:
    while True:
        yield network.order(**DEARER)


@pytest.mark.parametrize("written", [99, 1 << 20])
async def test_more_tokens_than_positions_are_refused_and_free_no_scheduler(tmp_path: Path, written: int) -> None:
    """What a node fails at itself is nobody's debt: so a wrong question may not look like that."""
    network = three_parts(tmp_path)
    ordered = await network.infer(network.order(**DEARER))
    middle = ordered.nodes[MIDDLE]
    with pytest.raises(BadInput, match="more was written"):
        await result_of(network, ordered, ordered.positions, written)
    await network.nodes[middle].ask(Dismiss(ordered.order_id))
    assert books_of(network, middle).forfeited(tab_id(ordered.pays[middle, MIDDLE, Work.INFERENCE].tab)) > 0
