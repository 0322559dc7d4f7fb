"""What opened tiles tell in float32: honest runs from verifiers that save work by computing in fewer bits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.judging import corpus
from benchmarks.judging.corpus import Group
from benchmarks.judging.recording import Recorder
from benchmarks.judging.runs import run_all
from benchmarks.judging.ways import HONEST, WHOLE, Way
from troth.node.calibration import tampering
from troth.node.calibration.thresholds import least_cut
from troth.node.models.thresholds import Thresholds
from troth.protocol.agreement import agreeing_elements
from troth.protocol.scores import relative_rms
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileLayout
from troth.protocol.types import Hash32

LAZY = (
    Way("bfloat16 weights", partial(tampering.narrow_weights, dtype=torch.bfloat16), piece=WHOLE),
    Way("float16 weights", partial(tampering.narrow_weights, dtype=torch.float16), piece=WHOLE),
    Way("TF32", tampering.tensor_float32, piece=WHOLE),
)
"""Verifiers that compute with half the bits: what they open must not pass as the class's own."""
Rows = NDArray[np.float32]


def tile_figures(recorder: Recorder, cuts: Thresholds) -> Iterator[Figure]:
    """Of the class that ships: honest tiles refused, those of a trace at the state cut, and lazy ones that pass."""
    ordinary = corpus.ordinary(recorder.folder)
    groups = [ordinary, *corpus.odd(recorder.folder), corpus.long(recorder.folder)]
    run_all(recorder.folder, recorder.shelf, groups)
    run_all(recorder.folder, recorder.shelf, [ordinary], LAZY)
    theta = cuts.tile.theta / 10_000
    honest = [_shares(recorder, group, way.name, cuts) for group in groups for way in HONEST]
    short = [_shares(recorder, group, way.name, cuts, rows=2) for group in groups for way in HONEST]
    bent = [_shares(recorder, ordinary, way.name, cuts, at_the_cut=True) for way in LAZY]
    for name, parts in (("honest", honest), ("honest traces of two rows", short), ("traces at the state cut", bent)):
        found = np.concatenate(parts)
        note = (
            f"of {len(found):,} single tiles; least share {found.min():.3f}, 0.1 % below {np.quantile(found, 1e-3):.3f}"
        )
        yield Figure(f"tiles refused: {name}", int((found < theta).sum()), "tiles", reach=0, note=note)
    for way in LAZY:
        found = _shares(recorder, ordinary, way.name, cuts)
        note = f"of {len(found):,} single tiles; largest share {found.max():.3f}"
        note += f", 99.9 % below {np.quantile(found, 0.999):.3f}"
        yield Figure(f"tiles of a lazy verifier that agree: {way.name}", int((found >= theta).sum()), "tiles", reach=0,
                     note=note)  # fmt: skip


def _shares(
    recorder: Recorder, group: Group, way: str, cuts: Thresholds, *, rows: int | None = None, at_the_cut: bool = False
) -> NDArray[np.float64]:
    """Shares of agreeing elements of every tile of a way's traces beside the verifier's own, at both boundaries."""
    found: list[float] = []
    for key in ("rows-0", "rows-1"):
        pairs = zip(recorder.shelf.read(group, way)[key], recorder.shelf.read(group, "own")[key], strict=True)
        for index, pair in enumerate(pairs):
            claimed, own = (one[:rows].copy() for one in pair)
            seen = _at(claimed, own, cuts.state_cut / 1e6) if at_the_cut else claimed
            found += _agreeing(seen, own, Hash32(index.to_bytes(32, "big")), cuts)
    return np.array(found)


def _at(claimed: Rows, own: Rows, cut: float) -> Rows:
    """Rows as far from the own ones as a state cut lets pass, in the direction of others."""
    share = cut / least_cut(relative_rms(claimed, own).astype(np.float32))
    return (own + share * (claimed.astype(np.float64) - own)).astype(np.float32)


def _agreeing(claimed: Rows, own: Rows, task: Hash32, cuts: Thresholds) -> Iterator[float]:
    layout = TileLayout(task, bytes(32), *own.shape, Dtype.FLOAT32)
    for first, second in zip(layout.cut(claimed), layout.cut(own), strict=True):
        tiles = first.tobytes(), second.tobytes()
        agreeing, total = agreeing_elements(*tiles, Dtype.FLOAT32, cuts.tile.bits, cuts.tile.steps)
        yield agreeing / total
