"""The verdict on a whole answer whose stream was lost afterwards: the chain has it, whatever became of the stream."""

from __future__ import annotations

from troth.chain.errors import FollowTimeout
from troth.client.answers import holds_answer
from troth.client.asking import VERDICT_SILENCE_SECONDS, Verdict
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.client.standing import standing_of
from troth.protocol.state import State


async def verdict_on_chain(
    session: Session, signed: SignedOrder, seconds: float = VERDICT_SILENCE_SECONDS
) -> Verdict | None:
    """The outcome once the chain has one; None if it takes too long, or speaks of another answer than was sent."""

    def decided(state: State) -> bool:
        standing = standing_of(state, signed.task_id)
        return standing is not None and standing.outcome is not None

    try:
        standing = standing_of(await session.follower.wait_until(decided, seconds), signed.task_id)
    except FollowTimeout:
        return None
    assert standing is not None
    assert standing.outcome is not None
    session.receipts.decided(signed.task_id, standing.outcome, standing.paid)
    receipt = session.receipts.find("0x" + signed.task_id.hex())
    if standing.outcome == "accepted" and not holds_answer(receipt, standing):
        return None
    return Verdict(standing.outcome, standing.paid)
