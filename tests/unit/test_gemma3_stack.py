"""Calibration's batched stack computes what transformers computes for a small random Gemma 3, and so do its cheats."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.tiny_gemma3 import KINDS, VOCABULARY, transformers_model, write_tiny_gemma3

torch = pytest.importorskip("torch")

from transformers import DynamicCache  # noqa: E402

from troth.node.calibration import calibrating  # noqa: E402
from troth.node.calibration.conditions import all_conditions  # noqa: E402
from troth.node.calibration.findings import find  # noqa: E402
from troth.node.calibration.measurements import MeasurementFiles  # noqa: E402
from troth.node.calibration.prompts import SAMPLINGS, Bucket  # noqa: E402
from troth.node.calibration.stack import Stack  # noqa: E402
from troth.node.engine.wide_products import wide_products  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch

LAYERS = len(KINDS)
TOKENS = np.random.default_rng(8).integers(VOCABULARY, size=(3, 17))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    torch.set_num_threads(1)
    return write_tiny_gemma3(tmp_path_factory.mktemp("gemma3") / "tiny")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.15)])
def test_a_stack_computes_what_transformers_computes(
    folder: ModelFolder, attention: str, dtype: str, tolerance: float
) -> None:
    words = getattr(torch, dtype)
    stack = Stack(folder, words, attention=attention)
    model = transformers_model(folder, words)
    model.set_attn_implementation(attention)
    cache, parts = DynamicCache(), []
    with torch.inference_mode():
        with wide_products(torch.empty(*TOKENS.shape, 0, dtype=words)):
            expected = model(torch.from_numpy(TOKENS), use_cache=False)
        once = stack.forward(stack.embed(torch.from_numpy(TOKENS)), Segment(0, LAYERS))
        torch.testing.assert_close(stack.logits(once), expected.logits.float(), atol=0, rtol=0)
        for start, end in pairwise([0, 3, 11, *range(12, 18)]):
            states = stack.embed(torch.from_numpy(TOKENS[:, start:end]))
            for segment in (Segment(0, 2), Segment(2, LAYERS)):
                states = stack.forward(states, segment, cache, start)
            parts.append(states)
    torch.testing.assert_close(torch.cat(parts, dim=1), once, atol=tolerance, rtol=0)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(folder: ModelFolder, count: int) -> list[Bucket]:
        tokens = np.random.default_rng(3).integers(VOCABULARY, size=(count, 12))
        return [Bucket(0, 0, tokens, tuple(SAMPLINGS[index % len(SAMPLINGS)] for index in range(count)))]

    monkeypatch.setattr(calibrating, "buckets", made)


@pytest.mark.slow
@pytest.mark.usefixtures("small_buckets")
def test_honest_runs_pass_and_cheats_do_not(folder: ModelFolder, tmp_path: Path) -> None:
    kept = MeasurementFiles(tmp_path)
    plan = calibrating.plan_for(LAYERS, 1, 32, 2)
    calibrating.measure(folder, plan, kept, prompts=6, threads=1, model=bytes(32), report=lambda progress: None)
    findings = find(kept, all_conditions(LAYERS, plan.dtype), plan)
    assert findings.refused_known.count == 0
    caught = {outcome.condition.name: outcome.by_any.value for outcome in findings.outcomes}
    assert min(caught[name] for name in ("int4 weights", "a layer skipped in each half", "early exit")) == 1
