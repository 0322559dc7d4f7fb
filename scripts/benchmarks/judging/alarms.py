"""False alarms: honest nodes at the very bound of what the rules grant them, looked at after every task."""

from __future__ import annotations

import numpy as np

from troth.protocol.sequential import ERROR, STAKES, entering

BLOCK = 10_000
"""Tasks that are drawn at a time."""


def false_convictions(honest: float, *, nodes: int, tasks: int, seed: int) -> int:
    """How many of so many honest nodes are ever found out in so many tasks each.

    Findings are 0 or 1, the widest with that mean: every other honest node is found on less. The steps are those of
    `NodeEvidence.after`, for all nodes at once.
    """
    draw = np.random.default_rng(seed)
    stakes = np.array(STAKES)[:, None]
    low, high = 1 - stakes, 1 - stakes + stakes / honest
    capital, ever = np.zeros((len(STAKES), nodes)), np.zeros(nodes, dtype=bool)
    for start in range(0, tasks, BLOCK):
        found = draw.random((min(BLOCK, tasks - start), nodes)) < honest
        for index, finding in enumerate(found):
            task = start + index + 1
            capital += entering(task)
            capital *= np.where(finding, high, low)
            if capital.max() >= 1:  # below it no wealth is near the bound
                ever |= capital.mean(axis=0) + 1 / (2 * (task + 1)) >= 1 / ERROR
    return int(ever.sum())
