"""Reputation as it is followed through a node: its events, and the state that they fold to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from troth.chain.adapter import Chain
from troth.chain.errors import WrongChain
from troth.chain.follower import Folding, Follower
from troth.protocol.logs import EventLog
from troth.protocol.reputation import Reputation, ReputationPlace, everybody_trusted
from troth.protocol.reputation_events import ReputationState, SharedReputation, parse_reputation_log
from troth.protocol.types import Address


def after_log(log: EventLog, state: ReputationState) -> ReputationState:
    """The state after one log; raises InvalidField for one that cannot follow."""
    event = parse_reputation_log(log)
    return state if event is None else state.after(event)


@asynccontextmanager
async def followed_reputation(
    rpc: str, contract: Address, path: Path | None = None, *, start_block: int = 0, chain_id: int | None = None
) -> AsyncIterator[Follower[ReputationState]]:
    """Follows the contract inside the block, from all events that there are; raises ChainError.

    Args:
        path: file that keeps the events for the next time; None keeps none.
    """
    async with await Chain.connect(rpc, contract, chain_id=chain_id) as chain:
        folding = Folding(ReputationState(), after_log)
        async with Follower(chain, folding, path, start_block=start_block) as follower:
            await follower.catch_up()
            if follower.state.deployed is None:
                what = f"The contract says nothing of reputation from block {start_block} on"
                raise WrongChain(what, contract, "Name the Reputation contract, and a block not after its deployment.")
            yield follower


@asynccontextmanager
async def word_of_the_committee(
    rpc: str, place: ReputationPlace | None, folder: Path, *, chain_id: int | None = None
) -> AsyncIterator[Reputation]:
    """Who may be given work, followed inside the block; without a place everybody. Raises ChainError.

    Args:
        folder: keeps the events, for one process at a time.
    """
    if place is None:
        yield everybody_trusted
        return
    path, start = folder / "reputation-events.sqlite", place.start_block
    async with followed_reputation(rpc, place.contract, path, start_block=start, chain_id=chain_id) as follower:
        yield SharedReputation(lambda: follower.state)
