"""SmolLM2 on a network of ten nodes of the shipped kind: the first token over the gateway, and what checks cost.

The demo's network: real weights, processes, disks, TLS, a chain with a block every twelve seconds while questions are
asked, and a class of which half of the answers are checked, so that a few questions show both kinds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.figures import Figure
from benchmarks.market.running.processor import processor_seconds
from benchmarks.market.running.toy_network import SLOW_BLOCK
from benchmarks.market.running.ways import HIDDEN, OPEN, Way
from troth.demo.stage import ENDED, DemoStage, open_client
from troth.node.engine.interface import SessionKey
from troth.node.engine.layers import LayerSlice
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import open_folder
from troth.protocol.types import Segment
from troth.testnet.anvil import rpc
from troth.testnet.display import Display
from troth.testnet.gateway import LocalGateway, Streamed
from troth.testnet.network import LAYERS, LocalNetwork
from troth.testnet.weights import prepare_models

WORDS = "river, lantern, orchard, winter, market, engine, harbour, letter, garden, mountain, violin, bridge, "
RATE = 0.05
CHECK_SECONDS = 60.0
IDLE_SECONDS = 10.0
REACH_FIRST = {OPEN: 0.060, HIDDEN: 0.150}
REACH_SHARE, REACH_CHECK = 4.0, 2.0
BEFORE_SHARE, BEFORE_CHECK = 71.0, 4.1
"""Of the per-task way: three verifiers for every task, and three transactions before a verdict."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how many tokens are written at most."""

    text: str
    tokens: int


SHORT = Question("What is the capital of France?", 20)
LONG = Question(f"Write a long story with all of these words in their order: {WORDS * 20}end.", 128)
"""About 512 tokens read and 128 written, the shape by which VeriLLM states what a verification costs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: seconds to its first token and from its answer's end to its outcome; the nodes' processors."""

    first: float
    outcome: str
    after: float
    spent: float
    prompt: int


