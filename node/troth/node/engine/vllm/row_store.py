"""Rows of blocks that the prefix cache may serve: positions that are not computed again have no fresh states.

A row depends on the tokens up to its position alone, bit for bit, in an exact class: so whichever request computed a
block first, its rows are the rows of every text that begins with the same tokens. Keys are names of blocks (`blocks`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.vllm.blocks import BlockName, block_names


class RowStore:
    """Rows of blocks in the order of their last use, never more than `limit` bytes together."""

    def __init__(self, block: int, limit: int) -> None:
        """`block`: tokens of a block, as the engine's cache has them."""
        self.block = block
        self._limit = limit
        self._rows: OrderedDict[BlockName, tuple[NDArray[Any], ...]] = OrderedDict()
        self.bytes = 0

    def keep(self, tokens: Sequence[int], start: int, rows: NDArray[Any]) -> None:
        """Remember the blocks of a text that `rows`, of positions start, start+1, …, hold whole."""
        for name, first in self.missing(tokens, start, start + len(rows)):
            self.add(name, [rows[first - start : first - start + self.block]])

    def missing(self, tokens: Sequence[int], start: int, end: int) -> list[tuple[BlockName, int]]:
        """The blocks that rows [start, end) of a text hold whole and that are not here, with their first positions."""
        size = self.block
        names = block_names(tokens[:end], size)
        found = [(names[index], index * size) for index in range(-(-start // size), len(names))]
        return [(name, first) for name, first in found if name not in self._rows]

    def known(self, tokens: Sequence[int]) -> int:
        """How many positions a text begins with whose rows are here: whole blocks without a gap."""
        names = block_names(tokens, self.block)
        missing = (index for index, name in enumerate(names) if name not in self._rows)
        return next(missing, len(names)) * self.block

    def first(self, tokens: Sequence[int], count: int) -> NDArray[Any] | None:
        """Rows of the first `count` positions, a multiple of the block; None where one block is not here."""
        names = block_names(tokens[:count], self.block)
        found = [self._rows.get(name) for name in names]
        if any(part is None for part in found) or len(names) * self.block != count:
            return None
        for name in names:
            self._rows.move_to_end(name)
        return np.concatenate([piece for part in found if part is not None for piece in part]) if found else None

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self.bytes = 0

    def add(self, name: BlockName, pieces: Sequence[NDArray[Any]]) -> None:
        """Remember the rows of one block, which nobody may change."""
        if name in self._rows:
            return
        self._rows[name] = tuple(_own(piece) for piece in pieces)
        self.bytes += _size(self._rows[name])
        while self.bytes > self._limit:
            _, oldest = self._rows.popitem(last=False)
            self.bytes -= _size(oldest)


def _own(piece: NDArray[Any]) -> NDArray[Any]:
    """A copy of what is a part of something longer, which one block would keep in memory whole."""
    whole = piece.base
    return piece if whole is None or getattr(whole, "nbytes", -1) == piece.nbytes else piece.copy()


def _size(pieces: Sequence[NDArray[Any]]) -> int:
    return sum(piece.nbytes for piece in pieces)
