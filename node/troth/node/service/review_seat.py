"""A reviewer's seat: it was drawn on chain to verify a settled segment a second time, and repeats a verifier's work.

The draw is taken from this node's own view of the chain, so the scheduler can call nobody else; the announcement is
checked as in the first round, since it fixes prompt, sampling and who inferred.
"""

from __future__ import annotations

from troth.node.errors import NotAssigned
from troth.node.service.seat import PATIENCE, Post, Seat, context_of, require_request
from troth.node.view import ChainView
from troth.protocol.announcement import Announcement
from troth.protocol.assignment import verify_assignment
from troth.protocol.state import ReviewRecord
from troth.protocol.task import Phase
from troth.protocol.types import Address, Hash32


async def take_review_seat(
    announcement: Announcement, index: int, review_id: Hash32, *, sender: Address, post: Post, view: ChainView
) -> Seat:
    """The seat that a review gives this node.

    Raises:
        NotAssigned: this node was not drawn, or not for this segment, or the review is not under way.
        WrongAssignment: the announcement is not that of the task.
    """
    drawn = await view.until(lambda: _is_reviewer(view.review(review_id), post.operator), PATIENCE)
    record = view.review(review_id)
    if not drawn or record is None:
        raise NotAssigned("this node was not drawn for the review", post.operator, "Draw the reviewers on chain first.")
    if sender != announcement.order.scheduler:
        raise NotAssigned("another scheduler's order", announcement.order.scheduler, "Send your own orders.")
    context, descriptor = context_of(announcement, view)
    assignment = verify_assignment(announcement, context)
    if (record.task_id, record.segment) != (assignment.task_id, index):
        raise NotAssigned("the review is of another segment", record.segment, "Announce the segment under review.")
    seat = Seat(announcement, assignment, index, context.execution_class, descriptor, post.operator, review_id)
    require_request(seat, post)
    return seat


def _is_reviewer(record: ReviewRecord | None, me: Address) -> bool:
    if record is None or not record.live or record.review.progress.phase is not Phase.ASSIGNED:
        return False
    return me in record.review.verifiers_of(0)
