"""What credits make of honest nodes and of cheats.

SmolLM2-135M in bfloat16 writes texts at temperature 0.7 as it is, with int8 weights and activations, with int4 weights,
as another model (int4, six of thirty layers left out), and greedily. The members' own copy scores them by one prefill.
An epoch takes eight texts of a node; a score is what 35 epochs of resampled texts come to by the contract's rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.node.calibration import tampering
from troth.node.calibration.conditions import CHEAT, HONEST, Condition
from troth.node.calibration.generating import CalibrationPlan, decode, prefill
from troth.node.calibration.prompts import Bucket, buckets
from troth.node.calibration.stack import Stack
from troth.node.engine.torch_engine import from_words
from troth.node.models.folder import ModelFolder
from troth.protocol.credit import CreditRule, Surprises, credit_of, surprises_of
from troth.protocol.reputation import ONE, newcomer, paper_rules, rated
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Sampling
from troth.protocol.types import ZERO_ADDRESS, Segment

PROMPTS, TOKENS, TEMPERATURE = 32, 48, 0.7
TEXTS, EPOCHS, RUNS, HONEST_RUNS = 8, 35, 50, 2000
"""Texts of an epoch, epochs of a run, and runs of each node."""
RULES = replace(paper_rules(1800, 0), initial=ONE // 2)


def _another(stack: Stack) -> None:
    tampering.quantise_weights(stack, 4)
    tampering.skip_layers(stack, frozenset(range(24, 30)))


NODES: tuple[tuple[Condition, float | None], ...] = (
    (Condition("honest", HONEST), 0.9),
    (Condition("W8A8", CHEAT, tampering.int8_activations), 0.4),
    (Condition("int4", CHEAT, partial(tampering.quantise_weights, bits=4)), 0.4),
    (Condition("another model", CHEAT, _another), 0.4),
    (Condition("greedy", CHEAT, text="greedy"), 0.4),
)


def measure() -> list[Figure]:
    """A score for each kind of node, by both rules, and how many honest nodes are banned."""
    folder, figures = weights(), []
    with torch.inference_mode():
        reference = _stack(folder)
        parts = [_sampled(bucket) for bucket in buckets(folder, PROMPTS)]
        for condition, reach in NODES:
            stack = _stack(folder)
            if condition.change is not None:
                condition.change(stack)
            texts = [text for bucket in parts for text in _texts(stack, reference, bucket, condition)]
            figures += _figures(condition.name, texts, reach)
    return figures


def _figures(name: str, texts: Sequence[Surprises], reach: float | None) -> list[Figure]:
    whole, paper = credit_of(texts), credit_of(texts, CreditRule.PAPER)
    source = np.random.default_rng(35)
    scores = [_run(texts, source) for _ in range(HONEST_RUNS if name == "honest" else RUNS)]
    note = f"credit {whole.mean:.3f}, z {whole.z:+.1f} over {whole.tokens:,} tokens; 1 / PPL {paper.mean:.3f}"
    mean = float(np.mean([score for score, _ in scores]))
    found = [Figure(f"score after {EPOCHS} epochs: {name}", mean, "", None, reach, note)]
    if name == "honest":
        banned = sum(least < RULES.bar / ONE for _, least in scores)
        found.append(Figure(f"honest nodes ever below the bar, of {HONEST_RUNS}", banned, "", None, 0))
    return found


def _run(texts: Sequence[Surprises], source: np.random.Generator) -> tuple[float, float]:
    """The score in the end, and the least one."""
    standing, least = newcomer(RULES, ZERO_ADDRESS), ONE
    for epoch in range(EPOCHS):
        credit = credit_of([texts[one] for one in source.integers(0, len(texts), TEXTS)])
        standing = rated(standing, credit.value, epoch, RULES)
        least = min(least, standing.score)
    return standing.score / ONE, least / ONE


def _texts(stack: Stack, reference: Stack, bucket: Bucket, condition: Condition) -> list[Surprises]:
    plan = CalibrationPlan((Segment(0, stack.total),), TOKENS, Dtype.BFLOAT16)
    written, _ = decode(stack, bucket.tokens, bucket, condition, plan)
    rows = prefill(reference, bucket.tokens, written, plan)[0]
    first = bucket.tokens.shape[1] - 1
    return [_scored(reference, rows[one, first:], written[one].tolist()) for one in range(len(written))]


def _scored(reference: Stack, rows: NDArray[Any], text: Sequence[int]) -> Surprises:
    logits = reference.logits(from_words(rows, Dtype.BFLOAT16)).numpy()
    return surprises_of(logits, text, TEMPERATURE)


def _sampled(bucket: Bucket) -> Bucket:
    return replace(bucket, samplings=tuple(Sampling(TEMPERATURE, 1.0) for _ in bucket.samplings))


def _stack(folder: ModelFolder) -> Stack:
    return Stack(folder, torch.bfloat16)
