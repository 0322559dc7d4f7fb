"""Model folders of dishonest nodes: other weights, int8 weights, a layer less. vLLM loads them like any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from troth.node.models.folder import ModelFolder
from troth.node.models.quantise import round_trip
from troth.node.models.sources import TEXT_FILES
from troth.node.models.weights import read_tensors

Weights = dict[str, torch.Tensor]
SKIPPED = 15
DISTURBANCE = 1e-3


def disturbed(weights: Weights) -> Weights:
    """Every matrix times 1 + 0.1 % of a standard normal."""
    generator = torch.Generator().manual_seed(20260101)
    return {
        name: tensor * (1 + DISTURBANCE * torch.randn(tensor.shape, generator=generator))
        if tensor.ndim == 2
        else tensor
        for name, tensor in weights.items()
    }


def int8(weights: Weights) -> Weights:
    """Every matrix through int8 and back."""
    return {name: round_trip(tensor, 8) for name, tensor in weights.items()}


def shortened(weights: Weights) -> Weights:
    """One layer in the middle left out; those after it move down."""
    made = {}
    for name, tensor in weights.items():
        parts = name.split(".")
        if name.startswith("model.layers."):
            number = int(parts[2])
            if number == SKIPPED:
                continue
            parts[2] = str(number - (number > SKIPPED))
        made[".".join(parts)] = tensor
    return made


CHEATS: dict[str, Callable[[Weights], Weights]] = {
    "0.1 % weight change": disturbed,
    "int8 weights": int8,
    "a skipped layer": shortened,
}


def write(source: ModelFolder, target: Path, cheat: str) -> None:
    """Write the folder that a cheat serves."""
    target.mkdir(parents=True)
    weights = {name: tensor.float() for name, tensor in read_tensors(source, lambda name: True)}
    changed = CHEATS[cheat](weights)
    save_file({name: tensor.contiguous() for name, tensor in changed.items()}, target / "model.safetensors")
    for name in TEXT_FILES:
        if (source.path / name).is_file():
            shutil.copy2(source.path / name, target / name)
    config = source.config
    config["num_hidden_layers"] -= cheat == "a skipped layer"
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
