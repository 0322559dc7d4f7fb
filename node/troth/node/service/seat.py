"""A node's seat in a task: what the scheduler's announcement gives it, checked against the node's own chain.

Nothing is computed before these checks pass (design.md section 4, step 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.node.errors import NotAssigned
from troth.node.view import ChainView
from troth.protocol.announcement import Announcement
from troth.protocol.assignment import Assignment, AssignmentContext, verify_assignment
from troth.protocol.contract_types import REFERENCE_AGE, Role
from troth.protocol.dtype import Dtype
from troth.protocol.errors import InvalidField
from troth.protocol.identifiers import fee
from troth.protocol.request import Request
from troth.protocol.tokens import noise_seed
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor, Segment, segments_from_ends

PATIENCE = 5.0
"""Seconds to wait for a block that the scheduler has seen and this node has not."""


@dataclass(frozen=True, slots=True)
class Seat:
    """This node's part in one segment of one task. ``review`` is the id of the segment's second verification, if it is
    for that."""

    announcement: Announcement
    assignment: Assignment
    index: int
    execution_class: ExecutionClass
    descriptor: ModelDescriptor
    me: Address
    review: Hash32 | None = None

    @property
    def task_id(self) -> Hash32:
        """The task."""
        return self.assignment.task_id

    @property
    def layers(self) -> Segment:
        """The layers of the segment."""
        return self.assignment.segments[self.index]

    @property
    def dtype(self) -> Dtype:
        """Words of the rows."""
        return Dtype(self.execution_class.dtype)

    @property
    def infers(self) -> bool:
        """Candidate for inferencer; otherwise a verifier."""
        return self.review is None and self.me in self.assignment.candidates(self.index)

    @property
    def is_first(self) -> bool:
        """The segment reads tokens."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """The segment ends in the head."""
        return self.index == len(self.assignment.segments) - 1

    @property
    def scheduler(self) -> Address:
        """Who may send messages for the task."""
        return self.announcement.order.scheduler

    @property
    def client(self) -> Address:
        """Who pays."""
        return self.assignment.client

    @property
    def fee(self) -> int:
        """Wei that the task costs."""
        return fee(self.execution_class, len(self.assignment.segments))

    @property
    def request(self) -> Request:
        """What was ordered; parties of the first and last segment have it."""
        if self.announcement.request is None:
            raise NotAssigned("this segment was not shown the request", self.index, "Announce it with the request.")
        return self.announcement.request

    @property
    def salt(self) -> Hash32:
        """The request's salt; comes with the request."""
        if self.announcement.salt is None:
            raise NotAssigned("this segment was not shown the request", self.index, "Announce it with the request.")
        return self.announcement.salt

    @property
    def noise_seed(self) -> Hash32:
        """Seed of the public token noise."""
        return noise_seed(self.task_id, self.assignment.betas[-1])


@dataclass(frozen=True, slots=True)
class Post:
    """What this node offers: its operator, its class and how long a trace it accepts."""

    operator: Address
    execution_class: Hash32
    position_limit: int


async def take_seat(
    announcement: Announcement, index: int, *, sender: Address, post: Post, view: ChainView, now: float
) -> Seat:
    """The seat that an announcement gives this node.

    Raises:
        NotAssigned: a check failed; the message says which.
        WrongAssignment: proofs, draw, client signature or request hash do not hold.
    """
    order = announcement.order
    _require(sender == order.scheduler, "another scheduler's order", order.scheduler, "Send your own orders.")
    _require(order.execution_class == post.execution_class, "another class is served here", order.execution_class)
    _require(
        now <= order.deadline, "the order's deadline has passed", order.deadline, "Ask the client for a new order."
    )
    seen = await view.until(lambda: view.head >= order.reference_block, PATIENCE)
    _require(seen, "this node has not seen the reference block", order.reference_block, "Retry, or check its RPC node.")
    recent = order.reference_block >= view.head - REFERENCE_AGE
    _require(recent, "the reference block is too old", order.reference_block, "Ask the client for a new order.")
    context, descriptor = context_of(announcement, view)
    assignment = verify_assignment(announcement, context)
    _require(index < len(assignment.segments), "there is no such segment", index)
    mine = post.operator in assignment.parties[index]
    _require(mine, "this node is not among the segment's parties", post.operator, "Draw the parties again.")
    _require_money(assignment, context, view)
    seat = Seat(announcement, assignment, index, context.execution_class, descriptor, post.operator)
    require_request(seat, post)
    return seat


def context_of(announcement: Announcement, view: ChainView) -> tuple[AssignmentContext, ModelDescriptor]:
    """What this node's own chain says about the announced task; NotAssigned where it knows too little."""
    order = announcement.order
    account, key = view.account(order.scheduler), view.vrf_key(order.scheduler)
    bonded = account is not None and account.role is Role.SCHEDULER and account.exit_block == 0
    execution_class = view.execution_class(order.execution_class)
    descriptor = view.descriptor(execution_class.model) if execution_class else None
    if not bonded or key is None:
        raise NotAssigned("the scheduler is not bonded", order.scheduler, "Register it, or wait for the block.")
    if execution_class is None or descriptor is None:
        raise NotAssigned("the execution class is not registered", order.execution_class, "Register it first.")
    try:
        segments = segments_from_ends(announcement.ends, descriptor.layers)
    except InvalidField as error:
        raise NotAssigned(error.what, error.value, error.remedy) from error
    groups = tuple(view.members(order.execution_class, segment, order.reference_block) for segment in segments)
    return AssignmentContext(view.domain, key, execution_class, descriptor.layers, groups), descriptor


def _require_money(assignment: Assignment, context: AssignmentContext, view: ChainView) -> None:
    if view.task(assignment.task_id) is not None:
        return
    _require(view.ended_at(assignment.task_id) is None, "the task has ended", assignment.task_id, "Order again.")
    price, balance = fee(context.execution_class, len(assignment.segments)), view.escrow(assignment.client)
    _require(balance >= price, f"the client's escrow is below the fee of {price} wei", balance, "Deposit first.")


def require_request(seat: Seat, post: Post) -> None:
    """Raise NotAssigned unless this node can serve what was ordered, where it is shown the request."""
    if not (seat.is_first or seat.is_last):
        return
    request = seat.request
    longest = request.position_limit
    _require(longest <= post.position_limit, "the request is too long for this node", longest, "Order fewer tokens.")
    highest = max((*request.prompt_tokens, *request.end_tokens))
    _require(highest < seat.descriptor.vocabulary, "a token is outside of the vocabulary", highest, "Fix the request.")


def _require(condition: bool, what: str, value: object, remedy: str = "Choose another node.") -> None:
    if not condition:
        raise NotAssigned(what, value, remedy)
