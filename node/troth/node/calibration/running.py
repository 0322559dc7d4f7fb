"""A calibration as the command runs it: progress on standard error, a report at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from troth.node.calibration.calibrating import Progress, measure, plan_for
from troth.node.calibration.conditions import all_conditions
from troth.node.calibration.findings import find
from troth.node.calibration.measurements import Measurements
from troth.node.calibration.report import Subject, as_json, write
from troth.node.models.descriptor import DTYPE_NAMES
from troth.node.models.folder import find_model
from troth.node.models.report import describe_with_progress
from troth.protocol.identifiers import model_id
from troth.protocol.types import Hash32


def run(
    model: str,
    dtype: str,
    folder: Path,
    *,
    home: Path,
    prompts: int,
    tokens: int,
    segments: int,
    threads: int,
) -> dict[str, Any]:
    """Measure, find thresholds, write the report; returns what the command prints."""
    console = Console(stderr=True)
    found = find_model(home, model)
    descriptor = describe_with_progress(found, dtype)
    identifier = Hash32(model_id(descriptor))
    plan = plan_for(descriptor.layers, DTYPE_NAMES[dtype], tokens, segments)
    # Measurements of another plan would be mixed up with these.
    kept = Measurements(folder / f"{dtype}-{prompts}-prompts-{tokens}-tokens-{segments}-segments")
    measure(
        found, plan, kept, prompts=prompts, threads=min(threads, os.cpu_count() or 1), model=identifier,
        report=lambda progress: console.print(_line(progress), highlight=False),
    )  # fmt: skip
    findings = find(kept, all_conditions(descriptor.layers), plan)
    subject = Subject(identifier, dtype, f"torch {torch.__version__} on cpu", prompts, plan)
    report = as_json(subject, findings, kept.digest())
    data, page = write(folder, report, findings)
    refused = findings.refused
    return {
        "report": str(data),
        "page": str(page),
        "honest_refused": f"{refused.count} of {refused.total} tasks, at most {refused.high:.2%} with 95 % confidence",
        **report["thresholds"],
        "data": report["data"],
        "register": f"troth model add {model} --dtype {dtype} --calibration {data} --broadcast",
    }


def _line(progress: Progress) -> str:
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    return f"{progress.done:3d} of {progress.total}  {minutes:3d}:{seconds:02d} left  {progress.condition}"
