"""`troth node dispute` as its operator runs it: a process, a file of evidence, and real contracts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.dispute_command import NOTHING, DisputingOperator
from support.dispute_stage import Played, dispute_stage
from support.dispute_trials import WRONG, TamperedWeights, Trial, ending
from support.layer_disputes import LayerScene

from troth.chain.deployment import numbers_creation, steps_creation, submit
from troth.node.court.accusations import Accusations
from troth.node.court.dispute_chain import DISPUTES_FOLDER
from troth.protocol.disputes.calls import DisputeWon
from troth.protocol.market.types import PotKind

pytestmark = [pytest.mark.chain, pytest.mark.slow, pytest.mark.torch]


@pytest.fixture
async def operator(anvil: Any, tmp_path: Path) -> AsyncIterator[DisputingOperator]:
    scene = LayerScene.make(tmp_path / "model")
    numbers = (await submit(anvil.url, numbers_creation(), anvil.keys[0])).created
    assert numbers is not None
    async with dispute_stage(anvil, steps_creation(numbers), scene.weights.shape.encoded, scene.model) as stage:
        yield DisputingOperator.make(Trial(stage, scene, tmp_path), tmp_path / "home")


async def test_an_operator_opens_a_dispute_that_its_process_wins(operator: DisputingOperator) -> None:
    trial = operator.trial
    stage, accuser = trial.stage, trial.stage.accuser
    stage.stage.anvil.fund(accuser)
    rows = trial.rows(WRONG)
    evidence = operator.evidence(rows)
    path = operator.write(evidence)

    # Nothing is sent unless that is asked for.
    code, said, complained = await operator.run(path)
    assert code == 0, complained
    told = json.loads(said)
    assert (told["accused"], told["accuser"], told["sent"]) == (stage.node.address, accuser.address, False)
    assert (told["order"], told["segment"]) == ("0x" + evidence.order_id.hex(), 0)
    assert told["would_fail"] is None
    assert int(told["bond_units"]) == stage.bond
    assert int(told["most_wei_of_gas"]) > 0
    assert told["rounds"] >= 1
    # Nobody would take its turns, and silence costs the bond.
    assert "run `troth node start`" in told["warning"]
    side = trial.side(accuser)
    assert await side.chain.lives() == {}

    # Opened, with what the process needs on disk.
    code, said, complained = await operator.run(path, "--broadcast")
    assert code == 0, complained
    opened = json.loads(said)
    assert opened["sent"]
    (found,) = (await side.chain.lives()).values()
    assert opened["dispute"] == "0x" + found.id.hex()
    assert found.state.accuser == accuser.address
    assert found.matter.position == told["position"]
    kept = Accusations(operator.home / DISPUTES_FOLDER / "accusations")
    known = kept.find(found.matter.order, 0, stage.follower.state)
    assert known is not None

    # It is opened once: the second time nothing is sent, and the command says which one stands.
    code, said, complained = await operator.run(path)
    assert code == 0, complained
    assert "AlreadyDisputed" in json.loads(said)["would_fail"]
    code, said, complained = await operator.run(path, "--broadcast")
    assert code == 0, complained
    again = json.loads(said)
    assert (again["sent"], again["dispute"]) == (False, opened["dispute"])

    # From what is on disk the accuser plays to the conviction.
    stake = stage.pot(PotKind.STAKE, stage.node.address)
    played = Played(found)
    honest = trial.side(accuser, known, place="accuser")
    await trial.play(trial.side(stage.node, known, weights=TamperedWeights), honest)
    assert isinstance(await ending(honest, played), DisputeWon)
    await stage.follower.catch_up()
    assert stage.pot(PotKind.STAKE, stage.node.address) == stake - stage.stage.execution_class.penalty

    # Who was convicted for a result is not accused of it again.
    code, said, complained = await operator.run(path)
    assert code == 0, complained
    assert json.loads(said)["would_fail"]


async def test_an_operator_is_told_why_nothing_is_disputed(operator: DisputingOperator) -> None:
    trial = operator.trial
    stage, told = trial.stage, operator.told
    honest, wrong = operator.evidence(trial.rows()), operator.evidence(trial.rows(WRONG))
    for evidence, words in (
        (replace(wrong, rows=()), "The rows that the node signed are not at hand"),
        (replace(wrong, rows=honest.rows), "These are not the rows that the node signed"),
        (replace(wrong, answer=None), "The evidence lacks the request or the answer"),
        (replace(wrong, head_salt=None), "The evidence lacks the salt of the heads"),
        (replace(wrong, results=()), "The evidence holds no such result"),
        (replace(wrong, chain_id=1), "The evidence is of another network"),
    ):
        assert (await told(operator.write(evidence))).startswith(f"{NOTHING}: {words}")
    path = operator.write(wrong)
    assert "The evidence holds no such result" in await told(path, segment=1)
    assert (await told(path, position=5)).startswith(f"{NOTHING}: The node signed 5 rows, from 0 to 4")
    # Who disputes a true row loses the bond.
    one_wrong = trial.rows()
    one_wrong[3] = trial.rows(WRONG)[3]
    path = operator.write(operator.evidence(one_wrong))
    said = await told(path, position=2)
    assert said.startswith(f"{NOTHING}: This row is no further from the canonical one than honest ones")
    assert "1: there is no such file" in await told("elsewhere.troth")
    assert "1: this node did not reject that order" in await told("0x" + "11" * 32)
    junk = operator.home / "junk.troth"
    junk.write_bytes(b"nothing")
    assert (await told(junk)).startswith("1: ")
    # As a process: the exit code, and one message.
    code, said, complained = await operator.run(operator.write(honest), "--broadcast")
    assert (code, said) == (NOTHING, "")
    assert "No row of this segment is further from the canonical one than honest machines are" in complained
    assert "Traceback" not in complained
    (operator.home / "password").write_text("wrong\n")
    assert "password" in await told(path)
    assert await trial.side(stage.accuser).chain.lives() == {}


async def test_an_account_that_cannot_pay_is_told_so(operator: DisputingOperator) -> None:
    stage = operator.trial.stage
    stage.stage.anvil.rpc("anvil_setBalance", stage.accuser.address, hex(stage.bond // 2))
    said = await operator.told(operator.write(operator.evidence(operator.trial.rows(WRONG))))
    assert "InsufficientFunds" in said
    assert f"to {stage.accuser.address}" in said
    assert ".." not in said
    assert await operator.trial.side(stage.accuser).chain.lives() == {}
