"""The torch engine: Hugging Face layers on cpu, cuda or mps, one worker thread, any slice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.interface import Computed, SessionKey
from troth.node.engine.layers import LayerSlice, Needs, Parts
from troth.node.engine.sessions import CacheBudget
from troth.node.errors import BadInput, OutOfOrder
from troth.node.models.folder import ModelFolder
from troth.protocol.types import Segment

TORCH_DTYPES = (torch.float32, torch.bfloat16)
Result = TypeVar("Result")


class TorchEngine:
    """See `interface.Engine`. All computing happens in one thread; a cancelled caller's queued job never runs."""

    def __init__(
        self,
        folder: ModelFolder,
        hosted: Segment,
        dtype: int,
        *,
        device: str = "cpu",
        cache_bytes: int = 1 << 30,
        threads: int | None = None,
        layers: type[LayerSlice] = LayerSlice,
    ) -> None:
        """Load the slice now (seconds; call it outside of the event loop).

        Args:
            threads: torch threads for the whole process, None for torch's own choice.
            layers: what holds the weights and runs them.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        self._folder = folder
        self._device = torch.device(device)
        self._slices = layers
        self._layers = layers(folder, hosted, TORCH_DTYPES[dtype], self._device)
        self._reference: LayerSlice | None = self._layers if dtype == 0 else None
        self._hosted = hosted
        self._kept: tuple[Segment, ...] = (hosted,)
        self._moving = asyncio.Lock()
        self._dtype = dtype
        self._sessions = CacheBudget(cache_bytes)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")

    @property
    def slice(self) -> Segment:
        """The layers this engine hosts."""
        return self._hosted

    @property
    def layers(self) -> int:
        """Layers of the whole model."""
        return self._layers.total_layers

    @property
    def hidden_size(self) -> int:
        """Columns of a row."""
        return int(self._layers.config.hidden_size)

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return int(self._layers.config.vocab_size)

    @property
    def dtype(self) -> int:
        """Words of a row: 0 float32, 1 bfloat16."""
        return self._dtype

    @cached_property
    def tokenizer(self) -> str:
        """The text of tokenizer.json; read when a grammar first needs it."""
        return self._folder.tokenizer_json.decode()

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        """Append positions to a session; see `interface.Engine.forward`."""
        return await self._run(lambda: self._forward(key, segment, start, inputs))

    async def reference(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any]:
        """One float32 prefill; the float32 slice is loaded when it is first needed."""
        return await self._run(lambda: self._reference_states(segment, inputs))

    async def logits(self, rows: NDArray[Any]) -> Computed:
        """Float32 logits of post-norm rows in the engine's words, or of float32 reference rows."""
        return await self._run(lambda: self._logits(rows))

    @property
    def cache_bytes(self) -> int:
        """Memory held by sessions now."""
        return self._sessions.used

    def holds(self, segment: Segment) -> bool:
        """Whether every layer of a segment is in memory."""
        return segment.end <= self.layers and not self._layers.needs(segment) - self._layers.has

    async def rehost(self, hosted: Segment, keep: Sequence[Segment] = ()) -> None:
        """Host other layers; see `interface.Engine.rehost`. Reads beside the worker, which goes on computing."""
        async with self._moving:
            self._layers.needs(hosted, *keep)
            before, wanted = self._kept, (hosted, *keep)
            # Nothing that is held now and wanted then may go while the rest is read.
            await self._run(lambda: self._keep((*before, *wanted)))
            try:
                parts = await asyncio.to_thread(self._layers.read, self._layers.needs(*wanted))
            except BaseException:
                await self._run(lambda: self._keep(before))
                raise
            await self._run(lambda: self._settle(hosted, wanted, parts))

    async def forget(self, key: SessionKey) -> None:
        """Free one session."""
        await self._run(lambda: self._end(lambda: self._sessions.forget(key)))

    async def release(self, task_id: bytes) -> None:
        """Free every session of a task."""
        await self._run(lambda: self._end(lambda: self._sessions.release(task_id)))

    async def close(self) -> None:
        """Stop the worker thread after the job at hand."""
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)

    async def _run(self, job: Callable[[], Result]) -> Result:
        def without_gradients() -> Result:
            with torch.inference_mode():
                return job()

        return await asyncio.get_running_loop().run_in_executor(self._worker, without_gradients)

    def _settle(self, hosted: Segment, wanted: tuple[Segment, ...], parts: Parts) -> None:
        self._layers.take(parts)
        self._hosted = hosted
        self._keep(wanted)

    def _keep(self, segments: tuple[Segment, ...]) -> None:
        """Let go of layers that neither these segments nor a session need."""
        self._kept = segments
        needed = self._layers.needs(*segments, *self._sessions.segments)
        for layers in (self._layers, self._reference):
            if layers is not None and layers.has - needed:
                layers.keep_only(needed)

    def _end(self, forget: Callable[[], None]) -> None:
        forget()
        self._keep(self._kept)

    def _forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        started = time.perf_counter()
        self._require_held(segment)
        hidden = self._enter(self._layers, segment, inputs)
        cache = self._sessions.find(key)
        if start > (cache.length if cache else 0):
            raise OutOfOrder("positions before this one are missing", start, "Send the positions in order, from 0.")
        cache = cache or self._layers.new_cache(segment)
        self._sessions.make_room(key, cache, start + len(inputs))
        cache.length = start
        rows = to_words(self._layers.forward(segment, hidden, cache), self._dtype)
        return Computed(rows, time.perf_counter() - started)

    def _reference_states(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any]:
        self._require_held(segment)
        reference = self._widened(segment)
        hidden = self._enter(reference, segment, inputs)
        cache: AttentionCache = reference.new_cache(segment)
        cache.grow(len(inputs))
        return to_words(reference.forward(segment, hidden, cache), 0)

    def _widened(self, segment: Segment) -> LayerSlice:
        """The float32 layers of a segment; those that it lacks are read now."""
        if self._reference is None:
            dtype = TORCH_DTYPES[self._dtype]
            self._reference = self._slices(self._folder, segment, dtype, self._device, widen=True)
        else:
            self._reference.take(self._reference.read(self._reference.needs(segment)))
        return self._reference

    def _require_held(self, segment: Segment) -> None:
        if not self.holds(segment):
            raise BadInput("the segment is outside of this node's slice", segment, f"It hosts {self._hosted}.")

    def _enter(self, layers: LayerSlice, segment: Segment, inputs: NDArray[Any]) -> torch.Tensor:
        if len(inputs) == 0:
            raise BadInput("there are no positions", 0, "Send at least one.")
        if segment.first == 0:
            return layers.embed(self._tokens(inputs))
        if inputs.ndim != 2 or inputs.shape[1] != self.hidden_size:
            raise BadInput("rows have the wrong width", inputs.shape, f"Rows have {self.hidden_size} columns.")
        return from_words(inputs, self._dtype).to(self._device, layers.dtype)

    def _tokens(self, inputs: NDArray[Any]) -> torch.Tensor:
        if inputs.ndim != 1 or inputs.min() < 0 or inputs.max() >= self.vocabulary:
            raise BadInput("tokens are outside of the vocabulary", None, f"Tokens are below {self.vocabulary}.")
        return torch.from_numpy(inputs.astype(np.int64)).to(self._device)

    def _logits(self, rows: NDArray[Any]) -> Computed:
        started = time.perf_counter()
        wide = rows.dtype == np.float32
        layers = self._reference if wide and self._reference is not None else self._layers
        if layers is not self._layers:
            layers.take(layers.read(Needs(ending=True)))
        states = from_words(rows, 0 if wide else 1).to(self._device, layers.dtype)
        return Computed(layers.logits(states).cpu().numpy(), time.perf_counter() - started)


def to_words(states: torch.Tensor, dtype: int) -> NDArray[Any]:
    """A tensor as numpy in the words of a trace: float32, or uint16 holding bfloat16 bits."""
    signed: NDArray[Any] = (states if dtype == 0 else states.view(torch.int16)).cpu().numpy()
    return signed if dtype == 0 else signed.view(np.uint16)


def from_words(rows: NDArray[Any], dtype: int) -> torch.Tensor:
    """The inverse of `to_words`; copies, so that the array may be read-only."""
    if dtype == 0:
        return torch.from_numpy(np.array(rows, dtype=np.float32))
    return torch.from_numpy(np.array(rows, dtype=np.uint16).view(np.int16)).view(torch.bfloat16)
