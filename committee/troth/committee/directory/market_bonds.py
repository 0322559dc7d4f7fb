"""Who is bonded on a market: what a member reads from the deployment's folded events before it lists a destination."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.protocol.market.parts import MarketPlace
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import PotKind, Role
from troth.protocol.types import Address

RECORDS = "market-events.sqlite"
_ROLES = {"scheduler": Role.SCHEDULER, "node": Role.NODE}


def is_bonded(state: State, operator: Address, kind: str) -> bool:
    """Whether a party has the role, is not leaving, and has the stake that is asked: a scheduler the deployment's, a
    node a seat of its class, below which nobody draws it."""
    party = state.parties.get(operator)
    if party is None or party.exit_block or party.role is not _ROLES.get(kind):
        return False
    least = _least_stake(state, party)
    return least is not None and state.pot(PotKind.STAKE, operator) >= least


class MarketBonds:
    """As ``admission.Bonded``, by what the follower has seen so far."""

    def __init__(self, follower: MarketFollower) -> None:
        self._follower = follower

    def __call__(self, operator: Address, kind: str) -> bool:
        """Whether an operator may have an entry of this kind listed."""
        return is_bonded(self._follower.state, operator, kind)


@asynccontextmanager
async def market_bonds(
    rpc: str, place: MarketPlace, folder: Path, *, chain_id: int | None = None
) -> AsyncIterator[MarketBonds]:
    """Follows the deployment inside the block."""
    found = await find_place(rpc, place.factory, place.bank, place.start_block)
    async with (
        await Market.connect(rpc, found, chain_id=chain_id) as market,
        MarketFollower(market, folder / RECORDS) as follower,
    ):
        await follower.catch_up()
        yield MarketBonds(follower)


def _least_stake(state: State, party: Party) -> int | None:
    if party.role is Role.SCHEDULER:
        return None if state.deployed is None else state.deployed.parameters.scheduler_stake
    execution_class = state.classes.get(party.execution_class)
    return None if execution_class is None else execution_class.seat
