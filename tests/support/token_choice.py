"""Logits and samplings to compare choices with: texts' own, and those at which choices are close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.engine.choice import by_the_rule, choose_tokens
from troth.node.engine.interface import TokenDraw
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

TEMPERATURES = (0.0, 1e-6, 0.3, 0.7, 1.0, 2.0)
SHARES = (1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 0.999999, 1.0)
COUNTS = (0, 0, 0, 1, 2, 20, 50, 5_000)
"""top_k; half of the samplings have none, and as many no min_p."""
RATIOS = (0.0, 0.0, 0.0, 1e-6, 0.02, 0.1, 0.5, 1.0)


def rows_of(kind: str, count: int, vocabulary: int, generator: Any) -> NDArray[np.float32]:
    """Logits, shape (count, vocabulary): "text" falls off with the rank as language models' do."""
    normal = generator.normal(size=(count, vocabulary))
    if kind == "text":
        rank = np.argsort(generator.random((count, vocabulary)), axis=1) + 1
        made = 12 - 1.6 * np.log(rank) + 0.5 * normal
    elif kind == "cut":
        # Masses that are sums of powers of two end a nucleus just where it is asked to end.
        made = np.where(normal > 0, 0.0, -60.0)
    else:
        spread = {"wide": 3.0, "flat": 0.01, "bfloat16": 2.0, "equal": 0.0, "one": 0.5}[kind]
        made = normal * spread
        if kind == "one":
            made[:, 0] += 40
    rows = torch.from_numpy(made.astype(np.float32))
    return (rows.bfloat16().float() if kind in {"bfloat16", "text"} else rows).numpy()


def draws_for(count: int, generator: Any) -> list[TokenDraw]:
    """All kinds of sampling, each row with noise of its own."""
    return [
        TokenDraw(
            Sampling(
                float(generator.choice(TEMPERATURES)),
                float(generator.choice(SHARES)),
                int(generator.choice(COUNTS)),
                float(generator.choice(RATIOS)),
            ),
            Hash32(generator.bytes(32)),
            int(generator.integers(1 << 32)),
        )
        for _ in range(count)
    ]


def compared(rows: NDArray[np.float32], draws: Sequence[TokenDraw]) -> int:
    """How many tokens differ from the rule's."""
    logits = torch.from_numpy(rows)
    found = choose_tokens(logits, draws)
    return sum(token != by_the_rule(row, draw) for token, row, draw in zip(found, logits, draws, strict=True))
