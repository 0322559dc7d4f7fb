"""Canonical traces: computed in the background, one after the other, and kept layer by layer on disk.

A trace takes seconds to minutes, and a turn has a deadline. What is computed of a layer is on disk before the next one
is begun, so that a node that is killed goes on behind it. In memory there is the trace that was asked for last, and of
it one layer's rows.
"""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from troth.chain.new_files import replacing
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.segment_text import Numbers
from troth.protocol.disputes.layout import Layout
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.segment_trace import ComputedLayer, SegmentTrace, segment_trace
from troth.protocol.types import Hash32

log = logging.getLogger(__name__)

TracePlace = tuple[Hash32, int, int]
"""Order, segment and position of the row in dispute."""
TraceKey = tuple[TracePlace, int]
"""The same, and the number of a nudge; 0 without one."""
HELD = 4
"""Traces in memory: a plain and a nudged one of two disputes."""


class KeptTrace:
    """See ``segment_trace.KeptLayers``: a folder with a file for each layer, whole or not there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def kept(self, layer: int) -> ComputedLayer | None:
        """A layer's end; None where there is none, or the file is broken."""
        try:
            with np.load(io.BytesIO(self._path(layer).read_bytes()), allow_pickle=False) as found:
                roots = tuple(Hash32(one.tobytes()) for one in found["roots"])
                return ComputedLayer(found["output"], roots)
        except (OSError, ValueError, KeyError, BadZipFile):
            return None

    def keep(self, layer: int, computed: ComputedLayer) -> None:
        """On disk when this returns."""
        roots = np.frombuffer(b"".join(computed.roots), np.uint8).reshape(-1, 32)
        with replacing(self._path(layer)) as file:
            np.savez(file, output=computed.output, roots=roots)

    @property
    def layers(self) -> int:
        """How many are done."""
        return sum(1 for _ in self._folder.glob("*.npz"))

    def _path(self, layer: int) -> Path:
        return self._folder / f"{layer:03}.npz"


@dataclass(slots=True)
class CanonicalTraces:
    """The traces of one node, computed one at a time, so that serving keeps its processor."""

    folder: Path
    weights: Callable[[], OpenedWeights]
    _held: dict[TraceKey, SegmentTrace] = field(default_factory=dict)
    _waiting: dict[TraceKey, asyncio.Task[SegmentTrace]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def find(self, place: TracePlace, nudge: int = 0) -> SegmentTrace | None:
        """A trace in memory."""
        key = place, nudge
        found = self._held.pop(key, None)
        if found is not None:
            self._held[key] = found
        return found

    def want(
        self, place: TracePlace, layout: Layout, states: Callable[[], Numbers], nudge: Nudge | None = None
    ) -> SegmentTrace | None:
        """The trace, or None while it is computed; raises what computing it raised, once."""
        key = place, 0 if nudge is None else nudge.number
        found = self.find(*key)
        if found is not None:
            return found
        task = self._waiting.get(key)
        if task is None:
            computing = self._compute(key, layout, states, nudge)
            self._waiting[key] = asyncio.create_task(computing, name="a canonical trace")
            return None
        if not task.done():
            return None
        del self._waiting[key]
        self._hold(key, task.result())
        return self._held[key]

    @property
    def computing(self) -> bool:
        """Whether a trace is under way."""
        return any(not task.done() for task in self._waiting.values())

    def progress(self, place: TracePlace, layout: Layout) -> float:
        """Share of the layers that are computed."""
        if (place, 0) in self._held:
            return 1.0
        folder = self._folder_of(place)
        done = KeptTrace(folder).layers if folder.is_dir() else 0
        return done / (layout.end - layout.first)

    def drop(self, place: TracePlace) -> None:
        """Erase a trace that no dispute needs any more, with those of its nudges."""
        for key in [one for one in self._held if one[0] == place]:
            del self._held[key]
        for key in [one for one in self._waiting if one[0] == place]:
            self._waiting.pop(key).cancel()
        shutil.rmtree(self._folder_of(place), ignore_errors=True)

    def drop_others(self, needed: set[TracePlace]) -> None:
        """Erase all traces but these: also those of a process before."""
        names = {self._folder_of(place).name for place in needed}
        for place in {one for one, _ in (*self._held, *self._waiting)} - needed:
            self.drop(place)
        if self.folder.is_dir():
            for folder in self.folder.iterdir():
                if folder.name not in names:
                    shutil.rmtree(folder, ignore_errors=True)

    async def close(self) -> None:
        """Stop computing. The layer under way ends on its thread."""
        for task in self._waiting.values():
            task.cancel()
        await asyncio.gather(*self._waiting.values(), return_exceptions=True)

    async def _compute(
        self, key: TraceKey, layout: Layout, states: Callable[[], Numbers], nudge: Nudge | None
    ) -> SegmentTrace:
        async with self._turn:
            log.warning(
                "computing the trace of a row in dispute: %d layers, nudge %d", layout.end - layout.first, key[1]
            )
            return await asyncio.to_thread(self._computed, key, layout, states, nudge)

    def _computed(
        self, key: TraceKey, layout: Layout, states: Callable[[], Numbers], nudge: Nudge | None
    ) -> SegmentTrace:
        weights, kept = self.weights(), KeptTrace(self._folder_of(*key))
        norm = weights.norm if layout.is_last else None
        return segment_trace(layout, weights.layer, states(), norm, kept, nudge)

    def _hold(self, key: TraceKey, trace: SegmentTrace) -> None:
        self._held[key] = trace
        for one in list(self._held)[:-HELD]:
            del self._held[one]

    def _folder_of(self, place: TracePlace, nudge: int = 0) -> Path:
        order, segment, position = place
        folder = self.folder / f"{order.hex()}-{segment}-{position}"
        return folder / f"nudge-{nudge}" if nudge else folder
