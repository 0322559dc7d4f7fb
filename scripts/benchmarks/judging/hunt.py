"""A search for prompts that frame an honest node: drawn at random, then changed a little at a time.

What was tried is kept, a line each, so that a hunt goes on where it was; its worst finds are worth a test.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.judging.convictions import text_findings
from benchmarks.judging.corpus import Group
from benchmarks.judging.engines import engines
from benchmarks.judging.runs import Runner, Shelf
from benchmarks.judging.scoring import Heads, TokenScorer
from benchmarks.judging.verdicts import verdicts
from troth.node.models.folder import ModelFolder
from troth.node.models.thresholds import Thresholds
from troth.protocol.findings import MEAN_RATIO
from troth.protocol.tokens import Sampling

HUNT_SEED = 20261130
"""Of prompts that are drawn and changed."""
PROMPTS, WRITTEN = 48, 6
"""Prompts of one generation, and tokens that are written to each: what short texts show, long ones repeat."""
LENGTHS = (1, 2, 3, 6, 12, 24, 59)
"""Of prompts, in turn; with what is written, the longest fill a long window."""
REPEATED, LONG, PERIODS = 8, 320, (1, 1, 1, 2, 4)
"""Prompts of a generation of long ones, their length, and how many ids they repeat, in turn: a row that comes over and
over is what a mean over many rows averages least."""
PARENTS = 12
SAMPLINGS = (
    Sampling(1.0, 1.0), Sampling(0.7, 0.9), Sampling(0.0, 1.0), Sampling(1.5, 1.0), Sampling(1.0, 0.3),
    Sampling(0.7, 0.02), Sampling(0.3, 0.9),
)  # fmt: skip
"""In turn; with a small share of the nucleus, and level tokens, rounding alone decides what is in it."""


@dataclass(frozen=True, slots=True)
class Find:
    """A prompt that was tried, and its worst score at the first look and (``second``) after all; above 1 is refused.

    ``levelled``: the client drew the two likeliest tokens of every row level; ``text``: what the tokens alone lose.
    ``closest``: by the second look, whatever the first one said; ``own``: the rows are those of one of the verifier's
    own runs, bit for bit, which says nothing of honest nodes; ``held``: what a court takes stake for from SECOND_CUT
    on, states without long windows and texts that can be told; ``counts``: whether it is evidence against its node, in
    bfloat16 by its states and in float32 by its text.
    """

    way: str
    tokens: tuple[int, ...]
    temperature: float
    top_p: float
    levelled: bool
    first: float
    second: float
    cannot_tell: bool
    text: float = 0.0
    closest: float = 0.0
    own: bool = False
    held: float = 0.0
    counts: bool = False


def read_finds(path: Path) -> list[Find]:
    """What was tried so far."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Find(**line | {"tokens": tuple(line["tokens"])}) for line in lines]


