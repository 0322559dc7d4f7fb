"""A whole calibration of a small random model: honest runs pass, cheats stand out, and a stopped run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.tiny_llama import model_folder, tiny_llama  # noqa: E402
from transformers import DynamicCache, LlamaForCausalLM  # noqa: E402

from troth.node.calibration import calibrating  # noqa: E402
from troth.node.calibration.conditions import all_conditions  # noqa: E402
from troth.node.calibration.findings import find  # noqa: E402
from troth.node.calibration.generating import seed_of  # noqa: E402
from troth.node.calibration.machines import CalibratedMachine, written  # noqa: E402
from troth.node.calibration.measurements import MeasurementFiles  # noqa: E402
from troth.node.calibration.prompts import SAMPLINGS, Bucket, texts  # noqa: E402
from troth.node.calibration.report import CalibrationSubject, as_json, write  # noqa: E402
from troth.node.calibration.stack import Stack  # noqa: E402
from troth.node.calibration.thresholds import LENGTHS  # noqa: E402
from troth.node.engine.interface import TokenStep  # noqa: E402
from troth.node.errors import ModelError  # noqa: E402
from troth.node.models.execution_class import rough_class  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.node.models.thresholds import read_calibration  # noqa: E402
from troth.protocol.doubts import under_rules  # noqa: E402
from troth.protocol.tokens import Sampling  # noqa: E402
from troth.protocol.types import Hash32, Segment  # noqa: E402

pytestmark = pytest.mark.torch

MODEL = Hash32(bytes([7]) * 32)
LAYERS = 5


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    shape = {"vocab_size": 200, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS}
    return tiny_llama(seed=11, initializer_range=0.2, **shape)


@pytest.fixture(scope="module")
def folder(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return model_folder(model, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(folder: ModelFolder, count: int) -> list[Bucket]:
        tokens = np.random.default_rng(3).integers(200, size=(count, 12))
        samplings = tuple(SAMPLINGS[index % len(SAMPLINGS)] for index in range(count))
        return [Bucket(0, 0, tokens, samplings)]

    monkeypatch.setattr(calibrating, "buckets", made)


def test_sixty_four_different_prompts_ship() -> None:
    assert len(set(texts())) == 64


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_stack_computes_what_transformers_computes(
    folder: ModelFolder, model: LlamaForCausalLM, attention: str
) -> None:
    tokens = torch.arange(3 * 17).reshape(3, 17) % 200
    stack = Stack(folder, torch.float32, attention=attention)
    cache = DynamicCache()
    with torch.inference_mode():
        first = stack.forward(stack.embed(tokens[:, :11]), Segment(0, LAYERS), cache)
        rest = stack.forward(stack.embed(tokens[:, 11:]), Segment(0, LAYERS), cache, 11)
        expected = model.model(tokens).last_hidden_state
    torch.testing.assert_close(torch.cat([first, rest], dim=1), expected, atol=1e-5, rtol=1e-4)


def calibrate(folder: ModelFolder, kept: MeasurementFiles, dtype: int, prompts: int = 6) -> tuple[Any, list[str]]:
    seen: list[str] = []
    plan = calibrating.plan_for(LAYERS, dtype, 32, 2)
    calibrating.measure(
        folder,
        plan,
        kept,
        prompts=prompts,
        threads=1,
        model=MODEL,
        report=lambda progress: seen.append(progress.condition),
    )
    return plan, seen


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [0, 1])
def test_honest_runs_pass_and_cheats_do_not(folder: ModelFolder, tmp_path: Path, dtype: int) -> None:
    kept = MeasurementFiles(tmp_path / "data")
    plan, seen = calibrate(folder, kept, dtype)
    conditions = all_conditions(LAYERS, dtype)
    assert seen == [condition.name for condition in conditions]
    findings = find(kept, conditions, plan)
    assert findings.refused_known.count == 0
    assert findings.refused.total == findings.refused_known.total == 6 * 7 * len(LENGTHS), "seven runs, all lengths"
    caught = {outcome.condition.name: outcome.by_any.value for outcome in findings.outcomes}
    assert min(caught[name] for name in ("int4 weights", "a layer skipped in each half", "early exit")) == 1
    assert caught["cheap model's text, one honest prefill"] == 1
    assert calibrate(folder, kept, dtype)[1] == [], "nothing is measured twice"
    windows = findings.long_windows
    assert (windows is None) == (not dtype)
    if windows is not None:
        assert findings.rules != 6, "long windows that no trace fills were not measured"
        assert "shorter than a long window of 64" in windows.why_not

    report = as_json(CalibrationSubject(MODEL, "float32", "torch", 6, plan), findings, kept.digest())
    data, page = write(tmp_path, report, findings)
    read = read_calibration(data, MODEL, "float32")
    assert (read.thresholds, read.data) == (findings.thresholds, kept.digest())
    assert page.read_text().count("<svg") == 2
    chosen = read.apply(rough_class(MODEL, 0, "tiny", candidates=2))
    assert chosen.theta == findings.thresholds.tile.theta
    expected = under_rules(kept.digest(), findings.rules)
    assert chosen.calibration == expected
    assert findings.rules == read.rules


def test_a_report_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("{}")
    with pytest.raises(ModelError, match="no calibration report"):
        read_calibration(path, MODEL, "float32")


@pytest.mark.slow
def test_a_stopped_calibration_goes_on_where_it_was(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = all_conditions(LAYERS, 0)[:5]
    monkeypatch.setattr(calibrating, "all_conditions", lambda layers, dtype: few)
    kept = MeasurementFiles(tmp_path)
    plan = calibrating.plan_for(LAYERS, 0, 32, 2)

    class Killed(Exception):
        pass

    def stop(progress: calibrating.CalibrationProgress) -> None:
        if progress.done == 2:
            raise Killed

    with pytest.raises(Killed):
        calibrating.measure(folder, plan, kept, prompts=2, threads=1, model=MODEL, report=stop)
    left = calibrate(folder, kept, 0, prompts=2)[1]
    assert left == [condition.name for condition in few[2:]]


@pytest.mark.slow
def test_what_was_kept_without_long_windows_is_measured_again(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("decode 16 together", "int8 weights")
    few = [one for one in all_conditions(LAYERS, 1) if one.name in chosen]
    monkeypatch.setattr(calibrating, "all_conditions", lambda layers, dtype: few)
    kept = MeasurementFiles(tmp_path)
    assert calibrate(folder, kept, 1, prompts=2)[1] == list(chosen)
    (part,) = kept.read("decode 16 together")
    kept.write("decode 16 together", 0, {name: part[name] for name in part if not name.startswith("long-")})
    assert calibrate(folder, kept, 1, prompts=2)[1] == ["decode 16 together"], "cheats that any window shows need none"
    (again,) = kept.read("decode 16 together")
    assert set(again) == set(part)
    assert np.array_equal(again["long-means-1"], part["long-means-1"])


@pytest.mark.slow
def test_honest_runs_of_machines_come_together_in_one_folder(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine adds what vLLM writes on it; the runs that need no card are not repeated."""
    few = all_conditions(LAYERS, 1)[:2]
    monkeypatch.setattr(calibrating, "all_conditions", lambda layers, dtype: few)
    plan = calibrating.plan_for(LAYERS, 1, 16, 1)
    asked: list[tuple[str, int]] = []

    def claims(self: CalibratedMachine, folder: ModelFolder, parts: Any, plan: Any) -> Any:
        asked.extend((condition.name, bucket.index) for condition, bucket in parts)
        made = calibrating.CalibrationSetup(folder, plan, "cpu", {})
        return {(one.name, bucket.index): made.claim(calibrating.CalibrationPart(one, bucket)) for one, bucket in parts}

    monkeypatch.setattr(CalibratedMachine, "claims", claims)
    monkeypatch.setattr(CalibratedMachine, "name", property(lambda self: f"card {self.cards}"))
    kept, reported = MeasurementFiles(tmp_path / "kept"), list[str]()
    for cards in (1, 2, 2):
        calibrating.measure(
            folder, plan, kept, prompts=4, threads=1, model=MODEL, machine=CalibratedMachine("cuda", cards),
            report=lambda progress: reported.append(progress.condition),
        )  # fmt: skip
    ways = [f"vLLM on card {cards}, {how}" for cards in (1, 2) for how in ("4 together", "all together", "alone")]
    assert kept.machines == ways
    assert sorted(name for name, _ in asked) == ways, "and the third run found all of it"
    assert sorted(reported) == sorted([*ways, *(one.name for one in few)])
    for name in ways:
        (measured,) = kept.read(name)
        assert len(measured["distances-0"]) == 4


async def test_a_machine_writes_a_buckets_texts_with_their_seeds() -> None:
    asked: list[Any] = []

    class Writing:
        async def generate(self, request: Any, seed: Any) -> Any:
            asked.append((request, seed))
            for token in range(request.max_tokens):
                yield TokenStep(token, np.full((len(request.prompt_tokens) if not token else 1, 2), token, np.float32))

    bucket = Bucket(0, 5, np.arange(12).reshape(3, 4), SAMPLINGS[:3])
    claim = await written(Writing(), bucket, 2, 6)  # type: ignore[arg-type]
    assert claim.text.tolist() == [list(range(6))] * 3
    assert claim.rows[0].shape == (3, 4 + 6 - 1, 2)
    assert [seed for _, seed in asked] == [seed_of(5), seed_of(6), seed_of(7)]
    assert [Sampling.of(request) for request, _ in asked] == list(SAMPLINGS[:3])
