"""The vLLM engine behind the node's two interfaces: it writes texts by itself, and it computes what it is told."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import CacheEvent, Computed, EngineLoad, SessionKey, TokenStep
from troth.node.engine.vllm.cache_events import Audience
from troth.node.engine.vllm.core import Core
from troth.node.engine.vllm.installing import require_vllm
from troth.node.engine.vllm.row_store import RowStore
from troth.node.engine.vllm.sampling_words import SamplingDraw, draw_to_words
from troth.node.engine.vllm.sessions import EngineSessions
from troth.node.engine.vllm.settings import BLOCK, EngineSettings
from troth.node.engine.vllm.supervision import Supervisor, started_of_same
from troth.node.engine.vllm.texts import EngineTexts
from troth.node.errors import BadInput, EngineError, ModelError, NodeBusy
from troth.node.models.folder import ModelFolder
from troth.protocol.request import Request
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32, Segment

if TYPE_CHECKING:
    from troth.node.engine.streamed import StreamedReference

NO_LOAD = EngineLoad(0, 0, 0.0, 0, BLOCK, 0, 0)
HELD_OPEN = 2
"""Sessions may hold one part in so many of the cache open: the rest is for requests that run."""


class VllmEngine:
    """See `interface.WholeEngine`. vLLM is started by the first call, which waits for it: half a minute."""

    def __init__(
        self,
        folder: ModelFolder,
        settings: EngineSettings,
        *,
        supervisor: Supervisor | None = None,
        unchanged: Callable[[], object] = lambda: None,
    ) -> None:
        """Check that vLLM is there.

        Args:
            unchanged: raises ModelError where the folder's files are no longer those that were checked; returns their
                stamps. vLLM reads them whenever it is started.

        Raises:
            ConfigError: it is not; the message names the command that installs it.
        """
        if supervisor is None:
            require_vllm()
        config = folder.text_config
        self._folder = folder
        # Not when a grammar first needs it: by then another one may lie there, which masks other tokens.
        self._tokenizer = folder.tokenizer_json
        self._settings = settings
        self._layers = folder.layers
        self._hidden_size = int(config["hidden_size"])
        self._vocabulary = int(config["vocab_size"])
        self._audience = Audience()
        self._supervisor = supervisor or Supervisor(
            lambda: started_of_same(lambda: Core.start(settings, self._audience), unchanged)
        )
        self._texts = EngineTexts(RowStore(BLOCK, settings.row_bytes))
        self._sessions = EngineSessions()

    @property
    def slice(self) -> Segment:
        """All layers."""
        return Segment(0, self._layers)

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self._layers

    @property
    def hidden_size(self) -> int:
        """Columns of a row."""
        return self._hidden_size

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self._vocabulary

    @property
    def positions(self) -> int:
        """The longest text, prompt and answer together."""
        return self._settings.positions

    @property
    def dtype(self) -> int:
        """Words of a row: 0 float32, 1 bfloat16."""
        return self._settings.dtype

    @cached_property
    def tokenizer(self) -> str:
        """The text of tokenizer.json, as it was when the model was loaded."""
        return self._tokenizer.decode()

    @cached_property
    def _reference(self) -> StreamedReference:
        """Only tolerant classes need it; made when it is first asked for, and torch with it."""
        return self._streamed()

    @cached_property
    def _in_torch(self) -> StreamedReference:
        """The model once more in the class's own format, with torch's attention: vLLM knows one way of its own."""
        return self._streamed(beside=self._reference)

    def _streamed(self, beside: StreamedReference | None = None) -> StreamedReference:
        import torch

        from troth.node.engine.streamed import StreamedReference

        return StreamedReference(
            self._folder, torch.bfloat16, self._settings.device, widen=beside is None, beside=beside
        )

    @property
    def failure(self) -> str | None:
        """Why it cannot compute now; see `supervision`."""
        return self._supervisor.failure

    @property
    def load(self) -> EngineLoad:
        """How busy vLLM is; nothing before it was started."""
        core = self._supervisor.living
        return NO_LOAD if core is None else cast(Core, core).load

    @property
    def cache_bytes(self) -> int:
        """Memory that running requests and open sessions have in the cache."""
        core = self._supervisor.living
        return 0 if core is None else int(self.load.cache_used * cast(Core, core).cache_bytes)

    async def generate(self, request: Request, seed: Hash32) -> AsyncGenerator[TokenStep, None]:
        """See `interface.WholeEngine.generate`."""
        prompt = list(request.prompt_tokens)
        self._require(prompt, request.position_limit)
        core = await self._core()
        # Where nothing is transformed, only its sampling matters to the draw.
        drawn = request if request.transforms.any else replace(request, prompt_tokens=request.prompt_tokens[:1])
        words = {
            "max_tokens": request.max_tokens,
            "stop_token_ids": list(request.end_tokens),
            "extra_args": draw_to_words(SamplingDraw(drawn, seed)),
        }
        try:
            async with aclosing(self._texts.generate(core, prompt, words)) as steps:
                async for step in steps:
                    yield step
        except EngineError as error:
            raise _busy(error) from error

    async def prefill(self, tokens: Sequence[int], *, fresh: bool = False) -> Computed:
        """See `interface.WholeEngine.prefill`."""
        began = time.perf_counter()
        self._require(tokens, len(tokens))
        core = await self._core()
        try:
            rows = await self._texts.prefill(core, list(tokens), fresh=fresh)
        except EngineError as error:
            raise _busy(error) from error
        return Computed(rows, time.perf_counter() - began)

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        """See `interface.Engine.forward`; the segment is the whole model."""
        began = time.perf_counter()
        if segment != self.slice:
            raise BadInput("vLLM computes the whole model only", segment, f"Ask for {self.slice}.")
        if inputs.ndim != 1:
            raise BadInput("the first segment takes tokens", inputs.shape, "Send tokens.")
        given = [int(token) for token in inputs]
        self._require(given, start + len(given))
        tokens = self._sessions.continued(key, start, given)
        core = await self._core()
        try:
            limit = core.load.blocks * BLOCK // HELD_OPEN
            text = await self._sessions.text(key, tokens, start, core, limit)
            rows, cached = await self._texts.rows_and_cached(core, text.name, tokens, start, len(tokens))
        except EngineError as error:
            raise _busy(error) from error
        self._texts.keep(tokens, start, rows)
        return Computed(rows, time.perf_counter() - began, cached)

    def holds(self, segment: Segment) -> bool:
        """Whether the segment is in memory: the whole model is."""
        return self.slice.first <= segment.first and segment.end <= self.slice.end

    async def rehost(self, hosted: Segment, keep: Sequence[Segment] = ()) -> None:
        """Refuse another slice: vLLM holds whole models.

        Raises:
            ModelError: `hosted` is not the whole model.
        """
        if hosted != self.slice:
            raise ModelError("vLLM holds the whole model and nothing less", hosted, "Use engine torch for slices.")

    async def reference(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any]:
        """The rows themselves in float32; of bfloat16 beside vLLM, layer by layer (`streamed`)."""
        tokens = [int(token) for token in inputs]
        self._require(tokens, len(tokens))
        return (await self.prefill(tokens)).rows if self.dtype == 0 else await self._reference.rows(tokens)

    async def shaken(
        self, segment: Segment, inputs: NDArray[Any], *, strongly: bool = False, alike: bool = False
    ) -> NDArray[Any] | None:
        """See `interface.ShakingEngine.shaken`."""
        tokens = [int(token) for token in inputs]
        self._require(tokens, len(tokens))
        core = await self._core()
        try:
            return await self._texts.shaken(core, tokens, strongly=strongly, alike=alike)
        except EngineError as error:
            raise _busy(error) from error

    async def otherwise(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any] | None:
        """See `interface.OtherwiseEngine.otherwise`; by torch, layer by layer."""
        tokens = [int(token) for token in inputs]
        self._require(tokens, len(tokens))
        return None if self.dtype == 0 else await self._in_torch.rows(tokens)

    async def logits(self, rows: NDArray[Any]) -> Computed:
        """See `interface.Engine.logits`; of float32 rows of a bfloat16 model by the reference's head."""
        began = time.perf_counter()
        if self.dtype != 0 and rows.dtype == np.float32:
            return Computed(await self._reference.logits(rows), time.perf_counter() - began)
        core = await self._core()
        try:
            made = await core.head(rows)
        except EngineError as error:
            raise _busy(error) from error
        return Computed(made, time.perf_counter() - began)

    async def choices(self, rows: NDArray[Any], sampling: Sampling, *, seed: Hash32, first_position: int) -> list[int]:
        """See `interface.VerifyingEngine.choices`."""
        core = await self._core()
        try:
            return await core.choices(rows, sampling, seed, first_position)
        except EngineError as error:
            raise _busy(error) from error

    async def forget(self, key: SessionKey) -> None:
        """Free one session."""
        await self._sessions.forget(key)

    async def release(self, task_id: bytes) -> None:
        """Free every session of a task."""
        await self._sessions.release(task_id)

    def events(self) -> AsyncIterator[CacheEvent]:
        """See `interface.WholeEngine.events`."""
        return self._audience.listen()

    async def empty_cache(self) -> None:
        """Forget all cached prefixes that no request uses; `events` tells of it with the next request."""
        await (await self._core()).empty_cache()

    async def close(self) -> None:
        """End vLLM's processes."""
        await self._sessions.close()
        await self._supervisor.close()

    async def _core(self) -> Core:
        return cast(Core, await self._supervisor.current())

    def _require(self, tokens: Sequence[int], length: int) -> None:
        if not len(tokens):
            raise BadInput("there are no positions", 0, "Send at least one.")
        if length > self._settings.positions:
            raise BadInput("the text is longer than this engine's", length, f"It has {self._settings.positions}.")
        if min(tokens) < 0 or max(tokens) >= self._vocabulary:
            raise BadInput("tokens are outside of the vocabulary", None, f"Tokens are below {self._vocabulary}.")


def _busy(error: EngineError) -> NodeBusy:
    return NodeBusy(error.what, error.value, error.remedy)