def measure(models: Path, count: int, report: Callable[[str], None]) -> list[Figure]:
    """Ask ``count`` times over the overlay and as often openly, in turns; then long questions, for checks."""
    with tempfile.TemporaryDirectory() as folder:
        network = LocalNetwork(Path(folder) / "network", models, report=report)
        display = Display()
        prepare_models(models, network.plan, display)
        with network:
            network.start()
            stage = DemoStage(network, display)
            open_client(stage, stage.client, network.scheduler)
            ways = (Way.openly(stage), Way.over_relays(stage))
            # As on Ethereum: here each block costs a look at it by every process, all on the same two cores.
            rpc(network.rpc, "evm_setIntervalMining", SLOW_BLOCK)
            asked = _ask_in_turns(ways, count, report)
            # Its circuits would take processor from what is measured next.
            ways[1].gateway.child.stop()
            long = _ask_all(ways[0], LONG, count // 2, report)
        prompt = asked[OPEN][0].prompt
        alone = asyncio.run(_alone(models / "models" / network.plan.model, prompt, count))
    firsts = [_first(way, asked[way.name], alone) for way in ways]
    checked = [one for way in asked.values() for one in way if one.outcome == "checked"]
    return [*firsts, _between(asked), _share(long), _after(checked)]


def _first(way: Way, asked: list[Asked], alone: list[float]) -> Figure:
    there, here = statistics.median(one.first for one in asked), statistics.median(alone)
    times = f"{1e3 * there:.0f} ms over the gateway, {1e3 * here:.0f} ms in one process"
    note = f"median of {len(asked)}, the two ways in turns: {times}; {way.said()}"
    name = f"first token over the gateway, more than the same engine in one process, {way.name}"
    return Figure(name, 1e3 * (there - here), "ms", None, 1e3 * REACH_FIRST[way.name], note)


def _between(asked: dict[str, list[Asked]]) -> Figure:
    """What the overlay itself adds, from pairs of questions asked one after the other."""
    pairs = zip(asked[HIDDEN], asked[OPEN], strict=True)
    added = [1e3 * (hidden.first - openly.first) for hidden, openly in pairs]
    low, middle, high = statistics.quantiles(added, n=4)
    note = f"median of {len(added)} pairs, half of them between {low:.0f} and {high:.0f} ms; all relays on this machine"
    return Figure("of it, circuits of three relays", middle, "ms", None, None, note)


def _share(asked: list[Asked]) -> Figure:
    plain = [one for one in asked if one.outcome == "undrawn"]
    checked = [one for one in asked if one.outcome == "checked"]
    if not plain or not checked:
        raise RuntimeError(f"of {len(asked)} questions {len(checked)} were checked: ask more of them")
    inference = statistics.median(one.spent for one in plain)
    check = max(statistics.median(one.spent for one in checked) - inference, 0.0)
    costs = f"an answer {inference:.2f} s of the nodes' processors, a check by k = 3 {check:.2f} s more"
    return Figure(
        f"checks' processor time over inference's, q = {100 * RATE:.0f} %",
        100 * RATE * check / inference,
        "%",
        BEFORE_SHARE,
        REACH_SHARE,
        f"{costs}; {plain[0].prompt} tokens read and {LONG.tokens} written, one text at a time; {len(plain)} answers "
        f"without a check, {len(checked)} with one",
    )


def _after(checked: list[Asked]) -> Figure:
    after = statistics.median(one.after for one in checked)
    name = f"a check after the answer, SmolLM2, {SHORT.tokens} tokens"
    return Figure(name, after, "s", BEFORE_CHECK, REACH_CHECK, f"median of {len(checked)}")


def _idle(network: LocalNetwork) -> float:
    """Processor seconds a second that nodes use while nobody asks."""
    before = _spent(network)
    time.sleep(IDLE_SECONDS)
    return (_spent(network) - before) / IDLE_SECONDS


def _spent(network: LocalNetwork) -> float:
    return sum(processor_seconds(node.child) for node in network.nodes.values())


def _ask_in_turns(ways: tuple[Way, Way], count: int, report: Callable[[str], None]) -> dict[str, list[Asked]]:
    """A short question each way, ``count`` times; one more at first, which opens connections and is not counted.

    Whoever is first in one turn is second in the next: what is warmer by then is so for both.
    """
    idle = _idle(ways[0].stage.network)
    asked: dict[str, list[Asked]] = {way.name: [] for way in ways}
    for number in range(count + 1):
        for way in ways[:: 1 if number % 2 else -1]:
            asked[way.name].append(_ask(way, SHORT, number, idle, report))
    for way in ways:
        # What opened connections and circuits is not what a question takes.
        del asked[way.name][0], way.messages[0]
    return asked


def _ask_all(way: Way, question: Question, count: int, report: Callable[[str], None]) -> list[Asked]:
    """One question more than ``count``: the first opens connections and is not counted."""
    idle = _idle(way.stage.network)
    return [_ask(way, question, number, idle, report) for number in range(count + 1)][1:]


def _ask(way: Way, question: Question, number: int, idle: float, report: Callable[[str], None]) -> Asked:
    network, gateway = way.stage.network, way.gateway
    relayed, before, begun = way.relayed(), _spent(network), time.monotonic()
    first, streamed, prompt = _stream(gateway, question, way.look)
    ended = time.monotonic()
    outcome = "pending"
    while outcome not in ENDED:
        if time.monotonic() > ended + CHECK_SECONDS:
            raise RuntimeError(f"question {number} has no outcome after {CHECK_SECONDS:.0f} s")
        time.sleep(0.02)
        outcome = str(gateway.receipt_now(streamed)["outcome"])
    after = time.monotonic() - ended
    spent = _spent(network) - before - idle * (time.monotonic() - begun)
    way.went(relayed)
    report(
        f"question {number} {way.name}: first token after {1e3 * first:.0f} ms, {outcome} {after:.2f} s after the "
        f"answer; relays handed on {way.messages[-1]} messages"
    )
    return Asked(first, outcome, after, spent, prompt)


def _stream(gateway: LocalGateway, question: Question, at_first: Callable[[], None]) -> tuple[float, Streamed, int]:
    """Seconds to the first piece of text, the answer, and how many tokens its prompt has; ``at_first`` is called once
    that time is taken, while the answer still comes."""
    body = {
        "model": gateway._get("/v1/models")["data"][0]["id"],
        "messages": [{"role": "user", "content": question.text}],
        "max_tokens": question.tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    first, last, prompt = 0.0, {}, 0
    url, headers = f"{gateway.address}/v1/chat/completions", {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(timeout=CHECK_SECONDS) as client:
        begun = time.monotonic()
        with client.stream("POST", url, json=body, headers=headers) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk: dict[str, Any] = json.loads(line.removeprefix("data: "))
                if "error" in chunk:
                    raise RuntimeError(f"the answer broke off: {chunk['error']}")
                if not first and any(choice["delta"].get("content") for choice in chunk["choices"]):
                    first = time.monotonic() - begun
                    at_first()
                last = chunk if "troth" in chunk else last
                prompt = (chunk.get("usage") or {}).get("prompt_tokens", prompt)
    troth = last["troth"]
    return first, Streamed(last["id"], "", str(troth["task"]), str(troth["receipt"])), prompt


async def _alone(folder: Path, prompt: int, count: int) -> list[float]:
    """Seconds to a first token from the engine alone: a prompt of that length, its last row, the head, the choice."""
    engine = TorchEngine(open_folder(folder), Segment(0, LAYERS), 0, threads=1, layers=LayerSlice)
    tokens, found = np.arange(1, prompt + 1, dtype=np.int64), []
    try:
        for number in range(count + 1):
            key = SessionKey(number.to_bytes(32), 0, 0)
            begun = time.monotonic()
            rows = (await engine.forward(key, Segment(0, LAYERS), 0, tokens)).rows
            int(np.argmax((await engine.logits(rows[-1:])).rows))
            found.append(time.monotonic() - begun)
            await engine.forget(key)
    finally:
        await engine.close()
    return found[1:]
