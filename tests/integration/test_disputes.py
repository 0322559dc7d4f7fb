"""Whole disputes over a tiny model's arithmetic: both sides by themselves, on real contracts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.dispute_stage import DisputeStage, Played, dispute_stage
from support.layer_disputes import LayerScene, SignedRows

from troth.chain.deployment import numbers_creation, steps_creation, submit
from troth.chain.keystore import Key
from troth.node.court.disputing import Disputant, first_far
from troth.node.court.opened_weights import OpenedWeights
from troth.protocol.calls import Call
from troth.protocol.disputes import game
from troth.protocol.disputes.calls import DisputeLost, DisputeWon
from troth.protocol.disputes.game import Matter
from troth.protocol.disputes.segment_trace import SegmentTrace
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.market.types import PotKind

pytestmark = [pytest.mark.chain]

WRONG = {"model.layers.1.mlp.up_proj.weight": ((3, 5), 0.9)}
"""One weight of one layer that a dishonest node has otherwise."""


@dataclass
class KnownRows:
    """What everybody who was sent the text knows of an order."""

    scene: LayerScene
    rows: NDArray[np.float32]
    order: Any

    def states(self, positions: int) -> NDArray[np.float32]:
        return self.scene.weights.embedded(self.scene.tokens[:positions])

    def signed(self, position: int) -> NDArray[np.float32]:
        return self.rows[position]

    def shown(self, position: int) -> ShownRow:
        return SignedRows(self.rows, self.scene.tokens).shown(self.order, position)

    entered = shown


class Forger(Disputant):
    """Defends rows by what it computed them with: its trace has the weight that it used."""

    trace: SegmentTrace

    async def _trace(self, one: Any) -> SegmentTrace:
        return self.trace


@dataclass
class Trial:
    stage: DisputeStage
    scene: LayerScene
    gas: list[tuple[str, int]] = field(default_factory=list)

    async def accuse(self, rows: NDArray[np.float32], position: int) -> tuple[Played, KnownRows]:
        """A result over these rows, and a dispute over one of them."""
        known = KnownRows(self.scene, rows, None)
        tokens, count = self.scene.tokens, len(rows)
        accusation = self.stage.accusation(lambda order: SignedRows(rows, tokens).head(order), position, count)
        known.order = accusation.result.order
        return await self.stage.open(accusation), known

    def side(self, key: Key, known: KnownRows, kind: type[Disputant] = Disputant) -> Any:
        weights = OpenedWeights(self.scene.folder)

        async def send(call: Call, sender: Key) -> Any:
            receipt = await self.stage.send(call, sender)
            self.gas.append((call.function, receipt.gas_used))
            return receipt

        def rows_of(matter: Matter) -> KnownRows | None:
            return known if matter.order == known.order else None

        return kind(self.stage.chain, send, key, weights, rows_of)

    async def play(self, *sides: Disputant) -> int:
        """Turns until nobody has one."""
        turns = 0
        while moved := sum([await side.look() for side in sides]):
            turns += moved
        return turns


Trials = Callable[..., AbstractAsyncContextManager[Trial]]


@pytest.fixture
def trials(anvil: Any, tmp_path: Path) -> Trials:
    @asynccontextmanager
    async def made(**shape: Any) -> AsyncIterator[Trial]:
        scene = LayerScene.make(tmp_path / "model", **shape)
        numbers = (await submit(anvil.url, numbers_creation(), anvil.keys[0])).created
        assert numbers is not None
        encoded = scene.weights.shape.encoded
        async with dispute_stage(anvil, steps_creation(numbers), encoded, scene.model) as stage:
            yield Trial(stage, scene)

    return made


async def test_one_wrong_weight_convicts_by_one_honest_side_alone(trials: Trials) -> None:
    async with trials() as trial:
        stage, scene = trial.stage, trial.scene
        used = scene.trace(wrong=WRONG)
        assert used.norm is not None
        rows = used.norm[1]
        position = first_far(scene.weights, scene.layout(), KnownRows(scene, rows, None))
        assert position == 0
        played, known = await trial.accuse(rows, 2)
        accuser, forger = trial.side(stage.accuser, known), trial.side(stage.node, known, Forger)
        forger.trace = scene.trace(scene.layout(2), WRONG)
        stake = stage.pot(PotKind.STAKE, stage.node.address)
        # The accuser is killed after each of its turns: another one goes on from the chain.
        turns = 0
        while await forger.look() + await trial.side(stage.accuser, known).look():
            turns += 1
        ended = (await accuser.lives())[played.id]
        assert isinstance(ended.ending, DisputeWon)
        assert turns <= 6
        assert sum(gas for _, gas in (*played.gas, *trial.gas)) < 2_000_000, trial.gas
        assert len(ended.looks) <= 5
        assert stage.pot(PotKind.STAKE, stage.node.address) == stake - stage.stage.execution_class.penalty
        assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond


async def test_who_defends_forged_rows_by_a_true_trace_is_convicted_by_the_row(trials: Trials) -> None:
    async with trials() as trial:
        stage, scene = trial.stage, trial.scene
        used = scene.trace(wrong=WRONG)
        assert used.norm is not None
        played, known = await trial.accuse(used.norm[1], 3)
        node, accuser = trial.side(stage.node, known), trial.side(stage.accuser, known)
        assert await trial.play(node, accuser) == 2
        assert isinstance((await accuser.lives())[played.id].ending, DisputeWon)


async def test_an_honest_node_defends_itself_and_is_paid_the_bond(trials: Trials) -> None:
    """Rows as a float32 engine computes them are not the canonical ones, and within the tolerance."""
    import torch
    from support.tiny_llama import tiny_llama

    async with trials() as trial:
        stage, scene = trial.stage, trial.scene
        with torch.no_grad():
            tokens = torch.from_numpy(scene.tokens)[None]
            rows = tiny_llama().model(tokens).last_hidden_state[0].numpy().astype(np.float32)
        canonical = scene.trace()
        assert canonical.norm is not None
        assert (rows != canonical.norm[1]).any()
        assert first_far(scene.weights, scene.layout(), KnownRows(scene, rows, None)) is None
        played, known = await trial.accuse(rows, 4)
        node, accuser = trial.side(stage.node, known), trial.side(stage.accuser, known)
        assert await trial.play(node, accuser) == 1
        stage.stage.anvil.mine(stage.turn + 1)
        before = stage.pot(PotKind.CREDIT, stage.node.address)
        assert await trial.play(node) == 1
        assert isinstance((await node.lives())[played.id].ending, DisputeLost)
        assert stage.pot(PotKind.CREDIT, stage.node.address) == before + stage.bond


async def test_a_node_that_withholds_its_trace_is_convicted_by_the_clock(trials: Trials) -> None:
    async with trials() as trial:
        stage, scene = trial.stage, trial.scene
        used = scene.trace(wrong=WRONG)
        assert used.norm is not None
        played, known = await trial.accuse(used.norm[1], 1)
        accuser = trial.side(stage.accuser, known)
        assert await accuser.look() == 0
        stage.stage.anvil.mine(stage.turn)
        assert await accuser.look() == 1
        assert isinstance((await accuser.lives())[played.id].ending, DisputeWon)
        assert await stage.chain.read(game_state(played)) == game.ENDED


def game_state(played: Played) -> Any:
    from troth.protocol.disputes import calls

    return calls.dispute_of(played.id)
