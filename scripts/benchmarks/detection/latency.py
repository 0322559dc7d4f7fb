"""Seconds from a deviation to its slash, on a network of real processes where whoever is drawn deviates.

The processes are those of the adversary suite (`tests/adversaries`): an anvil chain with a block every half second, a
scheduler, twelve nodes that host all layers in float32, three verifiers, a court of five. The clock starts with the
answer's last token, when the deviation is complete, and stops with the end of the case, in which the slash is.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from adversaries.__main__ import play_kind
from adversaries.registry import PLAYED
from adversaries.trial import Finding

PAPER_SECONDS = {"W8A8": 1.7, "early exit": 1.2, "forged text": 2.4}
"""Table 5: mean detection latency by the name of the adversary that stands for its attack. A lazy verifier is found by
the client's comparison of openings, and counts for nothing: no slash follows from it."""
REPEATS = 3


def measure() -> list[Figure]:
    """Each of the attacks so many times, one after the other; medians."""
    wanted = [one for one in PLAYED if one.name in PAPER_SECONDS] * REPEATS
    with tempfile.TemporaryDirectory(prefix="troth-bench-") as folder:
        findings = asyncio.run(play_kind(Path(folder), "weights", wanted))
    return [_figure(name, [one for one in findings if one.row.name == name]) for name in PAPER_SECONDS]


def _figure(name: str, findings: list[Finding]) -> Figure:
    failures = [what for one in findings for what in one.broken]
    assert not failures, f"{name} did not end as it must: {failures}"
    seconds = statistics.median(one.seconds for one in findings)
    blocks = statistics.median(one.blocks for one in findings)
    note = f"real network; {blocks:.0f} blocks, {findings[0].row.caught_by}, then a case"
    return Figure(f"slashed after: {name}", seconds, "s", PAPER_SECONDS[name], note=note)
