"""How near the functions of canonical arithmetic come to a value at which rounding to float32 changes.

The contract computes each between two bounds, which must round alike. Whether they do for every float32 follows from
the nearest that any value comes to the middle between two numbers. All numbers are tried at which the contract uses
bounds at all: float64 says which are nearer than 2**-44 of their size, and exact integers how near those are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from troth.protocol.arithmetic import doubles, functions
from troth.protocol.arithmetic.operations import Activation
from troth.protocol.arithmetic.rounding import UNIT_BITS, units

CHUNK = 1 << 19
PRECISION = 400
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Function:
    """One function, where the contract bounds it, and how close its bounds are as a power of two of the value."""

    name: str
    near: Callable[[Doubles], doubles.Bounded]
    exact: Callable[[int, int], functions.Bracket]
    parts: tuple[tuple[int, int], ...]
    bound: int


def _trusted(function: Callable[[Doubles], Doubles]) -> Callable[[Doubles], doubles.Bounded]:
    """numpy's own, allowed eight times what its makers say that it is wrong by."""
    return lambda x: (value := function(x), np.abs(value) * 2.0**-48)


MINUS = 0x80000000
TINY, SMALL = 0x30800000, 0x39000000
"""2**-30 and 2**-13, below which the contract needs no bounds."""
FUNCTIONS = (
    Function("exp", doubles.exponential, functions.exponential_between,
             ((TINY, 0x42B20000), (MINUS | TINY, MINUS | 0x42D00000)), 100),
    Function("tanh", doubles.hyperbolic_tangent, functions.tangent_between, ((SMALL, 0x41800000),), 88),
    Function("silu", doubles.silu, lambda x, p: functions.activation_between(x, Activation.SILU, p),
             ((TINY, 0x42000000), (MINUS | TINY, MINUS | 0x43000000)), 100),
    Function("gelu", doubles.gelu_tanh, lambda x, p: functions.activation_between(x, Activation.GELU_TANH, p),
             ((TINY, 0x41000000), (MINUS | TINY, MINUS | 0x41800000)), 100),
    Function("cos", _trusted(np.cos), lambda x, p: functions.turned_between(x, 1, p), ((SMALL, 0x49800000),), 90),
    Function("sin", _trusted(np.sin), lambda x, p: functions.turned_between(x, 0, p), ((SMALL, 0x49800000),), 90),
)  # fmt: skip


def measure(names: list[str] | None = None) -> list[Figure]:
    """The nearest of each function, as a power of two of the value; the contract needs it above its bounds."""
    return [_figure(function) for function in FUNCTIONS if not names or function.name in names]


def _figure(function: Function) -> Figure:
    nearest, tried = 0.0, 0
    for bits in _numbers(function):
        tried += len(bits)
        for candidate in bits[_doubtful(function, bits.view(np.float32).astype(np.float64))]:
            nearest = min(nearest, _nearness(function, int(candidate)))
    return Figure(
        f"nearest to a middle, {function.name}", nearest, "log2 of the value's share", reach=-function.bound,
        note=f"{tried:,} numbers: all at which the contract uses bounds",
    )  # fmt: skip


def _numbers(function: Function) -> Iterator[NDArray[np.uint32]]:
    for first, last in function.parts:
        for start in range(first, last, CHUNK):
            yield np.arange(start, min(start + CHUNK, last), dtype=np.uint32)


def _doubtful(function: Function, x: Doubles) -> NDArray[np.bool_]:
    value, error = function.near(x)
    margin = np.maximum(error, np.abs(value) * 2.0**-44)
    return np.asarray((value - margin).astype(np.float32) != (value + margin).astype(np.float32))


def _nearness(function: Function, bits: int) -> float:
    """log2 of the distance from the nearest middle over the value."""
    low, _ = function.exact(units(bits), PRECISION)
    size = abs(low)
    # Half of the last place of a float32 of this size.
    half = max(size.bit_length() - 25, PRECISION - UNIT_BITS - 1)
    middle = (size >> half) | 1
    distance = min(abs(size - ((middle + step) << half)) for step in (-2, 0, 2))
    return log2(max(distance, 1)) - log2(size)
