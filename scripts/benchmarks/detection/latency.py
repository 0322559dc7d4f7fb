"""Seconds from a deviation to its slash, on a network of real processes with a dishonest node in the drawn seat.

The processes are those of the adversary suite (`tests/adversaries`): an anvil chain with a block every half second, a
scheduler, seven nodes that host all layers in float32, three verifiers a task. The clock starts with the answer's last
token, when the deviation is complete, and stops with the settlement, in which the slash is.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from adversaries.expectations import broken
from adversaries.registry import PLAYED
from adversaries.stage import adversary_stage
from adversaries.trial import Finding, play_all

PAPER_SECONDS = {"W8A8": 1.7, "early exit": 1.2, "forged text": 2.4, "lazy, random root": 2.8}
"""Table 5: mean detection latency by the name of the adversary that stands for its attack."""
REPEATS, SECONDS = 3, 300.0


def measure() -> list[Figure]:
    """Each of the four attacks so many times, one after the other; medians."""
    wanted = [one for one in PLAYED if one.name in PAPER_SECONDS] * REPEATS
    with tempfile.TemporaryDirectory(prefix="troth-bench-") as folder, adversary_stage(Path(folder)) as stage:
        findings = asyncio.run(play_all(stage, wanted, seconds=SECONDS))
    return [_figure(name, [one for one in findings if one.adversary.name == name]) for name in PAPER_SECONDS]


def _figure(name: str, findings: list[Finding]) -> Figure:
    failures = [what for one in findings for what in broken(one)]
    assert not failures, f"{name} did not end as it must: {failures}"
    seconds = statistics.median(one.since_answer for one in findings)
    on_chain = statistics.median(one.seconds for one in findings)
    note = f"real network; {on_chain:.1f} s of it after the commitments, {findings[0].adversary.caught_by}"
    return Figure(f"slashed after: {name}", seconds, "s", PAPER_SECONDS[name], note=note)
