"""What nodes remind a scheduler of is stored before it goes on from it: a full disk only has the node asked again."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.tab_scene import history_of
from unit.test_lost_scheduler import Scene

from troth.protocol.types import Address
from troth.scheduler.tabs.database import StorageFailed
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.scheduler.tabs.reminding import NodeReminders


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "scheduler")
    made.ledger.block = 500
    await made.begin()
    yield made
    await made.stop()


async def lost(scene: Scene) -> tuple[Address, NodeReminders]:
    """A scheduler whose records are gone, and a node that holds words of it; nobody was asked yet."""
    asked = await scene.send(scene.asked(check_rate=250_000))
    node = history_of(scene, asked).admitted.nodes[0]
    await scene.stop()
    shutil.rmtree(scene.folder)
    scene.start()
    context = scene.context
    made = NodeReminders(context.database, context.node_tabs, scene.ledger, context.operator, scene.peers)  # type: ignore[arg-type]
    return node, made


def fails_once(scene: Scene, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """The disk takes nothing about a table, once."""
    database, failing = scene.context.database, [True]
    plain = database.commit

    async def commit(*statements: Any) -> None:
        if failing and any(table in query for query, _ in statements):
            failing.clear()
            raise StorageFailed("A step could not be stored", "full", "Look at the disk.")
        await plain(*statements)

    monkeypatch.setattr(database, "commit", commit)


async def test_what_could_not_be_stored_of_a_reminder_is_stored_when_the_node_is_asked_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, reminders = await lost(scene)
    fails_once(scene, monkeypatch, "node_number")
    await reminders.hear([node])
    assert not scene.context.node_tabs.is_heard(node)
    await reminders.hear([node])
    assert scene.context.node_tabs.is_heard(node)
    held = scene.context.node_tabs.held(node)
    stored = NodeTabs(scene.context.database, scene.context.operator).held(node)
    assert (stored.book, stored.owed) == (held.book, held.owed)
    assert stored.owed[1].fee, "else what is open would never be paid after the next start"


async def test_that_records_are_behind_is_stored_before_what_shows_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would seem whole after the next start, and orders of before be admitted twice."""
    node, reminders = await lost(scene)
    fails_once(scene, monkeypatch, "behind")
    await reminders.hear([node])
    assert scene.context.node_tabs.fence > scene.ledger.block, "known at once"
    await reminders.hear([node])
    assert scene.context.node_tabs.is_heard(node)
    assert scene.context.database.behind() == scene.ledger.block
