"""Whole disputes over a tiny model's arithmetic: both sides by themselves, on real contracts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.dispute_stage import DisputeStage, dispute_stage
from support.dispute_trials import WRONG, Rows, StagedDisputes, TamperedWeights, Trial, ending
from support.layer_disputes import LayerScene, SignedRows
from support.packaged_models import packaged_model

from troth.audit.checks import disputes, faults
from troth.audit.evidence.source import Source
from troth.audit.report import Finding, FindingKind
from troth.audit.running import read_chain
from troth.audit.subject import AuditSubject
from troth.audit.watching.findings import ShownFindings
from troth.audit.watching.looks import CachingSource, Watcher
from troth.chain.deployment import numbers_creation, steps_creation, submit
from troth.chain.store import WINDOW
from troth.explorer.disputes import read_disputes
from troth.node.court.disputing import Disputant
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.segment_text import SegmentText, first_far
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, game, life
from troth.protocol.disputes.calls import DisputeLost, DisputeMoot, DisputeOpened, DisputeWon, NodesShown
from troth.protocol.disputes.life import Life
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.segment_trace import DoubledTrace, SegmentTrace, segment_trace
from troth.protocol.market.types import PotKind
from troth.protocol.tensors import Dtype
from troth.protocol.types import Segment

pytestmark = [pytest.mark.chain]

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
            yield Trial(stage, scene, tmp_path)

    return made


async def test_one_wrong_weight_convicts_by_one_honest_side_alone(trials: Trials) -> None:
    async with trials() as trial:
        stage, scene = trial.stage, trial.scene
        rows = trial.rows(WRONG)
        played, known = await trial.accuse(rows, 2)
        assert first_far(scene.weights, scene.layout(), known, played.state.result) == 0
        forger = trial.side(stage.node, known, weights=TamperedWeights)
        stake = stage.pot(PotKind.STAKE, stage.node.address)
        # The accuser is killed after each of its turns: another process goes on from chain and disk.
        turns = 0
        while await ending(forger, played) is None:
            accuser = trial.side(stage.accuser, known, place="accuser")
            turns += await trial.play(forger, accuser, most=1)
            await accuser.traces.close()
        ended = (await forger.chain.lives())[played.id]
        assert isinstance(ended.ending, DisputeWon)
        assert sum(gas for _, gas in (*played.gas, *trial.gas)) < 1_200_000, trial.gas
        assert len(ended.looks) <= 5
        assert turns == 2 * len(ended.looks)
        assert stage.pot(PotKind.STAKE, stage.node.address) == stake - stage.stage.execution_class.penalty
        assert stage.pot(PotKind.CREDIT, stage.accuser.address) > stage.bond
        await audited(stage)
        await watched(trial)


async def test_a_wrong_weight_in_a_long_sum_convicts_by_one_part_of_it(trials: Trials) -> None:
    """Sums of 1,100 terms are not computed at once: the accused gives nine parts, and one of them is not true."""
    wrong = {"model.layers.1.mlp.down_proj.weight": ((3, 700), 0.9)}

    class Tampered(TamperedWeights):
        pass

    Tampered.wrong = wrong
    async with trials(intermediate_size=1_100) as trial:
        stage = trial.stage
        played, known = await trial.accuse(trial.rows(wrong), 2)
        node = trial.side(stage.node, known, weights=Tampered)
        turns, accuser = 0, trial.side(stage.accuser, known, place="accuser")
        while await ending(node, played) is None and turns < 40:
            turns += await trial.play(node, accuser, most=1)
        ended = (await node.chain.lives())[played.id]
        assert isinstance(ended.ending, DisputeWon)
        assert [name for name, _ in trial.gas][-3:] == ["askSum", "giveSum", "wrongPart"]
        assert len(ended.parts) == 9 * 96
        spent = sum(gas for _, gas in (*played.gas, *trial.gas))
        assert spent < 1_200_000, (played.gas, trial.gas)
        await audited(stage)


async def test_true_parts_of_a_wrong_number_convict_by_their_sum(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that gives what its terms make contradicts the number that it committed to, and is audited so."""
    wrong = {"model.layers.1.mlp.down_proj.weight": ((3, 700), 0.9)}

    class Tampered(TamperedWeights):
        pass

    Tampered.wrong = wrong
    giving = life.giving_sum

    async with trials(intermediate_size=1_100) as trial:
        stage, true = trial.stage, trial.scene.trace()

        def truly(one: Life, _: SegmentTrace | DoubledTrace) -> Call:
            return giving(one, true)

        monkeypatch.setattr(life, "giving_sum", truly)
        played, known = await trial.accuse(trial.rows(wrong), 4)
        node = trial.side(stage.node, known, weights=Tampered)
        await trial.play(node, trial.side(stage.accuser, known))
        assert isinstance(await ending(node, played), DisputeWon)
        assert [name for name, _ in trial.gas][-3:] == ["askSum", "giveSum", "wrongSum"]
        await audited(stage)


