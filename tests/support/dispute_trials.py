"""Both sides of disputes over a tiny model, each by itself as a node plays it, on real contracts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.dispute_stage import DisputeStage, Played
from support.layer_disputes import SALT, LayerScene, SignedRows

from troth.cases.courtroom import CallRefused, Mined
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.records import Simulation
from troth.node.court.canonical_traces import CanonicalTraces
from troth.node.court.disputing import Disputant
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.segment_text import SegmentText
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, life
from troth.protocol.disputes.game import Matter
from troth.protocol.disputes.life import Life
from troth.protocol.types import Address, Hash32

Rows = NDArray[np.float32]
WRONG = {"model.layers.1.mlp.up_proj.weight": ((3, 5), 0.9)}
"""One weight of one layer that a dishonest node has otherwise."""
IDLE_LOOKS = 12
"""Looks without a turn after which nobody has one. On a busy machine a trace begins and ends within one look, unseen:
the accused may try all nudges so, one a look."""


class TamperedWeights(OpenedWeights):
    """A dishonest node's model: single weights have other values."""

    wrong: Mapping[str, tuple[tuple[int, ...], float]] = WRONG

    def layer(self, number: int) -> Mapping[str, Rows]:
        tensors = {name: tensor.copy() for name, tensor in super().layer(number).items()}
        for name in tensors.keys() & self.wrong.keys():
            place, value = self.wrong[name]
            tensors[name][place] = value
        return tensors


@dataclass
class StagedDisputes:
    """A ``DisputeChain`` for one key of a stage."""

    stage: DisputeStage
    key: Key
    gas: list[tuple[str, int]]
    in_coin: bool = True
    opening: int = 10_000

    @property
    def account(self) -> Address:
        return self.key.address

    @property
    def bond(self) -> int:
        return self.stage.bond

    @property
    def turn(self) -> int:
        return self.stage.turn

    async def block(self) -> int:
        return await self.stage.chain.block_number()

    async def lives(self) -> Mapping[Hash32, Life]:
        logs = await self.stage.chain.logs(0, await self.block())
        events = (calls.decode_event(log) for log in logs)
        return life.lives((event for event in events if event is not None), self.turn)

    async def is_convicted(self, result: Hash32) -> bool:
        proven = self.stage.follower.state.proven
        return any(one.convict == self.stage.node.address for one in proven.values())

    async def simulate(self, call: Call) -> Simulation:
        raise NotImplementedError

    async def send(self, call: Call) -> Mined:
        try:
            receipt = await self.stage.send(call, self.key)
        except ChainRejected as error:
            raise CallRefused(call.function, error.name, str(error)) from error
        self.gas.append((call.function, receipt.gas_used))
        return Mined(receipt.transaction, receipt.block)

    async def pay(self) -> tuple[str, ...]:
        return ()


@dataclass
class Trial:
    stage: DisputeStage
    scene: LayerScene
    folder: Path
    gas: list[tuple[str, int]] = field(default_factory=list)
    sides: int = 0

    def rows(self, wrong: Mapping[str, tuple[tuple[int, ...], float]] | None = None) -> Rows:
        """What a node signs."""
        return self.scene.trace(wrong=wrong).rows

    def text(self, rows: Rows, order: Hash32) -> SegmentText:
        """What everybody who was sent the text knows of an order."""
        tokens = tuple(int(token) for token in self.scene.tokens)
        given = rows.astype("<f4").tobytes()
        return SegmentText(order, 0, SALT, tokens, None, given, rows.shape[1])

    async def accuse(self, rows: Rows, position: int, accuser: Key | None = None) -> tuple[Played, SegmentText]:
        """A result over these rows, and a dispute over one of them."""
        tokens, count = self.scene.tokens, len(rows)
        accusation = self.stage.accusation(lambda order: SignedRows(rows, tokens).head(order), position, count)
        return await self.stage.open(accusation, accuser), self.text(rows, accusation.result.order)

    def side(
        self, key: Key, *texts: SegmentText, weights: type[OpenedWeights] = OpenedWeights, place: str = ""
    ) -> Disputant:
        """One party's process; the same ``place`` is a process that was started again."""
        self.sides += 1
        opened = weights(self.scene.folder)
        folder = self.folder / (place or f"side-{self.sides}")

        async def text_of(matter: Matter) -> SegmentText | None:
            return next((one for one in texts if one.order == matter.order), None)

        async def rows_again(text: SegmentText) -> SegmentText:
            return replace(text, given=self.rows().astype("<f4").tobytes())

        chain = StagedDisputes(self.stage, key, self.gas)
        return Disputant(chain, lambda: opened, CanonicalTraces(folder, lambda: opened), text_of, rows_again)

    async def play(self, *sides: Disputant, most: int = 1_000) -> int:
        """Turns until nobody has one, nor computes one, or so many were taken."""
        turns = idle = 0
        while idle < IDLE_LOOKS and turns < most:
            moved = sum([await side.look() for side in sides])
            turns, idle = turns + moved, 0 if moved or any(side.traces.computing for side in sides) else idle + 1
            await asyncio.sleep(0.01)
        return turns


async def ending(side: Disputant, played: Played) -> Any:
    return (await side.chain.lives())[played.id].ending
