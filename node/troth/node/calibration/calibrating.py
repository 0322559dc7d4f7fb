"""A calibration from start to end: measure what is missing, then find thresholds and say how well they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from troth.node.calibration.conditions import Condition, all_conditions
from troth.node.calibration.generating import CalibrationPlan, ClaimedRun, generate
from troth.node.calibration.measurements import MeasurementFiles
from troth.node.calibration.prompts import Bucket, buckets
from troth.node.calibration.stack import Stack
from troth.node.calibration.verifying import Verifier
from troth.node.engine.torch_engine import TORCH_DTYPES
from troth.node.models.folder import ModelFolder
from troth.protocol.types import Segment


@dataclass(frozen=True, slots=True)
class CalibrationProgress:
    """A finished part: its condition, how many of all are done, and the seconds that the others will take."""

    condition: str
    done: int
    total: int
    seconds_left: float


Report = Callable[[CalibrationProgress], None]


@dataclass(frozen=True, slots=True)
class CalibrationPart:
    """One condition on one bucket."""

    condition: Condition
    bucket: Bucket


def plan_for(layers: int, dtype: int, tokens: int, segments: int) -> CalibrationPlan:
    """A plan with so many equally long segments."""
    bounds = [round(layers * index / segments) for index in range(segments + 1)]
    return CalibrationPlan(tuple(Segment(first, end) for first, end in pairwise(bounds)), tokens, dtype)


def measure(
    folder: ModelFolder,
    plan: CalibrationPlan,
    kept: MeasurementFiles,
    *,
    prompts: int,
    threads: int,
    model: bytes,
    report: Report,
) -> None:
    """Run every condition over every bucket; what `kept` holds already is not run again."""
    torch.set_num_threads(threads)
    layers = plan.segments[-1].end
    groups = buckets(folder, prompts)
    parts = [
        CalibrationPart(condition, bucket) for condition in all_conditions(layers, plan.dtype) for bucket in groups
    ]
    missing = [part for part in parts if not kept.has(part.condition.name, part.bucket.index)]
    if missing:
        with torch.inference_mode():
            _run(folder, plan, kept, missing, done=len(parts) - len(missing), model=model, report=report)


def _run(
    folder: ModelFolder,
    plan: CalibrationPlan,
    kept: MeasurementFiles,
    missing: Sequence[CalibrationPart],
    *,
    done: int,
    model: bytes,
    report: Report,
) -> None:
    dtype = TORCH_DTYPES[plan.dtype]
    high = Stack(folder, dtype, widen=True) if plan.dtype else None
    verifier = Verifier(Stack(folder, dtype), high, model, plan)
    started = time.monotonic()
    for index, part in enumerate(missing):
        claim = _claim(folder, dtype, part, plan)
        kept.write(part.condition.name, part.bucket.index, verifier.measure(part.bucket, claim))
        left = (time.monotonic() - started) / (index + 1) * (len(missing) - index - 1)
        report(CalibrationProgress(part.condition.name, done + index + 1, done + len(missing), left))


def _claim(folder: ModelFolder, dtype: torch.dtype, part: CalibrationPart, plan: CalibrationPlan) -> ClaimedRun:
    before = torch.get_num_threads()
    torch.set_num_threads(part.condition.threads or before)
    try:
        load = partial(_load, folder, dtype)
        return generate(load, part.bucket, part.condition, plan)
    finally:
        torch.set_num_threads(before)


def _load(folder: ModelFolder, dtype: torch.dtype, attention: str) -> Stack:
    return Stack(folder, dtype, attention=attention)
