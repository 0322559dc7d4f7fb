"""Decode speed of the network against the same engine in one process, and where a token's time goes.

The network is the demo's: a scheduler and ten nodes as processes, two of which serve (15 layers each), with TLS and
signatures between them; then five nodes with the whole model, of which one decodes alone. The peer is the same engine
with the same two slices called in turn in this process, one thread each.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import round_trip
from benchmarks.figures import Figure
from benchmarks.weights import HOME, weights
from troth.client.asking import ask
from troth.client.updates import Verdict
from troth.client.choices import Choices
from troth.client.session import session
from troth.demo import acts
from troth.demo.display import Display
from troth.demo.network import LocalNetwork
from troth.demo.plan import Plan
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.protocol import tokens
from troth.protocol.dtype import Dtype
from troth.protocol.types import Segment

TOKENS, REQUESTS = 64, 3
QUESTION = "Write a long story about a lighthouse keeper and the sea."
PAPER_OVERHEAD_PERCENT = 3.4 + 0.8
PARTS = ("model", "relay", "signing", "checking", "storing")


def measure() -> list[Figure]:
    """Medians over the requests; the first request, in which everything is cold, is left out."""
    weights()
    relayed, whole = _network(Plan()), _network(Plan(slices=((0, 30),)))
    alone = asyncio.run(_one_process())
    hops = (round_trip.measure(0), round_trip.measure(alone / 2 / 1e3))
    return [*_figures(relayed, alone, hops), *_whole_figures(whole, alone)]


def _network(plan: Plan) -> list[dict[str, float]]:
    with (
        tempfile.TemporaryDirectory(prefix="troth-bench-") as folder,
        LocalNetwork(Path(folder) / "network", HOME, plan, report=lambda line: None) as network,
    ):
        network.start()
        stage = acts.Stage(network, Display(), HOME)
        acts.deposit(stage)
        return [asyncio.run(_request(stage)) for _ in range(REQUESTS + 1)][1:]


async def _request(stage: acts.Stage) -> dict[str, float]:
    async with session(stage.home, stage.configuration) as ready:
        signed = await ready.prepare([{"role": "user", "content": QUESTION}], Choices(TOKENS), stage.key)
        async for update in ask(ready, signed):
            if isinstance(update, Verdict):
                assert update.outcome == "accepted", update.outcome
        receipt: dict[str, Any] = await ready.api.task(signed.task_id, signed.salt)
    timing = {name: float(value) for name, value in receipt["timing"].items()}
    return {**timing, "tokens": float(len(receipt["tokens"]))}


async def _one_process() -> float:
    """Milliseconds a token, two slices in this process; the prompt's share of it included, as in the network."""
    folder = weights()
    layers = int(folder.config["num_hidden_layers"])
    halves = [Segment(0, layers // 2), Segment(layers // 2, layers)]
    engines = [TorchEngine(folder, half, Dtype.FLOAT32, threads=1) for half in halves]
    key = SessionKey(secrets.token_bytes(32), 0, 0)
    token, samples = 1, []
    try:
        states: Any = np.arange(100, 140)
        for position in (0, *range(40, 40 + TOKENS)):
            start = time.perf_counter()
            states = states if position == 0 else np.array([token])
            for engine, half in zip(engines, halves, strict=True):
                states = (await engine.forward(key, half, position, states)).rows
            token = tokens.choose((await engines[-1].logits(states[-1:])).rows[0], tokens.Sampling(0.0, 1.0), None)
            samples.append(time.perf_counter() - start)
    finally:
        for engine in engines:
            await engine.close()
    # Token 0 comes from the prompt; a text of TOKENS has one step less than tokens after it.
    return (samples[0] + statistics.median(samples[1:]) * (TOKENS - 1)) / TOKENS * 1e3


def _figures(timings: list[dict[str, float]], alone: float, hops: tuple[float, float]) -> list[Figure]:
    def median(name: str) -> float:
        return statistics.median(timing[name] for timing in timings)

    def per_token(name: str) -> float:
        return statistics.median(timing[name] * 1e3 / timing["tokens"] for timing in timings)

    overhead = median("overhead_per_token") * 1e3
    whole = per_token("generation")
    share = 100 * overhead / whole
    return [
        Figure("network, a token (prefill included)", whole, "ms", note=f"{TOKENS} tokens, 2 slices, float32"),
        *(Figure(f"  of which {part}", per_token(part), "ms") for part in PARTS),
        Figure("overhead a token: all but model time", overhead, "ms", reach=2.5),
        Figure(
            "overhead, share of generation",
            *(share, "%", PAPER_OVERHEAD_PERCENT),
            note="the paper's 3.4 % relay + 0.8 % crypto are on GPUs, where the model's part is longer",
        ),
        Figure("a bare echo over the channel, twice", 2 * hops[0], "ms", note="two hops, nothing computed"),
        Figure(
            "the same, with half a model between",
            *(2 * hops[1], "ms"),
            note="cold caches and sleeping cores: the least that two hops cost here",
        ),
        Figure("same engine in one process, a token", alone, "ms", note="two slices in turn, one thread"),
        Figure(
            "decode speed, network over one process",
            alone / whole,
            "×",
            note="what holds it back: the overhead above, and verifiers' processes on the same two cores",
        ),
    ]


def _whole_figures(timings: list[dict[str, float]], alone: float) -> list[Figure]:
    whole = statistics.median(timing["generation"] * 1e3 / timing["tokens"] for timing in timings)
    overhead = statistics.median(timing["overhead_per_token"] for timing in timings) * 1e3
    messages = statistics.median(timing["messages"] / timing["tokens"] for timing in timings)
    return [
        Figure("whole model on one node, a token", whole, "ms", note="it decodes alone; the scheduler fetches"),
        Figure("  overhead a token: all but model time", overhead, "ms", reach=2.5),
        Figure("  messages a token", messages, ""),
        Figure("  decode speed over one process", alone / whole, "×"),
    ]
