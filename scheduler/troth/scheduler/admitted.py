"""A task that was taken: the signed order with everything that follows from it, frozen."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol import tensors
from troth.protocol.announcement import Announcement
from troth.protocol.assignment import Assignment
from troth.protocol.dtype import Dtype
from troth.protocol.types import pack_ends
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.request import Request, canonical_bytes, from_canonical_bytes
from troth.protocol.trace import tile_count
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor, Order, segments_from_ends
from troth.scheduler.records import Received


@dataclass(frozen=True, slots=True)
class AdmittedTask:
    """Order, request, class and the parties that were drawn.

    `alphas` are the VRF inputs of the assignment, one per segment; the contract needs hints made from them. `logprobs`
    is the client's hint; the journal does not keep it, since no token is handed out after a restart.
    """

    order: Order
    signature: bytes
    fee: int
    request: Request
    salt: Hash32
    execution_class: ExecutionClass
    model: ModelDescriptor
    assignment: Assignment
    alphas: tuple[Hash32, ...]
    logprobs: int = NO_LOGPROBS

    @property
    def task_id(self) -> Hash32:
        """EIP-712 digest of the order."""
        return self.assignment.task_id

    @property
    def client(self) -> Address:
        """Who signed the order and pays."""
        return self.assignment.client

    @property
    def ends(self) -> tuple[int, ...]:
        """The layer split."""
        return tuple(segment.end for segment in self.assignment.segments)

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return len(self.assignment.segments)

    @property
    def dtype(self) -> Dtype:
        """Number format of the rows."""
        return Dtype(self.execution_class.dtype)

    @property
    def row_bytes(self) -> int:
        """Bytes of one boundary state."""
        return tensors.row_size(self.model.hidden_size, self.dtype)

    def tiles(self, positions: int) -> int:
        """Tiles of a trace with this many rows."""
        return tile_count(positions, self.model.hidden_size, self.dtype)

    def announcement(self, segment: int) -> Announcement:
        """What the parties of a segment are shown: the text only at the first and the last one."""
        whole = Announcement(
            self.order,
            self.signature,
            self.ends,
            self.assignment.betas,
            self.assignment.proofs,
            self.request,
            self.salt,
        )
        return whole if segment in (0, self.segment_count - 1) else whole.without_request()

    def to_record(self) -> Received:
        """The task as the journal keeps it."""
        order = self.order
        return Received(
            execution_class=order.execution_class,
            request_hash=order.request_hash,
            scheduler=order.scheduler,
            max_fee=str(order.max_fee),
            deadline=order.deadline,
            reference_block=order.reference_block,
            nonce=order.nonce,
            signature=self.signature,
            client=self.client,
            fee=str(self.fee),
            request=canonical_bytes(self.request),
            salt=self.salt,
            ends=self.ends,
            alphas=self.alphas,
            betas=self.assignment.betas,
            proofs=self.assignment.proofs,
            parties=self.assignment.parties,
        )


def from_record(
    task_id: Hash32, record: Received, execution_class: ExecutionClass, model: ModelDescriptor
) -> AdmittedTask:
    """Inverse of `to_record`, for a restart."""
    order = Order(
        execution_class=Hash32(record.execution_class),
        request_hash=Hash32(record.request_hash),
        scheduler=Address(record.scheduler),
        max_fee=int(record.max_fee),
        deadline=record.deadline,
        reference_block=record.reference_block,
        nonce=record.nonce,
        ends=pack_ends(record.ends),
    )
    assignment = Assignment(
        task_id=task_id,
        client=Address(record.client),
        segments=segments_from_ends(record.ends, model.layers),
        parties=tuple(tuple(Address(party) for party in parties) for parties in record.parties),
        betas=tuple(Hash32(beta) for beta in record.betas),
        proofs=record.proofs,
        candidate_count=execution_class.candidates,
    )
    return AdmittedTask(
        order=order,
        signature=record.signature,
        fee=int(record.fee),
        request=from_canonical_bytes(record.request),
        salt=Hash32(record.salt),
        execution_class=execution_class,
        model=model,
        assignment=assignment,
        alphas=tuple(Hash32(alpha) for alpha in record.alphas),
    )
