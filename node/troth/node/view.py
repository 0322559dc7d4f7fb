"""What a node needs to know of the chain, as it sees it itself: never from the scheduler that asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from troth.protocol.assignment import Members
from troth.protocol.contract_types import Account, Parameters
from troth.protocol.state import ReviewRecord, TaskRecord
from troth.protocol.task import Task
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor, Segment


class ChainView(Protocol):
    """The folded events of one contract up to `head`; reads are of memory, only `block_hash` may ask the chain."""

    @property
    def domain(self) -> Domain:
        """Chain id and contract."""

    @property
    def head(self) -> int:
        """Number of the last block that was folded."""

    @property
    def parameters(self) -> Parameters:
        """The contract's windows."""

    def account(self, operator: Address) -> Account | None:
        """Stake and standing of an operator, None if it is not registered."""

    def vrf_key(self, scheduler: Address) -> tuple[int, int] | None:
        """A scheduler's P-256 key."""

    def descriptor(self, model: Hash32) -> ModelDescriptor | None:
        """A registered model."""

    def execution_class(self, class_id: Hash32) -> ExecutionClass | None:
        """A registered class."""

    def members(self, class_id: Hash32, segment: Segment, block: int) -> Members:
        """The slots of a group as they were at a block."""

    def slice_of(self, operator: Address, class_id: Hash32) -> Segment | None:
        """The layers that a node hosts at the head; None if it is not registered in this class."""

    def segments_of(self, operator: Address, since: int) -> frozenset[Segment]:
        """The segments in whose groups the operator is, or was at a block since then."""

    def escrow(self, client: Address) -> int:
        """A client's free balance in wei."""

    def task(self, task_id: Hash32) -> Task | None:
        """A live task; None before it is opened and after it has ended."""

    def ended_at(self, task_id: Hash32) -> int | None:
        """The block in which the task got its outcome; None as long as it has none."""

    def record(self, task_id: Hash32) -> TaskRecord | None:
        """All that is known of a task, live or ended."""

    def review(self, review_id: Hash32) -> ReviewRecord | None:
        """A segment's second verification, live or ended."""

    def lost_dispute(self, operator: Address) -> int | None:
        """The block in which the operator last lost a dispute of its own; None if it never did."""

    async def block_hash(self, block: int) -> Hash32:
        """Hash of a block at or below the head."""

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for more blocks until the condition holds; False after `timeout` seconds."""
