"""Whose turn it is to take tokens of a wallet: of all tasks of this process, and of all programs of this home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from troth.chain import tokens
from troth.chain.market import Market
from troth.client.home import Home
from troth.protocol.amounts import Asset


@asynccontextmanager
async def spending(market: Market, asset: Asset, home: Home | None = None) -> AsyncIterator[None]:
    """Held from the look at an allowance to the call that takes it; the coin needs none.

    The home's turn comes first: tasks wait side by side, and not one after the other, for a program that hangs.
    """
    if asset.is_coin:
        yield
        return
    async with home.spending() if home is not None else nullcontext(), tokens.spending(market):
        yield
