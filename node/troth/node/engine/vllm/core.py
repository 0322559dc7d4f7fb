"""One vLLM engine, from its start to its end: requests, rows, the head, load and cache events.

This is the only module of the node's own process that touches vLLM. A `Core` that has died stays dead: `supervision`
starts another one.

The engine's load comes from the statistics that it hands out after each step.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Cleared, EngineLoad
from troth.node.engine.vllm.cache_events import Audience, Translator
from troth.node.engine.vllm.row_board import RowBoard
from troth.node.engine.vllm.row_receiver import RowReceiver
from troth.node.engine.vllm.settings import FIXED_ROWS, EngineSettings
from troth.node.errors import EngineError
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

REMEDY = "It is started anew; repeat the request or ask another node."
_ONE_BY_ONE = threading.Lock()
"""vLLM reads the environment of the process as it starts, and engines have different ones."""


class Tally:
    """Counts since the engine's start."""

    def __init__(self) -> None:
        self._running = 0
        self._waiting = 0
        self._used = 0.0
        self._asked = 0
        self._found = 0

    def load(self, blocks: int, block: int) -> EngineLoad:
        """What is known now, of a cache of so many blocks of `block` tokens."""
        return EngineLoad(self._running, self._waiting, self._used, blocks, block, self._asked, self._found)

    def record(self, statistics: Any) -> None:
        """Note vLLM's SchedulerStats of one step; None says nothing."""
        if statistics is None:
            return
        self._running, self._waiting = statistics.num_running_reqs, statistics.num_waiting_reqs
        self._used = float(statistics.kv_cache_usage)
        self._asked += statistics.prefix_cache_stats.queries
        self._found += statistics.prefix_cache_stats.hits

    def listener(self) -> Callable[..., Any]:
        """What vLLM makes its listener with; only where vLLM is installed."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        tally = self

        class StepListener(StatLoggerBase):  # type: ignore[misc, unused-ignore]
            """Hands each step's statistics on."""

            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                pass

            def record(self, scheduler_stats: Any, iteration_stats: Any, *rest: Any, **named: Any) -> None:
                tally.record(scheduler_stats)

            def log_engine_initialized(self) -> None:
                pass

        return StepListener


