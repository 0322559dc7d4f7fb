"""A calibration from start to end: measure what is missing, then find thresholds and say how well they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from troth.node.calibration.conditions import Condition, all_conditions
from troth.node.calibration.generating import CalibrationPlan, ClaimedRun, generate
from troth.node.calibration.machines import CalibratedMachine
from troth.node.calibration.measurements import MeasurementFiles
from troth.node.calibration.prompts import Bucket, buckets
from troth.node.calibration.stack import Stack
from troth.node.calibration.verifying import LONG_MEANS, VerifierRun
from troth.node.engine.torch_engine import TORCH_DTYPES
from troth.node.errors import ModelError
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
LEAST_PROMPTS = 2


@dataclass(frozen=True, slots=True)
class CalibrationPart:
    """One condition on one bucket."""

    condition: Condition
    bucket: Bucket

    def needs(self, dtype: int) -> str:
        """What its measurement holds besides the usual, if anything: long windows in bfloat16."""
        return LONG_MEANS.format(0) if dtype and self.condition.looks_closely else ""


def plan_for(layers: int, dtype: int, tokens: int, segments: int) -> CalibrationPlan:
    """A plan with so many equally long segments.

    Raises:
        ModelError: there are more segments than layers.
    """
    if segments > layers:
        what = f"{segments} segments cannot be cut: the model has {layers} layers"
        raise ModelError(what, segments, f"Use --segments 1 to {layers}.")
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
    device: str = "cpu",
    machine: CalibratedMachine | None = None,
) -> None:
    """Run every condition over every bucket, and those of a machine; what `kept` holds already is not run again.

    Raises:
        ModelError: too few or too many prompts, or texts that are longer than the model's context.
        NodeStorageError: `kept` is of another model.
    """
    torch.set_num_threads(threads)
    layers = plan.segments[-1].end
    if prompts < LEAST_PROMPTS:
        what = "a calibration judges each half of the prompts by the cuts of the other"
        raise ModelError(what, prompts, f"Use --prompts {LEAST_PROMPTS} or more.")
    groups = buckets(folder, prompts)
    _require_context(folder, groups, plan.tokens)
    kept.claim(model)
    machines = [] if machine is None else machine.conditions
    conditions = [*machines, *all_conditions(layers, plan.dtype)]
    parts = [CalibrationPart(condition, bucket) for condition in conditions for bucket in groups]
    missing = [part for part in parts if not kept.has(part.condition.name, part.bucket.index, part.needs(plan.dtype))]
    if not missing:
        return
    claims: dict[tuple[str, int], ClaimedRun] = {}
    if machine is not None:
        # Before torch has weights of its own: a card may not hold both.
        of_machine = [(part.condition, part.bucket) for part in missing if part.condition in machines]
        claims = machine.claims(folder, of_machine, plan)
        kept.note_machines([condition.name for condition in machines])
    setup = CalibrationSetup(folder, plan, device, claims)
    with torch.inference_mode():
        _run(setup, kept, missing, done=len(parts) - len(missing), model=model, report=report)


def _require_context(folder: ModelFolder, groups: Sequence[Bucket], tokens: int) -> None:
    """Beyond its positions a model computes what no node of a class would serve."""
    longest = max(group.tokens.shape[1] for group in groups)
    if folder.known_positions is not None and longest + tokens > folder.known_positions:
        most = folder.known_positions - longest
        what = f"the model knows {folder.known_positions} positions, and the longest prompt takes {longest} of them"
        raise ModelError(what, f"texts of {tokens} tokens", f"Use --tokens {most} or fewer.")


@dataclass(frozen=True, slots=True)
class CalibrationSetup:
    """What runs are made with; ``claims`` of machines are there already."""

    folder: ModelFolder
    plan: CalibrationPlan
    device: str
    claims: Mapping[tuple[str, int], ClaimedRun]

    def stack(self, attention: str = "sdpa", *, widen: bool = False) -> Stack:
        """The registered model."""
        dtype = TORCH_DTYPES[self.plan.dtype]
        return Stack(self.folder, dtype, widen=widen, attention=attention, device=self.device)

    def claim(self, part: CalibrationPart) -> ClaimedRun:
        """What an inferencer claims."""
        made = self.claims.get((part.condition.name, part.bucket.index))
        if made is not None:
            return made
        before = torch.get_num_threads()
        torch.set_num_threads(part.condition.threads or before)
        try:
            return generate(self.stack, part.bucket, part.condition, self.plan)
        finally:
            torch.set_num_threads(before)


def _run(
    setup: CalibrationSetup,
    kept: MeasurementFiles,
    missing: Sequence[CalibrationPart],
    *,
    done: int,
    model: bytes,
    report: Report,
) -> None:
    high = setup.stack(widen=True) if setup.plan.dtype else None
    verifier = VerifierRun(setup.stack(), high, model, setup.plan)
    started = time.monotonic()
    for index, part in enumerate(missing):
        claim = setup.claim(part)
        measured = verifier.measure(part.bucket, claim, closely=part.condition.looks_closely)
        kept.write(part.condition.name, part.bucket.index, measured)
        left = (time.monotonic() - started) / (index + 1) * (len(missing) - index - 1)
        report(CalibrationProgress(part.condition.name, done + index + 1, done + len(missing), left))
