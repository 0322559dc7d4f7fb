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
        self._rows: OrderedDict[BlockName, NDArray[Any]] = OrderedDict()
        self.bytes = 0

    def keep(self, tokens: Sequence[int], start: int, rows: NDArray[Any]) -> None:
        """Remember the blocks of a text that `rows`, of positions start, start+1, …, hold whole."""
        size = self.block
        names = block_names(tokens[: start + len(rows)], size)
        for index in range(-(-start // size), len(names)):
            if names[index] not in self._rows:
                # A copy: a view would keep the whole request's rows in memory for one block's sake.
                self._add(names[index], rows[index * size - start : (index + 1) * size - start].copy())

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
        return np.concatenate([part for part in found if part is not None]) if found else None

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self.bytes = 0

    def _add(self, name: BlockName, rows: NDArray[Any]) -> None:
        self._rows[name] = rows
        self.bytes += rows.nbytes
        while self.bytes > self._limit:
            _, oldest = self._rows.popitem(last=False)
            self.bytes -= oldest.nbytes
