"""Who was admitted for an order that the records lost is looked for once, and not at each look at its summons."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.tab_scene import called, history_of
from unit.test_lost_scheduler import Scene, look, summons

from troth.protocol.market import messages
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.types import Address, Hash32
from troth.scheduler.checks import forgotten


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    forgotten._chosen.cache_clear()
    made = Scene(tmp_path / "scheduler")
    made.ledger.block = 500
    await made.begin()
    yield made
    await made.stop()
    forgotten._chosen.cache_clear()


@pytest.mark.parametrize("known", [True, False])
async def test_choices_of_nodes_are_hashed_once_for_each_summons(
    scene: Scene, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of two groups of 500 take seconds of a processor, and there is a look every second."""
    asked = await scene.send(scene.asked(check_rate=250_000))
    hashed, plain, (node,) = [], messages.nodes_hash, history_of(scene, asked).admitted.nodes

    def counted(nodes: tuple[Address, ...]) -> Any:
        hashed.append(nodes)
        return plain(nodes) if known else Hash32(b"\x77" * 32)

    event = summons(scene, asked, SummonsKind.RESULTS)
    await scene.begin_again()
    scene.ledger.fold(event)
    monkeypatch.setattr(messages, "nodes_hash", counted)
    await look(scene)
    first = len(hashed)
    assert 0 < first <= len(scene.nodes)
    await look(scene)
    await look(scene)
    assert len(hashed) == first
    if known:
        assert called(scene, Part.SUMMONS, "passOnResults").value("tab")[1].lower() == node.lower()
