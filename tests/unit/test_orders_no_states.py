"""Rows that are signed and are no states convict whoever signed them, and nobody who was given them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.order_market import DOMAIN, PROMPT
from support.order_network import Network, Ordered, build
from support.order_node import Node

from troth.node.errors import BadInput
from troth.protocol.errors import InvalidSignature
from troth.protocol.market import checks
from troth.protocol.market.messages import sign
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Opinion
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.wire_fields import RowSignature

pytestmark = pytest.mark.slow

BROKEN = (np.nan, np.inf, -np.inf, 2.0**40)
PLACE = 5


def signed_by(node: Node, ordered: Ordered, rows: bytes, tokens: tuple[int, ...]) -> tuple[RowHashes, RowSignature]:
    """The end of segment 0's chain over any rows, as a node that does not look at them signs it."""
    chain, last = RowHashes(ordered.order_id, 0).extend(rows, 4 * 32, tokens)
    return chain, RowSignature(last.position, last.row_hash, last.previous, node.operator.sign(last))


def broken(rows: bytes, number: float) -> bytes:
    states = np.frombuffer(rows, "<f4").copy()
    states[PLACE] = number
    return states.tobytes()


async def started(network: Network) -> tuple[Ordered, bytes]:
    """An order whose first segment has computed its prompt."""
    ordered = network.order()
    data = tokens_to_bytes(PROMPT)
    header, payload = network.first(ordered, 0, network.papers(ordered, 0), data, count=len(PROMPT))
    _, rows = await network.nodes[ordered.nodes[0]].ask(header, payload)
    return ordered, rows


@pytest.mark.parametrize("number", BROKEN)
async def test_a_node_computes_nothing_of_them_and_says_who_signed_them(tmp_path: Path, number: float) -> None:
    network = build(tmp_path, ends=(1, 2))
    ordered, rows = await started(network)
    first, second = (network.nodes[one] for one in ordered.nodes)
    rows = broken(rows, number)
    _, end = signed_by(first, ordered, rows, PROMPT)
    data, computed = tokens_to_bytes(PROMPT) + rows, second.engine.calls
    asked = {"count": len(PROMPT), "emit": True}
    message = network.first(ordered, 1, network.papers(ordered, 1), data, upstream=end, **asked)
    with pytest.raises(BadInput, match=f"node of segment 0 signed what is no state.*: {first.address}"):
        await second.ask(*message)
    # Whoever forwards rows that it made up itself blames nobody.
    other = next(one for address, one in network.nodes.items() if address not in ordered.nodes)
    _, forged = signed_by(other, ordered, rows, PROMPT)
    with pytest.raises(InvalidSignature):
        await second.ask(*network.first(ordered, 1, network.papers(ordered, 1), data, upstream=forged, **asked))
    assert second.engine.calls == computed


async def with_broken_rows(network: Network) -> Ordered:
    """An order both of whose nodes are in league: what passes between them is no state, and both sign it."""
    ordered = await network.conclude(await network.infer(network.order()))
    first, second = (network.nodes[one] for one in ordered.nodes)
    ordered.rows[0] = broken(ordered.rows[0], np.nan)
    chain, ordered.ends[0] = signed_by(first, ordered, ordered.rows[0], ordered.sequence)
    head = checks.head(ordered.order_id, ordered.head_salt, chain.link)
    given = replace(ordered.results[0].message, output_head=head)
    taken = replace(ordered.results[1].message, input_head=head)
    ordered.results = [sign(given, DOMAIN, first.secret), sign(taken, DOMAIN, second.secret)]
    return network.draw(ordered)


async def test_a_verifier_of_whoever_signed_them_rejects(tmp_path: Path) -> None:
    network = build(tmp_path, ends=(1, 2))
    ordered = await with_broken_rows(network)
    for verifier in network.drawn(ordered)[0].seats:
        _, verdict = await network.verify(ordered, 0, verifier)
        assert verdict.message.opinion == Opinion.REJECT
        (kept,) = network.nodes[verifier].context.stores.rejections.waiting()
        assert kept.verdict == verdict


async def test_a_verifier_that_is_given_them_signs_nothing_and_says_why(tmp_path: Path) -> None:
    network = build(tmp_path, ends=(1, 2))
    ordered = await with_broken_rows(network)
    for verifier in network.drawn(ordered)[1].seats:
        node = network.nodes[verifier]
        with pytest.raises(BadInput, match=f"node of segment 0 signed.*{ordered.nodes[0]}"):
            await node.ask(*network.check_message(ordered, 1, verifier))
        assert node.context.stores.words.any(ordered.order_id, "verdict") is None
