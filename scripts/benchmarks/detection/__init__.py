"""What our rule, VeriLLM's four thresholds and TOPLOC refuse of honest runs and of cheats, on the same states."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from support.paper_rules import OFF_CHAIN_RULE, PaperRule

from benchmarks.detection import latency, lazy, toploc
from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.node.calibration import tampering
from troth.node.calibration.calibrating import plan_for
from troth.node.calibration.conditions import CHEAT, HONEST, TEXT, Condition
from troth.node.calibration.generating import CalibrationPlan, ClaimedRun, generate, prefill
from troth.node.calibration.prompts import Bucket, buckets
from troth.node.calibration.stack import Stack
from troth.node.calibration.thresholds import margin_cuts, state_cuts
from troth.node.calibration.verifying import Measured, VerifierRun
from troth.node.models.report import describe_with_progress
from troth.node.models.thresholds import Thresholds, shipped_calibration
from troth.protocol.identifiers import model_id
from troth.protocol.statistics import PaperStatistics
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileLayout
from troth.protocol.types import Hash32

PROMPTS, TOKENS = 16, 64
CONDITIONS = (
    Condition("decode, 16 together", HONEST),
    Condition("eager attention", HONEST, attention="eager"),
    Condition("int8 weights", CHEAT, partial(tampering.quantise_weights, bits=8)),
    Condition("int6 weights", CHEAT, partial(tampering.quantise_weights, bits=6)),
    Condition("fp8 weights", CHEAT, tampering.fp8_weights),
    Condition("W8A8", CHEAT, tampering.int8_activations),
    Condition("int4 weights", CHEAT, partial(tampering.quantise_weights, bits=4)),
    Condition("early exit", CHEAT, partial(tampering.skip_layers, skipped=frozenset(range(24, 30)))),
    Condition("forged text, one honest prefill", TEXT, text="forged"),
)
PAPER_CAUGHT = {"W8A8": 99.9, "early exit": 100.0, "forged text, one honest prefill": 99.8}
PAPER_LAZY = 99.9
"""Table 5, detection probability in per cent."""
LAZY_NOTE = "share of openings, by the contract's own test on tiles"
PAPER_METRICS = {"decode, 16 together": (0.03, 100.0), "int4 weights": (16.5, 24.6)}
"""Tables 2 and 3 (AWQ) at 3584 elements, per cent: exponents that differ, and close mantissas of the others."""
SENSITIVITY = {
    "Pe < 0.02": (PaperRule(0.02, 0.75, 0.80, 0.01), 5.2, 0.03),
    "Pe < 0.05 (selected)": (OFF_CHAIN_RULE, 1.9, 0.15),
    "Pe < 0.10": (PaperRule(0.10, 0.75, 0.80, 0.01), 1.4, 0.41),
    "Pw > 0.50": (PaperRule(0.05, 0.75, 0.50, 0.01), 3.0, 0.07),
    "Pm > 0.50": (PaperRule(0.05, 0.50, 0.80, 0.01), 2.6, 0.10),
    "|e| < 0.05": (PaperRule(0.05, 0.75, 0.80, 0.05), 1.1, 0.55),
}
"""Table 7: a rule, and its false positives and negatives, per cent."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One condition: what a verifier measured, which runs TOPLOC accepts, the verifier's last rows (runs x positions x
    hidden size)."""

    condition: Condition
    measured: Measured
    toploc: list[bool]
    own: NDArray[Any]

    def caught(self, cuts: Thresholds) -> float:
        """Per cent of runs that our verifier refuses."""
        states = np.array([max(found) for found in state_cuts([self.measured])]) > cuts.state_cut / 1e6
        texts = margin_cuts([self.measured]) > cuts.margin_cut / 1e6
        return float(100 * (states | texts).mean())

    def refused_by(self, rule: PaperRule) -> float:
        """Per cent of runs that a set of the paper's thresholds refuses, in any segment."""
        segments = [self.measured[name] for name in self.measured if name.startswith("paper-")]
        refused = [
            any(not rule.accepts(PaperStatistics(*map(float, segment[run]))) for segment in segments)
            for run in range(len(segments[0]))
        ]
        return 100 * float(np.mean(refused))


