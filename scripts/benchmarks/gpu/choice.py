"""The batched choice of tokens on a card: equal to the protocol's rule, and how long a full step takes."""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from support.token_choice import draws_for, rows_of

from benchmarks.figures import Figure
from benchmarks.gpu import Deadline
from troth.node.engine.choice import by_the_rule, choose_tokens
from troth.node.engine.interface import TokenDraw
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

COMPARED = ((512, 60_000), (4_096, 30_000), (32_000, 9_000), (152_064, 1_000))
KINDS = ("text", "wide", "flat", "bfloat16", "equal", "one", "cut")
BATCH, VOCABULARY, ROUNDS = 256, 152_064, 30


def measure(device: str, deadline: Deadline, *, tiny: bool) -> list[Figure]:
    """Tokens that differ, and milliseconds a step."""
    step = _step(device, *((4, 512) if tiny else (BATCH, VOCABULARY)))
    compared = [(size, 200) for size, _ in COMPARED[:2]] if tiny else COMPARED
    generator, wrong, done = np.random.default_rng(12), 0, 0
    for vocabulary, count in compared:
        left, number = count, 0
        while left and deadline.allows(f"{left:,} comparisons at {vocabulary:,}"):
            rows = min(left, max(1, 4_000_000 // vocabulary))
            logits = torch.from_numpy(rows_of(KINDS[number % len(KINDS)], rows, vocabulary, generator))
            draws = draws_for(rows, generator)
            found = choose_tokens(logits.to(device), draws)
            wrong += sum(token != by_the_rule(row, draw) for token, row, draw in zip(found, logits, draws, strict=True))
            left, number, done = left - rows, number + 1, done + rows
    note = f"{done:,} comparisons on {device}; vocabularies of {', '.join(f'{size:,}' for size, _ in compared)}"
    return [Figure("tokens that differ from the protocol's rule", wrong, "tokens", reach=0, note=note), step]


def _step(device: str, batch: int, vocabulary: int) -> Figure:
    generator = np.random.default_rng(13)
    rows = np.tile(rows_of("text", max(1, batch // 8), vocabulary, generator), (min(8, batch), 1))[:batch]
    logits = torch.from_numpy(rows).to(device)
    draws = [TokenDraw(Sampling(0.7, 0.9), Hash32(generator.bytes(32)), place) for place in range(len(rows))]
    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        choose_tokens(logits, draws)  # ends with tokens on the host, so that nothing is left under way
        spent.append(1e3 * (time.perf_counter() - began))
    note = f"median of {ROUNDS}, {min(spent):.2f} to {max(spent):.2f}"
    return Figure(f"choice for {len(rows)} rows of {vocabulary:,}", statistics.median(spent), "ms", reach=2, note=note)
