"""A verifier's no is owed once the result falls: until then its scheduler may not acknowledge it with nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.order_market import SCHEDULER
from support.order_network import Network, Ordered, build
from support.tabs_stage import PARAMETERS

from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import case_id, tab_id
from troth.protocol.market.proceedings import CaseState, Outcome
from troth.protocol.market.signed import Opinion, Work
from troth.protocol.market.state import CaseRecord
from troth.protocol.market.types import Tab
from troth.protocol.types import Address


async def denied(network: Network) -> tuple[Ordered, Address]:
    """An answer that was computed with another model, and a verifier that says so."""
    ordered = network.order()
    network.nodes[ordered.nodes[0]].scale = 1.5
    await network.serve(ordered)
    verifier = next(iter(network.drawn(ordered)[0].seats))
    _, verdict = await network.verify(ordered, 0, verifier)
    assert verdict.message.opinion == Opinion.REJECT
    return ordered, verifier


def claimable(network: Network, verifier: Address) -> dict[int, int]:
    context = network.nodes[verifier].context
    return context.stores.books.claimable(tab_id(Tab(SCHEDULER, verifier, SCHEDULER)), context.ledger())


async def say_nothing_is_owed(network: Network, ordered: Ordered, verifier: Address) -> None:
    before = network.payers[verifier]
    try:
        await network.acknowledge(ordered, verifier, 0, Work.CHECK, 0)
    except InvalidVoucher:
        network.payers[verifier] = before
        raise


def in_court(network: Network, ordered: Ordered, outcome: Outcome | None) -> None:
    name, state = case_id(ordered.order_id, 0), network.ground.state
    case = CaseRecord(name, CaseState(order=ordered.order_id), outcome, ())
    network.ground.state = replace(state, cases=state.cases.set(name, case))


async def test_a_scheduler_cannot_acknowledge_a_no_with_nothing_before_its_result_can_fall(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered, verifier = await denied(network)
    with pytest.raises(InvalidVoucher, match="pays less"):
        await say_nothing_is_owed(network, ordered, verifier)
    assert claimable(network, verifier) == {}, "it is not owed yet"
    state = network.ground.state
    network.ground.state = replace(state, voided=state.voided.set((ordered.order_id, 0), ordered.order_id))
    (owed,) = claimable(network, verifier).values()
    assert owed > 0
    with pytest.raises(InvalidVoucher, match="pays less"):
        await say_nothing_is_owed(network, ordered, verifier)
    await network.acknowledge(ordered, verifier, 0, Work.CHECK, owed)


async def test_what_no_case_is_about_is_worth_nothing_after_a_lag(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered, verifier = await denied(network)
    network.ground.block += PARAMETERS.lag + 1
    in_court(network, ordered, None)
    with pytest.raises(InvalidVoucher, match="pays less"):
        await say_nothing_is_owed(network, ordered, verifier)
    in_court(network, ordered, Outcome.UPHELD)
    await say_nothing_is_owed(network, ordered, verifier)


async def test_a_no_that_was_acknowledged_with_nothing_is_no_payment(tmp_path: Path) -> None:
    """Of what a scheduler pays, a share may break off unpaid; what it never paid gives it none."""
    network = build(tmp_path)
    ordered, verifier = await denied(network)
    network.ground.block += 3 * PARAMETERS.lag
    await say_nothing_is_owed(network, ordered, verifier)
    tab = tab_id(Tab(SCHEDULER, verifier, SCHEDULER))
    for _ in range(2):
        books = network.nodes[verifier].context.stores.books
        paid = books.voucher(tab)
        assert paid is not None
        assert books._held(tab).paid == paid.message.spent == 0
        await network.nodes[verifier].restart()
