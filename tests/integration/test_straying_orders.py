"""A text that its node's own rows do not choose, under the check of its order, torch engine: every verifier rejects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from support.order_network import Network, build
from support.tiny_llama import LAYERS, tiny_model

from troth.node.engine.interface import Chosen, SessionKey, TokenDraw
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import ModelFolder
from troth.protocol.doubts import under_rules
from troth.protocol.market.life import Acknowledged, Rejected, live
from troth.protocol.market.signed import Opinion
from troth.protocol.types import ZERO_HASH, Segment

pytestmark = [pytest.mark.slow]

RULES = (
    {"exact": False, "dtype": 0, "state_cut": 25},
    {"exact": False, "dtype": 1, "mantissa_bits": 7, "state_cut": 1_720_000},
)


class Lenient(TorchEngine):
    """Writes what a cheaper draft would have written where it loses no more than it forgives: here a token further
    down. Its rows are honest."""

    forgives = 0.0

    async def choose(self, key: SessionKey, row: Any, draw: TokenDraw) -> Chosen:
        chosen = await super().choose(key, row, draw)
        if not self.forgives:
            return chosen
        logits = (await self.logits(row)).rows[0]
        lost = logits[chosen.token] - logits
        offered = np.flatnonzero((lost <= self.forgives) & (lost > self.forgives / 2))
        return chosen._replace(token=int(offered[0])) if len(offered) else chosen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def network_of(folder: ModelFolder, path: Path, version: int, **rules: Any) -> Network:
    # Texts may lose anything here, so that a verifier's own rows refuse none.
    told = {"margin_cut": 2_000_000, "calibration": under_rules(ZERO_HASH, version)}
    network = build(path, ends=(LAYERS,), **rules, **told)
    for node in network.nodes.values():
        _, context, service = node.running
        engine: Any = Lenient(folder, Segment(0, LAYERS), rules["dtype"], threads=1)
        service._context = replace(context, engine=engine)
        node.started = (engine, service._context, service)
    return network


@pytest.mark.parametrize("rules", RULES, ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("version", "forgives", "caught"), [(5, 0.0, False), (5, 0.5, True), (4, 0.5, False)])
async def test_a_text_that_its_own_rows_do_not_choose_is_rejected(
    folder: ModelFolder, tmp_path: Path, rules: dict[str, Any], version: int, forgives: float, caught: bool
) -> None:
    network = network_of(folder, tmp_path, version, **rules)
    ordered = network.order(max_tokens=6)
    cheat: Any = network.nodes[ordered.nodes[0]].engine
    cheat.forgives = forgives
    await network.serve(ordered)
    check = await network.check(ordered, 0)
    wanted = Opinion.REJECT if caught else Opinion.ACCEPT
    assert {one.message.opinion for one in check.verdicts.values()} == {wanted}
    ending = live(network.journey(ordered, (check,)), network.view(ordered.order.message))
    assert ending == Rejected((0,)) if caught else isinstance(ending, Acknowledged)
