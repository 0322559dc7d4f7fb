"""Rows and tokens as payload bytes: number formats, little-endian, row after row, no header of their own.

bfloat16 rows are uint16 arrays of bit patterns (``dtype.Dtype.storage``). Reading checks size, finiteness and
vocabulary before anything is computed from the bytes; every refusal is a WireError.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import NoState, WireError
from troth.protocol.exact_numbers import STATE_LIMIT

RowArray = NDArray[Any]
"""Rows x columns, float32 for Dtype.FLOAT32 and uint16 bit patterns for Dtype.BFLOAT16."""
TOKEN_BYTES = 4
"""Bytes of a token id."""
NO_STATE = "Rows hold NaN or infinity, or a number of 2**40 and more"
COLUMNS_LIMIT = 65_536
"""Widest state that is read; beyond it a size computed from network values could exceed memory."""
_BFLOAT16_SIZE = np.uint16(0x7FFF)
_LARGEST = np.float32(2.0**40)


class Dtype(IntEnum):
    """A number format; the value is the code used on chain.

    bfloat16 numbers travel as uint16 arrays that hold their bit patterns, since numpy has no such type.
    """

    FLOAT32 = 0
    BFLOAT16 = 1

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is Dtype.FLOAT32 else 2

    @property
    def mantissa_bits(self) -> int:
        """Explicit bits of the mantissa; sign and the eight bits of the exponent stand before them."""
        return 23 if self is Dtype.FLOAT32 else 7

    @property
    def storage(self) -> str:
        """The numpy type that holds the elements in memory."""
        return "float32" if self is Dtype.FLOAT32 else "uint16"


def row_size(columns: int, dtype: Dtype) -> int:
    """Bytes of one row."""
    return columns * dtype.element_bytes


def finite(rows: RowArray, dtype: Dtype) -> bool:
    """Whether every element is a number below 2**40: nobody signs a row that holds another, and one convicts."""
    if dtype is Dtype.BFLOAT16:
        return not bool(((rows & _BFLOAT16_SIZE) >= STATE_LIMIT >> 16).any())
    return bool((np.abs(rows) < _LARGEST).all())


def widen(rows: RowArray, dtype: Dtype) -> NDArray[np.float32]:
    """Rows as float32 numbers; exact for both formats."""
    if dtype is Dtype.BFLOAT16:
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32, copy=False)


def rows_to_bytes(rows: RowArray, dtype: Dtype) -> bytes:
    """Payload of a rows x columns array; raises WireError on another shape or number type, NoState unless all is
    finite."""
    return bytes(rows_as_bytes(rows, dtype))


def rows_as_bytes(rows: RowArray, dtype: Dtype) -> memoryview:
    """The same without a copy, where the array lies in memory as it travels; raises alike."""
    if rows.ndim != 2 or rows.dtype != np.dtype(dtype.storage):
        raise WireError(
            f"Rows are a two-dimensional {dtype.storage} array", (rows.shape, str(rows.dtype)), "Convert them first."
        )
    if not finite(rows, dtype):
        raise NoState(NO_STATE, rows.shape, "Check the weights and the input of this segment.")
    travels = np.ascontiguousarray(rows, np.dtype(dtype.storage).newbyteorder("<"))
    return travels.reshape(-1).view(np.uint8).data


def rows_from_bytes(data: bytes | memoryview, count: int, columns: int, dtype: Dtype) -> RowArray:
    """Read-only count x columns array over ``data``; raises WireError unless the size fits, NoState unless all is
    finite."""
    rows = any_rows_from_bytes(data, count, columns, dtype)
    if not finite(rows, dtype):
        raise NoState(NO_STATE, (count, columns), "The sender's states are broken; do not pay.")
    return rows


def any_rows_from_bytes(data: bytes | memoryview, count: int, columns: int, dtype: Dtype) -> RowArray:
    """The same of rows that may hold anything: who judges what was signed must be able to look at it."""
    if not 0 < columns <= COLUMNS_LIMIT or count < 1:
        raise WireError(f"Rows have 1 to {COLUMNS_LIMIT} columns", (count, columns), "Check the model's hidden size.")
    _require_size(data, count * row_size(columns, dtype), "rows")
    rows = np.frombuffer(data, dtype=np.dtype(dtype.storage).newbyteorder("<")).reshape(count, columns)
    return rows.astype(dtype.storage, copy=False)


def tokens_to_bytes(tokens: Sequence[int]) -> bytes:
    """Payload of token ids, uint32 each; raises WireError for an id outside uint32."""
    if any(not 0 <= token < 1 << 32 for token in tokens):
        raise WireError("A token id lies in 0 to 2**32 - 1", (min(tokens), max(tokens)), "Pass token ids.")
    return np.asarray(tokens, dtype="<u4").tobytes()


def tokens_from_bytes(data: bytes | memoryview, count: int, vocabulary: int) -> tuple[int, ...]:
    """Token ids; raises WireError unless there are ``count``, all inside the vocabulary."""
    _require_size(data, TOKEN_BYTES * count, "tokens")
    tokens = np.frombuffer(data, dtype="<u4")
    if count and int(tokens.max()) >= vocabulary:
        raise WireError(
            f"A token id is below the vocabulary of {vocabulary}", int(tokens.max()), "Check the tokenizer."
        )
    return tuple(tokens.tolist())


def _require_size(data: bytes | memoryview, expected: int, what: str) -> None:
    if len(data) != expected:
        raise WireError(f"The payload's {what} need exactly {expected} bytes", len(data), "Send what the header says.")
