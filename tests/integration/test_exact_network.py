"""A class of equal roots on tabs, torch engine: decode alone against prefill, and the least change there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from support.order_network import Network, Node, build
from support.tiny_llama import LAYERS, tiny_model

from troth.node.engine.exact_layers import ExactSlice
from troth.node.engine.interface import Chosen, Computed, SessionKey, TokenDraw
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import ModelFolder
from troth.node.orders.session import INFERS
from troth.protocol.market import checks, messages
from troth.protocol.market.life import Acknowledged, Rejected, live
from troth.protocol.market.papers import trace_salt
from troth.protocol.market.rows import HASH_BYTES, RowHashes
from troth.protocol.market.signed import Opinion
from troth.protocol.tensors import Dtype, rows_to_bytes
from troth.protocol.trace import TileLayout
from troth.protocol.types import Hash32, Segment

pytestmark = [pytest.mark.slow]


class Swaying(TorchEngine):
    """Multiplies every row that it infers; what it checks is honest."""

    sway = 1.0
    uncut = False
    """Choose tokens of what it infers as if neither top_k nor min_p were asked for."""

    async def choose(self, key: SessionKey, row: Any, draw: TokenDraw) -> Chosen:
        if self.uncut and key.attempt == INFERS:
            draw = draw._replace(sampling=replace(draw.sampling, top_k=0, min_p=0.0))
        return await super().choose(key, row, draw)

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: Any) -> Computed:
        computed = await super().forward(key, segment, start, inputs)
        if key.attempt != INFERS:
            return computed
        return computed._replace(rows=(computed.rows * np.float32(self.sway)).astype(np.float32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def network_of(folder: ModelFolder, path: Path, ends: tuple[int, ...]) -> Network:
    network = build(path, ends=ends, exact=True, tiles=0)
    for node in network.nodes.values():
        with_model(node, folder)
    return network


def with_model(node: Node, folder: ModelFolder) -> None:
    _, context, service = node.running
    engine: Any = Swaying(folder, Segment(0, LAYERS), 0, threads=1, layers=ExactSlice)
    service._context = replace(context, engine=engine)
    node.started = (engine, service._context, service)


@pytest.mark.parametrize("ends", [(LAYERS,), (1, LAYERS)], ids=["alone", "relayed"])
async def test_honest_roots_are_equal(folder: ModelFolder, tmp_path: Path, ends: tuple[int, ...]) -> None:
    network = network_of(folder, tmp_path, ends)
    for tokens in (1, 17, 70):
        ordered = await network.serve(max_tokens=tokens)
        found = tuple([await network.check(ordered, segment) for segment in range(len(ends))])
        said = {one.message.opinion for check in found for one in check.verdicts.values()}
        assert said == {Opinion.ACCEPT}
        ending = live(network.journey(ordered, found), network.view(ordered.order.message))
        assert isinstance(ending, Acknowledged)


async def test_a_last_bit_in_every_state_is_rejected(folder: ModelFolder, tmp_path: Path) -> None:
    """float32 has 23 bits of mantissa; a tolerant class cannot see the last of them, nor a 0.1 % change in bfloat16."""
    network = network_of(folder, tmp_path, (LAYERS,))
    ordered = network.order(max_tokens=9)
    cheat: Any = network.nodes[ordered.nodes[0]].engine
    cheat.sway = 1 + 2.0**-22
    await network.serve(ordered)
    check = await network.check(ordered, 0)
    assert {one.message.opinion for one in check.verdicts.values()} == {Opinion.REJECT}
    assert live(network.journey(ordered, (check,)), network.view(ordered.order.message)) == Rejected((0,))


CUTS = [(3, 0), (0, 700_000), (5, 300_000)]
"""top_k, and min_p in millionths."""


@pytest.mark.parametrize("cuts", CUTS, ids=["top_k", "min_p", "both"])
async def test_a_text_that_top_k_and_min_p_cut_is_accepted_and_one_that_they_did_not_is_not(
    folder: ModelFolder, tmp_path: Path, cuts: tuple[int, int]
) -> None:
    network = network_of(folder, tmp_path, (LAYERS,))
    texts = []
    for uncut, opinion in ((False, Opinion.ACCEPT), (True, Opinion.REJECT)):
        ordered = network.order(max_tokens=33, temperature=900_000, cuts=cuts)
        cheat: Any = network.nodes[ordered.nodes[0]].engine
        cheat.uncut = uncut
        await network.serve(ordered)
        check = await network.check(ordered, 0)
        assert {one.message.opinion for one in check.verdicts.values()} == {opinion}
        cheat.uncut = False
        texts.append(ordered.tokens)
    assert texts[0] != texts[1]
    assert len(set(texts[0])) > 3, "tokens are still drawn"


async def test_commitments_are_those_of_one_prefill_and_outlive_a_kill(folder: ModelFolder, tmp_path: Path) -> None:
    """Rows did not travel and are on nobody's disk: whoever computes them again gets the bits that were signed."""
    network = network_of(folder, tmp_path, (LAYERS,))
    ordered = await network.serve(max_tokens=33, temperature=700_000)
    order, positions = ordered.order_id, ordered.positions
    assert len(ordered.rows[0]) == positions * HASH_BYTES
    engine = TorchEngine(folder, Segment(0, LAYERS), 0, threads=1, layers=ExactSlice)
    inputs = np.array(ordered.sequence, np.int64)
    rows = (await engine.forward(SessionKey(b"again", 0, 0), Segment(0, LAYERS), 0, inputs)).rows
    await engine.close()
    size, result = rows.shape[1] * 4, ordered.results[0].message
    chain, _ = RowHashes(order, 0).extend(rows_to_bytes(rows, Dtype.FLOAT32), size, ordered.sequence)
    assert result.output_head == checks.head(order, ordered.head_salt, chain.link)
    layout = TileLayout(order, network.execution_class.model, positions, rows.shape[1], Dtype.FLOAT32)
    salt = trace_salt(order, 0, ordered.nodes[0], ordered.head_salt)
    assert result.trace_commitment == messages.trace_commitment(Hash32(layout.commit(rows).root), salt)

    killed = network.nodes[next(iter(network.drawn(ordered)[0].seats))]
    asked = network.check_message(ordered, 0, killed.address), network.recommit_message(ordered, 0)
    said = [(await killed.ask(*message))[1] for message in asked]
    for node in (killed, network.nodes[ordered.nodes[0]]):
        await node.restart()
        with_model(node, folder)
    assert [(await killed.ask(*message))[1] for message in asked] == said
    check = await network.check(ordered, 0)
    assert {one.message.opinion for one in check.verdicts.values()} == {Opinion.ACCEPT}
    ending = live(network.journey(ordered, (check,)), network.view(ordered.order.message))
    assert isinstance(ending, Acknowledged)
    assert ending.checked
    assert {node.context.stores.traces.kept for node in network.nodes.values() if node.started} == {0}