def write_finds(path: Path, found: Sequence[Find]) -> None:
    """Keep what was tried now."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps({name: getattr(one, name) for name in Find.__slots__}) + "\n" for one in found))


class Hunt:
    """A hunt in one class; finds are kept in ``folder``/hunt-DTYPE.jsonl, of ``long`` prompts in long-DTYPE.jsonl."""

    def __init__(
        self, folder: ModelFolder, scratch: Path, dtype: int, cuts: Thresholds, heads: Heads, *, long: bool = False
    ) -> None:
        self._folder, self._dtype, self._cuts, self._heads = folder, dtype, cuts, heads
        self._long, name = long, f"{'long' if long else 'hunt'}-{dtype}"
        self._shelf = Shelf(scratch / name, dtype)
        self._runner = Runner(folder, self._shelf)
        self.size = (REPEATED if long else PROMPTS) * len(engines(dtype))
        self.path = scratch / f"{name}.jsonl"
        scratch.mkdir(parents=True, exist_ok=True)

    def finds(self) -> list[Find]:
        """All that was tried so far."""
        return read_finds(self.path)

    def run(self, seconds: float, report: Callable[[str], None]) -> list[Find]:
        """Hunt for so long; returns everything that was tried so far."""
        ends, known = time.monotonic() + seconds, self.finds()
        while time.monotonic() < ends:
            number = len(known)
            found = self.tried((self._repeated if self._long else self._prompts)(number, known), number)
            write_finds(self.path, found)
            known += found
            told = [one for one in known if not one.own]
            worst = max(told, key=lambda one: one.closest)
            refused = sum(one.second > 1 for one in told)
            tried = f"{len(told)} tried, {refused} refused"
            report(f"{tried}, closest {worst.closest:.2f}, {worst.way}: {worst.tokens[:8]}")
        return known

    def _prompts(self, number: int, known: list[Find]) -> np.ndarray:
        """A generation of one length: half of it new, half changed from the worst of that length so far."""
        draw = np.random.default_rng([HUNT_SEED, number])
        length = LENGTHS[number // self.size % len(LENGTHS)]
        size = int(self._folder.config["vocab_size"])
        prompts = draw.integers(size, size=(PROMPTS, length))
        # Repeated ids are what rounding takes worst: a quarter of the new ones.
        prompts[: PROMPTS // 8] = prompts[: PROMPTS // 8, :1]
        parents = _worst([one for one in known if len(one.tokens) == length])
        for index in range(PROMPTS // 2, PROMPTS if parents else 0):
            child = np.array(parents[int(draw.integers(len(parents)))])
            child[draw.integers(length)] = draw.integers(size)
            prompts[index] = child
        return prompts

    def _repeated(self, number: int, known: list[Find]) -> np.ndarray:
        """A generation of long prompts: half of them new, half of them the worst so far with one id changed."""
        draw, size = np.random.default_rng([HUNT_SEED, LONG, number]), int(self._folder.config["vocab_size"])
        parents, prompts = _worst(known), []
        for index in range(REPEATED):
            ids = draw.integers(size, size=PERIODS[(number // self.size + index) % len(PERIODS)])
            if index >= REPEATED // 2 and parents:
                parent = parents[int(draw.integers(len(parents)))]
                ids = np.array(parent[: next(period for period in PERIODS if parent[period:] == parent[:-period])])
                ids[draw.integers(len(ids))] = draw.integers(size)
            prompts.append(np.resize(ids, LONG))
        return np.array(prompts)

    def tried(self, prompts: np.ndarray, number: int) -> list[Find]:
        """Prompts of one length, each run every way; ``number`` names their noise."""
        turn = tuple(SAMPLINGS[index % len(SAMPLINGS)] for index in range(len(prompts)))
        group = Group(f"hunt {number}", prompts, turn, WRITTEN, tuple(map(str, range(len(prompts)))))
        self._runner.prepare(group)
        ways = engines(self._dtype, number // self.size)
        for way in ways:
            self._runner.follow(group, way)
        names = [way.name for way in ways]
        scorer = TokenScorer(self._shelf, group, self._heads, names)
        scores = scorer.score(names, lambda index: turn[index], group.seed, _levelled)
        found = [
            Find(way.name, tuple(map(int, prompts[index])), turn[index].temperature, turn[index].top_p,
                 _levelled(index), max(one.states, one.text),
                 max(one.states_again, one.text_again if one.told else 0.0), one.cannot_tell, one.text_again,
                 one.closest, one.own, max(one.held, one.text_again if one.told else 0.0),
                 one.mean > MEAN_RATIO if self._dtype else bool(said and said.value))
            for way in ways
            for index, (one, said) in enumerate(
                zip(
                    verdicts(self._shelf, group, way.name, scores, self._cuts),
                    text_findings(self._dtype, scores, way.name, turn),
                    strict=True,
                )
            )
        ]  # fmt: skip
        shutil.rmtree(self._shelf.folder)
        return found


def _worst(known: Sequence[Find]) -> list[tuple[int, ...]]:
    """The prompts that came closest to framing a node, after all looks and, as many each, at the second and first."""
    keys: tuple[Callable[[Find], float], ...] = (
        lambda one: -one.second, lambda one: -one.closest, lambda one: -one.first
    )  # fmt: skip
    found: dict[tuple[int, ...], None] = {}
    for order in (sorted(known, key=key) for key in keys):
        found |= dict.fromkeys(list(dict.fromkeys(one.tokens for one in order))[: PARENTS // len(keys)])
    return list(found)


def _levelled(index: int) -> bool:
    return index // len(SAMPLINGS) % 2 == 1
