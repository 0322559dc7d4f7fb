"""Disputes between two processes, killed at each step, and on SmolLM2: whoever computed wins, alone.

A process is what a node runs for its disputes: real contracts, real weights, its own disk and its own view of the
chain. Everything that the two share is a chain. That a whole market of liars falls the same way is `troth demo court`
(``test_demo_court``), and below for cheaper weights and for a layer that was left out.
"""

from __future__ import annotations

import asyncio
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.dispute_party import LAYER
from support.dispute_sides import turns, two_sides
from support.layer_disputes import LayerScene
from support.packaged_models import packaged_model

from troth.demo import court_play
from troth.demo.court_play import CourtPlay, RingNetwork
from troth.node.court.opened_weights import OpenedWeights
from troth.node.models.folder import open_folder
from troth.node.models.tensor_files import raw_tensors
from troth.protocol.arithmetic.operations import Operation
from troth.protocol.disputes.calls import DisputeLost, DisputeWon
from troth.protocol.disputes.layout import Layout
from troth.protocol.disputes.life import Life
from troth.protocol.market.types import PotKind
from troth.testnet.display import Display
from troth.testnet.weights import prepare_model, prepare_models

pytestmark = [pytest.mark.chain, pytest.mark.slow]

MOST_GAS = 1_200_000
MODELS = Path(__file__).resolve().parents[2] / ".troth"


async def test_each_side_is_killed_after_each_turn_and_the_honest_one_wins(anvil: Any, tmp_path: Path) -> None:
    """kill -9 of both processes wherever the dispute stands; what goes on is read from the chain and from disk.

    The number that is wrong is a long sum, so that its parts are asked for, too.
    """
    scene = LayerScene.make(tmp_path / "model", intermediate_size=1_100)
    async with two_sides(anvil, scene, 1, tmp_path / "sides") as stand:
        stage = stand.stage
        rows = stand.rows("wrong")
        played = await stand.accuse(rows, 2)
        node = stand.party("node", stage.node, played, rows, "wrong").start()
        accuser = stand.party("accuser", stage.accuser, played, rows).start()
        found, kills = await stand.life(played), 0
        while found.ending is None:
            seen = turns(found)
            found = await stand.until(
                played, lambda one, seen=seen: turns(one) > seen or one.ending is not None, node, accuser
            )
            # Both at once, then each alone: one may have computed its turn, and not have sent it.
            for party in ((node, accuser), (node,), (accuser,))[kills % 3]:
                party.kill()
                party.start()
            kills += 1
        node.kill()
        accuser.kill()
        assert isinstance(found.ending, DisputeWon)
        # Eight turns, of which some may be taken between two looks.
        assert kills >= 3
        assert found.parts
        assert found.state.in_tensor
        stake = stage.pot(PotKind.STAKE, stage.node.address)
        await stage.follower.catch_up()
        assert stage.pot(PotKind.STAKE, stage.node.address) <= stake
        assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond


async def test_a_process_that_withholds_its_tensors_loses_by_the_clock(anvil: Any, tmp_path: Path) -> None:
    """It shows its first levels, and nothing below."""
    async with two_sides(anvil, LayerScene.make(tmp_path / "model"), 1, tmp_path / "sides") as stand:
        stage, rows = stand.stage, stand.rows("wrong")
        played = await stand.accuse(rows, 2)
        node = stand.party("node", stage.node, played, rows, "wrong").start()
        await stand.until(played, lambda one: bool(one.looks), node)
        node.kill()
        accuser = stand.party("accuser", stage.accuser, played, rows).start()
        await stand.until(played, lambda one: turns(one) == 3, accuser)
        stage.stage.anvil.mine(stage.turn + 1)
        found = await stand.until(played, lambda one: one.ending is not None, accuser)
        accuser.kill()
        assert isinstance(found.ending, DisputeWon)