def measure() -> list[Figure]:
    """Sixteen prompts, 64 tokens each, bfloat16."""
    folder = weights()
    descriptor = describe_with_progress(folder, "bfloat16")
    shipped = shipped_calibration(Hash32(model_id(descriptor)), "bfloat16")
    assert shipped is not None, "the class of this model ships with Troth"
    plan = plan_for(descriptor.layers, Dtype.BFLOAT16, TOKENS, 2)
    load = partial(_stack, folder)
    low, high = load("sdpa"), Stack(folder, torch.bfloat16, widen=True)
    verifier, costs = VerifierRun(low, high, model_id(descriptor), plan), _Costs(model_id(descriptor))
    with torch.inference_mode():
        runs = [
            _run(condition, bucket, plan, load, (low, verifier, costs))
            for condition in CONDITIONS
            for bucket in buckets(folder, PROMPTS)
        ]
    openings = lazy.found(runs[0].own, model_id(descriptor), shipped.thresholds)
    found = Figure("found: a lazy verifier's random rows", openings, "%", PAPER_LAZY, note=LAZY_NOTE)
    judged = [*_caught(runs, shipped.thresholds), found, *latency.measure()]
    return [*judged, *_metrics(runs), *_sensitivity(runs), *costs.figures()]


def _stack(folder: Any, attention: str) -> Stack:
    return Stack(folder, torch.bfloat16, attention=attention)


def _run(
    condition: Condition, bucket: Bucket, plan: CalibrationPlan, load: Any, tools: tuple[Stack, VerifierRun, _Costs]
) -> _Run:
    stack, verifier, costs = tools
    claim: ClaimedRun = generate(load, bucket, condition, plan)
    own = prefill(stack, bucket.tokens, claim.text, plan)[-1]
    prompt = bucket.tokens.shape[1]
    accepted = [costs.judge(rows, ours, prompt) for rows, ours in zip(claim.rows[-1], own, strict=True)]
    return _Run(condition, verifier.measure(bucket, claim), accepted, own)


class _Costs:
    """Times of building and checking a proof, ours (a commitment and one opened tile) and TOPLOC's."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._seconds: dict[str, list[float]] = {"toploc build": [], "toploc check": [], "commit": []}
        self._bytes = 0

    def judge(self, claimed: Any, own: Any, prompt: int) -> bool:
        """Whether TOPLOC accepts claimed rows; the times are kept."""
        begun = time.perf_counter()
        proofs = toploc.build(claimed, prompt)
        built = time.perf_counter()
        accepted = toploc.accepts(proofs, own, prompt)
        checked = time.perf_counter()
        TileLayout(b"\x01" * 32, self._model, *claimed.shape, Dtype.BFLOAT16).commit(claimed)
        self._seconds["toploc build"].append(built - begun)
        self._seconds["toploc check"].append(checked - built)
        self._seconds["commit"].append(time.perf_counter() - checked)
        self._bytes = sum(proof.size for proof in proofs)
        return accepted

    def figures(self) -> list[Figure]:
        """Medians a trace."""
        medians = {name: 1e3 * float(np.median(seconds)) for name, seconds in self._seconds.items()}
        return [
            Figure("TOPLOC: proof of a trace", self._bytes, "bytes", note="258 for the prompt and for every 32 rows"),
            Figure("TOPLOC: build, check", medians["toploc build"] + medians["toploc check"], "ms", note="in numpy"),
            Figure(
                "Troth: commitment to every tile", medians["commit"], "ms", note="32 bytes, then 512 an opened tile"
            ),
        ]


def _caught(runs: list[_Run], cuts: Thresholds) -> list[Figure]:
    figures = []
    for run in runs:
        name, peer = run.condition.name, 100 * (1 - float(np.mean(run.toploc)))
        note = f"TOPLOC refuses {peer:.0f} %, VeriLLM's thresholds {run.refused_by(OFF_CHAIN_RULE):.0f} %"
        figures.append(Figure(f"refused: {name}", run.caught(cuts), "%", PAPER_CAUGHT.get(name), note=note))
    return figures


def _metrics(runs: list[_Run]) -> list[Figure]:
    figures = []
    for run in runs:
        if run.condition.name not in {*PAPER_METRICS, "int8 weights"}:
            continue
        exponents, _, close, _ = np.median(run.measured["paper-1"], axis=0)
        paper = PAPER_METRICS.get(run.condition.name, (None, None))
        figures += [
            Figure(f"Pe, last segment: {run.condition.name}", 100 * float(exponents), "%", paper[0]),
            Figure(f"Pw, last segment: {run.condition.name}", 100 * float(close), "%", paper[1]),
        ]
    return figures


def _sensitivity(runs: list[_Run]) -> list[Figure]:
    figures = []
    for name, (rule, false_positives, false_negatives) in SENSITIVITY.items():
        honest = [run.refused_by(rule) for run in runs if run.condition.kind == HONEST]
        cheats = [100 - run.refused_by(rule) for run in runs if run.condition.kind == CHEAT]
        figures += [
            Figure(f"{name}: honest runs refused", float(np.mean(honest)), "%", false_positives),
            Figure(f"{name}: cheats accepted", float(np.mean(cheats)), "%", false_negatives),
        ]
    return figures
