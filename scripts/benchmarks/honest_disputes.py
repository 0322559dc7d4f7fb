"""Honest rows in dispute: whether any row that a float32 engine gives would convict its node.

Each text is one whole dispute: all its rows are weighed by the contract's rule against the canonical ones, and a row
beyond the tolerance by the nudges of its result, as its node would defend it. Texts are of three kinds, in turns: what
people write, tokens at random, and one token that is repeated behind another, which is how ill-conditioned rows were
found. What is measured is kept, a line for each text, so that the benchmark goes on where it was stopped.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer

from benchmarks.figures import Figure
from benchmarks.weights import HOME, weights
from troth.committee.corpus.prompts import prompts_of
from troth.node.court.opened_weights import OpenedWeights
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import ModelFolder
from troth.protocol.disputes.layout import NUDGES, Layout
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.segment_trace import segment_rows
from troth.protocol.disputes.tolerance import furthest, most_moved, movement
from troth.protocol.hashing import keccak256
from troth.protocol.tensors import Dtype
from troth.protocol.types import Hash32, Segment

KEPT = HOME / "honest-disputes.jsonl"
TOLERANCE, ROOM = 1e-4, 4.0
FOUND = (33_795, 7_325)
"""The first text: honest rows of it are beyond the tolerance."""
KINDS = ("repeated", "written", "random")
Numbers = NDArray[np.float32]


def measure_disputes(texts: int, positions: int, kept: Path = KEPT) -> list[Figure]:
    """Weigh texts until so many are kept."""
    lines = kept.read_text().splitlines() if kept.is_file() else []
    if len(lines) < texts:
        asyncio.run(_weigh(range(len(lines), texts), positions, kept))
    return _told([json.loads(line) for line in kept.read_text().splitlines()[:texts]])


async def _weigh(numbers: range, positions: int, kept: Path) -> None:
    folder = weights()
    engine = TorchEngine(folder, Segment(0, folder.layers), int(Dtype.FLOAT32), threads=1)
    weigher = _Weigher(OpenedWeights(folder), engine, Texts.of(folder))
    try:
        for number in numbers:
            found = await weigher.weigh(number, positions)
            with kept.open("a") as file:
                file.write(json.dumps(found) + "\n")
    finally:
        await engine.close()


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of disputes by their numbers, in a model's tokens; ``KINDS`` take turns."""

    vocabulary: int
    tokenizer: Any

    @classmethod
    def of(cls, folder: ModelFolder) -> Texts:
        """In the tokens of this model."""
        return cls(folder.config["vocab_size"], AutoTokenizer.from_pretrained(folder.path))

    def tokens(self, number: int, positions: int) -> NDArray[np.int64]:
        """At most so many of one text."""
        source, kind = np.random.default_rng([19, number]), KINDS[number % len(KINDS)]
        if kind == "repeated":
            first, other = FOUND if number == 0 else source.integers(0, self.vocabulary, 2)
            return np.array([first, *[other] * (positions - 1)], np.int64)
        if kind == "random":
            return source.integers(0, self.vocabulary, positions)
        texts = prompts_of(number.to_bytes(32, "big"), positions // 8 + 1, lambda _: True)
        return np.array(self.tokenizer(" ".join(texts))["input_ids"][:positions], np.int64)


class _Weigher:
    def __init__(self, opened: OpenedWeights, engine: TorchEngine, texts: Texts) -> None:
        self._opened, self._engine, self._texts = opened, engine, texts

    async def weigh(self, number: int, positions: int) -> dict[str, Any]:
        """One text's rows by the contract's rule."""
        tokens = self._texts.tokens(number, positions)
        key = SessionKey(number.to_bytes(32, "big"), 0, 0)
        rows = (await self._engine.forward(key, self._engine.slice, 0, tokens)).rows.astype(np.float32)
        await self._engine.forget(key)
        layout = Layout(self._opened.shape, 0, len(self._opened.shape.pattern), positions - 1)
        states = self._opened.embedded(tokens)

        def computed(nudge: Nudge | None = None) -> Numbers:
            return segment_rows(layout, self._opened.layer, states, self._opened.norm, nudge)

        canonical = await asyncio.to_thread(computed)
        shares = _distances(rows, canonical) / TOLERANCE
        far = [at for at in range(positions) if furthest(rows[at], canonical[at]) is not None]
        told = {
            "kind": KINDS[number % len(KINDS)],
            "rows": positions,
            "far": len(far),
            "tolerance": float(shares.max()),
        }
        # Texts that need no nudge are nudged once in a while, to see how far that moves usual rows.
        usual = not far and number % 10 == 1
        most, tried = np.zeros(positions), 0
        while (far and tried < NUDGES) or (usual and not tried):
            tried += 1
            nudged = await asyncio.to_thread(computed, Nudge(Hash32(keccak256(tokens.tobytes())), tried))
            most = np.maximum(most, _distances(nudged, canonical) / TOLERANCE)
            moved = [movement(nudged[at], canonical[at], most_moved(nudged[at], canonical[at])) for at in far]
            pairs = zip(far, moved, strict=True)
            far = [at for at, by in pairs if furthest(rows[at], canonical[at], by) is not None]
        if tried:
            told |= {"nudges": tried, "moved": [round(float(one), 4) for one in most]}
            told |= {"shares": [round(float(one), 4) for one in shares]}
        return told | {"lost": len(far)}


def _distances(rows: Numbers, canonical: Numbers) -> NDArray[np.float64]:
    wide = canonical.astype(np.float64)
    return np.asarray(np.abs(rows - wide).max(axis=1) / np.sqrt((wide**2).mean(axis=1)), np.float64)


def _told(texts: list[dict[str, Any]]) -> list[Figure]:
    rows, lost = sum(one["rows"] for one in texts), sum(one["lost"] > 0 for one in texts)
    figures = [
        Figure("honest disputes lost, float32", lost, "disputes", reach=0,
               note=f"{len(texts)} whole disputes, {rows:,} rows; at 95 %: fewer than {3 / max(len(texts), 1):.2%} of "
               f"texts, {3 / max(rows, 1):.2%} of rows"),
        Figure("honest rows beyond the tolerance, which a nudge defends", sum(one["far"] for one in texts), "rows"),
    ]  # fmt: skip
    for kind in KINDS:
        mine = [one for one in texts if one["kind"] == kind]
        if mine:
            name = f"furthest honest row, {kind} texts"
            figures.append(Figure(name, max(one["tolerance"] for one in mine), "tolerances", note=f"{len(mine)} texts"))
    used = [
        share / (ROOM * moved)
        for one in texts if "moved" in one
        for share, moved in zip(one["shares"], one["moved"], strict=True) if share > 1
    ]  # fmt: skip
    if used:
        figures.append(Figure("the most of what a nudge allows that an honest row used", max(used), "of 1", reach=1))
    return figures
