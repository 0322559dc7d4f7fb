"""The torch engine: Hugging Face layers on cpu, cuda or mps, many sessions in one pass, any slice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.engine.card import card_is_gone
from troth.node.engine.choice import choose_tokens
from troth.node.engine.interface import Chosen, Computed, SessionKey, TokenDraw
from troth.node.engine.layers import LayerSlice, Needs, Parts
from troth.node.engine.packing import Continuation
from troth.node.engine.sessions import CacheBudget
from troth.node.engine.shaking import STRONGER, Shake
from troth.node.engine.steps import EngineSteps, SessionWork, StepShare, TokenChoice
from troth.node.errors import BadInput, NodeBusy, OutOfOrder
from troth.node.models.families import LARGEST
from troth.node.models.folder import ModelFolder
from troth.protocol.tensors import NO_STATE, Dtype, finite
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32, Segment

TORCH_DTYPES = (torch.float32, torch.bfloat16)
REFERENCE = SessionKey(b"reference", 0, 0)
"""Of all references, so that they are computed one after the other: their caches are outside of the bound."""
Entered = tuple[StepShare, torch.Tensor, Continuation]
Result = TypeVar("Result")


class TorchEngine:
    """See `interface.ChoosingEngine`. All computing happens in one thread (`steps`).

    A cancelled caller's queued job never runs, and a long one ends with the chunk at hand.
    """

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
        # Not when a grammar first needs it: by then another one may lie there, which masks other tokens.
        self._tokenizer = folder.tokenizer_json
        self._device = torch.device(device)
        self._slices = layers
        self._layers = layers(folder, hosted, TORCH_DTYPES[dtype], self._device)
        self._reference: LayerSlice | None = self._layers if dtype == 0 else None
        self._positions = folder.known_positions or LARGEST
        self._hosted = hosted
        self._kept: tuple[Segment, ...] = (hosted,)
        self._moving = asyncio.Lock()
        self._dtype = dtype
        self._sessions = CacheBudget(cache_bytes)
        self.lost: str | None = None
        """Why this process computes nothing any more: its graphics card is gone, and only another process may get it
        back."""
        # The thread holds this engine only while it has something to do, so that an engine nobody needs can go.
        self._steps = EngineSteps(self._advance, self._choose, self._kind)

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
    def positions(self) -> int:
        """As many as the model was made for: beyond them its rotary embedding means nothing to it."""
        return self._positions

    @property
    def dtype(self) -> int:
        """Words of a row: 0 float32, 1 bfloat16."""
        return self._dtype

    @cached_property
    def tokenizer(self) -> str:
        """The text of tokenizer.json, as it was when the model was loaded."""
        return self._tokenizer.decode()

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        """Append positions to a session; see `interface.Engine.forward`."""
        self._require_card()
        # Before it is in line: what is no array of positions would break the step of all others.
        if inputs.ndim == 0 or start < 0:
            raise BadInput("these are no positions", (start, inputs.shape), "Send at least one, counted from 0.")
        return await asyncio.wrap_future(self._steps.compute(SessionWork(key, segment, start, inputs)))

    async def reference(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any]:
        """One float32 prefill, after those asked for before; the float32 slice is loaded when it is first needed."""
        work = SessionWork(REFERENCE, segment, 0, inputs, wide=True)
        rows = (await asyncio.wrap_future(self._steps.compute(work))).rows
        # Layers of a former slice may have stayed for it.
        await self._run(lambda: self._keep(self._kept))
        return rows

    async def shaken(
        self, segment: Segment, inputs: NDArray[Any], *, strongly: bool = False, alike: bool = False
    ) -> NDArray[Any]:
        """See `interface.ShakingEngine.shaken`."""
        work = SessionWork(REFERENCE, segment, 0, inputs, shake=Shake(STRONGER if strongly else 1, alike))
        return (await asyncio.wrap_future(self._steps.compute(work))).rows

    async def otherwise(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any] | None:
        """See `interface.OtherwiseEngine.otherwise`."""
        if not self._layers.decoder.has_two_ways:
            return None
        work = SessionWork(REFERENCE, segment, 0, inputs, otherwise=True)
        return (await asyncio.wrap_future(self._steps.compute(work))).rows

    async def choose(self, key: SessionKey, row: NDArray[Any], draw: TokenDraw) -> Chosen:
        """The token of one post-norm row; see `interface.ChoosingEngine.choose`."""
        self._require_card()
        return await asyncio.wrap_future(self._steps.choose(TokenChoice(key, row, draw)))

    async def choices(self, rows: NDArray[Any], sampling: Sampling, *, seed: Hash32, first_position: int) -> list[int]:
        """See `interface.VerifyingEngine.choices`."""
        self._require_card()
        draws = [TokenDraw(sampling, seed, first_position + index) for index in range(len(rows))]
        return await self._run(lambda: self._chosen(rows, draws))

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
        await asyncio.to_thread(self._steps.close)

    async def _run(self, job: Callable[[], Result]) -> Result:
        try:
            return await asyncio.wrap_future(self._steps.run(job))
        except Exception as error:
            if (told := self._told(error)) is error:
                raise
            raise told from error

    def _require_card(self) -> None:
        if self.lost is not None:
            raise NodeBusy("this node's graphics card is gone", None, "Ask another node; this one is started again.")

    def _told(self, error: Exception) -> Exception:
        """What whoever asked is told; that memory is used up may be over in a moment, that a card is gone is not."""
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            if self._device.type == "cuda":
                # What a failed pass held is kept by torch for passes of its shape; the next one has another.
                torch.cuda.empty_cache()
            return NodeBusy("the device's memory is used up", None, "Retry later or elsewhere.")
        if self._device.type != "cpu" and card_is_gone(error):
            self.lost = self.lost or f"the graphics card is gone: {str(error).splitlines()[0]}"
        if self.lost is not None:
            return NodeBusy("this node's graphics card is gone", None, "Ask another node; this one is started again.")
        return error

    def _settle(self, hosted: Segment, wanted: tuple[Segment, ...], parts: Parts) -> None:
        self._layers.take(parts)
        self._hosted = hosted
        self._keep(wanted)

    def _keep(self, segments: tuple[Segment, ...]) -> None:
        """Let go of layers that neither these segments nor a session need."""
        self._kept = segments
        needed = self._layers.needs(*segments, *self._sessions.segments, *self._steps.begun)
        for layers in (self._layers, self._reference):
            if layers is not None and layers.has - needed:
                layers.keep_only(needed)

    def _end(self, forget: Callable[[], None]) -> None:
        forget()
        self._keep(self._kept)

    def _kind(self, work: SessionWork) -> Hashable:
        """What goes through one pass has the same layers; where a family cannot be packed, nothing goes with others."""
        wide = work.wide and self._dtype != 0
        return (
            (wide, work.otherwise, work.segment, id(None if wide else self._layers_of(work)))
            if self._layers.packs
            else id(work)
        )

    def _layers_of(self, work: SessionWork) -> LayerSlice:
        return self._widened(work.segment) if work.wide else self._layers

    def _advance(self, shares: Sequence[StepShare]) -> None:
        """One step. What cannot take part is told so, and where a pass fails each sequence is tried alone."""
        entered = []
        for share in shares:
            try:
                entered.append((share, *self._entered(share)))
            except Exception as error:  # noqa: BLE001 - whoever asked for it is told
                share.work.failure = self._told(error)
        try:
            self._pass(entered)
        except Exception as error:  # noqa: BLE001 - as above
            if len(entered) > 1:
                for one in entered:
                    self._advance_alone(one)
            else:
                entered[0][0].work.failure = self._told(error)

    def _advance_alone(self, entered: Entered) -> None:
        try:
            self._pass([entered])
        except Exception as error:  # noqa: BLE001 - as above
            entered[0].work.failure = self._told(error)

    def _entered(self, share: StepShare) -> tuple[torch.Tensor, Continuation]:
        """The rows that enter, and the cache that they follow, with room for all that the work asks for."""
        work, count = share
        self._require_held(work.segment)
        self._require_known(work.start + len(work.inputs))
        layers = self._layers_of(work)
        start = work.start + work.done
        hidden = self._enter(layers, work.segment, work.inputs[work.done : work.done + count])
        if work.shake is not None:
            hidden = work.shake(hidden)
        if work.wide or work.otherwise or work.shake is not None:
            work.cache = work.cache or layers.new_cache(work.segment)
            work.cache.grow(len(work.inputs))
        else:
            cache = self._sessions.find(work.key)
            if start > (cache.length if cache else 0) or (work.done and cache is not work.cache):
                raise OutOfOrder("positions before this one are missing", start, "Send the positions in order, from 0.")
            work.cache = cache or layers.new_cache(work.segment)
            self._sessions.make_room(work.key, work.cache, work.start + len(work.inputs))
        work.cache.length = start
        return hidden, Continuation(work.cache, count)

    def _pass(self, entered: Sequence[Entered]) -> None:
        """One pass of the model over what several works ask for, all of one kind."""
        if not entered:
            return
        began = time.perf_counter()
        work = entered[0][0].work
        hidden = torch.cat([rows for _, rows, _ in entered]) if len(entered) > 1 else entered[0][1]
        pieces = [piece for *_, piece in entered]
        layers = self._layers_of(work)
        with layers.decoder.otherwise() if work.otherwise else nullcontext():
            states = layers.forward(work.segment, hidden, pieces)
        words = to_words(states, 0 if work.wide else self._dtype)
        seconds, first = time.perf_counter() - began, 0
        for (work, count), *_ in entered:
            # Copies, where a view would keep the rows of all in memory for as long as one of them is needed.
            work.rows.append(words if len(entered) == 1 else words[first : first + count].copy())
            work.done, work.seconds, first = work.done + count, work.seconds + seconds, first + count

    def _choose(self, choices: Sequence[TokenChoice]) -> None:
        """Tokens of several sessions; where that fails, each is tried alone."""
        began = time.perf_counter()
        try:
            rows = np.concatenate([choice.row for choice in choices])
            tokens = self._chosen(rows, [choice.draw for choice in choices])
        except Exception as error:  # noqa: BLE001 - whoever asked for it is told
            for choice in choices:
                if len(choices) > 1:
                    self._choose([choice])
                else:
                    choice.failure = self._told(error)
            return
        seconds = time.perf_counter() - began
        for choice, token in zip(choices, tokens, strict=True):
            choice.chosen = Chosen(token, seconds)

    def _chosen(self, rows: NDArray[Any], draws: Sequence[TokenDraw]) -> list[int]:
        states = from_words(rows, self._dtype).to(self._device, self._layers.dtype)
        return choose_tokens(self._layers.logits(states), draws)

    def _widened(self, segment: Segment) -> LayerSlice:
        """The float32 layers of a segment; those that it lacks are read now."""
        if self._dtype == 0:
            return self._layers
        if self._reference is None:
            dtype = TORCH_DTYPES[self._dtype]
            self._reference = self._slices(self._folder, segment, dtype, self._device, widen=True)
        else:
            self._reference.take(self._reference.read(self._reference.needs(segment)))
        return self._reference

    def _require_held(self, segment: Segment) -> None:
        if not self.holds(segment):
            raise BadInput("the segment is outside of this node's slice", segment, f"It hosts {self._hosted}.")

    def _require_known(self, end: int) -> None:
        if end > self._positions:
            raise BadInput("the text is longer than any that the model knows", end, f"It knows {self._positions}.")

    def _enter(self, layers: LayerSlice, segment: Segment, inputs: NDArray[Any]) -> torch.Tensor:
        if len(inputs) == 0:
            raise BadInput("there are no positions", 0, "Send at least one.")
        if segment.first == 0:
            return layers.embed(self._tokens(inputs))
        if inputs.ndim != 2 or inputs.shape[1] != self.hidden_size:
            raise BadInput("rows have the wrong width", inputs.shape, f"Rows have {self.hidden_size} columns.")
        words = Dtype(self._dtype)
        if not finite(inputs.astype(words.storage, copy=False), words):
            raise BadInput(NO_STATE, inputs.shape, "Ask whoever computed them, and signed them.")
        return from_words(inputs, self._dtype).to(self._device, layers.dtype)

    def _tokens(self, inputs: NDArray[Any]) -> torch.Tensor:
        if inputs.dtype.kind not in "iu" or inputs.ndim != 1 or inputs.min() < 0 or inputs.max() >= self.vocabulary:
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
