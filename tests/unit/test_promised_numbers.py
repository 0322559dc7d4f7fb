"""A number of a tab pays for one piece of work: a node takes on no other under it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.order_network import Network, Ordered, build

from troth.node.earning.books import NotPaid
from troth.node.earning.leaf import Leaf
from troth.protocol.market.signed import Work
from troth.protocol.types import Address


def ordered_of(network: Network, node: Address) -> Ordered:
    """An order for which this node is drawn."""
    return next(one for one in iter(network.order, None) if one.nodes[0] == node)


def leaf_of(network: Network, ordered: Ordered, node: Address, work: Work = Work.INFERENCE) -> Leaf | None:
    return network.nodes[node].context.stores.books.leaf(ordered.order_id, 0, work)


def claimable(network: Network, node: Address) -> dict[int, int]:
    context = network.nodes[node].context
    books = context.stores.books
    (tab,) = books.tabs()
    return books.claimable(tab, context.ledger())


async def test_a_scheduler_that_promises_one_number_for_many_orders_is_served_one(tmp_path: Path) -> None:
    network = build(tmp_path)
    first = await network.serve()
    node = first.nodes[0]
    owed = claimable(network, node)
    for _ in range(3):
        network.payers.clear()  # so that it begins with number 1 again
        with pytest.raises(NotPaid, match="for other work"):
            await network.serve(ordered_of(network, node))
    assert leaf_of(network, first, node) is not None
    assert claimable(network, node) == owed
    assert owed.keys() == {1}


async def test_nor_is_a_check_promised_under_the_number_of_an_answer(tmp_path: Path) -> None:
    network = build(tmp_path)
    served = {}
    while True:
        ordered = await network.serve()
        served[ordered.nodes[0]] = ordered
        verifier = next((one for one in network.drawn(ordered)[0].seats if one in served), None)
        if verifier is not None:
            break
    network.payers.clear()
    with pytest.raises(NotPaid, match="for other work"):
        await network.verify(ordered, 0, verifier)
    assert leaf_of(network, served[verifier], verifier) is not None


async def test_the_number_of_work_that_broke_off_is_free(tmp_path: Path) -> None:
    network = build(tmp_path)
    broken = await network.infer(network.order())
    node = broken.nodes[0]
    await network.nodes[node].restart()
    network.payers.clear()
    again = await network.serve(ordered_of(network, node))
    assert leaf_of(network, again, node) is not None
    assert leaf_of(network, broken, node) is None
