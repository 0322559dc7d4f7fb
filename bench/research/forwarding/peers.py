"""The routers that install from the registries, as they are: their process over loopback, before HTTP workers that
have the same cache and take the same time as the simulation's nodes.

Workers and client share this process and the wall clock; the router is the only other one. Prompts travel as text, a
word of four letters per token, since that is what these routers look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
from aiohttp import web

from research.forwarding.engine import Engine, Job
from research.forwarding.scenario import SEED, Scenario
from research.forwarding.simulation import Outcome, outcome
from research.forwarding.workloads import Request

ROUTERS = {
    "sglang-router": ("launch", "--policy", "cache_aware", "--disable-circuit-breaker", "--log-level", "error"),
    "vllm-router": ("--policy", "cache_aware", "--disable-circuit-breaker", "--log-level", "error"),
}
"""Names of the commands, with their default policy for prefixes."""
READY = 120.0
"""Seconds that a router may take to find its workers."""


class WallClock:
    """The simulation's clock on the event loop's time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()

    @property
    def now(self) -> float:
        return self._loop.time() - self._start

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._loop.call_at(self._start + when, what)


@dataclass(slots=True)
class _Stage:
    engines: list[Engine]
    waiting: dict[int, asyncio.Future[Job]]
    asked: dict[int, float]
    prompts: dict[bytes, Request]
    clock: WallClock


def command(name: str, given: str | None) -> str | None:
    """The router's executable: as given, or on PATH."""
    found = shutil.which(given or name)
    if given and found is None:
        raise SystemExit(f"There is no executable {given}: install {name} and give the path of its command")
    return found


def play(executable: str, name: str, scene: Scenario) -> Outcome:
    """Send the scenario's requests through this router."""
    return asyncio.run(_play(executable, name, scene))


async def _play(executable: str, name: str, scene: Scenario) -> Outcome:
    # A router may try HTTP/2 first, which this server refuses with a warning.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    clock = WallClock()
    jobs: list[Job] = []
    waiting: dict[int, asyncio.Future[Job]] = {}

    def finished(job: Job) -> None:
        jobs.append(job)
        waiting[job.request.number].set_result(job)

    engines = [Engine(scene.machine, clock, lambda event: None, finished) for _ in range(scene.nodes)]
    texts = [_text(request) for request in scene.requests]
    prompts = {_digest(text): request for text, request in zip(texts, scene.requests, strict=True)}
    stage = _Stage(engines, waiting, {}, prompts, clock)
    async with contextlib.AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(_worker(stage, node)) for node in range(scene.nodes)]
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(600))
        )
        url = await stack.enter_async_context(_router(executable, name, ports, session))
        await _send(scene, stage, texts, session, url)
    start = min(job.asked for job in jobs)
    return outcome(jobs, engines, start)


async def _send(scene: Scenario, stage: _Stage, texts: list[str], session: aiohttp.ClientSession, url: str) -> None:
    done: dict[int, asyncio.Event] = {request.number: asyncio.Event() for request in scene.requests}
    first = [request for request in scene.requests if request.after is None]
    gaps = np.random.default_rng(SEED).exponential(len(scene.requests) / len(first) / scene.rate, len(first))
    start = stage.clock.now
    arrivals = {request.number: start + when for request, when in zip(first, np.cumsum(gaps).tolist(), strict=True)}

    async def ask(request: Request, text: str) -> None:
        if request.after is None:
            await asyncio.sleep(max(0.0, arrivals[request.number] - stage.clock.now))
        else:
            await done[request.after.number].wait()
            await asyncio.sleep(request.pause)
        stage.asked[request.number] = stage.clock.now
        body = {"model": "model", "prompt": text, "max_tokens": request.output_tokens}
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            if answer.status != 200:
                raise RuntimeError(f"the router answered {answer.status}: {(await answer.text())[:200]}")
            await answer.read()
        done[request.number].set()

    async with asyncio.TaskGroup() as group:
        for request, text in zip(scene.requests, texts, strict=True):
            group.create_task(ask(request, text))


@contextlib.asynccontextmanager
async def _worker(stage: _Stage, node: int) -> AsyncIterator[int]:
    async def complete(call: web.Request) -> web.Response:
        request = stage.prompts.get(_digest((await call.json())["prompt"]))
        if request is not None:
            future = asyncio.get_running_loop().create_future()
            stage.waiting[request.number] = future
            stage.engines[node].submit(Job(request, stage.asked[request.number], stage.clock.now, node))
            await future
        choice = {"index": 0, "text": "", "finish_reason": "stop", "logprobs": None}
        return web.json_response(
            {"id": "0", "object": "text_completion", "created": 0, "model": "model", "choices": [choice]}
        )

    async def models(call: web.Request) -> web.Response:
        entry = {"id": "model", "object": "model", "created": 0, "owned_by": "bench"}
        return web.json_response(
            {"object": "list", "data": [entry], "model_path": "model", "served_model_name": "model"}
        )

    application = web.Application(client_max_size=2**26)
    application.router.add_post("/v1/completions", complete)
    application.router.add_get("/{any:.*}", models)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _router(executable: str, name: str, ports: list[int], session: aiohttp.ClientSession) -> AsyncIterator[str]:
    port, metrics = _free_port(), _free_port()
    workers = [f"http://127.0.0.1:{worker}" for worker in ports]
    places = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics))
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(  # noqa: ASYNC220
            [executable, *ROUTERS[name], *places, "--worker-urls", *workers], stdout=log, stderr=log
        )
        try:
            url = f"http://127.0.0.1:{port}"
            await _ready(session, url, process, Path(log.name))
            yield url
        finally:
            process.kill()
            process.wait()


async def _ready(session: aiohttp.ClientSession, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until short prompts are answered: the router has found its workers."""
    deadline = asyncio.get_running_loop().time() + READY
    answered = 0
    while answered < 3:
        if process.poll() is not None or asyncio.get_running_loop().time() > deadline:
            raise SystemExit(f"The router does not serve: {log.read_text()[-2_000:]}")  # noqa: ASYNC240
        with contextlib.suppress(aiohttp.ClientError):
            async with session.post(f"{url}/v1/completions", json={"model": "model", "prompt": "ready?"}) as answer:
                answered += answer.status == 200
        await asyncio.sleep(0.5)


def _text(request: Request) -> str:
    """Four letters for each token."""
    words = np.frombuffer(request.tokens, dtype="<u4")
    letters = np.stack([words // 26**place % 26 for place in range(4)], axis=1).astype(np.uint8) + ord("a")
    return letters.tobytes().decode()


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
