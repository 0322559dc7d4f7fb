"""The node whose parts are measured: everything from vLLM's socket to the wire is as shipped. Run as a process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from fastapi import FastAPI

from benchmarks.node.scene import Plan, operator_of, session_of
from troth.node.engine.interface import EngineLoad
from troth.node.engine.vllm import row_board, row_frames, row_receiver
from troth.node.engine.vllm.cache_events import Audience
from troth.node.engine.vllm.core import Core, Tally
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.engine.vllm.supervision import Supervisor
from troth.node.orders.context import NodeContext
from troth.node.orders.metrics import NodeMetrics
from troth.node.orders.service import OrderService
from troth.protocol.hashing import keccak256
from troth.protocol.market.rows import RowHashes
from troth.protocol.types import ZERO_HASH, Hash32
from troth.protocol.wire import ORDER_REQUESTS
from troth.transport import channel_server, envelope, event_loop
from troth.transport.channel_server import ChannelServer
from troth.transport.identity import Operator, create_identity
from troth.transport.server import TlsServer, serving

TICK_SECONDS = 0.005


class Spent:
    """Thread seconds inside functions, by what they are for."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, name: str, what: str) -> None:
        """Count every call of ``owner.name``."""
        plain = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return plain(*arguments, **named)
            finally:
                self.seconds[what] += time.thread_time() - began

        setattr(owner, name, counted)


class WorkerCore(Core):
    """vLLM's core with the worker of this benchmark; outputs come as its rows do."""

    def __init__(self, settings: EngineSettings, plan: Plan, folder: Path) -> None:
        super().__init__(settings, None, folder, Tally(), Audience())
        self.hidden_size, self.vocabulary = plan.hidden, plan.vocabulary
        self._plan, self._asked = plan, 0
        self._moved: dict[str, asyncio.Event] = {}
        self._worker: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        plain = self.board.add

        def add(pieces: Any) -> None:
            plain(pieces)
            for name, _, _ in pieces:
                if name in self._moved:
                    self._moved[name].set()

        self.board.add = add  # type: ignore[method-assign]

    @property
    def load(self) -> EngineLoad:
        """All sequences at once."""
        return EngineLoad(self._plan.sequences, 0, 0.5, 1000, 32, 0, 0)

    async def begin(self) -> None:
        """Start the worker, which connects."""
        address = self.listen()
        command = [
            sys.executable,
            "-m",
            "benchmarks.node.worker",
            address,
            str(self._plan.hidden),
            str(self._plan.rate),
        ]
        self._worker = await asyncio.to_thread(subprocess.Popen, command, stdin=subprocess.PIPE, text=True)

    async def run(self, name: str, prompt: Any, words: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """What vLLM's queue would hand out: all tokens since the last time."""
        moved = self._moved[name] = asyncio.Event()
        self._tell(f"{name} {len(prompt)} {words['max_tokens']}")
        self._asked += 1
        if self._asked == self._plan.sequences:
            self._tell("go")
        told, arriving = len(prompt) - 1, self.board._requests[name]
        try:
            while told < len(prompt) + words["max_tokens"] - 1:
                await moved.wait()
                moved.clear()
                if arriving.end > told:
                    tokens = [(told + step) % self.vocabulary for step in range(arriving.end - told)]
                    told = arriving.end
                    yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens)])
        finally:
            self._tell(f"{name} 0 0")
            del self._moved[name]

    def _tell(self, line: str) -> None:
        """All lines of a moment together: a pipe's system calls are no part of what is measured."""
        if not self._lines:
            asyncio.get_running_loop().call_later(0.002, self._flush)
        self._lines.append(line + "\n")

    def _flush(self) -> None:
        assert self._worker is not None
        assert self._worker.stdin is not None
        lines, self._lines = self._lines, []
        self._worker.stdin.write("".join(lines))
        self._worker.stdin.flush()

    async def close(self) -> None:
        self.dead.set()
        if self._receiver is not None:
            self._receiver.close()
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()


async def serve(plan: Plan) -> None:
    """Print where it listens, serve until a line comes, print what it took."""
    spent = Spent()
    for owner, name, what in (
        (row_receiver, "frame_from_bytes", "row board"),
        (row_frames.RowFrame, "pieces", "row board"),
        (row_board.RowBoard, "add", "row board"),
        (RowHashes, "hashes", "hashing and links"),
        (RowHashes, "extend_hashed", "hashing and links"),
        (Operator, "sign", "signing"),
        (channel_server, "encode_frame", "frames and envelopes"),
        (channel_server, "decode_frame", "frames and envelopes"),
        (channel_server, "seal", "frames and envelopes"),
        (envelope.Receiver, "open", "frames and envelopes"),
    ):
        spent.wrap(owner, name, what)
    with tempfile.TemporaryDirectory() as home:
        settings = EngineSettings(Path(home), plan.dtype, positions=plan.prompt + plan.tokens)
        core = WorkerCore(settings, plan, Path(home))
        config = {"num_hidden_layers": 2, "hidden_size": plan.hidden, "vocab_size": plan.vocabulary}

        async def started() -> WorkerCore:
            return core

        folder: Any = SimpleNamespace(text_config=config, layers=2, tokenizer_json=b"")
        engine = VllmEngine(folder, settings, supervisor=Supervisor(started))
        nothing: Any = None
        context = NodeContext(engine, nothing, operator_of("node"), Hash32(ZERO_HASH), nothing)
        service = OrderService(context, NodeMetrics())
        for number in range(plan.sequences):
            session = session_of(plan, number)
            service._sessions[session.seat.order_id, 0, "infer"] = session
        await core.begin()
        channel = ChannelServer(context.operator, service.handle, lambda _: True, requests=ORDER_REQUESTS)
        app = FastAPI()
        channel.mount(app)
        identity = create_identity(Path(home) / "tls")
        async with serving(TlsServer(app, identity, "127.0.0.1", 0)) as server:
            print(json.dumps({"port": server.port, "key": identity.spki_sha256.hex()}), flush=True)
            before, spent_before = time.process_time(), dict(spent.seconds)
            pauses = [0.0]
            watching = asyncio.create_task(_longest_pause(pauses))
            await asyncio.to_thread(sys.stdin.readline)
            watching.cancel()
            total = time.process_time() - before
            seconds = {name: value - spent_before.get(name, 0.0) for name, value in spent.seconds.items()}
        print(json.dumps({"total": total, "bare": _bare(plan), "spent": seconds, "held": max(pauses)}), flush=True)
        await core.close()


async def _longest_pause(pauses: list[float]) -> None:
    """How much later than asked for the loop comes back, as far as it worked meanwhile, if that is the longest so far.

    Where many processes want few cores, it is late for want of one, too; that is not counted.
    """
    while True:
        began, worked = time.perf_counter(), time.thread_time()
        await asyncio.sleep(TICK_SECONDS)
        late = min(time.perf_counter() - began - TICK_SECONDS, time.thread_time() - worked)
        if late > pauses[-1]:
            pauses.append(late)


def _bare(plan: Plan) -> float:
    """Processor seconds of hashing all rows once, without anything around it."""
    row = np.random.default_rng(0).integers(0, 1 << 14, plan.hidden, dtype=np.uint16).tobytes()
    return _timed(lambda: keccak256(row)) * plan.sequences * plan.tokens


def _timed(action: Callable[[], object], repeats: int = 2000) -> float:
    began = time.process_time()
    for _ in range(repeats):
        action()
    return (time.process_time() - began) / repeats


if __name__ == "__main__":
    event_loop.run(serve(Plan(**json.loads(sys.argv[1]))))
