"""The float32 reference of a whole model in the memory of one layer: layers are read, used for all texts, and dropped.

A verifier of a tolerant class needs the states of a float32 prefill. The model in float32 takes twice the memory that
it is served in, so that a card which serves 16 GB could never hold it beside. Here the largest layer counts, with the
embedding before the first one and the head behind the last. Reading a model from the system's cache of files takes
seconds, so all texts that wait go through each layer together.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.engine.layers import LayerSlice, Needs
from troth.node.engine.packing import Continuation
from troth.node.engine.torch_engine import to_words
from troth.node.errors import ModelError
from troth.node.models.dequantised import FolderWeights
from troth.node.models.folder import ModelFolder
from troth.node.models.sources import Stamp, stamp
from troth.protocol.tensors import Dtype
from troth.protocol.types import Segment

CHUNK = 512
"""Positions that go through a layer at a time: what a layer makes between its products is several times its states."""
WORKING = 1 << 30
"""Bytes beside weights: states, keys and values of one layer, and what it makes of a chunk, for texts of 20,000."""
TOGETHER = 65_536
"""Positions of all texts of one pass; others wait for the next."""


@dataclass
class ReferencedText:
    """A text whose rows somebody waits for."""

    tokens: NDArray[np.int64]
    answer: asyncio.Future[NDArray[Any]]


class StreamedReference:
    """Post-norm rows and logits of a whole model, its weights rounded to `dtype` and computed with in float32.

    Weights are read anew for each pass, so that each looks whether they are those of the first day.

    Args:
        widen: False for rows in `dtype`'s own words, with attention in plain operations where the family has a choice.
        beside: another one of the same model; of both only one runs at a time, for memory's sake.
    """

    def __init__(
        self,
        folder: ModelFolder,
        dtype: torch.dtype,
        device: str = "cpu",
        *,
        widen: bool = True,
        beside: StreamedReference | None = None,
    ) -> None:
        self._folder, self._dtype, self._device = folder, dtype, torch.device(device)
        self._widen = widen
        self._stamps = weight_stamps(folder)
        self._layers: LayerSlice | None = None
        self._waiting: list[ReferencedText] = []
        self._busy: asyncio.Lock = asyncio.Lock() if beside is None else beside._busy

    async def rows(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Rows of a text's positions, (positions, hidden size).

        Raises:
            ModelError: the model does not slice, or its weights were touched.
        """
        mine = ReferencedText(np.asarray(tokens, np.int64), asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        async with self._busy:
            if not mine.answer.done():
                await self._pass()
        return await mine.answer

    async def logits(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the head makes of rows, (positions, vocabulary)."""
        async with self._busy:
            return await asyncio.to_thread(self._head, rows)

    async def _pass(self) -> None:
        taken, room = list[ReferencedText](), TOGETHER
        # The first one in any case; who was cancelled meanwhile is left out.
        while self._waiting and (not taken or len(self._waiting[0].tokens) <= room):
            one = self._waiting.pop(0)
            if not one.answer.done():
                taken.append(one)
                room -= len(one.tokens)
        try:
            made = await asyncio.to_thread(self._run, [one.tokens for one in taken])
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            for one in taken:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one, rows in zip(taken, made, strict=True):
            if not one.answer.done():
                one.answer.set_result(rows)

    def _run(self, texts: Sequence[NDArray[np.int64]]) -> list[NDArray[Any]]:
        with self._same_weights(), torch.inference_mode(), self._attending():
            layers = self._opened()
            self._hold(layers, Needs(entry=True))
            states = [layers.embed(torch.from_numpy(text).to(self._device)) for text in texts]
            for index in range(layers.total_layers):
                segment = Segment(index, index + 1)
                # The norm behind the last layer comes with the head; the embedding is of no use any more.
                self._hold(layers, Needs(frozenset({index}), ending=index + 1 == layers.total_layers))
                states = [self._through(layers, segment, rows) for rows in states]
            self._hold(layers, Needs(ending=True))
            return [to_words(rows, 0 if self._widen else Dtype.BFLOAT16) for rows in states]

    def _attending(self) -> AbstractContextManager[None]:
        decoder = self._opened().decoder
        return decoder.otherwise() if decoder.has_two_ways and not self._widen else nullcontext()

    @contextmanager
    def _same_weights(self) -> Iterator[None]:
        """Raises ModelError where files are written, linked or exchanged meanwhile, or were written before.

        A link alone that somebody made between two passes says nothing: who looks at the node's files reads them then.
        """
        before = weight_stamps(self._folder)
        if written := [name for name, one in before.items() if not _as_written(one, self._stamps.get(name))]:
            remedy = "Start the node again, which checks them."
            raise ModelError("weights were changed since the reference was made", ", ".join(written), remedy)
        yield
        if weight_stamps(self._folder) != before:
            what, remedy = "weights were touched while the reference read them", "Leave them alone, and repeat it."
            raise ModelError(what, str(self._folder.place), remedy)

    def _through(self, layers: LayerSlice, segment: Segment, rows: torch.Tensor) -> torch.Tensor:
        cache, made = layers.new_cache(segment), torch.empty_like(rows)
        cache.grow(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            made[start : start + len(part)] = layers.forward(segment, part, [Continuation(cache, len(part))])
        return made

    def _head(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        with self._same_weights(), torch.inference_mode():
            layers = self._opened()
            self._hold(layers, Needs(ending=True))
            made: NDArray[np.float32] = layers.logits(torch.from_numpy(np.array(rows)).to(self._device)).cpu().numpy()
            return made

    def _opened(self) -> LayerSlice:
        if self._layers is None:
            self._layers = LayerSlice(self._folder, Segment(0, 1), self._dtype, self._device, widen=self._widen)
        return self._layers

    @staticmethod
    def _hold(layers: LayerSlice, needs: Needs) -> None:
        """Have these in memory and nothing else."""
        layers.keep_only(needs)
        layers.take(layers.read(needs))


def weight_stamps(folder: ModelFolder) -> dict[str, Stamp]:
    """Of each file of weights, by its name."""
    return {path.name: stamp(path) for path in folder.weight_files}


def _as_written(now: Stamp, known: Stamp | None) -> bool:
    return known is not None and now._replace(changed=known.changed) == known


def reference_bytes(folder: ModelFolder) -> int:
    """Memory that a streamed reference takes at most: the largest layer, embedding or head beside it, the same head in
    the format of the class from the run beside, and room."""
    layers: dict[str, int] = {}
    outer = 0
    weights = FolderWeights.of(folder)
    for name, shape in weights.shapes.items():
        _, layered, rest = name.partition(".layers.")
        # A quantised weight is there in the class' dtype before it is widened, and again where experts are joined.
        wide = (8 if name in weights.packed else 4) * math.prod(shape)
        if layered:
            index = rest.partition(".")[0]
            layers[index] = layers.get(index, 0) + wide
        else:
            outer = max(outer, wide)
    return max(layers.values(), default=0) + outer + outer // 2 + WORKING
