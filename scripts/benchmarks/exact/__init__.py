"""An exact class of two vLLM nodes: each engine is a process of its own, with other threads, chunks and company.

Honest roots must be equal for every task. Roots of 0.1 % other weights, of int8 weights, of a skipped layer and of a
text with one token changed must differ for every task. The second part measures what rows and fixed shapes cost.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.exact import folders, torch_shapes
from benchmarks.exact.jobs import Claim, Job, Report
from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.node.engine.vllm.installing import require_vllm

SCRIPTS = Path(__file__).resolve().parents[2]
TASKS, CHEAT_TASKS = 200, 40
CHANGED = "one token changed"
HOUR = 3600.0


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """The figures of both parts; a scratch folder that is named goes on where an earlier run was stopped."""
    parser = argparse.ArgumentParser(prog="scripts/bench exact", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS, help="texts whose roots are compared")
    parser.add_argument("--cheats", type=int, default=CHEAT_TASKS, help="of them also with each cheat")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--scratch", type=Path, help="a folder that is kept: a run that was stopped goes on there")
    chosen = parser.parse_args(options)
    dtype = int(chosen.dtype == "bfloat16")
    require_vllm()
    with tempfile.TemporaryDirectory(prefix="troth-exact-") as passing:
        scratch = chosen.scratch or Path(passing)
        scratch.mkdir(parents=True, exist_ok=True)
        outcome = play(scratch, chosen.tasks, min(chosen.cheats, chosen.tasks), dtype)
        return figures_of(outcome, dtype) + cost(weights().path, dtype) + torch_shapes.measure(weights())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was claimed, by kind; what the inferencers and the verifier found; the probes of all kinds' machines."""

    claims: dict[str, list[Claim]]
    honest: Report
    verified: Report
    probes: dict[str, str]

    def equal(self, kind: str) -> int:
        """How many roots of a kind are the verifier's."""
        return len(self.verified.equal.get(kind, []))

    def share(self, kind: str) -> float:
        """The same in per cent."""
        return 100 * self.equal(kind) / len(self.claims[kind])


def play(scratch: Path, count: int, cheats: int, dtype: int, kinds: Sequence[str] = tuple(folders.CHEATS)) -> Outcome:
    """Infer `count` tasks honestly and the first `cheats` of them by each kind of cheat, and verify all of them."""
    model = weights()
    honest = _run(scratch, "honest", Job(str(model.path), "", count, dtype, threads=1, step_tokens=256))
    claims, probes = {"honest": honest.claims}, {"honest": honest.probe}
    claims[CHANGED] = [_changed(claim) for claim in honest.claims if len(claim.tokens) > 1][:cheats]
    for number, kind in enumerate(kinds):
        folder = scratch / f"cheat-{number}"
        if not folder.exists():
            folders.write(model, folder, kind)
        report = _run(scratch, folder.name, Job(str(folder), "", cheats, dtype, threads=1, step_tokens=256))
        claims[kind], probes[kind] = report.claims, report.probe
    job = Job(str(model.path), "", count, dtype, threads=2, step_tokens=512, at_once=8, claims=claims)
    return Outcome(claims, honest, _run(scratch, "verifier", job), probes)


def figures_of(outcome: Outcome, dtype: int) -> list[Figure]:
    """The table's rows."""
    honest, verified, made = outcome.honest, outcome.verified, []
    note = f"{('float32', 'bfloat16')[dtype]}, SmolLM2-135M, vLLM, CPU; 1 and 2 threads, chunks of 256 and 512"
    for kind, claims in outcome.claims.items():
        if kind == "honest":
            told = f"{len(claims)} tasks, {note}"
            made.append(Figure("honest, roots equal", outcome.share(kind), "%", reach=100, note=told))
        else:
            differ = 100 - outcome.share(kind)
            made.append(Figure(f"{kind}, roots that differ", differ, "%", reach=100, note=f"{len(claims)} tasks"))
    replayed, tokens = verified.replayed["honest"], verified.tokens["honest"]
    belong = sum(outcome.probes[kind] == verified.probe for kind in outcome.probes if kind != "honest")
    told = f"{tokens} tokens, from the verifier's own logits"
    return [
        *made,
        Figure("honest, tokens replayed", 100 * replayed / tokens, "%", reach=100, note=told),
        Figure("prompt tokens from the cache, inferencer", _cached(honest), "%"),
        Figure("prompt tokens from the cache, verifier", _cached(verified), "%"),
        Figure("tasks with a chunked prefill", honest.chunked, "tasks", note="prompts of more than 256 tokens"),
        Figure("cheats whose machine has the class's probe", belong, "nodes", reach=0, note="they would not start"),
    ]


def _cached(report: Report) -> float:
    return 100 * report.cached_tokens / report.prompt_tokens


def cost(folder: Path, dtype: int) -> list[Figure]:
    """Processor time of the same texts with and without rows and fixed shapes, in turns in one run."""
    answer = _process([sys.executable, "-m", "benchmarks.exact.cost", str(folder), str(dtype)])
    return [Figure(**figure) for figure in msgspec.json.decode(answer)]


def _changed(claim: Claim) -> Claim:
    """The claim with another token at a random place but the last, from which no row is computed."""
    draw = np.random.default_rng(claim.number)
    place = int(draw.integers(len(claim.tokens) - 1))
    other = (claim.tokens[place] + 1 + int(draw.integers(1000))) % 49_152
    return Claim(claim.number, [*claim.tokens[:place], other, *claim.tokens[place + 1 :]], claim.root)


def _run(scratch: Path, name: str, job: Job) -> Report:
    path, out = scratch / f"{name}.job", scratch / f"{name}.report"
    if not out.exists():
        job.out = str(out)
        path.write_bytes(msgspec.json.encode(job))
        _process([sys.executable, "-m", "benchmarks.exact.party", str(path)])
    return msgspec.json.decode(out.read_bytes(), type=Report)


def _process(command: list[str]) -> bytes:
    environment = os.environ | {
        "OMP_WAIT_POLICY": "passive",
        "PYTHONPATH": os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, timeout=HOUR).stdout
