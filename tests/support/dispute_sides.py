"""A stage of a dispute whose two sides are processes, and what is seen of it on the chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.dispute_party import CheapWeights, Party, PartySettings, order_text
from support.dispute_stage import DisputeStage, Played, dispute_stage
from support.layer_disputes import SALT, LayerScene, SignedRows

from troth.chain.deployment import numbers_creation, steps_creation, submit
from troth.chain.keystore import Key
from troth.protocol.disputes import calls, life
from troth.protocol.disputes.layout import Layout
from troth.protocol.disputes.life import Life
from troth.protocol.disputes.segment_trace import segment_rows

Rows = NDArray[np.float32]
PATIENCE = 900.0


@dataclass
class Sides:
    """A stage, and the two processes that play on it."""

    stage: DisputeStage
    scene: LayerScene
    folder: Path
    layer: int

    def rows(self, cheat: str) -> Rows:
        """What a node with these weights signs."""
        weights = CheapWeights(self.scene.folder.path, cheat, self.layer) if cheat else self.scene.weights
        layout = Layout(weights.shape, 0, len(weights.shape.pattern), len(self.scene.tokens) - 1)
        return segment_rows(layout, weights.layer, weights.embedded(self.scene.tokens), weights.norm)

    async def accuse(self, rows: Rows, position: int) -> Played:
        """A dispute over one of these rows, which the node signs."""
        tokens = self.scene.tokens
        accusation = self.stage.accusation(lambda order: SignedRows(rows, tokens).head(order), position, len(rows))
        return await self.stage.open(accusation)

    def party(self, name: str, key: Key, played: Played, rows: Rows, cheat: str = "") -> Party:
        """One side's process; it is not started."""
        market = self.stage.stage.market
        self.stage.stage.anvil.fund(key)
        text = order_text(played.matter.order, SALT, self.scene.tokens, rows)
        model, folder = self.scene.folder.path, self.folder / name
        settings = PartySettings(self.stage.stage.anvil.url, market.place, key, model, folder, text, cheat, self.layer)
        return Party(name, settings)

    async def life(self, played: Played) -> Life:
        """As the chain tells it."""
        chain = self.stage.chain
        logs = await chain.logs(0, await chain.block_number())
        events = (calls.decode_event(log) for log in logs)
        return life.lives((event for event in events if event is not None), self.stage.turn)[played.id]

    async def until(self, played: Played, holds: Callable[[Life], bool], *parties: Party) -> Life:
        """Wait for a state of a dispute."""
        for _ in range(int(PATIENCE / 0.2)):
            found = await self.life(played)
            if holds(found):
                return found
            if not all(party.alive for party in parties):
                break
            await asyncio.sleep(0.2)
        raise AssertionError("\n".join([str(found.state), *(party.said for party in parties)]))

    async def gas(self, played: Played) -> list[int]:
        """Of each turn, the opening included."""
        chain = self.stage.chain
        logs = await chain.logs(0, await chain.block_number())
        mined = dict.fromkeys(log.meta.transaction for log in logs if played.id in log.topics)
        anvil = self.stage.stage.anvil
        receipts = [anvil.rpc("eth_getTransactionReceipt", "0x" + one.hex()) for one in mined]
        return [int(receipt["gasUsed"], 16) for receipt in receipts]


@asynccontextmanager
async def two_sides(anvil: Any, scene: LayerScene, layer: int, folder: Path) -> AsyncIterator[Sides]:
    """Contracts on a chain; ``layer`` is where cheats have something otherwise."""
    numbers = (await submit(anvil.url, numbers_creation(), anvil.keys[0])).created
    assert numbers is not None
    async with dispute_stage(anvil, steps_creation(numbers), scene.weights.shape.encoded, scene.model) as stage:
        yield Sides(stage, scene, folder, layer)


def turns(found: Life) -> int:
    """How many turns were taken."""
    state = found.state
    return 2 * len(found.looks) + (state.turn == 1)
