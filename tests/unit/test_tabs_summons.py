"""When a client's program summons a check by itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.toy_tab_stage import toy_stage
from support.waiting import SECONDS, eventually
from unit.test_client_claims import file_claim
from unit.test_tabs_asking import asked, ended
from unit.test_tabs_faults import Killed, killing

from troth.chain.errors import ChainRejected
from troth.client.orders import resuming
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.keeping import SUMMONSES_TOGETHER, OrderKeeper
from troth.client.orders.updates import OrderOutcome
from troth.client.tabs.books import OwnTab
from troth.protocol.contract_errors import ContractError
from troth.protocol.types import Hash32


@dataclass
class Summoned:
    """In the place of a wallet that summons: the blocks in which it was told to."""

    blocks: list[int] = field(default_factory=list)
    world: Any = None

    async def summon(self, _entry: OrderRecord, _due: Any) -> str:
        self.blocks.append(self.world.block)
        return "summoned"

    def overdue(self, _state: Any, _block: int) -> dict[Any, Any]:
        return {}


@pytest.mark.parametrize(
    ("phase", "first"),
    [
        pytest.param(Phase.REVEALED, 1_012, id="a check that runs has half of the time"),
        pytest.param(Phase.REFUSED_CHECK, 1_000, id="one that was refused has none"),
    ],
)
async def test_a_check_is_summoned_in_its_time_and_once(phase: Phase, first: int, tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, lines: lines[:0]
        assert ended(await asked(stage)).outcome is OrderOutcome.REFUSED_CHECK
        (refused,) = stage.session.journal.all()
        wallet = Summoned(world=stage.world)
        keeper = OrderKeeper(stage.session, wallet)  # type: ignore[arg-type]
        for block in range(1_000, 1_030):
            stage.world.block = block
            entry = stage.session.journal.entry(refused.identifier)
            keeper._summon(replace(entry, phase=phase))
            await keeper._errands.ended()
        assert wallet.blocks == [first]


class Refused(Summoned):
    """A wallet without coins."""

    async def summon(self, _entry: OrderRecord, _due: Any) -> str:
        self.blocks.append(self.world.block)
        raise ChainRejected("summonCheck", ContractError("InsufficientFunds", {}, ""))


async def test_a_summons_that_cannot_be_sent_keeps_no_payment_and_no_word_waiting(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, lines: lines[:0]
        assert ended(await asked(stage)).outcome is OrderOutcome.REFUSED_CHECK
        stage.scheduler.tamper_check = lambda _one, lines: lines
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        stage.scheduler.tamper_check = lambda _one, lines: lines[:0]
        wallet = Refused(world=stage.world)
        keeper = OrderKeeper(stage.session, wallet)  # type: ignore[arg-type]
        assert not stage.session.books.record(stage.tab).delivered
        await keeper.once()
        assert len(wallet.blocks) == 1
        assert stage.session.books.record(stage.tab).delivered
        # It is tried again, and not at once.
        await keeper.once()
        assert len(wallet.blocks) == 1


class Watching:
    """In the place of an objector: the tabs whose claims it was shown."""

    def __init__(self) -> None:
        self.looked: list[Hash32] = []

    async def look(self, _session: Any, record: OwnTab) -> list[str]:
        self.looked.append(record.identifier)
        return []


@pytest.mark.parametrize("refusing", [0, 1], ids=["the same scheduler", "another one"])
async def test_a_scheduler_that_answers_slowly_holds_up_no_summons_and_no_objection(
    refusing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack 200: a scheduler says one word every few seconds of an order that the client takes up, for hours.

    Meanwhile the time to summon a check that it refused, and to object to what it claims, would go by.
    """
    async with toy_stage(tmp_path, schedulers=2) as stage:
        stage.session.scheduler = stage.scheduler.key.address
        monkeypatch.setattr(stage.session.journal, "step", stage.session.journal.step)
        killing(stage.session.journal, Phase.ADMITTED, before=False)
        with pytest.raises(Killed):
            await asked(stage)
        monkeypatch.undo()
        monkeypatch.setattr(resuming, "UNKNOWN_SECONDS", 10 * SECONDS)
        monkeypatch.setattr(resuming, "READING_SECONDS", 10 * SECONDS)
        (left,) = stage.session.journal.all()
        stage.scheduler.orders[left.identifier].lines[1:] = [asyncio.Event()]
        stage.session.scheduler = stage.schedulers[refusing].key.address
        stage.schedulers[refusing].tamper_check = lambda _one, lines: lines[:0]
        assert ended(await asked(stage)).outcome is OrderOutcome.REFUSED_CHECK
        stage.store.execute("UPDATE orders SET held_until = 0")
        file_claim(stage, {1: 300})
        asked_again = stage.scheduler.calls_of.count("again")
        wallet, objector = Summoned(world=stage.world), Watching()
        async with OrderKeeper(stage.session, wallet, objector=objector):  # type: ignore[arg-type]
            await eventually(lambda: stage.scheduler.calls_of.count("again") > asked_again)
            await eventually(lambda: wallet.blocks and stage.tab in objector.looked, SECONDS / 4)
        assert stage.session.journal.entry(left.identifier).phase is Phase.ADMITTED


async def test_no_more_summonses_are_on_their_way_than_a_chain_node_keeps(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, lines: lines[:0]
        assert ended(await asked(stage)).outcome is OrderOutcome.REFUSED_CHECK
        (refused,) = stage.session.journal.all()

        class Waits(Summoned):
            async def summon(self, entry: OrderRecord, due: Any) -> str:
                self.blocks.append(0)
                return await asyncio.Event().wait() or ""

        wallet = Waits(world=stage.world)
        keeper = OrderKeeper(stage.session, wallet)  # type: ignore[arg-type]
        for number in range(2 * SUMMONSES_TOGETHER):
            keeper._summon(replace(refused, identifier=Hash32(number.to_bytes(32, "big"))))
            await asyncio.sleep(0)
        assert len(wallet.blocks) == SUMMONSES_TOGETHER
        await keeper.stop()