async def audited(stage: DisputeStage) -> None:
    """An auditor plays the dispute again: it convicts this node, and no turn of it can be told otherwise."""
    market = stage.stage.market
    reading = await read_chain(stage.stage.anvil.url, market.place, start=market.place.block, last=None)
    subject = reading.subject
    assert [(one.kind, one.party) for one in found(subject)] == [(FindingKind.CHEATED, stage.node.address)]
    (proven,) = (check for check in faults.CHECKS if check.number == "M10")
    kinds = [one.kind for result in proven.report(subject).results for one in result.findings]
    assert kinds == [FindingKind.CHEATED]
    logs = subject.evidence.logs
    # Another bond than the turns bring along, which no event but the first one tells.
    (opened,) = (at for at, log in enumerate(logs) if isinstance(calls.decode_event(log), DisputeOpened))
    data = bytearray(logs[opened].data)
    data[32 * BOND_WORD + 31] ^= 1
    forged = (*logs[:opened], replace(logs[opened], data=bytes(data)), *logs[opened + 1 :])
    other = replace(subject, evidence=replace(subject.evidence, logs=forged))
    assert FindingKind.MISMATCH in [one.kind for one in found(other)]
    shown = [at for at, log in enumerate(logs) if isinstance(calls.decode_event(log), NodesShown)]
    assert len(shown) >= 3
    for at in shown:
        data = bytearray(logs[at].data)
        data[-1] ^= 1
        forged = (*logs[:at], replace(logs[at], data=bytes(data)), *logs[at + 1 :])
        other = replace(subject, evidence=replace(subject.evidence, logs=forged))
        assert FindingKind.MISMATCH in [one.kind for one in found(other)]


async def watched(trial: Trial) -> None:
    """A watcher and the explorer, which ask for new blocks alone, hear the dispute, too."""
    stage, market = trial.stage, trial.stage.stage.market
    shown = ShownFindings(trial.folder / "findings.sqlite")
    async with await Source.connect(stage.stage.anvil.url, market.place) as source:
        watcher = Watcher(CachingSource.of(source), stage.follower, trial.folder, shown)
        for _ in range(2):
            subject = await watcher.subject(stage.follower.block)
            assert [(one.kind, one.party) for one in found(subject)] == [(FindingKind.CHEATED, stage.node.address)]
            (row,) = read_disputes(subject).disputes
            assert {"convicted", stage.node.address, stage.accuser.address} <= set(row)
            stage.stage.anvil.mine(WINDOW + 1)
            await stage.follower.catch_up()
    shown.close()


def found(subject: AuditSubject) -> list[Finding]:
    (check,) = disputes.CHECKS
    return [one for result in check.report(subject).results for one in result.findings]


async def test_who_defends_forged_rows_by_a_true_trace_is_convicted_by_the_row(trials: Trials) -> None:
    async with trials() as trial:
        stage = trial.stage
        played, known = await trial.accuse(trial.rows(WRONG), 3)
        node, accuser = trial.side(stage.node, known), trial.side(stage.accuser, known)
        assert await trial.play(node, accuser) == 2
        assert isinstance(await ending(accuser, played), DisputeWon)


async def test_rows_that_did_not_travel_are_asked_for_and_convict(trials: Trials) -> None:
    """In an exact class nobody has the rows but who signed them."""
    async with trials() as trial:
        stage = trial.stage
        played, known = await trial.accuse(trial.rows(WRONG), 3)
        node = trial.side(stage.node, known)
        accuser = trial.side(stage.accuser, replace(known, given=None))
        assert await trial.play(node, accuser) == 4
        assert [name for name, _ in trial.gas] == ["show", "askRow", "giveRow", "wrongRow"]
        assert isinstance(await ending(accuser, played), DisputeWon)


async def test_a_row_that_was_asked_for_and_is_not_given_convicts_by_the_clock(trials: Trials) -> None:
    async with trials() as trial:
        stage = trial.stage
        played, known = await trial.accuse(trial.rows(WRONG), 3)
        node = trial.side(stage.node, known)
        accuser = trial.side(stage.accuser, replace(known, given=None))
        await trial.play(node)
        await trial.play(accuser)
        stage.stage.anvil.mine(stage.turn)
        assert await accuser.look() == 1
        assert isinstance(await ending(accuser, played), DisputeWon)


