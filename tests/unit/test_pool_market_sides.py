"""What the pools see of a market's chain."""

from __future__ import annotations

from pathlib import Path

from support.market_logs import META
from support.tab_scene import TabScene

from troth.protocol.market import events as on
from troth.protocol.types import Segment
from troth.scheduler.pool.sides import MarketSides


def test_a_markets_class_is_seen_as_its_slices_and_groups(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, ends=(1, 2), nodes=4)
    sides = MarketSides(lambda: (scene.ledger.state, scene.ledger.block))
    side = sides.side(scene.class_id)
    assert side is not None
    nodes = list(scene.nodes)
    assert (side.layers, side.parties) == (2, scene.definition.verifiers + 6), "fewer owners, and no check says much"
    assert (side.most_groups, side.kept) == (2, frozenset())
    assert dict(side.slices) == dict.fromkeys(nodes, Segment(0, 2))
    assert dict(side.groups) == {Segment(0, 1): frozenset(nodes), Segment(1, 2): frozenset(nodes)}
    assert sides.is_node(nodes[0])
    assert not sides.is_node(scene.client_tab.payee)
    assert sides.side(scene.client_tab.payer.encode()[:32]) is None  # type: ignore[arg-type]
    scene.ledger.fold(on.Deregistered(nodes[0], 900, META))
    left = sides.side(scene.class_id)
    assert left is not None
    assert nodes[0] not in left.slices
    assert not sides.is_node(nodes[0])
