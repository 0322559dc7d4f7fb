"""A scheduler that has texts written and never asks for their results pays for none: a node bounds what it loses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.order_network import Network, Ordered, build
from unit.test_promised_numbers import ordered_of

from troth.node.earning import books
from troth.node.earning.books import NotPaid
from troth.node.orders.context import LendingLimits
from troth.protocol.market.signed import Work
from troth.protocol.types import Address
from troth.protocol.wire_market import Dismiss

MOST = 20
Ending = Callable[[Network, Ordered, Address], Awaitable[None]]


async def by_its_word(network: Network, ordered: Ordered, node: Address) -> None:
    """It acknowledges the running number with nothing."""
    await network.acknowledge(ordered, node, 0, Work.INFERENCE, 0)


async def by_dismissal(network: Network, ordered: Ordered, node: Address) -> None:
    """It says that the order is over."""
    await network.nodes[node].ask(Dismiss(ordered.order_id))


@pytest.mark.parametrize("end", [by_its_word, by_dismissal])
async def test_a_scheduler_that_ends_whole_texts_unpaid_is_served_no_more(tmp_path: Path, end: Ending) -> None:
    network = build(tmp_path, limits=LendingLimits(unpaid=MOST))
    first = await network.infer(network.order())
    node, price = first.nodes[0], network.price(first)
    await end(network, first, node)
    for _ in range(MOST // price - 1):
        again = await network.infer(ordered_of(network, node))
        await end(network, again, node)
    with pytest.raises(NotPaid, match="never asked for the result"):
        await network.infer(ordered_of(network, node))
    await network.nodes[node].restart()
    with pytest.raises(NotPaid, match="never asked for the result"):
        await network.infer(ordered_of(network, node))


async def test_what_broke_off_before_it_was_computed_counts_nothing(tmp_path: Path) -> None:
    network = build(tmp_path, limits=LendingLimits(unpaid=MOST))
    for _ in range(12):
        ordered = await network.serve()
        node = ordered.nodes[0]
        fee = network.nodes[node].context.stores.books.leaf(ordered.order_id, 0, Work.INFERENCE)
        assert fee is not None
        await network.acknowledge(ordered, node, 0, Work.INFERENCE, fee.worth)


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_honest_scheduler_whose_orders_break_off_now_and_then_is_served(
    tmp_path: Path, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other nodes fail, or this one was slow: what breaks off is a share of what is paid, and never all of it."""
    monkeypatch.setattr(books, "BREAKS_OFF", 2)
    network = build(tmp_path, limits=LendingLimits(unpaid=MOST))
    first = await network.infer(network.order())
    node, price = first.nodes[0], network.price(first)
    await by_dismissal(network, first, node)
    for _ in range(2 * MOST // price):
        for _ in range(3):
            served = await network.serve(ordered_of(network, node))
            leaf = network.nodes[node].context.stores.books.leaf(served.order_id, 0, Work.INFERENCE)
            assert leaf is not None
            await network.acknowledge(served, node, 0, Work.INFERENCE, leaf.worth)
        if restarts:
            await network.nodes[node].restart()
        await by_dismissal(network, await network.infer(ordered_of(network, node)), node)