async def test_an_honest_node_gives_its_row_and_keeps_its_stake(trials: Trials) -> None:
    async with trials() as trial:
        stage = trial.stage
        played, known = await trial.accuse(trial.rows(), 4)
        node = trial.side(stage.node, replace(known, given=None))
        accuser = trial.side(stage.accuser, replace(known, given=None))
        assert await trial.play(node, accuser) == 3
        stage.stage.anvil.mine(stage.turn + 1)
        assert await trial.play(node, accuser) == 1
        assert isinstance(await ending(node, played), DisputeLost)


async def test_an_honest_node_defends_itself_and_is_paid_the_bond(trials: Trials) -> None:
    """Rows as a float32 engine computes them are not the canonical ones, and within the tolerance."""
    import torch
    from support.tiny_llama import tiny_llama

    async with trials() as trial:
        stage, scene = trial.stage, trial.scene
        with torch.no_grad():
            tokens = torch.from_numpy(scene.tokens)[None]
            rows = tiny_llama().model(tokens).last_hidden_state[0].numpy().astype(np.float32)
        assert (rows != trial.rows()).any()
        played, known = await trial.accuse(rows, 4)
        assert first_far(scene.weights, scene.layout(), known, played.state.result) is None
        node, accuser = trial.side(stage.node, known), trial.side(stage.accuser, known)
        assert await trial.play(node, accuser) == 1
        stage.stage.anvil.mine(stage.turn + 1)
        before = stage.pot(PotKind.CREDIT, stage.node.address)
        assert await trial.play(node) == 1
        assert isinstance(await ending(node, played), DisputeLost)
        assert stage.pot(PotKind.CREDIT, stage.node.address) == before + stage.bond


BOND_WORD = 15
"""Of what a dispute is opened with: behind the matter's twelve words, the shape's place, the result and a block."""
ILL = (33_795, 7_325)
"""Of SmolLM2: at the second token an honest float32 row is hundreds of tolerances away from the canonical one."""


@pytest.fixture(scope="module")
def honest() -> tuple[LayerScene, Rows]:
    """The real weights, and what an honest node gives for ILL."""
    return asyncio.run(honest_model(np.array(ILL, np.int64)))


