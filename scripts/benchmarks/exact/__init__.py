"""An exact class of two vLLM nodes: each engine is a process of its own, with other threads, chunks and company.

Honest roots must be equal for every task. Roots of 0.1 % other weights, of int8 weights, of a skipped layer and of a
text with one token changed must differ for every task. The second part measures what rows and fixed shapes cost.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.exact import folders
from benchmarks.exact.jobs import Claim, Job, Report
from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.node.engine.vllm.available import require_vllm

SCRIPTS = Path(__file__).resolve().parents[2]
TASKS, CHEAT_TASKS = 200, 60
HOUR = 3600.0


def measure(options: list[str] | None = None) -> list[Figure]:
    """Options: --tasks N, --cheats N, --dtype float32, --scratch FOLDER to go on where an earlier run was stopped."""
    count, cheats = _number(options, "--tasks", TASKS), _number(options, "--cheats", CHEAT_TASKS)
    dtype = 0 if options and "float32" in options else 1
    require_vllm()
    with tempfile.TemporaryDirectory(prefix="troth-exact-") as passing:
        scratch = Path(options[options.index("--scratch") + 1]) if options and "--scratch" in options else Path(passing)
        scratch.mkdir(parents=True, exist_ok=True)
        return _measure(scratch, count, min(cheats, count), dtype)


def _measure(scratch: Path, count: int, cheats: int, dtype: int) -> list[Figure]:
    model = weights()
    claims, probes = {}, {}
    honest = _run(scratch / "honest", Job(str(model.path), "", count, dtype, threads=1, step_tokens=256))
    claims["honest"], probes["honest"] = honest.claims, honest.probe
    claims["one token changed"] = [_changed(claim) for claim in honest.claims if len(claim.tokens) > 1][:cheats]
    for cheat in folders.CHEATS:
        folder = scratch / cheat.replace(" ", "-").replace("%", "percent")
        if not folder.exists():
            folders.write(model, folder, cheat)
        report = _run(
            scratch / folder.with_suffix(".run").name, Job(str(folder), "", cheats, dtype, threads=1, step_tokens=256)
        )
        claims[cheat], probes[cheat] = report.claims, report.probe
    job = Job(str(model.path), "", count, dtype, threads=2, step_tokens=512, at_once=8, claims=claims)
    verified = _run(scratch / "verifier", job)
    note = f"{('float32', 'bfloat16')[dtype]}, SmolLM2-135M, vLLM, CPU; 1 and 2 threads, chunks of 256 and 512"
    figures = [
        Figure("honest, roots equal", _share(verified, "honest", claims), "%", reach=100,
               note=f"{count} tasks, {note}"),
        *(
            Figure(f"{kind}, roots that differ", 100 - _share(verified, kind, claims), "%", reach=100,
                   note=f"{len(claims[kind])} tasks")
            for kind in claims if kind != "honest"
        ),
        Figure("honest, tokens replayed", 100 * verified.replayed["honest"] / verified.tokens["honest"], "%", reach=100,
               note=f"{verified.tokens['honest']} tokens, from the verifier's own logits"),
        Figure("prompt tokens from the cache, inferencer", 100 * honest.cached_tokens / honest.prompt_tokens, "%"),
        Figure("prompt tokens from the cache, verifier", 100 * verified.cached_tokens / verified.prompt_tokens, "%"),
        Figure("tasks with a chunked prefill", honest.chunked, "tasks", note="prompts of more than 256 tokens"),
        Figure("cheats whose probe is the class's", sum(probe == verified.probe for probe in probes.values()) - 1,
               "nodes", reach=0, note="of 3; they would not even start"),
    ]  # fmt: skip
    return figures + cost(model.path, dtype)


def cost(folder: Path, dtype: int) -> list[Figure]:
    """Processor time of the same texts with and without rows and fixed shapes, in turns in one run."""
    answer = _process([sys.executable, "-m", "benchmarks.exact.cost", str(folder), str(dtype)])
    return [Figure(**figure) for figure in msgspec.json.decode(answer)]


def _share(report: Report, kind: str, claims: dict[str, list[Claim]]) -> float:
    return 100 * len(report.equal.get(kind, [])) / len(claims[kind])


def _changed(claim: Claim) -> Claim:
    """The claim with another token at a random place but the last, from which no row is computed."""
    draw = np.random.default_rng(claim.number)
    place = int(draw.integers(len(claim.tokens) - 1))
    other = (claim.tokens[place] + 1 + int(draw.integers(1000))) % 49_152
    return Claim(claim.number, [*claim.tokens[:place], other, *claim.tokens[place + 1 :]], claim.root)


def _run(place: Path, job: Job) -> Report:
    path, out = place.with_suffix(".job"), place.with_suffix(".report")
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


def _number(options: list[str] | None, name: str, default: int) -> int:
    given = options or []
    return int(given[given.index(name) + 1]) if name in given else default
