"""The chain view of a running node: the state folded by an event follower."""

from __future__ import annotations

from collections.abc import Callable

from troth.chain.adapter import Chain
from troth.chain.errors import FollowTimeout, WrongChain
from troth.chain.follower import EventFollower
from troth.protocol.assignment import Members
from troth.protocol.contract_types import Account, Parameters
from troth.protocol.events import Slashed
from troth.protocol.identifiers import group_id
from troth.protocol.settlement import SlashReason
from troth.protocol.state import ReviewRecord, TaskRecord
from troth.protocol.task import Task
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor, Segment


class FollowedView:
    """See `view.ChainView`. The follower is entered and closed by its owner."""

    def __init__(self, chain: Chain, follower: EventFollower, parameters: Parameters) -> None:
        self._chain = chain
        self._follower = follower
        self._parameters = parameters

    @property
    def domain(self) -> Domain:
        """Chain id and contract."""
        return self._chain.domain

    @property
    def head(self) -> int:
        """Number of the last block that was folded."""
        return self._follower.block

    @property
    def parameters(self) -> Parameters:
        """The contract's windows."""
        return self._parameters

    def account(self, operator: Address) -> Account | None:
        """Stake and standing, None if the operator is not registered."""
        return self._follower.state.accounts.get(operator)

    def vrf_key(self, scheduler: Address) -> tuple[int, int] | None:
        """A scheduler's P-256 key."""
        found = self._follower.state.schedulers.get(scheduler)
        return found.vrf_key if found else None

    def descriptor(self, model: Hash32) -> ModelDescriptor | None:
        """A registered model."""
        return self._follower.state.models.get(model)

    def execution_class(self, class_id: Hash32) -> ExecutionClass | None:
        """A registered class."""
        return self._follower.state.classes.get(class_id)

    def members(self, class_id: Hash32, segment: Segment, block: int) -> Members:
        """The slots of a group as they were at a block; none for a group that nobody joined."""
        group = self._follower.state.groups.get(group_id(class_id, segment))
        return group.members_at(block) if group else []

    def slice_of(self, operator: Address, class_id: Hash32) -> Segment | None:
        """The layers that a node hosts now; None if it is not registered in this class."""
        node = self._follower.state.nodes.get(operator)
        return node.slice if node is not None and node.execution_class == class_id else None

    def segments_of(self, operator: Address, since: int) -> frozenset[Segment]:
        """The segments in whose groups the operator is, or was at a block since then."""
        return self._follower.state.segments_of(operator, since)

    def escrow(self, client: Address) -> int:
        """Free balance in wei."""
        return self._follower.state.escrow_of(client)

    def task(self, task_id: Hash32) -> Task | None:
        """A live task."""
        record = self._follower.state.tasks.get(task_id)
        return record.task if record and record.live else None

    def ended_at(self, task_id: Hash32) -> int | None:
        """The block in which the task got its outcome; None as long as it has none."""
        record = self._follower.state.tasks.get(task_id)
        return None if record is None or record.live else record.events[-1].meta.block

    def record(self, task_id: Hash32) -> TaskRecord | None:
        """All that is known of a task, live or ended."""
        return self._follower.state.tasks.get(task_id)

    def review(self, review_id: Hash32) -> ReviewRecord | None:
        """A segment's second verification, live or ended."""
        return self._follower.state.reviews.get(review_id)

    def lost_dispute(self, operator: Address) -> int | None:
        """The block in which the operator last lost a dispute of its own; None if it never did."""
        reviews = self._follower.state.reviews.values()
        own = (record for record in reviews if record.review.terms.client == operator)
        slashes = (event for record in own for event in record.events if isinstance(event, Slashed))
        lost = (event.meta.block for event in slashes if event.reason is SlashReason.DISPUTE_LOST)
        return max(lost, default=None)

    async def block_hash(self, block: int) -> Hash32:
        """Hash of a block, asked from the node's own RPC."""
        header = await self._chain.block(block)
        if header is None:
            raise WrongChain("the chain node does not have the block", block, "Retry when it has caught up.")
        return header.hash

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for more blocks until the condition holds; looks at the chain's head at once."""
        if condition():
            return True
        await self._follower.catch_up()
        try:
            await self._follower.wait_until(lambda state: condition(), timeout)
        except FollowTimeout:
            return False
        return True
