"""A calibration as the command runs it: progress on standard error, a report at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import torch
from rich.console import Console

from troth.node.calibration.calibrating import CalibrationProgress, measure, plan_for
from troth.node.calibration.conditions import HONEST, Condition, all_conditions
from troth.node.calibration.findings import find
from troth.node.calibration.machines import CalibratedMachine
from troth.node.calibration.measurements import MeasurementFiles
from troth.node.calibration.report import CalibrationSubject, as_json, long_windows_line, write
from troth.node.configuration import EngineName
from troth.node.engine.card import require_device
from troth.node.errors import ConfigError
from troth.node.models.activations import require_judged
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
    engine: str = "torch",
    device: str = "cpu",
    cards: int = 1,
) -> dict[str, Any]:
    """Measure, find thresholds, write the report; returns what the command prints.

    Raises:
        NodeError: this machine or model cannot do it as it is asked, before anything is measured.
    """
    console = Console(stderr=True)
    if engine not in get_args(EngineName):
        raise ConfigError("there is no such engine", engine, f"Use one of {', '.join(get_args(EngineName))}.")
    require_device(device)
    found = find_model(home, model)
    require_judged(found)
    descriptor = describe_with_progress(found, dtype)
    identifier = Hash32(model_id(descriptor))
    machine = CalibratedMachine(device, cards) if engine == "vllm" else None
    # vLLM has no states but those behind the last layer.
    segments = 1 if machine is not None else segments
    plan = plan_for(descriptor.layers, DTYPE_NAMES[dtype], tokens, segments)
    # Measurements of another plan would be mixed up with these.
    kept = MeasurementFiles(folder / f"{dtype}-{prompts}-prompts-{tokens}-tokens-{segments}-segments")
    measure(
        found, plan, kept, prompts=prompts, threads=min(threads, os.cpu_count() or 1), model=identifier,
        report=lambda progress: console.print(_line(progress), highlight=False), device=device, machine=machine,
    )  # fmt: skip
    machines = [Condition(name, HONEST) for name in kept.machines]
    findings = find(kept, [*all_conditions(descriptor.layers, plan.dtype), *machines], plan)
    ran = f"torch {torch.__version__} on {device}" + (f", and {len(machines)} ways of vLLM" if machines else "")
    subject = CalibrationSubject(identifier, dtype, ran, prompts, plan)
    report = as_json(subject, findings, kept.digest())
    data, page = write(folder, report, findings)
    refused = findings.refused
    return {
        "report": str(data),
        "page": str(page),
        "honest_refused": f"{refused.count} of {refused.total} tasks, at most {refused.high:.2%} with 95 % confidence",
        **({"long_windows": long_windows_line(findings.long_windows)} if findings.long_windows else {}),
        "rules": findings.rules,
        **report["thresholds"],
        "data": report["data"],
        **({"machines": kept.machines} if machines else {}),
        "register": f"troth model register {model} --dtype {dtype} --calibration {data} --broadcast",
    }


def _line(progress: CalibrationProgress) -> str:
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    return f"{progress.done:3d} of {progress.total}  {minutes:3d}:{seconds:02d} left  {progress.condition}"
