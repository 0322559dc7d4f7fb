"""An int8 round trip of a model's matrices, for experiments: what a node that saves memory dishonestly computes with.

Each row of each two-dimensional weight is scaled to 255 levels and back (symmetric, per output channel), the usual
weight-only int8. Vectors (norms) stay. The folder keeps float32, so that every engine loads it as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder, open_folder
from troth.node.models.importing import save_tensors, staged
from troth.node.models.sources import TEXT_FILES
from troth.node.models.weights import read_tensors

if TYPE_CHECKING:
    import torch

Report = Callable[[str], None]


def quantise(source: ModelFolder, target: Path, bits: int, report: Report) -> ModelFolder:
    """Write a copy of `source` whose matrices went through `bits`-bit integers and back.

    Raises:
        ModelError: bits outside 2..8, or the target exists.
    """
    if not 2 <= bits <= 8:
        raise ModelError("bits must be from 2 to 8", bits, "Use --bits 8.")
    with staged(target) as staging:
        tensors = {name: round_trip(tensor, bits) for name, tensor in read_tensors(source, lambda name: True)}
        save_tensors(tensors, staging)
        for name in TEXT_FILES:
            if (source.path / name).is_file():
                shutil.copy2(source.path / name, staging / name)
    report(f"wrote {target}: {len(tensors)} tensors through int{bits}")
    return open_folder(target)


def round_trip(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """A matrix through symmetric per-row integers of `bits` bits and back; anything else unchanged."""
    if tensor.ndim != 2:
        return tensor.contiguous()
    levels = 2 ** (bits - 1) - 1
    scale = (tensor.float().abs().amax(dim=1, keepdim=True) / levels).clamp_min(1e-12)
    return ((tensor.float() / scale).round().clamp(-levels, levels) * scale).to(tensor.dtype).contiguous()
