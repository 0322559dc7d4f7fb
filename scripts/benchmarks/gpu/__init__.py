"""What a graphics card computes, in three parts of at most eight minutes that nobody has to watch.

- kernels: whether rows of vLLM's own Triton kernels (products, attention, norm) depend on their batch, over the shapes
  at which kernels change, and their speed beside torch's libraries.
- engine: the torch engine at the shape of an 8B model with random weights: its probe in two processes, tokens a second,
  and what a check costs over an inference.
- choice: tokens that the batched choice takes otherwise than the protocol's rule, and how long a step takes.

The machine needs torch and triton, and no network: `--pack FOLDER` makes what it lacks elsewhere (see the README).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.figures import Figure

PARTS = ("kernels", "engine", "choice")
SECONDS = 480.0
"""Of a part: what it has not measured by then is left out, and told."""


class Deadline:
    """When a part has to end."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._until = clock, clock() + seconds
        self.left_out: list[str] = []

    @property
    def passed(self) -> bool:
        """Whether nothing more may be begun."""
        return self._clock() >= self._until

    def allows(self, what: str) -> bool:
        """Whether to begin something; what it does not allow is noted."""
        if self.passed:
            self.left_out.append(what)
        return not self.passed

    def note(self, part: str) -> Iterator[Figure]:
        """How much was left out."""
        shown = ", ".join(self.left_out[:8]) + (" and more" if len(self.left_out) > 8 else "")
        yield Figure(f"left out of {part} for want of time", len(self.left_out), "measurements", reach=0, note=shown)


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """The figures of all parts, or of those that are named."""
    parser = argparse.ArgumentParser(prog="scripts/bench gpu", description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes: a dry run, also on a CPU")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--pack", type=Path, help="write what the machine lacks into a folder, and measure nothing")
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="of that machine")
    asked = parser.parse_args(list(options))
    if asked.pack is not None:
        from benchmarks.gpu.luggage import pack

        return [Figure("packed", pack(asked.pack, asked.python) / (1 << 20), "MiB", reach=64, note=str(asked.pack))]
    _require_device(asked.device)
    # As vLLM sets them in its batch-invariant mode, before CUDA is begun: products are then never split.
    os.environ.update({"CUBLAS_WORKSPACE_CONFIG": ":16:8", "CUBLASLT_WORKSPACE_SIZE": "1", "VLLM_BATCH_INVARIANT": "1"})
    figures = [Figure("machine", 0.0, "", note=_machine(asked.device))]
    for part in asked.part or PARTS:
        deadline = Deadline(asked.seconds)
        print(f"  {part}", file=sys.stderr, flush=True)
        try:
            figures += importlib.import_module(f"benchmarks.gpu.{part}").measure(
                asked.device, deadline, tiny=asked.tiny
            )
        except ImportError as error:
            # The other parts may need less.
            figures.append(Figure(f"{part} was not measured", 1, "parts", reach=0, note=str(error)))
        figures += deadline.note(part)
    return figures


def _require_device(device: str) -> None:
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(
            f"torch {torch.__version__} finds no CUDA card here. "
            "For a dry run without one: TRITON_INTERPRET=1 scripts/bench gpu --tiny --device cpu"
        )


def _machine(device: str) -> str:
    import torch

    name = torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
    try:
        triton = importlib.import_module("triton").__version__
    except ImportError:
        triton = "none"
    return f"{name}, torch {torch.__version__}, triton {triton}"
