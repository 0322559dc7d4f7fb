"""A chain that takes back the block that an order names: what a draw named before is no fault of its scheduler's.

Nodes change their asks in the newest block, orders come, and the chain goes on without that block, as when two
validators speak at once. Whoever holds an admission would have convicted its scheduler with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.client_network import Network, client_side, network
from support.tab_scene import Asked, history_of
from support.tabs_stage import ASK
from support.waiting import eventually

from troth.cases.convicting import Proof, proofs_in
from troth.cases.evidence import VERSION, Evidence
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.types import Ask, PotKind
from troth.scheduler.configuration import SETTLED_BLOCKS

pytestmark = [pytest.mark.chain, pytest.mark.slow]

DEAR = Ask(prompt=10 * ASK.prompt, cached=10 * ASK.cached, written=10 * ASK.written)
RAISED, ORDERS = 10, 12
"""Of twelve nodes, two of which may serve: in one draw of three these would have been drawn without it, too."""


async def raise_asks(scene: Network) -> None:
    """Most nodes ask more than orders pay, all in the newest block."""
    stage = scene.stage
    for node in stage.nodes[:RAISED]:
        stage.anvil.fund(node)
    stage.anvil.rpc("evm_setAutomine", False)
    sent = [
        asyncio.create_task(stage.send(node, Part.REGISTRY, "setAsk", node.address, 0, 2, DEAR))
        for node in stage.nodes[:RAISED]
    ]
    await eventually(lambda: int(stage.anvil.rpc("txpool_status")["pending"], 16) == RAISED)
    stage.anvil.rpc("evm_mine")
    stage.anvil.rpc("evm_setAutomine", True)
    await asyncio.gather(*sent)


def proofs_of(scene: Network, asked: Asked) -> list[Proof]:
    """What whoever holds an order's papers can prove of its scheduler now."""
    admitted = history_of(scene, asked).admitted
    evidence = Evidence(
        VERSION, 31337, scene.stage.market.contracts.bank, tab=admitted.tab, order=admitted.order,
        admissions=(admitted.admission,), nodes=admitted.nodes, infer_proof=admitted.infer_proof,
    )  # fmt: skip
    view = scene.context.view(asked.order, admitted.tab)
    found = proofs_in(evidence, scene.ledger.state, view)
    return [one for one in found if one.conviction.fault is Fault.WRONG_NODES]


async def take_asks_back(scene: Network, before: str) -> None:
    """The chain goes on from another block than the one in which the asks were raised."""
    scene.stage.anvil.rpc("evm_revert", before)
    await scene.pass_by(3)


async def test_a_reorganisation_makes_no_wrong_word_of_an_honest_admission(
    anvil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Network, "settled", SETTLED_BLOCKS)
    async with network(anvil, tmp_path / "network") as scene:
        with scene.still():
            before = anvil.rpc("evm_snapshot")
            await raise_asks(scene)
            await scene.pass_by(1)
            status, error = await scene.refused(scene.asked())
            assert (status, error["code"]) == (409, "young_block")
            settled = scene.ledger.block - 1 - SETTLED_BLOCKS
            scene.payer = replace(scene.payer, sequence=0, bounds={})
            orders = [await scene.send(scene.asked(reference_block=settled)) for _ in range(ORDERS)]
            await take_asks_back(scene, before)
            assert not [proof for asked in orders for proof in proofs_of(scene, asked)]


async def test_without_that_a_reorganisation_takes_an_honest_schedulers_stake(anvil: Any, tmp_path: Path) -> None:
    """What it costs to set ``settled_blocks = 0`` where a chain takes blocks back: a penalty for each such order."""
    async with network(anvil, tmp_path / "network") as scene:
        with scene.still():
            before = anvil.rpc("evm_snapshot")
            await raise_asks(scene)
            await scene.pass_by(1)
            orders = [await scene.send(scene.asked()) for _ in range(ORDERS)]
            await take_asks_back(scene, before)
            scheduler, courtroom = scene.stage.scheduler.address, scene.ledger.courtroom
            staked = scene.ledger.state.pot(PotKind.STAKE, scheduler)
            proofs = [proof for asked in orders for proof in proofs_of(scene, asked)]
            for proof in proofs:
                hints = b"" if proof.request is None else await courtroom.hints(proof.request)
                await courtroom.send(proof.build(scene.ledger.contracts, hints))
            taken = staked - scene.ledger.state.pot(PotKind.STAKE, scheduler)
            assert taken == len(proofs) * scene.definition.penalty > 0


async def test_a_client_names_a_block_that_its_scheduler_takes(
    anvil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Network, "settled", SETTLED_BLOCKS)
    async with network(anvil, tmp_path / "network") as scene:
        side = await client_side(scene, tmp_path / "home")
        asked = await side.run("ask", "word7 word8", "--max-tokens", 3, "--check", "always", "--json")
        assert asked.code == 0, asked.err
        (history,) = side.orders
        assert history.order.reference_block < history.admitted.admission.message.block_number - SETTLED_BLOCKS
