"""Log probabilities of a chosen token and of the likeliest tokens in its place: the inferencer's word, if asked for.

Nothing is paid for them, signed over them or judged by them. They are the natural logarithms of the model's own
distribution (temperature 1, the whole vocabulary), whatever the sampling that chose the token. What can be told without
the model is checked wherever they arrive: numbers, order, vocabulary, and that no probabilities add up to more than 1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidTokens

NO_LOGPROBS = -1
"""The hint of an order that asks for none."""
ALTERNATIVES_LIMIT = 20
"""Most alternatives to a token, as in OpenAI's interface: a few hundred bytes a token."""
PACKED_LIMIT = 4 + 8 * ALTERNATIVES_LIMIT
"""Bytes of the longest packed form."""
LEAST_LOGPROB = -float(np.finfo(np.float32).max)
"""The least finite float32; it stands for a probability whose logarithm has none."""
ROUNDING = 1e-3
"""By how much float32 probabilities of a large vocabulary may add up to more than 1."""

_CHOSEN = struct.Struct("<f")
_ALTERNATIVE = struct.Struct("<If")
_REMEDY = "Leave them out: nothing depends on them."


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The chosen token's log probability, and ids with log probabilities of the likeliest tokens, likeliest first."""

    chosen: float
    top: tuple[tuple[int, float], ...]


def logprobs_of(logits: NDArray[Any], token: int, count: int) -> Logprobs:
    """Log probabilities by one row of float logits, shape (vocabulary,): a float32 log-softmax.

    ``count`` alternatives, or the whole vocabulary if that is less; the lowest ids among equals.
    """
    with np.errstate(over="ignore"):
        shifted = logits.astype(np.float32)
        shifted -= shifted.max()
        shifted -= np.log(np.exp(shifted).sum())
    np.maximum(shifted, LEAST_LOGPROB, out=shifted)
    top = tuple((int(other), float(shifted[other])) for other in _likeliest(shifted, count))
    return Logprobs(float(shifted[token]), top)


def _likeliest(values: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    count = min(count, len(values))
    if not count:
        return np.empty(0, dtype=np.intp)
    enough = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    return enough[np.argsort(-values[enough], kind="stable")][:count]


def require_possible(found: Logprobs, token: int, *, count: int, vocabulary: int) -> None:
    """Raise InvalidTokens for what no model can have found of ``token``, with ``count`` alternatives asked for."""
    ids, values = [other for other, _ in found.top], [value for _, value in found.top]
    _require(len(ids) == min(count, vocabulary), f"{min(count, vocabulary)} alternatives were asked for", len(ids))
    _require(
        len(set(ids)) == len(ids) and all(0 <= other < vocabulary for other in ids),
        f"Alternatives are different tokens below {vocabulary}",
        ids,
    )
    _require(
        all(LEAST_LOGPROB <= value <= 0 for value in (found.chosen, *values)),
        "Log probabilities are finite and not above 0",
        (found.chosen, *values),
    )
    _require(all(values[i] >= values[i + 1] for i in range(len(values) - 1)), "The likeliest comes first", values)
    _require_agreement(found, token, ids, values)


def _require_agreement(found: Logprobs, token: int, ids: Sequence[int], values: Sequence[float]) -> None:
    """The chosen token is one of the alternatives with the same value, or no likelier than the last of them."""
    if token in ids:
        agrees = values[ids.index(token)] == found.chosen
    else:
        agrees = not values or found.chosen <= values[-1]
        values = (*values, found.chosen)
    _require(agrees, "The chosen token has one place among the alternatives", (token, found.chosen))
    total = math.fsum(math.exp(value) for value in values)
    _require(total <= 1 + ROUNDING, "Probabilities add up to 1 at most", total)


def logprobs_to_bytes(found: Logprobs) -> bytes:
    """Packed form, little-endian: float32 of the chosen token, then uint32 id and float32 of each alternative."""
    return _CHOSEN.pack(found.chosen) + b"".join(_ALTERNATIVE.pack(*other) for other in found.top)


def logprobs_from_bytes(data: bytes, token: int, *, count: int, vocabulary: int) -> Logprobs:
    """Inverse of ``logprobs_to_bytes`` for what was asked; raises InvalidTokens, see ``require_possible``."""
    size = _CHOSEN.size + _ALTERNATIVE.size * min(count, vocabulary)
    _require(len(data) == size, f"Log probabilities with {count} alternatives have {size} bytes", len(data))
    (chosen,) = _CHOSEN.unpack_from(data)
    found = Logprobs(chosen, tuple(_ALTERNATIVE.iter_unpack(data[_CHOSEN.size :])))
    require_possible(found, token, count=count, vocabulary=vocabulary)
    return found


def _require(condition: bool, what: str, value: object) -> None:
    if not condition:
        raise InvalidTokens(what, value, _REMEDY)
