"""A check that a verifier has forgotten, since no court hears of it any more, is not made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.order_market import BLOCK
from support.order_network import Network, Ordered, build
from support.tabs_stage import PARAMETERS

from troth.cases.keeping import last_block
from troth.node.errors import NotAssigned
from troth.node.orders.duties import NodeDuties
from troth.protocol.market import convictions
from troth.protocol.types import Address


async def checked_long_ago(network: Network) -> tuple[Ordered, Address, Any]:
    """An order that was checked, whose verifier has freed all that it knew of it, and a draw of today over it."""
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    _, verdict = await network.verify(ordered, 0, verifier)
    network.ground.block = last_block(BLOCK, PARAMETERS) + 1
    unused: Any = None
    await NodeDuties(network.nodes[verifier].context, unused, unused, unused, unused).free()
    # Its kernels round otherwise by now, as they do beside other texts.
    network.nodes[verifier].engine.scale = 1.0 + 2.0**-20
    return network.draw(ordered), verifier, verdict


async def judged_again(network: Network, ordered: Ordered, verifier: Address, verdict: Any) -> None:
    """What a scheduler gains by it."""
    _, again = await network.verify(ordered, 0, verifier)
    raise AssertionError(convictions.two_verdicts(verdict, again, network.nodes[verifier].domain))


async def test_a_draw_of_today_does_not_have_an_order_of_last_month_checked_again(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered, verifier, verdict = await checked_long_ago(network)
    with pytest.raises(NotAssigned, match="no court hears"):
        await judged_again(network, ordered, verifier, verdict)
