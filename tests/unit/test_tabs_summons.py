"""When a client's program summons a check by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.toy_tab_stage import toy_stage
from unit.test_tabs_asking import asked, ended

from troth.chain.errors import ChainRejected
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.updates import OrderOutcome
from troth.protocol.contract_errors import ContractError


@dataclass
class Summoned:
    """In the place of a wallet that summons: the blocks in which it was told to."""

    blocks: list[int] = field(default_factory=list)
    world: Any = None

    async def summon(self, _entry: OrderRecord, _due: Any) -> str:
        self.blocks.append(self.world.block)
        return "summoned"


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
            await keeper._summon(replace(entry, phase=phase))
        assert wallet.blocks == [first]


class Refused(Summoned):
    """A wallet without coins."""

    async def summon(self, _entry: OrderRecord, _due: Any) -> str:
        self.blocks.append(self.world.block)
        raise ChainRejected("summonCheck", ContractError("InsufficientFunds", {}, ""))

    def overdue(self, _state: Any, _block: int) -> dict[Any, Any]:
        return {}


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
