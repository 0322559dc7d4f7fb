"""What one verifier spends, as a share of what the inference spent: processor seconds of all processes, same engine.

Inference: one prefill of P tokens, then T − 1 decode steps, and a token choice before each. Verification: one prefill
of P + T − 1 positions, its commitment, the comparison of all rows, and the check of all tokens. The paper claims 0.78 %
(section 7.2.1) but its own Table 4 gives 33 / 1278 = 2.6 %.

One text is alone with its engine, or eight are at once, in inference and in verification. "Cold" verifiers have read
nothing before. Those who hold the prompt have its keys, values and rows in their cache, as every node has those of a
chat that goes on: only vLLM keeps them (`--vllm`, where it is installed), torch does not.

Beside each share stands that of the products of matrices alone, measured in the same rounds (`products`): all that is
not a product costs nothing there, in inference and in verification.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.products import AT_A_TIME, BareProducts
from benchmarks.weights import weights
from troth.node.engine.interface import Engine, SessionKey, TokenDraw
from troth.node.engine.torch_engine import TorchEngine
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import FIXED_ROWS, EngineSettings
from troth.node.judging.verdicts import judge_rows
from troth.node.models.descriptor import describe
from troth.node.models.execution_class import rough_class
from troth.node.models.folder import ModelFolder
from troth.node.models.thresholds import shipped_calibration
from troth.protocol.identifiers import model_id
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Sampling
from troth.protocol.trace import TileLayout
from troth.protocol.types import ZERO_HASH, Hash32, Segment

Outcome = TypeVar("Outcome")

PROMPT, OUTPUT, ROUNDS, TOGETHER = 512, 128, 3, 8
TEMPERATURE, TOP_P = 700_000, 950_000
"""Millionths."""
CACHE_BYTES = 1 << 30
REACH = 8.0
"""Per cent of inference, where the verifier holds the prompt."""
HELD, BLOCKS = "which holds the prompt", f"which holds the prompt, {FIXED_ROWS} positions at a time, as exact classes"
"""What a verifier has, and how it computes."""
PAPER = 0.78
"""Per cent; its own Table 4 gives 2.6."""


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """Medians over the rounds of ratios within a round, one thread."""
    parser = argparse.ArgumentParser(prog="scripts/bench verify", description=__doc__)
    parser.add_argument("--vllm", action="store_true", help="by vLLM in both dtypes, in place of torch in float32")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of inference and verification")
    chosen = parser.parse_args(options)
    if chosen.vllm:
        return [figure for dtype in Dtype for figure in asyncio.run(_by_vllm(weights(), dtype, chosen.rounds))]
    return asyncio.run(_by_torch(weights(), chosen.rounds))


@dataclass(frozen=True, slots=True)
class Text:
    """A request with the seed of its noise, and what was written and computed for it."""

    request: Request
    seed: Hash32
    output: list[int]
    rows: NDArray[Any]

    @property
    def positions(self) -> list[int]:
        """The tokens that rows are of."""
        return [*self.request.prompt_tokens, *self.output[:-1]]


@dataclass(frozen=True, slots=True)
class Party:
    """An engine with its name, the cuts of its class, how it writes a text, its bare products, and whether it holds
    prompts."""

    name: str
    engine: Engine
    rules: Any
    write: Callable[[int, Request, Hash32], Awaitable[Text]]
    products: BareProducts
    cache: VllmEngine | None = None


async def _by_torch(folder: ModelFolder, rounds: int) -> list[Figure]:
    engine = TorchEngine(folder, Segment(0, folder.layers), Dtype.FLOAT32, threads=1)

    async def write(number: int, request: Request, seed: Hash32) -> Text:
        key, sampling = _key(number), Sampling.of(request)
        rows = [(await engine.forward(key, engine.slice, 0, np.array(request.prompt_tokens))).rows]
        output: list[int] = []
        while len(output) < OUTPUT:
            position = PROMPT + len(output) - 1
            if output:
                rows.append((await engine.forward(key, engine.slice, position, np.array(output[-1:]))).rows)
            output.append((await engine.choose(key, rows[-1][-1:], TokenDraw(sampling, seed, position))).token)
        await engine.release(key.task_id)
        return Text(request, seed, output, np.concatenate(rows))

    model = Hash32(model_id(describe(folder, 0)))
    shipped = shipped_calibration(model, "float32")
    assert shipped is not None
    rules = shipped.apply(rough_class(model, 0, "float32", candidates=2))
    try:
        products = BareProducts(folder, torch.float32)
        return await _all_figures(Party("torch float32", engine, rules, write, products), rounds)
    finally:
        await engine.close()


async def _by_vllm(folder: ModelFolder, dtype: Dtype, rounds: int) -> list[Figure]:
    settings = EngineSettings(folder.path, dtype, positions=1000, cache_bytes=CACHE_BYTES, threads=1)
    engine = VllmEngine(folder, settings)

    async def write(number: int, request: Request, seed: Hash32) -> Text:
        steps = [step async for step in engine.generate(request, seed)]
        return Text(request, seed, [step.token for step in steps], np.concatenate([step.rows for step in steps]))

    name = dtype.name.lower()
    rules = rough_class(Hash32(model_id(describe(folder, dtype))), dtype, name, candidates=2)
    exact = replace(rules, exact=True, state_cut=0)
    try:
        products = BareProducts(folder, getattr(torch, name))
        return await _all_figures(Party(f"vLLM {name}, exact", engine, exact, write, products, engine), rounds)
    finally:
        await engine.close()


async def _all_figures(party: Party, rounds: int) -> list[Figure]:
    return [figure for count in (1, TOGETHER) for figure in await _compared(party, count, rounds)]


async def _compared(party: Party, count: int, rounds: int) -> list[Figure]:
    """Figures of so many texts at once; those of prompts that are held where the engine has a cache."""
    spent: dict[str, list[Spent]] = {"cold": [], **({HELD: []} if party.cache else {})}
    bare: dict[str, list[Spent]] = {kind: [] for kind in (*spent, *({BLOCKS} if party.cache else {}))}
    for number in range(rounds + 1):
        requests = _requests(count, number)
        await _emptied(party)
        inference, texts = await _timed(asyncio.gather(*(party.write(*given) for given in requests)))
        for kind, found in spent.items():
            await _emptied(party)
            if kind != "cold":
                held = enumerate(request.prompt_tokens for _, request, _ in requests)
                await asyncio.gather(*(_prefill(party.engine, place, given) for place, given in held))
            prefill, rows = await _timed(_verified(party.engine, texts))
            judging, _ = await _timed(_judged(party.engine, party.rules, texts, rows))
            if number:  # the first round warms up
                found.append(Spent(inference, prefill, judging))
                print(f"  {party.name}, {count}, {kind}: {found[-1]}", file=sys.stderr, flush=True)
        for kind, floors in bare.items() if number else ():
            floors.append(_bare(party.products, count, kind))
    at_once = "one text" if count == 1 else f"{count} texts at once"
    shown = [_figure(f"{party.name}, {at_once}, {kind}", found) for kind, found in spent.items()]
    whole = statistics.median(one.inference for one in spent["cold"])
    return shown + [_floor(kind, found, whole) for kind, found in bare.items()]


def _bare(products: BareProducts, count: int, kind: str) -> Spent:
    """The products of so many texts alone, of inference and of a verifier; all of one chain are by one kernel."""
    at_a_time = FIXED_ROWS if kind == BLOCKS else AT_A_TIME
    step, written = max(count, FIXED_ROWS) if kind == BLOCKS else count, OUTPUT - 1
    prompts = products.layers(count * PROMPT, at_a_time=at_a_time)
    steps = products.layers(step, steps=written) + products.head(step, steps=OUTPUT)
    read = (PROMPT if kind == "cold" else 0) + written
    prefill = products.layers(count * read, at_a_time=at_a_time)
    return Spent(prompts + steps, prefill, products.head(count * OUTPUT, at_a_time=at_a_time))


class Spent(NamedTuple):
    """Processor seconds."""

    inference: float
    prefill: float
    judging: float

    @property
    def share(self) -> float:
        """Of verification over inference, per cent."""
        return 100 * (self.prefill + self.judging) / self.inference


def _figure(name: str, spent: Sequence[Spent]) -> Figure:
    shares = [one.share for one in spent]
    inference, prefill, judging = (statistics.median(column) for column in zip(*spent, strict=True))
    note = f"P {PROMPT}, T {OUTPUT}, one thread; median of {len(shares)}, {min(shares):.1f} to {max(shares):.1f}; "
    note += f"inference {inference:.2f} s; prefill {prefill:.2f}; commit, compare, check tokens {judging:.2f}"
    reach = None if name.endswith("cold") else REACH
    return Figure(f"one verifier over inference, {name}", statistics.median(shares), "%", PAPER, reach, note)


def _floor(kind: str, spent: Sequence[Spent], whole: float) -> Figure:
    """`whole`: processor seconds of the inference with all that it does."""
    shares = [one.share for one in spent]
    inference, prefill, judging = (statistics.median(column) for column in zip(*spent, strict=True))
    note = f"{min(shares):.1f} to {max(shares):.1f}; inference {inference:.2f} s; prefill {prefill:.2f}; "
    note += f"logits of the text {judging:.2f}; over inference with all that it does "
    note += f"{100 * (prefill + judging) / whole:.1f} %"
    return Figure(f"the same, products alone, {kind}", statistics.median(shares), "%", note=note)


def _requests(count: int, round_number: int) -> list[tuple[int, Request, Hash32]]:
    """Prompts of random tokens, each with a seed of its noise."""
    draw, made = np.random.default_rng([5, round_number]), []
    for number in range(count):
        prompt = tuple(draw.integers(100, 40_000, PROMPT).tolist())
        request = Request(ZERO_HASH, prompt, OUTPUT, TEMPERATURE, TOP_P, end_tokens=())
        made.append((number, request, Hash32(hashlib.sha256(b"%d %d" % (round_number, number)).digest())))
    return made


async def _emptied(party: Party) -> None:
    if party.cache is not None:
        await party.cache.empty_cache()


async def _prefill(engine: Engine, number: int, given: Sequence[int]) -> NDArray[Any]:
    key = _key(number)
    rows = (await engine.forward(key, engine.slice, 0, np.array(given))).rows
    await engine.release(key.task_id)
    return rows


async def _verified(engine: Engine, texts: Sequence[Text]) -> list[NDArray[Any]]:
    given = [text.positions for text in texts]
    return await asyncio.gather(*(_prefill(engine, number, inputs) for number, inputs in enumerate(given)))


async def _judged(engine: Engine, rules: Any, texts: Sequence[Text], rows: Sequence[NDArray[Any]]) -> None:
    for text, own in zip(texts, rows, strict=True):
        layout = TileLayout(_key(0).task_id, ZERO_HASH, len(own), own.shape[1], Dtype(engine.dtype))
        matches = layout.commit(own).root == layout.commit(text.rows).root
        seat = SimpleNamespace(
            execution_class=rules, layers=engine.slice, dtype=Dtype(engine.dtype), is_last=True, request=text.request,
            prompt_positions=PROMPT, noise_seed=text.seed,
        )  # fmt: skip
        session: Any = SimpleNamespace(
            seat=seat,
            tokens=tuple(text.output),
            all_inputs=lambda text=text: np.array(text.positions),
            all_outputs=lambda own=own: own,
        )
        found = await judge_rows(engine, session, text.rows, root_matches=matches or not rules.exact)
        if not found.verdict:
            raise RuntimeError(f"an honest text was refused: {found}")


def _key(number: int) -> SessionKey:
    return SessionKey(bytes([number + 1]) * 32, 0, 0)


async def _timed(action: Awaitable[Outcome]) -> tuple[float, Outcome]:
    """Processor seconds of this process and of the engine's, and what came of it."""
    before = _seconds()
    result = await action
    return _seconds() - before, result


def _seconds() -> float:
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children(recursive=True)))
