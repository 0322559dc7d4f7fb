"""Running: texts of an honest node, its verifiers' runs, and every way along these texts; kept on disk.

A file for each class, group and way, written whole or not at all: a run that is stopped goes on where it was.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.judging.corpus import Group
from benchmarks.judging.ways import DECODE, HONEST, WHOLE, Way
from troth.node.calibration.generating import words
from troth.node.calibration.stack import Stack
from troth.node.engine.shaking import STRONGER, Shake
from troth.node.engine.torch_engine import TORCH_DTYPES
from troth.node.judging.runs import LIGHTLY, in_turn
from troth.node.judging.runs import STRONGLY as STRONG
from troth.node.models.folder import ModelFolder
from troth.protocol.tokens import choose, noise
from troth.protocol.types import Segment

OTHER_PIECE = 7
"""Positions of a message in a verifier's second run."""
SHAKEN = (("shaken", "shaken again"), tuple(f"shaken {number}" for number in range(LIGHTLY)))
STRONGLY = ((), tuple(f"strongly shaken {number}" for number in range(STRONG)))
"""Its further runs with other last bits, by dtype: in float32 at the second look, in bfloat16 at the third."""
OTHERWISE = "otherwise"
"""Its further run in bfloat16, with attention in plain operations."""
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Shelf:
    """Kept arrays of one class below a folder."""

    folder: Path
    dtype: int

    def path(self, group: Group, name: str) -> Path:
        """Where a way's rows on a group are kept."""
        slug = "-".join("".join(c if c.isalnum() else " " for c in f"{group.name} {name}").split())
        return self.folder / ("bfloat16" if self.dtype else "float32") / f"{slug}.npz"

    def read(self, group: Group, name: str) -> Arrays:
        """What was kept."""
        with np.load(self.path(group, name), allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    def write(self, group: Group, name: str, arrays: Arrays) -> None:
        """Keep a way's rows."""
        buffer, path = io.BytesIO(), self.path(group, name)
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = path.with_suffix(".writing")
        staging.write_bytes(buffer.getvalue())
        staging.replace(path)


class Runner:
    """Runs ways of one model in one class; ``half``: the layer after which rows are kept besides the last.

    Models that nothing is changed in are loaded once.
    """

    def __init__(self, folder: ModelFolder, shelf: Shelf) -> None:
        self._folder = folder
        self._shelf = shelf
        self._dtype = TORCH_DTYPES[shelf.dtype]
        self._layers = int(folder.config["num_hidden_layers"])
        self._loaded: dict[tuple[str, bool], Stack] = {}
        self._kept: dict[Way, Stack] = {}
        self.half = self._layers // 2

    def stack(self, way: Way) -> Stack:
        """The model as a way runs it."""
        if way.change is None:
            return self._unchanged(way.attention)
        if way in self._kept:
            return self._kept[way]
        stack = Stack(self._folder, self._dtype, attention=way.attention)
        way.change(stack)
        if way.kept:
            self._kept[way] = stack
        return stack

    def _unchanged(self, attention: str = "sdpa", *, widen: bool = False) -> Stack:
        if (attention, widen) not in self._loaded:
            self._loaded[attention, widen] = Stack(self._folder, self._dtype, widen=widen, attention=attention)
        return self._loaded[attention, widen]

    def prepare(self, group: Group) -> None:
        """The honest text, and what verifiers compute of it: ``own``, ``again``, those of SHAKEN and STRONGLY; in
        bfloat16 ``high``, which is float32, and OTHERWISE."""
        honest = self._unchanged()
        if not self._shelf.path(group, "decode").exists():
            self._timed(group, "decode", lambda: self._decode(honest, group))
        for name, piece in (("own", WHOLE), ("again", OTHER_PIECE)):
            if not self._shelf.path(group, name).exists():
                self._timed(group, name, lambda piece=piece: self._along(honest, group, piece))  # type: ignore[misc]
        for name, shake in _shakes(self._shelf.dtype):
            if not self._shelf.path(group, name).exists():
                self._timed(group, name, lambda shake=shake: self._along(honest, group, WHOLE, shake=shake))  # type: ignore[misc]
        if self._shelf.dtype and not self._shelf.path(group, "high").exists():
            wide = self._unchanged(widen=True)
            self._timed(group, "high", lambda: self._along(wide, group, WHOLE))
        if self._shelf.dtype and not self._shelf.path(group, OTHERWISE).exists():
            self._timed(group, OTHERWISE, lambda: self._along(self._unchanged("eager"), group, WHOLE))

    def follow(self, group: Group, way: Way) -> None:
        """A way's rows along the honest text."""
        if not self._shelf.path(group, way.name).exists():
            self._timed(group, way.name, lambda: self._along(self.stack(way), group, way.piece, batch=way.batch))

    def _timed(self, group: Group, name: str, run: Any) -> None:
        started = time.monotonic()
        with torch.inference_mode():
            self._shelf.write(group, name, run())
        label = "bfloat16" if self._shelf.dtype else "float32"
        print(f"{label} {group.name}: {name}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)

    def _decode(self, stack: Stack, group: Group) -> Arrays:
        kept, cache, text = _Kept(self.half, self._layers), stack.cache(), []
        tokens, start = group.tokens, 0
        for index in range(group.written):
            states = kept.run(stack, tokens, cache, start)
            start += tokens.shape[1]
            logits = stack.logits(states[:, -1]).numpy()
            text.append(_chosen(group, logits, index))
            tokens = text[-1][:, None]
        return kept.arrays(self._shelf.dtype) | {"text": np.stack(text, axis=1)}

    def _along(self, stack: Stack, group: Group, piece: int, *, shake: Shake | None = None, batch: int = 0) -> Arrays:
        text = self._shelf.read(group, "decode")["text"]
        inputs = np.concatenate([group.tokens, text[:, :-1]], axis=1)
        pieces, parts = _pieces(inputs.shape[1], group.tokens.shape[1], piece), []
        for first in range(0, len(inputs), batch or len(inputs)):
            some = inputs[first : first + (batch or len(inputs))]
            kept, cache, start = _Kept(self.half, self._layers), stack.cache(), 0
            for count in pieces:
                kept.run(stack, some[:, start : start + count], cache, start, shake=shake)
                start += count
            parts.append(kept.arrays(0 if stack.dtype is torch.float32 else self._shelf.dtype))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _shakes(dtype: int) -> Iterator[tuple[str, Shake]]:
    """A verifier's shaken runs by name."""
    for names, times in ((SHAKEN[dtype], 1), (STRONGLY[dtype], STRONGER)):
        for name, alike in zip(names, in_turn(len(names)), strict=True):
            yield name, Shake(times, alike and bool(dtype))


class _Kept:
    """Rows after half the layers and after the last, of all positions."""

    def __init__(self, half: int, layers: int) -> None:
        self._spans = (Segment(0, half), Segment(half, layers))
        self._rows: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])

    def run(
        self, stack: Stack, tokens: NDArray[np.int64], cache: Any, start: int, *, shake: Shake | None = None
    ) -> torch.Tensor:
        states = stack.embed(torch.from_numpy(np.ascontiguousarray(tokens)))
        if shake is not None:
            states = shake(states)
        for span, kept in zip(self._spans, self._rows, strict=True):
            states = stack.forward(states, span, cache, start)
            kept.append(states)
        return states

    def arrays(self, dtype: int) -> Arrays:
        return {f"rows-{index}": words(torch.cat(kept, dim=1), dtype) for index, kept in enumerate(self._rows)}


def _pieces(positions: int, prompt: int, piece: int) -> Sequence[int]:
    if piece == WHOLE:
        return [positions]
    if piece == DECODE:
        return [prompt, *[1] * (positions - prompt)]
    return [min(piece, positions - start) for start in range(0, positions, piece)]


def _chosen(group: Group, logits: NDArray[np.float32], index: int) -> NDArray[np.int64]:
    position = group.tokens.shape[1] - 1 + index
    chosen = []
    for number, (row, sampling) in enumerate(zip(logits, group.samplings, strict=True)):
        gumbel = noise(group.seed(number), position, len(row)) if sampling.temperature > 0 else None
        chosen.append(choose(row, sampling, gumbel))
    return np.array(chosen, dtype=np.int64)


def run_all(folder: ModelFolder, shelf: Shelf, groups: Sequence[Group], ways: Sequence[Way] = HONEST) -> None:
    """Everything that is not kept yet."""
    runner = Runner(folder, shelf)
    for group in groups:
        runner.prepare(group)
        for way in ways:
            runner.follow(group, way)
