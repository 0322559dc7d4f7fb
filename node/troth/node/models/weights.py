"""Reading safetensors: only the tensors asked for, mapped from disk rather than copied where the dtype allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from troth.node.models.folder import ModelFolder

if TYPE_CHECKING:
    import torch

TIED_HEAD = "lm_head.weight"


def read_tensors(folder: ModelFolder, wanted: Callable[[str], bool]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors whose name is wanted, in the dtype of the file, on the CPU."""
    from safetensors import safe_open

    with ExitStack() as opened:
        for path in folder.weight_files:
            file = opened.enter_context(safe_open(path, framework="pt", device="cpu"))
            for name in sorted(file.keys()):
                if wanted(name):
                    yield name, file.get_tensor(name)


def all_names(folder: ModelFolder) -> list[str]:
    """Names of all tensors in the files, each as often as it is there."""
    from safetensors import safe_open

    names: list[str] = []
    for path in folder.weight_files:
        with safe_open(path, framework="pt", device="cpu") as file:
            names.extend(file.keys())
    return names


def tensor_names(folder: ModelFolder) -> list[str]:
    """Names of all tensors that count as weights: a head tied to the embedding is not counted twice."""
    from safetensors import safe_open

    names: list[str] = []
    for path in folder.weight_files:
        with safe_open(path, framework="pt", device="cpu") as file:
            names.extend(file.keys())
    tied = bool(folder.config.get("tie_word_embeddings"))
    return sorted(name for name in names if not (tied and name == TIED_HEAD))


def weight_rows(folder: ModelFolder, dtype: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every tensor as a matrix of rows in the descriptor's dtype; bfloat16 comes as its 16-bit words."""
    import torch

    names = set(tensor_names(folder))
    for name, tensor in read_tensors(folder, names.__contains__):
        rows = tensor.reshape(-1, tensor.shape[-1])
        if dtype == 0:
            yield name, rows.to(torch.float32).numpy()
        else:
            yield name, rows.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def total_bytes(folder: ModelFolder, dtype: int) -> int:
    """Bytes of all weights in the descriptor's dtype, from the files' headers alone."""
    from safetensors import safe_open

    names = set(tensor_names(folder))
    elements = 0
    for path in folder.weight_files:
        with safe_open(path, framework="pt", device="cpu") as file:
            elements += sum(int(np.prod(file.get_slice(name).get_shape())) for name in names & set(file.keys()))
    return elements * (4 if dtype == 0 else 2)
