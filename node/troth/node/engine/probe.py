"""Whether this machine belongs to an exact class: it must compute the class's own bits, in whatever way it is asked.

Kernels differ by processor, library and driver, and no list of names tells which of them agree. So the class carries
the hash of the rows of one public text, and a node computes them before it serves: once in a prefill, once grown in
pieces beside other work. If the two differ, this machine is no exact engine; if they are not the class's, it is one of
another class. Serving in either case would cost its stake.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Arithmetic, Engine, SessionKey, WholeEngine, writes_alone
from troth.node.errors import ModelError
from troth.protocol.hashing import keccak256
from troth.protocol.market.layers import without_layers
from troth.protocol.tensors import Dtype, rows_to_bytes

POSITIONS = 300
PIECES = (1, 2, 5, 33, 130, 100)
"""Positions that the grown text is given at a time, then one by one to the end: shapes for which libraries are known
to choose different kernels."""
SINGLE_STEPS = 12
LONG = (700, 488)
PROBED = sum(LONG) + SINGLE_STEPS
"""Positions of a longer text, which vLLM is given in two pieces and then one by one: its kernels cut the keys of long
texts into parts, and sum part by part."""
MARK = "probe-"
DIGITS = 32


def probe_text(vocabulary: int, number: int = 0) -> NDArray[np.int64]:
    """A public text of POSITIONS tokens below `vocabulary`: raw Philox output, key `number`, counter zero."""
    drawn = np.random.Philox(key=np.array([number, 0], np.uint64)).random_raw(POSITIONS)
    return (drawn % np.uint64(vocabulary)).astype(np.int64)


def probe_inputs(engine: Engine, number: int = 0) -> NDArray[Any]:
    """The public text, or public rows for a slice that begins after layer 0."""
    if engine.slice.first == 0:
        return probe_text(engine.vocabulary, number)
    generator = np.random.Generator(np.random.Philox(key=np.array([number, 1], np.uint64)))
    rows = generator.standard_normal((POSITIONS, engine.hidden_size), np.float32)
    return rows if engine.dtype == 0 else (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


async def probe(engine: Engine) -> str:
    """The hash of the public text's rows, as a class carries it: 32 hexadecimal digits.

    Raises:
        ModelError: two ways to compute the same rows gave different bits.
    """
    text = probe_inputs(engine)[: sum(PIECES) + SINGLE_STEPS]
    others = [_grown(engine, probe_inputs(engine, number), number) for number in (1, 2)]
    grown, *_ = await asyncio.gather(_grown(engine, text, 0), *others)
    whole = await _at_once(engine, text)
    _require_equal(grown, whole)
    if writes_alone(engine) and engine.positions >= PROBED:
        await _require_long(engine)
    return keccak256(rows_to_bytes(whole, Dtype(engine.dtype)))[: DIGITS // 2].hex()


async def _require_long(engine: WholeEngine) -> None:
    """The same of a longer text, of which nothing is hashed: an engine may be started for shorter ones."""
    parts = [probe_text(engine.vocabulary, number) for number in range(3, 4 + PROBED // POSITIONS)]
    text = np.concatenate(parts)[:PROBED]
    _require_equal(await _grow(engine, text, 254, LONG), await _at_once(engine, text))


def _require_equal(grown: NDArray[Any], whole: NDArray[Any]) -> None:
    if not np.array_equal(grown, whole):
        position = int(np.argmax((grown != whole).any(axis=1)))
        what = "decode and prefill differ on this machine, first at position"
        raise ModelError(what, position, "Serve a tolerant class.")


async def require_class(engine: Engine, execution_class: Arithmetic) -> None:
    """Check an exact class; a tolerant one needs nothing, and of a slice only decode and prefill can be compared.

    Raises:
        ModelError: this machine does not compute the class's bits.
    """
    if not execution_class.exact:
        return
    found, expected = await probe(engine), probe_of(execution_class.name)
    whole = engine.slice.first == 0 and engine.slice.end == engine.layers
    if whole and found != expected:
        what = "this machine computes other bits than its exact class, and would be slashed for it: its probe is"
        raise ModelError(what, found, f"Serve a class whose name ends in {MARK}{found}; {execution_class.name} is not.")


def probe_of(name: str) -> str:
    """The hash that a class's name ends in, before layers and head that it may name; empty where it has none."""
    _, mark, digits = without_layers(name).rpartition(MARK)
    return digits if mark else ""


async def _at_once(engine: Engine, text: NDArray[Any]) -> NDArray[Any]:
    if writes_alone(engine):
        return (await engine.prefill([int(token) for token in text], fresh=True)).rows
    return await _grow(engine, text, 255, (len(text),))


async def _grown(engine: Engine, text: NDArray[Any], number: int) -> NDArray[Any]:
    return await _grow(engine, text, number, PIECES)


async def _grow(engine: Engine, text: NDArray[Any], number: int, pieces: tuple[int, ...]) -> NDArray[Any]:
    key, start, rows = SessionKey(bytes(31) + bytes([number]), 0, 0), 0, []
    try:
        for count in (*pieces, *[1] * len(text)):
            if start >= len(text):
                break
            part = text[start : start + count]
            rows.append((await engine.forward(key, engine.slice, start, part)).rows)
            start += len(part)
    finally:
        await engine.forget(key)
    return np.concatenate(rows)
