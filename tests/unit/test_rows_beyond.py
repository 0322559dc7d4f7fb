"""Rows that a result leaves out, and messages that are asked for again: what a node copies for them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from support.order_network import Network, Ordered, build

from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.wire_market import Conclude

MANY = 4_000_000
"""Positions; a copy of so many rows has 128 MB at least, or 32 MB of tokens."""


def lengthened(network: Network, ordered: Ordered) -> Any:
    """The first segment's session with many more rows, none of which takes memory as long as nobody copies them."""
    session = network.nodes[ordered.nodes[0]].service._sessions[ordered.order_id, 0, "infer"]
    inputs, outputs = session.rows.inputs[-1], session.rows.outputs[-1]
    session.rows.inputs.append(np.broadcast_to(inputs[-1:], (MANY, *inputs.shape[1:])))
    session.rows.outputs.append(np.broadcast_to(outputs[-1:], (MANY, *outputs.shape[1:])))
    session.rows.positions += MANY
    return session


@contextmanager
def at_most(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


async def test_a_result_over_a_part_copies_no_row_beyond_it(tmp_path: Path) -> None:
    network = build(tmp_path, ends=(1, 2))
    ordered = await network.infer(network.order(max_tokens=6))
    lengthened(network, ordered)
    with at_most(MANY):
        await network.nodes[ordered.nodes[0]].ask(Conclude(ordered.order_id, 0, len(ordered.request.prompt_tokens), 1))


async def test_a_message_that_is_asked_for_again_copies_no_row_beyond_it(tmp_path: Path) -> None:
    """Whoever repeats its first message, again and again, would have a whole text copied each time, on the loop."""
    network = build(tmp_path, ends=(1, 2))
    ordered = await network.infer(network.order(max_tokens=6))
    prompt, node = ordered.request.prompt_tokens, network.nodes[ordered.nodes[0]]
    header, payload = network.first(
        ordered, 0, network.papers(ordered, 0), tokens_to_bytes(prompt), count=len(prompt), emit=False
    )
    reply, rows = await node.ask(header, payload)
    lengthened(network, ordered)
    with at_most(MANY):
        assert await node.ask(header, payload) == (reply, rows)
    assert rows == ordered.rows[0][: len(rows)]
