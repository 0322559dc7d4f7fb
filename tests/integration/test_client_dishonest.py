"""`troth client` against a scheduler that breaks the rules: nothing is believed, and no money is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.client_network import ClientSide, client_side, reachable, speaking, write_model
from support.dishonest_scheduler import Fault, dishonest_scheduler
from support.scheduler_stage import stage

from troth.protocol.calls.views import escrow_of

pytestmark = [pytest.mark.chain, pytest.mark.slow]

ASK = ("chat", "word9", "--max-tokens", 4, "--json")


@asynccontextmanager
async def cheated(deployed: Any, folder: Path, fault: Fault) -> AsyncIterator[ClientSide]:
    texts = write_model(folder / "speaking")
    async with (
        stage(deployed, folder, nodes=5, cast=speaking(texts)) as scene,
        reachable(scene, dishonest_scheduler(scene, texts, fault), folder / "tls"),
    ):
        yield client_side(scene, folder / "home", scene.client)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("other parties", "ProofError", "not drawn"),
        ("another key's proofs", "ProofError", "VRF"),
        ("unproven tokens", "ProofError", "before it proved who serves"),
        ("a token skipped", "StreamError", "missing"),
        ("another template", "ModelUnavailable", "not the one registered"),
    ],
)
async def test_a_lie_is_named_and_its_words_are_not_shown(
    deployed: Any, tmp_path: Path, fault: str, kind: str, words: str
) -> None:
    async with cheated(deployed, tmp_path, Fault(fault)) as side:
        refused = await side.run(*ASK)
        assert refused.code == 1, refused.out
        assert refused.error["kind"] == kind, refused.error
        assert words in refused.error["what"]
        if kind == "ProofError":
            assert refused.json["answer"] == ""


async def test_a_silent_scheduler_is_closed_and_the_fee_comes_back(deployed: Any, tmp_path: Path) -> None:
    fault = Fault("silence after two tokens")
    async with cheated(deployed, tmp_path, fault) as side:
        scene = side.scene
        before = await scene.chain.read(escrow_of(side.address))
        lost = await side.run(*ASK)
        assert lost.code == 1
        assert lost.error["kind"] == "StreamError"
        assert "before the verdict" in lost.error["what"]
        assert before - await scene.chain.read(escrow_of(side.address)) == scene.fee

        task = "0x" + fault.opened.hex()
        running = (await side.run("receipts", task, "--json")).json
        assert (running["state"], running["held_wei"], running["paid_wei"]) == ("running", str(scene.fee), "0")
        unchecked = await side.run("receipts", task, "--answer", "--json")
        assert unchecked.code == 1
        assert unchecked.error["kind"] == "AnswerUnavailable"

        early = await side.run("close", task, "--broadcast", "--json")
        assert early.code == 1
        assert early.error["kind"] == "TransactionRefused"
        scene.anvil.mine(deployed.parameters.commit_window + 1)
        dry = await side.run("close", task, "--json")
        assert (dry.code, dry.json["broadcast"]) == (0, False)
        closed = await side.run("close", task, "--broadcast", "--json")
        assert closed.code == 0, closed.err
        assert await scene.chain.read(escrow_of(side.address)) == before
        ended = (await side.run("receipts", task, "--json")).json
        assert (ended["outcome"], ended["held_wei"], ended["paid_wei"]) == ("expired", "0", "0")
        again = await side.run("close", task, "--broadcast", "--json")
        assert again.error["kind"] == "ReceiptNotFound"
