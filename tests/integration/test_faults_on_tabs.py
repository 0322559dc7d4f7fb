"""kill -9 of every party at every step of an order, on whole processes with a real engine: nothing is lost.

One network serves all; each test leaves it running and settled, and looks at everybody's money. The steps that tell
most run always, all of them with `make network-tests`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("torch")

from support.fault_network import LAG, FaultNetwork, fault_network
from support.waiting import leases_end

from troth.client.orders.journal import Phase
from troth.protocol.market.messages import tab_id
from troth.protocol.market.parts import Part

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]
QUESTION = (3, 14, 15, 9, 26)
ENDED = {Phase.CHECKED, Phase.FAILED, Phase.UNDRAWN, Phase.UNCLEAR}
"""How an order of honest parties may end, whoever was killed: none is rejected, refused or contradicted."""
AWAY = {*ENDED, Phase.REFUSED_CHECK}
"""And where everybody was away until no secret counts any more (``nothing_lost`` says what that costs)."""

SCHEDULER = (
    *("Admitted", "Answered", "Drawn", "Revealed", "PromisedCheck", "HiddenTrace", "Judged", "Frozen"),
    *("UnveiledTiles", "client_tab", "acknowledged_node"),
)
NODE = ("begun_infer", "result", "begun_check", "commitment", "verdict", "opening", "voucher")
CLIENT = (
    *("ordered", "admitted", "answered", "draw_stored", "secret_shown", "verdicts_stored", "second_secret_shown"),
    *("checked", "paid"),
)
TELLING = {
    ("scheduler", "after", "Admitted"),
    ("scheduler", "before", "Drawn"),
    ("scheduler", "after", "HiddenTrace"),
    ("node", "before", "result"),
    ("node", "after", "commitment"),
    ("client", "after", "answered"),
}

WITH_ORDER = "client_tab"
"""A client's word comes with its order, and is stored with the admission for the first time."""
ANSWERED = {
    *(("scheduler", step) for step in SCHEDULER[SCHEDULER.index("Revealed") :] if step != WITH_ORDER),
    *(("client", step) for step in CLIENT[CLIENT.index("draw_stored") :]),
}
"""Steps of an order that has its draw."""
UNSIGNED = ("before", "result")
"""The whole answer was shown, and nobody signed it: it is free, and not asked for again."""


