"""Reading safetensors: only the tensors asked for, mapped from disk rather than copied where the dtype allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.node.models.tensor_files import raw_tensors

if TYPE_CHECKING:
    import torch

TIED_HEAD = "lm_head.weight"
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})


def read_tensors(folder: ModelFolder, wanted: Callable[[str], bool]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors whose name is wanted, in the dtype of the file, on the CPU."""
    from safetensors import safe_open

    with ExitStack() as opened:
        for path in folder.weight_files:
            file = opened.enter_context(safe_open(path, framework="pt", device="cpu"))
            for name in sorted(file.keys()):
                if wanted(name):
                    yield name, file.get_tensor(name)


def tensor_names(folder: ModelFolder) -> list[str]:
    """Names of all tensors that count as weights: a head tied to the embedding is not counted twice."""
    tied = bool(folder.config.get("tie_word_embeddings"))
    return [one.name for one in raw_tensors(folder.path) if not (tied and one.name == TIED_HEAD)]


def weight_rows(folder: ModelFolder, dtype: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every tensor as a matrix of rows in the descriptor's dtype; bfloat16 comes as its 16-bit words.

    Raises:
        ModelError: a tensor is none of floats: as numbers, what is packed in it would be lost.
    """
    import torch

    names = set(tensor_names(folder))
    for one in raw_tensors(folder.path):
        if one.dtype not in FLOATS:
            what = "the weights root of version 1 says nothing of quantised weights"
            raise ModelError(what, f"{one.name}: {one.dtype}", "Register the model again.")
    for name, tensor in read_tensors(folder, names.__contains__):
        rows = tensor.reshape(-1, tensor.shape[-1])
        if dtype == 0:
            yield name, rows.to(torch.float32).numpy()
        else:
            yield name, rows.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
