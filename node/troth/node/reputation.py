"""What the committee says of nodes (Reputation on chain): who of a group is given work, and why this node is or is not.

A node follows the contract that its [reputation] names. Scores are computed again from events; an owner's nodes share
theirs (`troth.protocol.reputation.shared_scores`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from troth.chain.follower import Follower
from troth.chain.reputation import followed_reputation
from troth.node.configuration import NodeConfiguration
from troth.node.group.sharing import UNRATED, Reputation
from troth.protocol.reputation import ONE, shared_scores
from troth.protocol.reputation_events import ReputationState
from troth.protocol.types import Address
from troth.routing.forwarding.forwarder import LEAST_REPUTATION

RECORDS = "reputation-events.sqlite"


class SharedReputation:
    """The committee's word about a node, as a group asks for it: 0 below the bar, else 0.4 to 1.

    Args:
        state: the folded contract, now.
    """

    def __init__(self, state: Callable[[], ReputationState]) -> None:
        self._state = state
        self._seen: ReputationState | None = None
        self._shared: Mapping[Address, int] = {}

    def __call__(self, node: Address) -> float:
        """Of one node; of one that nobody rated what newcomers begin with."""
        state = self._state()
        if state is not self._seen:
            # Only when an event came: a group asks for every member each second.
            self._seen, self._shared = state, shared_scores(state.standings)
        if state.deployed is None:
            return UNRATED
        rules = state.deployed.rules
        score = self._shared.get(node, rules.initial)
        # The forwarder's own bar is the paper's; a deployment may have another.
        return max(score / ONE, LEAST_REPUTATION) if score >= rules.bar else 0.0


@asynccontextmanager
async def reputation_of(configuration: NodeConfiguration) -> AsyncIterator[Reputation]:
    """Follows the configured contract inside the block; without one everybody is trusted. Raises ChainError."""
    if configuration.reputation is None:
        yield lambda _: UNRATED
        return
    async with _followed(configuration) as follower:
        yield SharedReputation(lambda: follower.state)


def explained(state: ReputationState, node: Address) -> dict[str, Any]:
    """How a node stands, and what that means for its work, for `troth node status`."""
    assert state.deployed is not None
    rules, standing = state.deployed.rules, state.standings.get(node)
    if standing is None:
        able = rules.initial >= rules.bar
        why = f"nobody rated it yet: it begins with {rules.initial / ONE:g}, the bar is {rules.bar / ONE:g}"
        return {"score": rules.initial / ONE, "takes_work": able, "why": why}
    shared, rating = shared_scores(state.standings)[node], state.ratings[node]
    credit = "it was silent" if rating.silent else f"its credit was {rating.credit / ONE:g}"
    bad = f"{standing.abnormal.bit_count()} of the last {rules.window} were below {rules.abnormal / ONE:g}"
    why = f"in epoch {standing.last_epoch} {credit}; {bad}; the bar is {rules.bar / ONE:g}"
    if shared < standing.score:
        why += f"; its owner's other nodes pull it from {standing.score / ONE:g} to {shared / ONE:g}"
    return {
        "score": standing.score / ONE,
        "shared": shared / ONE,
        "takes_work": shared >= rules.bar,
        "why": why,
    }


async def own_reputation(configuration: NodeConfiguration, node: Address) -> dict[str, Any]:
    """The same, read from the chain now; raises ChainError."""
    async with _followed(configuration, keep=False) as follower:
        return explained(follower.state, node)


@asynccontextmanager
async def _followed(configuration: NodeConfiguration, *, keep: bool = True) -> AsyncIterator[Follower[ReputationState]]:
    place = configuration.reputation
    assert place is not None
    # The file belongs to the running process: a second one reads the chain itself.
    path = configuration.folder / RECORDS if keep else None
    async with followed_reputation(
        configuration.rpc, place.contract, path, start_block=place.start_block, chain_id=configuration.chain_id
    ) as follower:
        yield follower
