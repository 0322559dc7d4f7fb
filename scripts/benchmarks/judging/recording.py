"""Running ways over a group and keeping what was found of them, each part once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.judging.corpus import ORDINARY, Group
from benchmarks.judging.runs import Arrays, Shelf, run_all
from benchmarks.judging.scoring import TEXTS, Heads, TokenScorer, repeated_seed
from benchmarks.judging.ways import HONEST, Way
from troth.node.calibration.stack import Stack
from troth.node.engine.torch_engine import TORCH_DTYPES
from troth.node.models.folder import ModelFolder
from troth.protocol.tokens import Sampling

PLAIN = (HONEST[0], HONEST[2])
"""Honest ways that run the ordinary prompts beside the cheats."""


class Recorder:
    """Rows and scores of one class below a folder."""

    def __init__(self, folder: ModelFolder, scratch: Path, dtype: int) -> None:
        self.folder = folder
        self.dtype = dtype
        self.shelf = Shelf(scratch, dtype)
        self._heads: Heads | None = None

    @property
    def heads(self) -> Heads:
        """The verifier's model; loaded when it is first needed."""
        if self._heads is None:
            dtype = TORCH_DTYPES[self.dtype]
            high = Stack(self.folder, dtype, widen=True) if self.dtype else None
            self._heads = Stack(self.folder, dtype), high
        return self._heads

    def honest(self, group: Group) -> Arrays:
        """Every honest way over a group, and what its tokens lose."""
        run_all(self.folder, self.shelf, [group], HONEST)
        return self._kept(group, -1, [way.name for way in HONEST], lambda prompt: group.samplings[prompt])

    def cheats(self, group: Group, ways: Sequence[Way], repeats: int) -> list[tuple[Arrays, list[Sampling]]]:
        """Cheats over a group; its texts under so many noise seeds, with their samplings."""
        run_all(self.folder, self.shelf, [group], ways)
        names = [*(way.name for way in ways), *TEXTS]
        found = []
        for repeat in range(repeats):
            sampled = [ORDINARY[1 + (prompt + repeat) % 2] for prompt in range(len(group.tokens))]
            found.append((self._kept(group, repeat, names, lambda prompt, sampled=sampled: sampled[prompt]), sampled))
        return found

    def _kept(self, group: Group, repeat: int, names: Sequence[str], samplings: Callable[[int], Sampling]) -> Arrays:
        label = f"losses {repeat} {len(names)}, straying, third look, surprise"
        if not self.shelf.path(group, label).exists():
            torch.set_num_threads(1)
            scorer = TokenScorer(self.shelf, group, self.heads, [one for one in names if one not in TEXTS])
            seed = group.seed if repeat < 0 else lambda prompt: repeated_seed(group, prompt, repeat)
            parts = [f"{label} from {start}" for start in scorer.starts()]
            for start, part in zip(scorer.starts(), parts, strict=True):
                if self.shelf.path(group, part).exists():
                    continue
                started = time.monotonic()
                self.shelf.write(group, part, scorer.part(start, names, samplings, seed))
                print(f"{group.name}: {part}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            kept = [self.shelf.read(group, part) for part in parts]
            self.shelf.write(group, label, {key: np.concatenate([one[key] for one in kept]) for key in kept[0]})
            for part in parts:
                self.shelf.path(group, part).unlink()
        return self.shelf.read(group, label)
