"""How long a node computes: continuous batching with chunked prefill, in seconds per token.

    step = base + prefill · (prompt tokens in it) + context · (tokens of cache that its decoding requests read)

Two machines. `a100` is a roofline: Llama-3.1-8B in bf16 (16.06 GB, 131,072 bytes of cache a token) on an A100 of 80 GB,
half of 312 TFLOP/s in prefill and 80 % of 2.04 TB/s in decode. `cpu` is measured: SmolLM2 on vLLM, .93 ms a prompt
token (200, 500, 900 shared tokens: .20, .45, .84 s), decode 36 and 10.6 times that at batch 1 and 4, 3 at 32.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds as above; `running` requests decode at once, `step_tokens` of prompts fit a step.

    `blocks` of 32 tokens fit the cache.
    """

    name: str
    prefill: float
    base: float
    each: float
    context: float
    running: int = 32
    step_tokens: int = 2048
    blocks: int = 13_000


A100 = Machine("a100", 2 * 8.03e9 / (0.5 * 312e12), 16.06e9 / (0.8 * 2.04e12), 0.0, 131_072 / (0.8 * 2.04e12))
CPU = Machine("cpu", 0.93e-3, 34 * 0.93e-3, 1.94 * 0.93e-3, 0.0, running=32, step_tokens=2048, blocks=13_000)
MACHINES = {machine.name: machine for machine in (A100, CPU)}