@pytest.mark.model
@pytest.mark.parametrize("defends", [True, False])
async def test_an_honest_row_that_rounding_moves_far_convicts_nobody(
    anvil: Any, tmp_path: Path, honest: tuple[LayerScene, Rows], defends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client chose the prompt so that rounding is made larger; without the nudge the honest node would be slashed."""
    if not defends:

        async def plainly(self: Disputant, one: Life, plain: SegmentTrace, text: SegmentText) -> Call:
            del self, text
            return life.answer(one, plain)

        monkeypatch.setattr(Disputant, "_begin", plainly)
    scene, rows = honest
    numbers = (await submit(anvil.url, numbers_creation(), anvil.keys[0])).created
    assert numbers is not None
    encoded = scene.weights.shape.encoded
    async with dispute_stage(anvil, steps_creation(numbers), encoded, scene.model) as stage:
        trial = Trial(stage, scene, tmp_path)
        played, known = await trial.accuse(rows, 1)
        seed = played.state.result
        # An honest accuser sees that the row is the prompt's fault; a false one opens the dispute all the same.
        assert first_far(scene.weights, scene.layout(), known, seed) is None
        node, accuser = trial.side(stage.node, known), trial.side(stage.accuser, known)
        await trial.play(node, accuser)
        state = (await node.chain.lives())[played.id].state
        if not defends:
            assert isinstance(await ending(node, played), DisputeWon)
            return
        assert (trial.gas[0][0], state.left) == ("defend", 11)
        assert 1 <= state.nudge <= 8
        assert await ending(node, played) is None
        stage.stage.anvil.mine(stage.turn + 1)
        assert await trial.play(node) == 1
        assert isinstance(await ending(node, played), DisputeLost)


async def honest_model(tokens: NDArray[np.int64]) -> tuple[LayerScene, Rows]:
    """SmolLM2, and what an honest float32 engine gives for a text."""
    folder = packaged_model()
    engine = TorchEngine(folder, Segment(0, folder.layers), int(Dtype.FLOAT32), threads=1)
    try:
        computed = await engine.forward(SessionKey(b"\x07" * 32, 0, 0), engine.slice, 0, tokens)
    finally:
        await engine.close()
    return LayerScene(folder, OpenedWeights(folder), tokens), computed.rows.astype(np.float32)


async def test_a_cheat_that_defends_itself_by_a_nudge_is_convicted_by_its_row(trials: Trials) -> None:
    """Its nudged trace is true, and moves the row by less than a tolerance: what it changed is further away."""
    async with trials() as trial:
        stage, scene = trial.stage, trial.scene
        played, known = await trial.accuse(trial.rows(WRONG), 3)
        plain = scene.trace(scene.layout(3))
        states, nudge = scene.weights.embedded(scene.tokens[:4]), Nudge(played.state.result, 4)
        nudged = segment_trace(scene.layout(3), scene.weights.layer, states, scene.weights.norm, nudge=nudge)
        chain = StagedDisputes(stage, stage.node, trial.gas)
        begun = (await chain.lives())[played.id]
        await chain.send(life.defending(begun, DoubledTrace(plain, nudged), 4))
        accuser = trial.side(stage.accuser, known)
        assert await trial.play(accuser) == 1
        assert [name for name, _ in trial.gas] == ["defend", "wrongRow"]
        assert isinstance(await ending(accuser, played), DisputeWon)


async def test_a_node_that_withholds_its_trace_is_convicted_by_the_clock(trials: Trials) -> None:
    async with trials() as trial:
        stage = trial.stage
        played, known = await trial.accuse(trial.rows(WRONG), 1)
        accuser = trial.side(stage.accuser, known)
        assert await trial.play(accuser) == 0
        stage.stage.anvil.mine(stage.turn)
        assert await accuser.look() == 1
        assert isinstance(await ending(accuser, played), DisputeWon)
        assert await stage.chain.read(calls.dispute_of(played.id)) == game.ENDED


async def test_a_friend_who_opens_first_and_falls_silent_saves_nobody(trials: Trials) -> None:
    async with trials() as trial:
        stage, friend = trial.stage, trial.stage.stage.anvil.keys[7]
        rows = trial.rows(WRONG)
        tokens, count = trial.scene.tokens, len(rows)
        accusation = stage.accusation(lambda order: SignedRows(rows, tokens).head(order), 2, count)
        sham, played = await stage.open(accusation, friend), await stage.open(accusation)
        known = trial.text(rows, accusation.result.order)
        node = trial.side(stage.node, known, weights=TamperedWeights)
        await trial.play(node, trial.side(stage.accuser, known))
        assert isinstance(await ending(node, played), DisputeWon)
        # The friend's dispute is closed for its bond: nothing can come of it any more.
        assert await trial.play(trial.side(friend, known)) == 1
        assert isinstance(await ending(node, sham), DisputeMoot)


async def test_a_node_that_is_disputed_many_times_at_once_misses_no_turn(trials: Trials) -> None:
    """Sixteen false accusations in a row, over each row and by several accounts; each bond is the node's."""
    async with trials() as trial:
        stage, anvil = trial.stage, trial.stage.stage.anvil
        rows, begun = trial.rows(), []
        for number in range(16):
            begun.append(await trial.accuse(rows, number % len(rows), anvil.keys[6 + number % 3]))
        node = trial.side(stage.node, *(text for _, text in begun))
        before, first = stage.pot(PotKind.CREDIT, stage.node.address), await stage.chain.block_number()
        assert await trial.play(node) == 16
        assert await stage.chain.block_number() - first <= stage.turn
        anvil.mine(stage.turn + 1)
        assert await trial.play(node) == 16
        ended = [await ending(node, played) for played, _ in begun]
        assert all(isinstance(one, DisputeLost) for one in ended)
        assert stage.pot(PotKind.CREDIT, stage.node.address) == before + 16 * stage.bond


class KilledProcess(BaseException):
    """Ends what it is raised in as a signal does: no handler of errors sees it."""


async def test_a_node_killed_while_it_computes_goes_on_behind_the_last_layer(trials: Trials) -> None:
    async with trials(num_hidden_layers=3) as trial:
        stage = trial.stage
        _, known = await trial.accuse(trial.rows(), 4)
        read: list[int] = []

        class Counting(OpenedWeights):
            def layer(self, number: int) -> Mapping[str, Rows]:
                read.append(number)
                if len(read) == 3:
                    raise KilledProcess
                return super().layer(number)

        killed = trial.side(stage.node, known, weights=Counting, place="node")
        with pytest.raises(KilledProcess):
            await trial.play(killed)
        again = trial.side(stage.node, known, weights=Counting, place="node")
        assert await trial.play(again) == 1
        assert read[:4] == [0, 1, 2, 2]
        # What is kept goes when the dispute is over.
        stage.stage.anvil.mine(stage.turn + 1)
        await trial.play(again)
        assert list((trial.folder / "node").iterdir()) == []
