"""Follow all contracts of a deployment and keep their folded state, through restarts and reorganisations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from troth.chain.follower import POLL_INTERVAL, Folding, Follower
from troth.chain.market import Market
from troth.chain.records import Block
from troth.protocol.logs import EventLog
from troth.protocol.market.fold import apply
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class _Deployment:
    """A market as the follower sees it; its factory and Bank name it, since a factory may have made several."""

    market: Market

    @property
    def chain_id(self) -> int:
        return self.market.chain.chain_id

    @property
    def contract(self) -> Address:
        return self.market.contracts.bank

    @property
    def place(self) -> str:
        return self.market.chain.place

    async def require_chain(self) -> None:
        await self.market.chain.require_chain()

    async def block(self, number: int | None = None) -> Block | None:
        return await self.market.chain.block(number)

    async def logs(self, first: int, last: int) -> list[EventLog]:
        return await self.market.logs(first, last)

    async def logs_of_block(self, block_hash: Hash32) -> list[EventLog]:
        return await self.market.logs_of_block(block_hash)


class MarketFollower(Follower[State]):
    """Follows a deployment from the block in which it came to stand."""

    def __init__(self, market: Market, path: Path | None = None, *, poll_interval: float = POLL_INTERVAL) -> None:
        folding = Folding(State(), lambda log, state: apply(market.parse(log), state))
        super().__init__(
            _Deployment(market), folding, path, start_block=market.place.block, poll_interval=poll_interval
        )
