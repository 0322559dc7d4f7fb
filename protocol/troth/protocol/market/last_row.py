"""The last row of an answered order, opened against what its node signed: the state that an embedding is.

A result's output head is the salted hash of the chain of all rows (``rows``, ``checks.head``), and the last link names
the last row and the link before it. So one row, one link and the salt open it, and whoever opens another row would need
a collision of keccak. It is the row that verifiers are shown and compare when the order is drawn, since they follow the
same chain to the same head before they judge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from troth.protocol.comparison import Tolerance, single_row_factor
from troth.protocol.errors import InvalidRows
from troth.protocol.market import checks, prices
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Result
from troth.protocol.market.types import Rules
from troth.protocol.tensors import Dtype, row_size, rows_from_bytes, widen
from troth.protocol.types import Hash32


@dataclass(frozen=True, slots=True)
class LastRow:
    """The last row of the last segment, little-endian in the class's number format; the link before it; the salt of
    the order's heads."""

    row: bytes
    previous: Hash32
    head_salt: Hash32


def row_tolerance(rules: Tolerance) -> float:
    """How far a single row may be from the verifiers' own and still pass a check, relative to its size.

    0 in an exact class. In float32 a row alone is refused beyond ``single_row_factor`` cuts. A tolerant bfloat16 class
    measures in its own rounding, twenty cuts of which are as far as the state of another text: infinity.
    """
    if rules.exact:
        return 0.0
    if Dtype(rules.dtype) is not Dtype.FLOAT32:
        return math.inf
    return rules.state_cut / 1_000_000 * single_row_factor(rules)


def require_last_row(
    shown: LastRow, result: Result, rules: Rules, prompt: Sequence[int], answer: Sequence[int]
) -> NDArray[np.float32]:
    """The last row as numbers, shape (hidden size,), once it is the one that ``result`` commits to.

    Args:
        result: that of the last segment, its signature checked.
        prompt, answer: the order's tokens: the first segment's rows bind what they were computed from.

    Raises:
        WireError: another size, or states that are no numbers.
        InvalidRows: another row, link or salt than the node signed.
    """
    dtype, width = Dtype(rules.dtype), rules.hidden_size
    (row,) = rows_from_bytes(shown.row, 1, width, dtype)
    last = prices.positions(result) - 2
    before = RowHashes(result.order, result.segment, last, shown.previous)
    tokens = None if result.segment else [(*prompt, *answer)[last]]
    chain, _ = before.extend(shown.row, row_size(width, dtype), tokens)
    found = checks.head(result.order, shown.head_salt, chain.link)
    if found != result.output_head:
        what = "This is not the last row that the node signed"
        raise InvalidRows(what, found, "Do not use it: ask the scheduler again, then another one.")
    return widen(row, dtype)
