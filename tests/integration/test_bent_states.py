"""The state behind an embedding under the check of its order, torch engine: a node that bends it alone is rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from support.order_network import Network, Ordered, build
from support.tiny_llama import LAYERS, tiny_model

from troth.node.engine.exact_layers import ExactSlice
from troth.node.engine.interface import Computed, SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import ModelFolder
from troth.node.orders.session import INFERS
from troth.protocol.market.last_row import LastRow, require_last_row
from troth.protocol.market.life import Acknowledged, Rejected, live
from troth.protocol.market.rows import RowHashes, hashes_in
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Segment

pytestmark = [pytest.mark.slow]

FLOAT32_CUT = 25
"""That of the calibration that ships for SmolLM2 in float32."""


class Bending(TorchEngine):
    """Bends the last state that it infers, and no other; what it checks is honest."""

    bend = 0.0

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: Any) -> Computed:
        computed = await super().forward(key, segment, start, inputs)
        if key.attempt != INFERS or not self.bend:
            return computed
        rows = computed.rows.copy()
        rows[-1, 0] *= np.float32(1 + self.bend)
        return computed._replace(rows=rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def network_of(folder: ModelFolder, path: Path, **rules: Any) -> Network:
    layers = {"layers": ExactSlice} if rules.get("exact") else {}
    network = build(path, ends=(LAYERS,), **rules)
    for node in network.nodes.values():
        _, context, service = node.running
        engine: Any = Bending(folder, Segment(0, LAYERS), 0, threads=1, **layers)
        service._context = replace(context, engine=engine)
        node.started = (engine, service._context, service)
    return network


def opened(network: Network, ordered: Ordered) -> Any:
    """The state of the last position, as the client of the order checks it."""
    rules = network.view(ordered.order.message).rules
    size, begun = 4 * rules.hidden_size, RowHashes(ordered.order_id, 0)
    if rules.exact:
        row, (_, last) = ordered.last_row, begun.extend_hashed(hashes_in(ordered.rows[0]))
    else:
        row, (_, last) = ordered.rows[0][-size:], begun.extend(ordered.rows[0], size, ordered.sequence)
    shown = LastRow(row, last.previous, ordered.head_salt)
    result = ordered.results[0].message
    return require_last_row(shown, result, rules, ordered.request.prompt_tokens, ordered.tokens)


EXACT = {"exact": True, "tiles": 0}
FLOAT32 = {"exact": False, "state_cut": FLOAT32_CUT}


@pytest.mark.parametrize(
    ("rules", "bend", "caught"),
    [(EXACT, 2.0**-23, True), (FLOAT32, 0.01, True), (FLOAT32, 0.0, False), (EXACT, 0.0, False)],
    ids=["the last bit", "a hundredth of one number", "honest in float32", "honest and exact"],
)
async def test_who_bends_the_last_state_alone_is_rejected(
    folder: ModelFolder, tmp_path: Path, rules: dict[str, Any], bend: float, caught: bool
) -> None:
    network = network_of(folder, tmp_path, **rules)
    true = opened(network, await network.serve(max_tokens=1))
    ordered = network.order(max_tokens=1)
    cheat: Any = network.nodes[ordered.nodes[0]].engine
    cheat.bend = bend
    await network.serve(ordered)
    shown = opened(network, ordered)
    # The client is shown what the node signed: only the check can say that it is another state.
    assert np.array_equal(shown, true) is (bend == 0)
    check = await network.check(ordered, 0)
    wanted = Opinion.REJECT if caught else Opinion.ACCEPT
    assert {one.message.opinion for one in check.verdicts.values()} == {wanted}
    ending = live(network.journey(ordered, (check,)), network.view(ordered.order.message))
    assert ending == Rejected((0,)) if caught else isinstance(ending, Acknowledged)
