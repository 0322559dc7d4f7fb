"""The act of a scheduler that refuses checks: it is summoned, stays silent, and pays; no committee is needed."""

from __future__ import annotations

import asyncio

from troth.client.orders.journal import Phase
from troth.demo.acts import CHEAT_TOKENS, MOST_UNDRAWN
from troth.demo.moments import Moment
from troth.demo.stage import DemoClient, DemoStage, ask, open_client, outcome_of, start_gateway
from troth.protocol.amounts import COIN
from troth.protocol.market import events as on
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.state import State, SummonsRecord
from troth.protocol.market.types import PotKind
from troth.protocol.types import to_address
from troth.testnet.errors import ActFailed, demand

QUESTION = "Name a planet."
SUMMONS = "0.01ether"
"""The most that this client deposits for a summons by itself."""
SENTENCE_SECONDS = 120.0
STEPS = {
    on.Summoned: Moment.SUMMONED,
    on.SummonsUnanswered: Moment.SILENT,
}


def refuse(stage: DemoStage) -> None:
    """Another client has a tab with the second scheduler, asks until a draw hits, and is refused the check."""
    network, display = stage.network, stage.display
    client = DemoClient(network.home / "client-2")
    opened = open_client(stage, client, network.refuser, summons=SUMMONS)
    display.moment(Moment.SECOND_TAB.said(gas=f"{opened['gas']:,}"))
    start_gateway(stage, client, "--no-relay")
    for number in range(1, MOST_UNDRAWN + 1):
        asked = ask(stage, client, QUESTION, CHEAT_TOKENS, quiet=True)
        receipt, _ = outcome_of(stage, client, asked.streamed)
        outcome = receipt["outcome"]
        tell = display.step if outcome == Phase.UNDRAWN else display.moment
        told = {"number": number, "question": QUESTION, "answer": repr(asked.text.strip())}
        tell(Moment.REFUSED.said(**told, outcome=outcome))
        if outcome != Phase.UNDRAWN:
            demand(outcome == Phase.REFUSED_CHECK, "the scheduler refuses the check", receipt)
            asyncio.run(_sentence(stage, client))
            return
    raise ActFailed("No draw hit an answer", f"{MOST_UNDRAWN} questions", "Run it again: this is rare.")


async def _sentence(stage: DemoStage, client: DemoClient) -> None:
    display, refuser = stage.display, to_address(stage.network.refuser.operator)
    async with stage.following() as (_, follower):
        before, told = follower.state, 0

        def convicted(state: State) -> bool:
            nonlocal told
            record = _summons_of(state, refuser)
            for event in () if record is None else record.events[told:]:
                told += 1
                if type(event) in STEPS:
                    display.moment(STEPS[type(event)].said(block=event.meta.block))
            return record is not None and record.answered is not None

        state = await follower.wait_until(convicted, SENTENCE_SECONDS)
    record = _summons_of(state, refuser)
    assert record is not None
    faults = [one.fault for one in state.convictions.get(refuser, ())]
    demand(record.answered is False and faults == [Fault.UNANSWERED], "the scheduler is convicted", faults)
    lost = before.pot(PotKind.STAKE, refuser) - state.pot(PotKind.STAKE, refuser)
    paid = state.pot(PotKind.CREDIT, client.key.address) - before.pot(PotKind.CREDIT, client.key.address)
    demand(lost > 0 and paid > record.state.deposit, "who summoned is paid out of the stake", (lost, paid))
    deposit = COIN.show(record.state.deposit)
    display.good(Moment.SCHEDULER_PAYS.said(lost=COIN.show(lost)))
    display.good(Moment.CLIENT_PAID.said(deposit=deposit, paid=COIN.show(paid)))


def _summons_of(state: State, scheduler: str) -> SummonsRecord | None:
    return next((one for one in state.summons.values() if one.state.scheduler == scheduler), None)