async def test_a_process_that_accuses_falsely_loses_its_bond(anvil: Any, tmp_path: Path) -> None:
    """Its own model is the wrong one, so that it points to where it differs, and can show nothing there."""
    async with two_sides(anvil, LayerScene.make(tmp_path / "model"), 1, tmp_path / "sides") as stand:
        stage, rows = stand.stage, stand.rows("")
        played = await stand.accuse(rows, 2)
        node = stand.party("node", stage.node, played, rows).start()
        accuser = stand.party("accuser", stage.accuser, played, rows, "wrong").start()

        def at_the_word(one: Life) -> bool:
            state = one.state
            return state.in_tensor and state.turn == 2 and (state.shown == state.left or state.number != 0)

        await stand.until(played, at_the_word, node, accuser)
        await asyncio.sleep(2.0)
        before = stage.pot(PotKind.CREDIT, stage.node.address)
        stage.stage.anvil.mine(stage.turn + 1)
        found = await stand.until(played, lambda one: one.ending is not None, node, accuser)
        node.kill()
        accuser.kill()
        assert isinstance(found.ending, DisputeLost)
        await stage.follower.catch_up()
        assert stage.pot(PotKind.CREDIT, stage.node.address) == before + stage.bond


@pytest.mark.model
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cheat", ["wrong", "int8", "skipped"])
async def test_cheats_on_smollm2_are_convicted_by_one_honest_process(anvil: Any, tmp_path: Path, cheat: str) -> None:
    folder = packaged_model()

    scene = LayerScene(folder, OpenedWeights(folder), np.array([504, 3575, 282, 4649], np.int64))
    async with two_sides(anvil, scene, LAYER, tmp_path / "sides") as stand:
        stage, rows = stand.stage, stand.rows(cheat)
        played = await stand.accuse(rows, 2)
        node = stand.party("node", stage.node, played, rows, cheat).start()
        accuser = stand.party("accuser", stage.accuser, played, rows).start()
        found = await stand.until(played, lambda one: one.ending is not None, node, accuser)
        node.kill()
        accuser.kill()
        assert isinstance(found.ending, DisputeWon)
        layer, operation = Layout.of(found.matter, scene.weights.shape).where(found.state.tensor)
        assert layer == (0 if cheat == "int8" else LAYER)
        expected = {"wrong": Operation.DOWN, "int8": Operation.QUERY, "skipped": Operation.ATTENTION_OUTPUT}
        assert operation is expected[cheat]
        by_turn = await stand.gas(played)
        spent = sum(by_turn)
        print(f"{cheat}: {len(found.looks)} rounds, {spent:,} gas: {by_turn}")
        assert len(found.looks) + bool(found.parts) <= 6
        assert spent <= MOST_GAS


@pytest.mark.network
@pytest.mark.model
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cheat", ["int8", "skipped"])
def test_a_whole_market_of_cheats_falls_to_one_honest_node(tmp_path: Path, cheat: str) -> None:
    """Eight of nine nodes serve with cheaper weights and accept each other's answers; the ninth wins by one number."""
    said = io.StringIO()
    display = Display(Console(file=said, width=200))
    plan = court_play.plan()
    prepare_model(MODELS, plan, display)
    network = CheapRing(tmp_path / "network", MODELS, plan, report=display.step, ready_seconds=900.0)
    network.cheat = cheat
    with network:
        network.start()
        asker = court_play.Asker(network)
        asker.open_tab()
        court = CourtPlay(network, asker, display)
        answered = court.ask("Name one colour of the rainbow.")
        liar = network.node_of(answered.nodes[-1][0])
        court.dispute(court.evidence("states"), liar)
        court.audit(liar)
    assert f"{liar.name} is convicted by one number" in said.getvalue()


class CheapRing(RingNetwork):
    """The ring's weights are int8, or one layer of them adds nothing."""

    cheat = ""

    @property
    def tampered(self) -> Path:
        if self.cheat == "int8":
            prepare_models(MODELS, self.plan, Display(Console(file=io.StringIO())))
            return MODELS / "models" / f"{self.plan.model}-int8"
        path = self.home / "ring-model"
        if not path.is_dir():
            skip_layer(self.models / "models" / self.plan.model, path, 17)
        return path


def skip_layer(source: Path, target: Path, layer: int) -> None:
    """A copy of a model in which one layer adds nothing to the state."""
    shutil.copytree(source, target)
    names = {f"model.layers.{layer}.{one}.weight" for one in ("self_attn.o_proj", "mlp.down_proj")}
    for tensor in raw_tensors(open_folder(target).path):
        if tensor.name in names:
            with tensor.path.open("r+b") as file:
                file.seek(tensor.start)
                file.write(bytes(tensor.length))
