"""The head of a model: which tensor makes logits, its rows as numbers, and whether an engine's logits are no more.

A class that names its head (`troth.protocol.market.heads`) promises that a logit is the product of a post-norm row and
one row of that tensor, summed in float32 in whatever order. Then a token that loses by more than such sums can differ
convicts its node. So a node looks at its own logits before it serves such a class: a soft cap, a scale, a bias or
arithmetic with fewer bits would convict an honest machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Arithmetic, Engine
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.node.models.tensor_files import RawTensor, pieces, raw_tensors, read_rows
from troth.protocol.exact_numbers import COLUMNS_AT_ONCE, round_bits
from troth.protocol.market.heads import head_of
from troth.protocol.tensors import Dtype, widen

HEADS = ("lm_head.weight", "output.weight", "embed_out.weight")
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
OTHER_HEADS = frozenset({
    "final_logit_softcapping", "logits_scaling", "logit_scale", "lm_head_multiplier", "output_multiplier_scale",
})  # fmt: skip
"""What in a configuration says that logits are made otherwise."""
READ = frozenset({"F32", "BF16"})
TRIED_ROWS = 8
TRIED_SCALE = 8.0
"""Standard deviation of the rows that are tried: logits reach what trained models reach, where a cap would show."""
LEAST = 2.0**-24


def head_tensor(folder: ModelFolder) -> str:
    """The tensor whose rows make the logits; empty where the model's head is not one that proofs read."""
    config = folder.text_config
    if any(config.get(key) not in {None, 1} for key in OTHER_HEADS):
        return ""
    shape = (int(config["vocab_size"]), int(config["hidden_size"]))
    endings = EMBEDDINGS if config.get("tie_word_embeddings", False) else HEADS
    tensors = raw_tensors(folder.path)
    if any(tensor.name.endswith("lm_head.bias") for tensor in tensors):
        return ""
    found = [one for one in tensors if one.name.endswith(endings) and one.shape == shape and one.rows == shape[0]]
    return found[0].name if len(found) == 1 and found[0].dtype in READ and shape[1] % COLUMNS_AT_ONCE == 0 else ""


def find_head(folder: ModelFolder, name: str) -> RawTensor:
    """The tensor of a name; ModelError where the folder has none."""
    for tensor in raw_tensors(folder.path):
        if tensor.name == name:
            return tensor
    raise ModelError("the class names a head that this model does not have", name, "Serve another class.")


def head_numbers(tensor: RawTensor, dtype: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The head in pieces of rows, each with the number of its first row, in the class' dtype, widened to float32."""
    for first, end in pieces(tensor):
        yield first, weight_numbers(bytes(read_rows(tensor, first, end)), tensor, dtype).reshape(end - first, -1)


def weight_numbers(data: bytes, tensor: RawTensor, dtype: int) -> NDArray[np.float32]:
    """Numbers of a file as an engine of this dtype has them, widened to float32."""
    if tensor.dtype == "BF16":
        return widen(np.frombuffer(data, "<u2"), Dtype.BFLOAT16)
    if dtype == Dtype.FLOAT32:
        return np.frombuffer(data, "<f4").astype(np.float32, copy=False)
    return round_bits(np.frombuffer(data, "<u4").astype(np.int64)).astype(np.uint32).view(np.float32)


class HeadGap(NamedTuple):
    """The largest distance of a logit from its exact value, as a share of what honest machines may differ by."""

    share: float
    token: int


async def require_head(engine: Engine, execution_class: Arithmetic, folder: ModelFolder) -> None:
    """Check the head that a class names; one that names none needs nothing, nor does a slice without the head.

    Raises:
        ModelError: this engine's logits are not the products that the class promises, so that serving could convict.
    """
    name = head_of(execution_class.name)
    if not name or engine.slice.end != engine.layers:
        return
    gap = await head_gap(engine, find_head(folder, name))
    if gap.share > 1:
        what = f"logits here are not products with {name}: token {gap.token} is off by {gap.share:.1f} times too much"
        raise ModelError(what, execution_class.name, "Serve a class without a named head, or turn off fast modes.")


async def head_gap(engine: Engine, tensor: RawTensor) -> HeadGap:
    """How far an engine's logits of public rows are from the exact ones."""
    rows = _tried(engine)
    logits = (await engine.logits(rows)).rows.astype(np.float64)
    state = widen(rows, Dtype(engine.dtype)).astype(np.float64)
    worst = HeadGap(0.0, 0)
    for first, weights in head_numbers(tensor, engine.dtype):
        wide = weights.astype(np.float64)
        exact, size = state @ wide.T, np.abs(state) @ np.abs(wide).T
        slack = slack_of(exact, size, state.shape[1], engine.dtype)
        shares = np.abs(logits[:, first : first + len(wide)] - exact) / slack
        at = np.unravel_index(int(np.argmax(shares)), shares.shape)
        if shares[at] > worst.share:
            worst = HeadGap(float(shares[at]), first + int(at[1]))
    return worst


def slack_of(exact: NDArray[np.float64], size: NDArray[np.float64], terms: int, dtype: int) -> NDArray[np.float64]:
    """`ExactProduct.slack` of many products, in logits."""
    found: NDArray[np.float64] = size * ((terms + 2 + terms // 128) * 2.0**-24) + LEAST
    return found if dtype == Dtype.FLOAT32 else found + (np.abs(exact) + found) * 2.0**-8


def _tried(engine: Engine) -> NDArray[Any]:
    generator = np.random.Generator(np.random.Philox(key=np.array([0, 2], np.uint64)))
    rows = (TRIED_SCALE * generator.standard_normal((TRIED_ROWS, engine.hidden_size))).astype(np.float32)
    return rows if engine.dtype == Dtype.FLOAT32 else (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
