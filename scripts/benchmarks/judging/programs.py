"""Another program than torch: vLLM verifies the worst finds of the hunt, and writes texts to their prompts itself.

Engines of the hunt are emulations in torch. Here the judge is what a node of vLLM runs, with all its looks; and vLLM's
own rows are judged by a node of torch. What was judged is kept, a line each, so that a run goes on where it was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.judging.corpus import SEED
from benchmarks.judging.engines import engines
from benchmarks.judging.hunt import WRITTEN, Find
from troth.node.calibration.generating import words
from troth.node.calibration.intervals import share
from troth.node.calibration.stack import Stack
from troth.node.engine.interface import Engine, SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.judging.verdicts import judge_rows
from troth.node.models.folder import ModelFolder
from troth.protocol.market.types import ExecutionClass
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Sampling, choose, noise
from troth.protocol.types import ZERO_HASH, Hash32, Segment

MILLION = 1_000_000
FAMILY = 2
"""Finds of one engine that begin with the same id: the rest of a family falls as these do."""
POSITIONS, CACHE_BYTES = 256, 1 << 28
VERIFIES, CLAIMS = "vLLM verifies what other engines claim", "torch verifies what vLLM claims"


@dataclass(frozen=True, slots=True)
class Text:
    """What a node claims: its tokens, and a row for each position."""

    request: Request
    seed: Hash32
    tokens: tuple[int, ...]
    rows: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict on one find: its larger score over the cut, whether it is brought to court, and what cannot be told."""

    who: str
    score: float
    refused: bool
    court: bool
    unsure: bool


@dataclass(frozen=True, slots=True)
class Programs:
    """The engines of both sides; ``path``: what was judged so far."""

    folder: ModelFolder
    rules: ExecutionClass
    path: Path

    def run(self, finds: Sequence[Find], most: int, report: Callable[[str], None]) -> list[Said]:
        """Judge so many of the worst finds, both ways round."""
        return asyncio.run(self._run(worst_of_families(finds, most), report))

    async def _run(self, finds: Sequence[Find], report: Callable[[str], None]) -> list[Said]:
        known = [Said(**json.loads(line)) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        settings = EngineSettings(
            self.folder.path, 1, positions=POSITIONS, cache_bytes=CACHE_BYTES, threads=1, exact=False
        )
        of_vllm, of_torch = VllmEngine(self.folder, settings), TorchEngine(self.folder, self._whole, 1, threads=1)
        try:
            for number in range(len(known) // 2, len(finds)):
                claimed = self._claimed(finds[number], number)
                own = await _written(of_vllm, claimed.request, claimed.seed)
                found = [await self._judged(of_vllm, claimed, VERIFIES), await self._judged(of_torch, own, CLAIMS)]
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("".join(json.dumps(asdict(one)) + "\n" for one in found))
                known += found
                refused = sum(one.refused for one in known)
                report(f"{number + 1} of {len(finds)}, {refused} refused, worst {max(one.score for one in known):.2f}")
        finally:
            await of_vllm.close()
            await of_torch.close()
        return known

    @property
    def _whole(self) -> Segment:
        return Segment(0, self.folder.layers)

    def _claimed(self, find: Find, number: int) -> Text:
        stack, seed = _stack(self.folder, find.way), Hash32(SEED.to_bytes(16) + number.to_bytes(16))
        sampling = Sampling(find.temperature, find.top_p)
        request = Request(
            ZERO_HASH, find.tokens, WRITTEN, round(find.temperature * MILLION), round(find.top_p * MILLION), ()
        )
        cache, given, start, tokens, rows = stack.cache(), list(find.tokens), 0, list[int](), list[Any]()
        with torch.inference_mode():
            for _ in range(WRITTEN):
                states = stack.forward(stack.embed(torch.tensor([given])), self._whole, cache, start)
                start += len(given)
                logits = stack.logits(states[0, -1:]).numpy()[0]
                gumbel = noise(seed, start - 1, len(logits)) if sampling.temperature > 0 else None
                tokens.append(choose(logits, sampling, gumbel))
                rows.append(words(states, 1)[0])
                given = tokens[-1:]
        return Text(request, seed, tuple(tokens), np.concatenate(rows))

    async def _judged(self, engine: Engine, text: Text, who: str) -> Said:
        inputs, key = np.array([*text.request.prompt_tokens, *text.tokens[:-1]]), SessionKey(text.seed, 0, 0)
        own = (await engine.forward(key, self._whole, 0, inputs)).rows
        await engine.forget(key)
        seat = SimpleNamespace(
            execution_class=self.rules, layers=self._whole, dtype=Dtype.BFLOAT16, is_last=True, request=text.request,
            prompt_positions=len(text.request.prompt_tokens), noise_seed=text.seed,
        )  # fmt: skip
        session: Any = SimpleNamespace(
            seat=seat, tokens=text.tokens, all_inputs=lambda: inputs, all_outputs=lambda: own
        )
        found = await judge_rows(engine, session, text.rows, root_matches=True)
        tokens = found.tokens
        lost = 0.0 if tokens is None else tokens.score / tokens.cut
        told = tokens is None or tokens.told
        return Said(
            who, max(found.states.cuts, lost if told else 0.0), found.refused, found.for_a_court, lost > 1 and not told
        )  # fmt: skip


@cache
def _stack(folder: ModelFolder, name: str) -> Stack:
    way = next(one for one in engines(1) if one.name == name)
    stack = Stack(folder, torch.bfloat16, attention=way.attention)
    if way.change is not None:
        way.change(stack)
    return stack


async def _written(engine: VllmEngine, request: Request, seed: Hash32) -> Text:
    steps = [step async for step in engine.generate(request, seed)]
    return Text(request, seed, tuple(step.token for step in steps), np.concatenate([step.rows for step in steps]))


def worst_of_families(finds: Sequence[Find], most: int) -> list[Find]:
    """By how close they came at the second look; those whose client drew tokens level are left out."""
    names, found, families = {way.name for way in engines(1)}, list[Find](), dict[tuple[str, int], int]()
    for one in sorted(finds, key=lambda one: -one.closest):
        family = (one.way, one.tokens[0])
        if one.levelled or one.own or one.way not in names or families.get(family, 0) >= FAMILY or one in found:
            continue
        families[family] = families.get(family, 0) + 1
        found.append(one)
        if len(found) == most:
            break
    return found


def program_figures(
    programs: Programs, finds: Sequence[Find], most: int, report: Callable[[str], None]
) -> Iterator[Figure]:
    """Honest texts refused, both ways round."""
    said = programs.run(finds, most, report)
    for who in (VERIFIES, CLAIMS):
        mine = [one for one in said if one.who == who]
        refused, court = sum(one.refused for one in mine), sum(one.court for one in mine)
        note = (
            f"of {len(mine)} (at most {100 * share(refused, len(mine)).high:.1f} %); {court} brought to court, "
            f"{sum(one.unsure for one in mine)} not told; worst {max(one.score for one in mine):.2f} of the cut"
        )
        yield Figure(f"honest refused, bfloat16: {who}", refused, "tasks", reach=0, note=note)
