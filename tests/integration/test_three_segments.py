"""A model in three segments on a running network: served, checked and paid, however long its prompt is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.court_network import CourtNetwork, court_network
from support.toy_engine import COLUMNS

from troth.node.earning.books import NodeBooks
from troth.node.earning.leaf import Stage
from troth.protocol.market.signed import Opinion, Work
from troth.protocol.market.types import Ask
from troth.protocol.types import Address

pytestmark = [pytest.mark.chain, pytest.mark.slow]

ENDS, CHUNK, MAX_TOKENS = (1, 2, 3), 4, 6
CHEAP = Ask(200_000_000, 20_000_000, 400_000_000)
"""So that three nodes are paid with what the scheduler asks."""
LONG = tuple(range(1, 14))
"""A prompt that goes in four messages of ``CHUNK`` positions."""


@pytest.mark.parametrize("prompt", [(1, 2, 3), LONG], ids=["short", "long"])
async def test_every_segment_serves_is_checked_and_earns(
    anvil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: tuple[int, ...]
) -> None:
    monkeypatch.setattr("troth.scheduler.orders.pipeline.MESSAGE_BYTES", CHUNK * COLUMNS * 4)
    async with court_network(anvil, tmp_path, ends=ENDS, ask=CHEAP) as network:
        asked = await network.scene.send(network.scene.asked(prompt, MAX_TOKENS))
        assert [line["type"] for line in asked.lines][-1] == "draw", asked.lines
        history = network.scheduler.orders.context.store.get(asked.order_id)
        assert [one.prompt + one.cached for one in history.results] == [len(prompt)] * len(ENDS)
        written = {one.written for one in history.results}
        assert written == {sum(line["type"] == "token" for line in asked.lines)}
        await network.scene.show(asked)
        opinions = {place: one.message.opinion for place, one in history.verdicts.items()}
        assert {segment for segment, _ in opinions} == set(range(len(ENDS)))
        assert set(opinions.values()) == {Opinion.ACCEPT}
        for segment, node in enumerate(history.admitted.nodes):
            books = books_of(network, node)
            leaf = books.leaf(asked.order_id, segment, Work.INFERENCE)
            assert leaf is not None
            assert leaf.stage is Stage.DONE
            assert leaf.worth > 0
            assert books.forfeited(leaf.tab) == 0


def books_of(network: CourtNetwork, node: Address) -> NodeBooks:
    service = network.nodes[node]._service
    assert service is not None
    return service._context.stores.books
