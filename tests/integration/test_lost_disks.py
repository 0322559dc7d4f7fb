"""A scheduler that lost its disk and has its keys alone: it goes on, and nobody honest is convicted.

Whole processes on a real chain. Its nodes know what it promised them, and what they signed for it.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("torch")

from support.fault_network import FaultNetwork, fault_network
from support.waiting import leases_end

from troth.chain.tokens import asset_of
from troth.client.orders.summoning import AutomaticSummons, due_of
from troth.protocol.market.messages import summons_id
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.state import SummonsRecord
from troth.protocol.market.views import parameters_of

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]
QUESTION = (3, 14, 15, 9, 26)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def network(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultNetwork]:
    async with fault_network(anvil, tmp_path_factory.mktemp("lost")) as made:
        yield made


def lose_disk(network: FaultNetwork, name: str) -> None:
    """All of a party's files but its keys."""
    for path in (network.folder / name).iterdir():
        if path.is_dir() and path.name != "tls":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


async def test_a_scheduler_that_lost_its_disk_goes_on_with_the_same_nodes(network: FaultNetwork) -> None:
    await network.asked(QUESTION, (1, 2, 3), (4, 5, 6))
    network.processes["scheduler"].kill()
    lose_disk(network, "scheduler")
    await network.mined(60)
    await network.start("scheduler")
    before = len(network.entries())
    await network.asked(QUESTION, (7, 8, 9), (1, 1, 2))
    made = network.entries()[: len(network.entries()) - before]
    assert all(entry.paid for entry in made), [(entry.phase, entry.failure) for entry in made]
    await network.nothing_lost()


async def test_what_was_under_way_is_answered_when_it_is_summoned(network: FaultNetwork) -> None:
    """Its client has tokens and no results, and summons. The node speaks; nobody loses a penalty."""
    network.plan.set("scheduler", "before", "Drawn")
    client = network.asking((9, 9, 9))
    await network.until(lambda: not network.processes["scheduler"].alive, "the scheduler dies")
    client.kill()
    leases_end(network.client.home)
    lose_disk(network, "scheduler")
    await network.start("scheduler")
    entry = network.entries()[0]
    parameters = parameters_of(network.state)
    while (due := due_of(entry, parameters, network.state)) is None or network.block < due.first:
        await network.mined()
    assert due.kind is SummonsKind.RESULTS
    market = network.stage.market
    wallet = AutomaticSummons(market, await asset_of(market), network.stage.client, 10**17)
    await wallet.summon(entry, due)

    def record() -> SummonsRecord:
        found: SummonsRecord = network.state.summons[summons_id(entry.identifier, SummonsKind.RESULTS, 0)]
        return found

    await network.follower.catch_up()
    await network.until(lambda: record().responded, "its node speaks")
    await network.mined(parameters.summons_window + 1)
    await wallet.end(summons_id(entry.identifier, SummonsKind.RESULTS, 0), record())
    await network.follower.catch_up()
    assert record().answered is False
    assert not list(network.state.convictions.items())
    penalty = next(iter(network.state.classes.values())).penalty
    lost = network.staked - network.stakes()
    print("lost", lost, "of a penalty of", penalty)
    assert 0 < lost < penalty // 10
