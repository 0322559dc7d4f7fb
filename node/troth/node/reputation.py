"""What the committee says of this node, and what that means for its work."""

from __future__ import annotations

from typing import Any

from troth.chain.reputation import followed_reputation
from troth.node.configuration import NodeConfiguration
from troth.protocol.reputation import ONE, shared_scores
from troth.protocol.reputation_events import ReputationState
from troth.protocol.types import Address


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
    place = configuration.reputation
    assert place is not None
    # Without a file: that belongs to the running process.
    async with followed_reputation(
        configuration.rpc, place.contract, start_block=place.start_block, chain_id=configuration.chain_id
    ) as follower:
        return explained(follower.state, node)