def every() -> list[Any]:
    found = []
    for part, steps in (("scheduler", SCHEDULER), ("node", NODE), ("client", CLIENT)):
        for place in ((part, moment, step) for step in steps for moment in ("before", "after")):
            found.append(pytest.param(*place, marks=() if place in TELLING else pytest.mark.network))
    return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def network(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultNetwork]:
    async with fault_network(anvil, tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.mark.parametrize(("part", "moment", "step"), every())
async def test_killed_at_a_step_the_order_ends_and_nothing_is_lost(
    network: FaultNetwork, part: str, moment: str, step: str
) -> None:
    before = len(network.entries())
    network.plan.set(part, moment, step)
    client = network.asking(QUESTION)
    await network.until(lambda: not network.plan.waits or not client.alive, f"{part} comes to {step}")
    assert not network.plan.waits, f"nobody came to {step}\n{client.tail()}"
    if part == "client":
        await network.until(lambda: not client.alive, "the client dies")
        assert client.killed
        leases_end(network.client.home)
        client = network.asking()
    else:
        await network.until(lambda: any(not one.alive for one in network.processes.values()), f"the {part} dies")
        assert len(await network.revive()) == 1
    await network.ended(client)
    await network.nothing_lost()
    made = network.entries()[: len(network.entries()) - before]
    assert {entry.phase for entry in made} <= ENDED, made
    # What was drawn over is answered, and is paid; of what was cut off before nothing is owed.
    if (part == "node" and (moment, step) != UNSIGNED) or (part, step) in ANSWERED:
        assert any(entry.paid for entry in made), made


@pytest.mark.network
async def test_a_chain_that_is_away_while_questions_are_asked_loses_nothing(network: FaultNetwork) -> None:
    """It stands still while tokens stream, and comes back with the blocks of an hour."""
    await network.asked(QUESTION)
    anvil = os.getpgid(network.stage.anvil.process.pid)
    before = len(network.entries())
    client = network.asking(*[(number, number + 1) for number in range(1, 5)], check="50%")
    await network.until(
        lambda: any(one.phase is not Phase.ORDERED for one in network.entries()[:-before]), "orders run"
    )
    os.killpg(anvil, signal.SIGSTOP)
    try:
        await network.until(lambda: len(network.entries()) >= before + 2, "an order is made without a chain")
    finally:
        os.killpg(anvil, signal.SIGCONT)
    await network.mined(300)
    await network.paid(client)
    await network.nothing_lost()
    assert {entry.phase for entry in network.entries()} <= AWAY


async def test_windows_that_end_while_everybody_is_down_cost_nobody_its_stake(network: FaultNetwork) -> None:
    """All are killed in the middle of orders; when they come back, every window of the protocol is over."""
    before = len(network.entries())
    client = network.asking(*[(number, 7) for number in range(1, 4)], at_once=3)
    await network.until(lambda: len(network.entries()) >= before + 3, "orders run")
    client.kill()
    for process in network.processes.values():
        process.kill()
    leases_end(network.client.home)
    await network.mined(600)
    await network.start(*network.processes)
    await network.asked()
    await network.nothing_lost()
    assert {entry.phase for entry in network.entries()} <= AWAY


@pytest.mark.network
async def test_a_gateway_and_a_second_one_share_a_tab_while_one_is_killed(network: FaultNetwork) -> None:
    """Two processes over one home: no number is given out twice, and the one that lives pays for both."""
    one = network.asking(*[(number, 8) for number in range(1, 4)], at_once=3)
    other = network.asking(*[(number, 9) for number in range(1, 4)], at_once=3)
    await network.until(lambda: sum(entry.phase is Phase.CHECKED for entry in network.entries()[:6]) > 1, "answers")
    one.kill()
    await network.ended(other)
    await network.asked()
    await network.nothing_lost()
    numbers = [entry.sequence for entry in network.entries()]
    assert len(numbers) == len(set(numbers))


@pytest.mark.network
async def test_a_wallet_from_an_old_backup_goes_on_and_pays_nothing_twice(network: FaultNetwork) -> None:
    """What the schedulers know is the newest word; what the backup forgot was paid, and is not ordered again."""
    await network.asked((21, 5))
    saved = network.back_up()
    await network.asked((22, 5), (23, 5))
    spent = network.spent()
    network.restore(saved)
    network.forgotten = spent - network.spent()
    assert network.forgotten > 0
    await network.asked((24, 5))
    assert network.entries()[0].phase is Phase.CHECKED
    await network.nothing_lost()


async def test_a_tab_that_closes_under_running_orders_pays_what_was_served(network: FaultNetwork) -> None:
    """The last of this module: nothing is ordered on the tab any more."""
    await network.asked(QUESTION)
    before = len(network.entries())
    client = network.asking(*[(number, 4) for number in range(1, 4)], at_once=3)
    await network.until(lambda: len(network.entries()) >= before + 3, "orders run")
    stage, tab = network.stage, tab_id(network.tab)
    await stage.send(stage.client, Part.BANK, "close", network.tab)
    await network.ended(client)
    await network.nothing_lost()
    assert network.state.tab_state(tab).closes_at
    # Before the tab is empty the scheduler redeems its best word, and claims what came too late to be acknowledged.
    owed = network.spent() + sum(entry.fee or 0 for entry in network.refused())
    assert owed > 0
    # A claim waits until its gas is cheap, then a thousand blocks for objections; what was late waits for the next.
    async with network.blocks(0.5, LAG // 2):
        await network.until(lambda: network.state.tab_state(tab).redeemed == owed, "what is owed is redeemed")
