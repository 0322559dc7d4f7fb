"""Classes that name their head: which models can, and machines whose logits are something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.wrong_token_scene import HEAD, head_matrix, write_model

from troth.node.engine.head import head_gap, head_tensor, require_head
from troth.node.engine.interface import Computed
from troth.node.engine.probe import probe_of
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.node.models.tensor_files import raw_tensors
from troth.protocol.errors import WireError
from troth.protocol.exact_numbers import round_bits
from troth.protocol.market.heads import head_of, with_head, without_head
from troth.protocol.tensors import Dtype, rows_to_bytes, widen
from troth.protocol.types import Segment

pytestmark = pytest.mark.torch

WHOLE = Segment(0, 2)
Logits = Callable[[NDArray[Any]], NDArray[Any]]


def as_bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return round_bits(np.ascontiguousarray(values).view(np.uint32).astype(np.int64)).astype(np.uint32).view(np.float32)


@dataclass
class Headed:
    """An engine with a head and nothing else."""

    folder: ModelFolder
    made: Logits
    dtype: int = 0
    slice: Segment = WHOLE
    layers: int = 2
    hidden_size: int = 128

    async def logits(self, rows: NDArray[Any]) -> Computed:
        weights = head_matrix(self.folder)
        weights = weights if self.dtype == 0 else as_bfloat16(weights)
        return Computed(self.made(widen(rows, Dtype(self.dtype)) @ weights.T), 0.0)


@dataclass(frozen=True)
class Named:
    name: str = with_head("toy", HEAD)
    dtype: int = 0
    exact: bool = False


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    return write_model(tmp_path / "model")


async def test_machines_that_sum_in_float32_serve(folder: ModelFolder) -> None:
    await require_head(Headed(folder, lambda found: found), Named(), folder)  # type: ignore[arg-type]
    await require_head(Headed(folder, as_bfloat16, dtype=1), Named(dtype=1), folder)  # type: ignore[arg-type]
    tensor = next(one for one in raw_tensors(folder.path) if one.name == HEAD)
    assert (await head_gap(Headed(folder, lambda found: found), tensor)).share < 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "made",
    [
        lambda found: 30 * np.tanh(found / 30),
        lambda found: found * np.float32(1.001),
        lambda found: found + np.float32(0.5) * (np.arange(found.shape[1]) == 7),
        as_bfloat16,
    ],
    ids=["soft cap", "scale", "bias of one token", "fewer bits"],
)
async def test_a_machine_whose_logits_are_something_else_does_not_start(folder: ModelFolder, made: Logits) -> None:
    with pytest.raises(ModelError, match="not products"):
        await require_head(Headed(folder, made), Named(), folder)  # type: ignore[arg-type]
    # A class that names no head, and a slice without one, promise nothing.
    await require_head(Headed(folder, made), Named("toy"), folder)  # type: ignore[arg-type]
    await require_head(Headed(folder, made, slice=Segment(0, 1)), Named(), folder)  # type: ignore[arg-type]


async def test_a_head_that_the_model_does_not_have_is_refused(folder: ModelFolder) -> None:
    with pytest.raises(ModelError, match="does not have"):
        await require_head(Headed(folder, as_bfloat16), Named(with_head("toy", "other")), folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"final_logit_softcapping": 30.0}, {"logits_scaling": 8.0}, {"tie_word_embeddings": False}, {"vocab_size": 95}],
)
def test_only_plain_heads_are_named(folder: ModelFolder, change: dict[str, Any]) -> None:
    assert head_tensor(folder) == HEAD
    (folder.path / "config.json").write_text(json.dumps({**folder.config, **change}))
    assert head_tensor(folder) == ""


def test_names_say_the_head_and_people_do_not_see_it() -> None:
    assert (head_of("a/b/head:x.weight"), without_head("a/b/head:x.weight")) == ("x.weight", "a/b")
    assert (head_of("a/b"), without_head("a/b"), with_head("a/b", "")) == ("", "a/b", "a/b")
    assert probe_of(with_head("tiny/torch/probe-00ff", HEAD)) == "00ff"


@pytest.mark.parametrize("value", [2.0**40, -(2.0**40), np.inf, np.nan])
def test_nobody_signs_what_is_no_state(value: float) -> None:
    rows = np.ones((2, 8), np.float32)
    rows_to_bytes(rows * np.float32(2.0**39), Dtype.FLOAT32)
    rows[1, 3] = value
    with pytest.raises(WireError, match="NaN or infinity"):
        rows_to_bytes(rows, Dtype.FLOAT32)
    with pytest.raises(WireError, match="NaN or infinity"):
        rows_to_bytes((rows.view(np.uint32) >> 16).astype(np.uint16), Dtype.BFLOAT16)
