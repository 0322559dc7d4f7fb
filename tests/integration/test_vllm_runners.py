"""vLLM as a graphics card would have it, as far as a CPU can show: its second model runner, and layers shared out.

The second runner's kernels are Triton's, which has an interpreter: slow, and the same steps. Two processes that share
layers out are real ones, over gloo.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: troth node engine install vllm")
pytest.importorskip("torch")

from troth.node.engine.interface import TokenStep
from troth.node.engine.probe import POSITIONS, probe
from troth.node.engine.stress import stress
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.engine.vllm.trial import write_model
from troth.node.models.folder import ModelFolder
from troth.protocol.request import Request
from troth.protocol.tokens import Sampling, choose, noise
from troth.protocol.transforms import Transforms
from troth.protocol.types import ZERO_HASH, Hash32

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800)]

INTERPRETED = """
import triton.backends as backends
from types import SimpleNamespace
# vLLM for CPU looks for Triton's CPU backend before it lets its second runner begin.
backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)
"""
WAYS = {"first runner": (1, 1), "second runner": (2, 1), "two ranks": (1, 2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    path = tmp_path_factory.mktemp("models") / "tiny"
    write_model(path)
    return ModelFolder(path)


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interpreted")
    (path / "sitecustomize.py").write_text(INTERPRETED)
    return path


@asynccontextmanager
async def started(
    folder: ModelFolder, patched: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> AsyncIterator[VllmEngine]:
    runner, ranks = WAYS[way]
    if runner == 2:
        if importlib.util.find_spec("triton") is None:
            pytest.skip("Triton is not installed")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        monkeypatch.setenv("PYTHONPATH", str(patched))
        exec(INTERPRETED, {})
    settings = EngineSettings(
        folder.path, 1, positions=2 * POSITIONS - 1, cache_bytes=1 << 27, threads=1, runner=runner, parallel=ranks
    )
    engine = VllmEngine(folder, settings)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_has_the_bits_of_its_prefill_and_takes_the_tokens_of_the_rule(
    folder: ModelFolder, patched: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with started(folder, patched, monkeypatch, way) as engine:
        found = await probe(engine)
        seed = Hash32(bytes([7]) * 32)
        requests = [
            Request(ZERO_HASH, tuple(range(5, 5 + length)), 6, temperature, 900_000, (), transforms, *cuts)
            for length, temperature, transforms, cuts in (
                (3, 0, Transforms(), (0, 0)),
                (40, 1_000_000, Transforms(), (0, 0)),
                (9, 1_000_000, Transforms(), (5, 100_000)),
                (11, 700_000, Transforms(presence=900_000, frequency=500_000), (0, 0)),
            )
        ]
        texts = await asyncio.gather(*(_steps(engine, request, seed) for request in requests))
        for request, steps in zip(requests, texts, strict=True):
            await _require_rule(engine, request, seed, steps)
        if way == "first runner":
            report = await stress(engine, POSITIONS, seconds=1.0, tell=print)
            assert report.compared > 1_000
    # The runner is no part of a class' bits, and over how many ranks layers are shared out is.
    known = BITS.setdefault("one rank" if way != "two ranks" else "two ranks", found)
    assert known == found
    assert len(set(BITS.values())) == len(BITS)


BITS: dict[str, str] = {}


async def _steps(engine: VllmEngine, request: Request, seed: Hash32) -> list[TokenStep]:
    return [step async for step in engine.generate(request, seed)]


async def _require_rule(engine: VllmEngine, request: Request, seed: Hash32, steps: Sequence[TokenStep]) -> None:
    """Every token is that of the protocol's rule for the head's logits, and the rows are those of a prefill."""
    from troth.protocol.masks import text_rules

    tokens = [step.token for step in steps]
    assert len(tokens) == request.max_tokens
    rows = np.concatenate([step.rows for step in steps])
    fresh = (await engine.prefill([*request.prompt_tokens, *tokens[:-1]], fresh=True)).rows
    assert np.array_equal(rows, fresh)
    first = len(request.prompt_tokens) - 1
    logits = (await engine.logits(rows[first:])).rows
    sampling, rules = Sampling.of(request), text_rules(request, logits.shape[1], "")
    for place, (row, token) in enumerate(zip(logits, tokens, strict=True)):
        gumbel = noise(seed, first + place, len(row)) if sampling.temperature else None
        assert choose(row, sampling, gumbel, None if rules is None else rules.row()) == token
        if rules is not None:
            rules.take_all([token])
