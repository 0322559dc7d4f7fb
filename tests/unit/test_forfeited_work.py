"""A scheduler that has texts written and never asks for their results pays for none: a node bounds what it loses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.order_market import DOMAIN, SCHEDULER_KEY
from support.order_network import Network, Ordered, build
from unit.test_promised_numbers import ordered_of

from troth.node.earning import books, view
from troth.node.earning.books import NotPaid
from troth.node.earning.policy import EarningPolicy
from troth.node.orders import service
from troth.node.orders.context import LendingLimits
from troth.protocol.market import canonical
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import sign
from troth.protocol.market.signed import Work
from troth.protocol.market.views import class_of
from troth.protocol.types import Address
from troth.protocol.wire_market import Dismiss, Redeemable

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


async def test_earnings_name_what_was_forfeited_and_whose_orders_are_refused_for_it(tmp_path: Path) -> None:
    network = build(tmp_path, limits=LendingLimits(unpaid=MOST))
    first = await network.infer(network.order())
    node, price = first.nodes[0], network.price(first)
    context = network.nodes[node].context
    state = network.ground.state
    cap = class_of(state, state.parties[node].execution_class)[0].fee_cap

    def told() -> dict[str, Any]:
        policy = EarningPolicy(unpaid=cap + price)
        return view.earnings(context.stores.books, context.ledger(), network.nodes[node].now, policy)

    assert told()["forfeited_units"] == "0"
    await by_dismissal(network, first, node)
    again = told()
    assert (again["forfeited_units"], again["unpaid_units"]) == (str(price), "0")
    assert not [line for line in again["why"] if "never asked" in line]
    await by_dismissal(network, await network.infer(ordered_of(network, node)), node)
    again, (tab,) = told(), view.tabs_view(context.stores.books, context.ledger())
    assert again["forfeited_units"] == tab.shown()["forfeited_units"] == str(2 * price)
    assert f"never asked for the result of work worth {2 * price} units" in again["why"][0]
    assert "troth node claim" not in again["why"][0], "nobody can claim what has no result"


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


async def test_what_a_node_could_not_conclude_itself_is_not_its_schedulers_debt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build(tmp_path, limits=LendingLimits(unpaid=MOST))

    async def broken(*_arguments: object) -> None:
        raise OSError("the disk of this node is full")

    monkeypatch.setattr(service, "conclude", broken)
    asked = await network.infer(network.order())
    node, price = asked.nodes[0], network.price(asked)
    for _ in range(2 * MOST // price):
        with pytest.raises(OSError, match="full"):
            await network.nodes[node].ask(*network.conclude_message(asked, 0))
        await by_its_word(network, asked, node)
        asked = await network.infer(ordered_of(network, node))


async def test_a_word_that_contradicts_itself_has_no_tab_read_again(tmp_path: Path) -> None:
    """Whoever has a tab could keep the records busy with reading a month of work, a word a second."""
    network = build(tmp_path)
    ordered = await network.serve()
    node = ordered.nodes[0]
    before = network.nodes[node].context.stores.database.rollbacks
    voucher = replace(network.payers[node].voucher, spent=10**18, sequence=99)
    with pytest.raises(InvalidVoucher):
        await network.nodes[node].ask(Redeemable(), canonical.encode(sign(voucher, DOMAIN, SCHEDULER_KEY)))
    assert network.nodes[node].context.stores.database.rollbacks == before
