"""What a node knows of the market, as it follows it itself: never from the scheduler that asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from troth.chain.errors import FollowTimeout
from troth.chain.market_follower import MarketFollower
from troth.node.earning.books import NodeLedger
from troth.protocol.market.messages import KeyCheck, market_domain, signed_by_account
from troth.protocol.market.state import State
from troth.protocol.market.views import parameters_of
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address


class Ground(Protocol):
    """The folded events of one deployment up to ``block``; all reads are of memory."""

    @property
    def chain_id(self) -> int:
        """The chain."""

    @property
    def state(self) -> State:
        """What the events fold to."""

    @property
    def block(self) -> int:
        """The last block that was folded."""

    @property
    def key_check(self) -> KeyCheck:
        """How a tab key's signature is checked."""

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for more blocks until the condition holds; False after ``timeout`` seconds."""


class FollowedGround:
    """See ``Ground``; the follower is entered and closed by its owner."""

    def __init__(self, follower: MarketFollower, chain_id: int) -> None:
        self._follower = follower
        self.chain_id = chain_id
        self.key_check: KeyCheck = signed_by_account

    @property
    def state(self) -> State:
        """What the events fold to."""
        return self._follower.state

    @property
    def block(self) -> int:
        """The last block that was folded."""
        return self._follower.block

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for more blocks until the condition holds; looks at the chain's head at once."""
        if condition():
            return True
        await self._follower.catch_up()
        try:
            await self._follower.wait_until(lambda _state: condition(), timeout)
        except FollowTimeout:
            return False
        return True


def domain_of(ground: Ground) -> Domain:
    """The domain of every signature of the deployment; raises InvalidOrder before its first event was followed."""
    parameters_of(ground.state)
    assert ground.state.deployed is not None
    return market_domain(ground.chain_id, ground.state.deployed.contracts.bank)


def ledger_of(ground: Ground, me: Address) -> NodeLedger:
    """What books depend on, as it is now."""
    return NodeLedger(ground.state, domain_of(ground), me, ground.block, ground.key_check)
