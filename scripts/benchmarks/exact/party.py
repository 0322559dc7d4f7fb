"""One node's engine in a process of its own: `infer` writes texts and roots, `verify` repeats them in prefills.

Usage: python -m benchmarks.exact.party JOB.json, which holds a `Job`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.exact.jobs import Claim, Job, Report
from benchmarks.exact.tasks import Task, tasks, waves
from troth.node.engine.interface import TokenStep
from troth.node.engine.probe import probe
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.models.folder import open_folder
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Sampling, choices
from troth.protocol.trace import TileLayout
from troth.protocol.types import Hash32

MODEL = Hash32(b"exact".ljust(32, b"\0"))


async def carry_out(job: Job) -> Report:
    """Start the engine, do the job, end it."""
    folder = open_folder(Path(job.folder))
    settings = EngineSettings(
        folder.path, job.dtype, positions=1000, cache_bytes=1 << 29, threads=job.threads, step_tokens=job.step_tokens
    )
    engine = VllmEngine(folder, settings)
    work = tasks(job.count, engine.vocabulary, int(folder.config["eos_token_id"]))
    try:
        report = Report(await probe(engine))
        report.chunked = sum(len(task.request.prompt_tokens) > job.step_tokens for task in work)
        before = engine.load
        if job.claims:
            await _verify(engine, work, job, report)
        else:
            for wave in waves(work):
                report.claims += await asyncio.gather(*(_infer(engine, task) for task in wave))
        report.cached_tokens = engine.load.cached_tokens - before.cached_tokens
        report.prompt_tokens = engine.load.prompt_tokens - before.prompt_tokens
        return report
    finally:
        await engine.close()


async def _infer(engine: VllmEngine, task: Task) -> Claim:
    steps: list[TokenStep] = [step async for step in engine.generate(task.request, task.seed)]
    rows = np.concatenate([step.rows for step in steps])
    return Claim(task.number, [step.token for step in steps], _root(task, rows, engine.dtype))


async def _verify(engine: VllmEngine, work: list[Task], job: Job, report: Report) -> None:
    """All claims, `at_once` at a time, while other texts are written beside them."""
    gate = asyncio.Semaphore(job.at_once)
    disturbing = asyncio.create_task(_disturb(engine, work))

    async def one(kind: str, claim: Claim) -> None:
        async with gate:
            task = work[claim.number]
            text = [*task.request.prompt_tokens, *claim.tokens[:-1]]
            rows = (await engine.prefill(text)).rows
            if _root(task, rows, engine.dtype) == claim.root:
                report.equal.setdefault(kind, []).append(claim.number)
            first = len(task.request.prompt_tokens) - 1
            logits = (await engine.logits(rows[first:])).rows
            own = await asyncio.to_thread(
                choices, logits, Sampling.of(task.request), seed=task.seed, first_position=first
            )
            same = sum(left == right for left, right in zip(own, claim.tokens, strict=True))
            report.replayed[kind] = report.replayed.get(kind, 0) + same
            report.tokens[kind] = report.tokens.get(kind, 0) + len(own)

    try:
        await asyncio.gather(*(one(kind, claim) for kind, claims in job.claims.items() for claim in claims))
    finally:
        disturbing.cancel()
        await asyncio.gather(disturbing, return_exceptions=True)


async def _disturb(engine: VllmEngine, work: list[Task]) -> None:
    while True:
        for task in work:
            other = Task(task.number + 100_000, task.request)
            async for _ in engine.generate(other.request, other.seed):
                pass


def _root(task: Task, rows: NDArray[Any], dtype: int) -> str:
    layout = TileLayout(task.task_id, MODEL, len(rows), rows.shape[1], Dtype(dtype))
    return layout.commit(rows).root.hex()


def main() -> None:
    """Read the job, write the report."""
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job)
    report = asyncio.run(carry_out(job))
    Path(job.out).write_bytes(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
