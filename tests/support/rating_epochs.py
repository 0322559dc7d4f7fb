"""Epochs that four members carry out over three nodes, from the second one on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.rating_stage import RatingStage, rating_stage
from support.reputation_stage import reputation_stage

from troth.protocol.reputation import paper_rules
from troth.protocol.types import Address

EPOCH, BOND, MEMBERS, NODES = 100, 10**15, 4, 3
WORTH = (947_000_000, 500_000_000, 930_000_000)
STEPS = (0.02, 0.2, 0.35, 0.49, 0.52, 0.6, 0.76, 0.85, 0.92)


@asynccontextmanager
async def second_epoch(anvil: Any, folder: Path) -> AsyncIterator[RatingStage]:
    """Four members and three nodes in epoch 2: the first one was settled, and fixed a list."""

    def fund(account: Address, amount: int) -> None:
        anvil.rpc("anvil_setBalance", account, hex(amount))

    rules = paper_rules(EPOCH, BOND)
    made = await reputation_stage(anvil.url, anvil.keys[5], anvil.mine, rules, fund, members=MEMBERS, nodes=NODES)
    async with rating_stage(made, folder, lambda number: WORTH[number]) as stage:
        await stage.to(1, 0.02)
        await stage.act()
        assert stage.through() == 2, stage.refusals
        await stage.to(2, 0.02)
        yield stage
    await made.chain.close()


async def epoch(stage: RatingStage, number: int, *, until: float = 0.98) -> None:
    """Members look at the chain all through an epoch."""
    for step in STEPS:
        if step > until or stage.through() > number:
            return
        await stage.to(number, step)
        await stage.act()