class Core:
    """Use `Core.start`; every method raises EngineError once the engine is dead."""

    def __init__(self, settings: EngineSettings, llm: Any, folder: Path, tally: Tally, audience: Audience) -> None:
        self.settings = settings
        self.board = RowBoard()
        self.hidden_size = 0
        self.vocabulary = 0
        self.cache_bytes = 0
        self.dead = asyncio.Event()
        self._llm = llm
        self._folder = folder
        self._tally = tally
        self._audience = audience
        self._names = count()
        self._receiver: RowReceiver | None = None
        self._helpers: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, settings: EngineSettings, audience: Audience) -> Core:
        """Start vLLM's processes and have its worker send its rows here; takes half a minute.

        Raises:
            EngineError: vLLM cannot be started with these settings; its own log says why.
        """
        folder = Path(tempfile.mkdtemp(prefix="troth-vllm-"))
        tally = Tally()
        making = _in_thread(lambda: _construct(settings, folder, tally))
        try:
            llm = await asyncio.wrap_future(making)
        except asyncio.CancelledError:
            # Whoever asked has gone, and a thread cannot be stopped: what it still makes is ended there.
            making.add_done_callback(lambda made: _end_unwanted(made, folder))
            raise
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise EngineError("vLLM cannot be started", str(error), "See its log above.") from error
        core = cls(settings, llm, folder, tally, audience)
        try:
            await core._connect()
        except BaseException:
            await core.close()
            raise
        return core

    @property
    def load(self) -> EngineLoad:
        """See `interface.EngineLoad`."""
        cache = self._llm.vllm_config.cache_config
        return self._tally.load(int(cache.num_gpu_blocks or 0), int(cache.block_size))

    def name(self) -> str:
        """A name for a request that no other request of this engine has."""
        return f"r{next(self._names)}"

    async def run(self, name: str, prompt: Any, words: dict[str, Any], cache: str = "") -> AsyncGenerator[Any, None]:
        """vLLM's outputs for one request. Closing it aborts the request.

        Args:
            prompt: tokens, or an asynchronous iterator over lists of them.
            words: of vLLM's SamplingParams.
            cache: name of the cache of prefixes whose keys and values it reads and leaves; all share one without.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA, **words
        )
        given = _tokens(prompt, cache) if isinstance(prompt, list) else _chunks(prompt)
        outputs = self._llm.generate(given, params, name)
        try:
            async for output in outputs:
                yield output
        except Exception as error:
            if self._llm.errored or self.dead.is_set():
                self._die(str(error))
                raise EngineError("the engine's process has ended", None, REMEDY) from error
            raise
        finally:
            await outputs.aclose()

    async def head(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Float32 logits of post-norm rows, shape (positions, vocabulary)."""
        wide = rows.dtype == np.float32
        made = await self.call("troth_head", np.ascontiguousarray(rows).tobytes(), wide)
        return np.frombuffer(made, np.float32).reshape(len(rows), -1)

    async def choices(self, rows: NDArray[Any], sampling: Sampling, seed: Hash32, first_position: int) -> list[int]:
        """Tokens that consecutive post-norm rows in the engine's words choose."""
        words = np.ascontiguousarray(rows).tobytes()
        cuts = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)
        made = await self.call("troth_choices", words, cuts, bytes(seed), first_position)
        return [int(token) for token in made]

    async def row_seconds(self) -> float:
        """Processor seconds spent on rows so far: in vLLM's worker, and here once they are read."""
        here = 0.0 if self._receiver is None else self._receiver.seconds
        return here + float(await self.call("troth_row_seconds"))

    async def empty_cache(self) -> None:
        """Forget all cached prefixes that no request uses."""
        await self._llm.reset_prefix_cache()

    async def close(self) -> None:
        """End vLLM's processes."""
        self._die("the engine is being closed")
        for helper in self._helpers:
            helper.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)
        await asyncio.to_thread(self._llm.shutdown)
        if self._receiver is not None:
            self._receiver.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _connect(self) -> None:
        self.hidden_size, self.vocabulary, self.cache_bytes = await self.call("troth_tap", self.listen())
        if not self.settings.on_card:
            await self.call("troth_fix_rows", FIXED_ROWS)
        self._helpers.append(asyncio.create_task(self._follow_cache()))
        self._helpers.append(asyncio.create_task(self._watch()))

    async def call(self, method: str, *arguments: Any) -> Any:
        """What vLLM's first worker answers to a method of `worker.RowTap`, which runs in all of them."""
        try:
            return (await self._llm.collective_rpc(method, args=arguments))[0]
        except Exception as error:
            if self._llm.errored:
                self._die(str(error))
            raise EngineError(f"the engine failed in {method}", str(error), REMEDY) from error

    def listen(self) -> str:
        """Where the worker's rows are taken from now on."""
        address, storage = self._folder / "rows", Dtype(self.settings.dtype).storage
        self._receiver = RowReceiver(address, lambda: (self.hidden_size, storage), self.board.add, self._die)
        return str(address)

    async def _follow_cache(self) -> None:
        import zmq
        import zmq.asyncio

        socket = zmq.asyncio.Context.instance().socket(zmq.SUB)
        translator = Translator()
        try:
            socket.connect(f"ipc://{self._folder}/blocks")
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            while True:
                _, sequence, payload = await socket.recv_multipart()
                if self.dead.is_set():
                    return
                for event in translator.read(int.from_bytes(sequence, "big"), payload):
                    self._audience.tell(event)
        except EngineError as error:
            self._die(error.what)
        finally:
            socket.close(linger=0)

    async def _watch(self) -> None:
        """A process that was killed while nothing ran would be noticed by the next request only."""
        while not self._llm.errored:  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(0.5)
        self._die("vLLM's engine has ended")

    def _die(self, reason: str) -> None:
        if self.dead.is_set():
            return
        self.dead.set()
        # Its cache is gone with it, and the next engine's is empty.
        self._audience.tell(Cleared())
        self.board.fail(EngineError(reason, None, REMEDY))
        from vllm.v1.engine.exceptions import EngineDeadError

        # vLLM tells its waiting callers when it notices by itself, which may be never.
        self._llm.output_processor.propagate_error(EngineDeadError())


def _tokens(prompt: list[int], cache: str) -> dict[str, Any]:
    return {"prompt_token_ids": prompt} | ({"cache_salt": cache} if cache else {})


async def _chunks(parts: AsyncIterator[list[int]]) -> AsyncIterator[Any]:
    from vllm.engine.protocol import StreamingInput

    async for part in parts:
        yield StreamingInput(prompt={"prompt_token_ids": part})


def _in_thread(make: Callable[[], Any]) -> Future[Any]:
    """What `make` gives, from a thread of its own that the interpreter waits for at its end."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="vllm-start")
    making = pool.submit(make)
    pool.shutdown(wait=False)
    return making


def _end_unwanted(made: Future[Any], folder: Path) -> None:
    if not made.cancelled() and made.exception() is None:
        made.result().shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def _construct(settings: EngineSettings, folder: Path, tally: Tally) -> Any:
    with _ONE_BY_ONE:
        settings.prepare_environment(folder)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        class ClosedByCore(AsyncLLM):  # type: ignore[misc, unused-ignore]
            """Ended by `Core.close` alone: at an interpreter's end vLLM's own way fails, and prints a traceback."""

            def __del__(self) -> None:
                pass

        arguments = AsyncEngineArgs(**settings.arguments(folder), enable_log_requests=False, disable_log_stats=True)
        return ClosedByCore.from_engine_args(arguments, stat_loggers=[tally.listener()])
