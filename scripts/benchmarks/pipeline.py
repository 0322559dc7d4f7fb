"""Decode speed of the network against the same engine in one process.

The network is the demo's, without its overlay: a scheduler and ten nodes as processes, with TLS and signatures between
them. First every answer comes from two segments of 15 layers each; then from nodes with the whole model, of which one
decodes alone. The peer is the same engine with the same two slices called in turn in this process, one thread each.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import tempfile
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import round_trip
from benchmarks.figures import Figure
from benchmarks.weights import HOME, MODEL, weights
from troth.client.choices import SamplingChoices
from troth.client.configuration import load
from troth.client.home import Home
from troth.client.orders.asking import ask
from troth.client.orders.running import running
from troth.client.orders.session import PayerSession
from troth.client.orders.updates import EndedUpdate, FinishedUpdate, OrderOutcome, ServedUpdate, TextUpdate
from troth.client.orders.wishes import Wish
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.protocol import tokens
from troth.protocol.tensors import Dtype
from troth.protocol.types import Segment
from troth.testnet.asking import Asker
from troth.testnet.network import LAYERS, NODES, LocalNetwork
from troth.testnet.parties import NetworkPlan

TOKENS, REQUESTS = 64, 3
QUESTION = "Write a long story about a lighthouse keeper and the sea."
PAPER_OVERHEAD_PERCENT = 3.4 + 0.8
HALVES = ((0, LAYERS // 2), (LAYERS // 2, LAYERS))
CLOSED = {OrderOutcome.UNDRAWN, OrderOutcome.CHECKED}
READY_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one answer: from the nodes' draw to its last token, and from its first piece of text to the last."""

    whole: float
    decoding: float
    tokens: int
    prompt: int

    @property
    def a_token(self) -> float:
        """Milliseconds, the prompt's share included."""
        return self.whole / self.tokens * 1e3


def measure() -> list[Figure]:
    """Medians over the requests; the first request, in which everything is cold, is left out."""
    weights()
    plan = NetworkPlan(model=MODEL, slices=HALVES, nodes_per_slice=NODES // len(HALVES))
    relayed, whole = _network(plan), _network(NetworkPlan(model=MODEL, slices=((0, LAYERS),), nodes_per_slice=NODES))
    alone = asyncio.run(_one_process(relayed[0].prompt))
    hops = (round_trip.measure(0), round_trip.measure(alone / 2 / 1e3))
    return [*_figures(relayed, alone, hops), *_whole_figures(whole, alone)]


def _network(plan: NetworkPlan) -> list[Timing]:
    with tempfile.TemporaryDirectory(prefix="troth-bench-") as folder:
        network = LocalNetwork(
            Path(folder) / "network", HOME, plan, report=lambda line: None, ready_seconds=READY_SECONDS
        )
        with network:
            network.start()
            asker = Asker(network)
            asker.open_tab()
            return asyncio.run(_requests(asker))[1:]


async def _requests(asker: Asker) -> list[Timing]:
    """One after the other, each only when the check of the one before is through."""
    home = Home(asker.home)
    async with running(home, load(home.configuration), asker.network.password_file) as run:
        await run.session.ready()
        assert run.session.language is not None  # ready() loads it
        prompt = run.session.language.prompt_tokens([{"role": "user", "content": QUESTION}])
        return [await _request(run.session, prompt, len(asker.network.plan.slices)) for _ in range(REQUESTS + 1)]


async def _request(session: PayerSession, prompt: tuple[int, ...], segments: int) -> Timing:
    begun = first = ended = 0.0
    written, outcome = 0, None
    async with aclosing(ask(session, prompt, Wish(SamplingChoices(TOKENS)))) as updates:
        async for update in updates:
            match update:
                case ServedUpdate(nodes=nodes):
                    assert len(nodes) == segments, nodes
                    begun = time.perf_counter()
                case TextUpdate():
                    first = first or time.perf_counter()
                case FinishedUpdate(tokens=written):
                    ended = time.perf_counter()
                case EndedUpdate(outcome=outcome):
                    pass
    assert outcome in CLOSED, outcome
    return Timing(ended - begun, ended - first, written, len(prompt))


async def _one_process(prompt: int) -> float:
    """Milliseconds a token, two slices in this process; the prompt's share of it included, as in the network."""
    folder = weights()
    halves = [Segment(*half) for half in HALVES]
    engines = [TorchEngine(folder, half, Dtype.FLOAT32, threads=1) for half in halves]
    key = SessionKey(secrets.token_bytes(32), 0, 0)
    token, samples = 1, []
    try:
        states: Any = np.arange(100, 100 + prompt)
        for position in (0, *range(prompt, prompt + TOKENS)):
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


def _figures(timings: list[Timing], alone: float, hops: tuple[float, float]) -> list[Figure]:
    whole = statistics.median(timing.a_token for timing in timings)
    overhead = whole - alone
    return [
        Figure("network, a token (prefill included)", whole, "ms", note=f"{TOKENS} tokens, 2 segments, float32"),
        Figure("  between two tokens of it", _step(timings), "ms", note="from the first piece of text to the last"),
        Figure("overhead a token: over one process", overhead, "ms", reach=2.5),
        Figure(
            "overhead, share of generation",
            *(100 * overhead / whole, "%", PAPER_OVERHEAD_PERCENT),
            note="the paper's 3.4 % relay + 0.8 % crypto are on GPUs, where the model's part is longer",
        ),
        Figure("a bare echo over the channel, twice", 2 * hops[0], "ms", note="two hops, nothing computed"),
        Figure(
            "the same, with half a model between",
            *(2 * hops[1], "ms"),
            note="cold caches and sleeping cores: the least that two hops cost here",
        ),
        Figure("same engine in one process, a token", alone, "ms", note="two slices in turn, one thread"),
        Figure("decode speed, network over one process", alone / whole, "×", note="what holds it back: the overhead"),
    ]


def _whole_figures(timings: list[Timing], alone: float) -> list[Figure]:
    whole = statistics.median(timing.a_token for timing in timings)
    return [
        Figure("whole model on one node, a token", whole, "ms", note="it decodes alone; the scheduler fetches"),
        Figure("  between two tokens of it", _step(timings), "ms", note="from the first piece of text to the last"),
        Figure("  overhead a token: over one process", whole - alone, "ms", reach=2.5),
        Figure("  decode speed over one process", alone / whole, "×"),
    ]


def _step(timings: list[Timing]) -> float:
    return statistics.median(timing.decoding / (timing.tokens - 1) * 1e3 for timing in timings)
