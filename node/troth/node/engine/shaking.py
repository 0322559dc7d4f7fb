"""Last bits of entering rows, changed at random: what a verifier's further runs tell how far rounding can move rows by.

Where rows are changed each in its own way, what the changes do averages out over many rows. A kernel that rounds
otherwise does not: it does the same to equal rows, and a prompt of one repeated id is one row over and over. So a run
may also change all rows alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import torch

SHAKES = {torch.float32: 2.0**-21, torch.bfloat16: 2.0**-7}
"""Part of a number by which a shaken run changes it at most. Rounding inside of the layers comes to as much: rows of
ordinary prompts then differ by what they differ by in another order of sums."""
STRONGER = 4
"""How many times as much a strongly shaken run changes."""
SEED_BYTES = 7


@dataclass(frozen=True, slots=True)
class Shake:
    """How rows are changed: by so many times their format's part of SHAKES, each by itself or all ``alike``.

    ``seed`` is drawn anew each time, so that nobody can foresee what is changed. Processes that share a model out have
    the same seed, and change the same rows alike.
    """

    times: int = 1
    alike: bool = False
    seed: int = field(default_factory=lambda: int.from_bytes(os.urandom(SEED_BYTES), "big"))
    _calls: Iterator[int] = field(default_factory=count, init=False, repr=False, compare=False)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Rows of sequences (sequences x rows x columns), or rows alone, changed. Rows that are changed alike are so
        over calls, too, since a long prompt is computed in pieces."""
        seed = self.seed if self.alike else self.seed + next(self._calls)
        shape = (*states.shape[:-2], 1, states.shape[-1]) if self.alike else states.shape
        most = self.times * SHAKES[states.dtype]
        drawn = torch.empty(shape, dtype=torch.float64, device=states.device)
        drawn.uniform_(-most, most, generator=torch.Generator(states.device).manual_seed(seed))
        return (states * (1 + drawn)).to(states.dtype)
