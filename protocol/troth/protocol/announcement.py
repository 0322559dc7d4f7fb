"""The announcement of a task: what a scheduler shows a node before the node serves.

``request`` and ``salt`` go only to those who need the text: the parties of the first and of the last segment.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.ends import pack_ends
from troth.protocol.errors import InvalidRequest, WireError
from troth.protocol.request import Request, canonical_bytes, from_canonical_bytes
from troth.protocol.types import Address, Hash32, Order, address_from_bytes
from troth.protocol.wire import AnnouncementPart, OrderPart


@dataclass(frozen=True, slots=True)
class Announcement:
    """Signed order, layer split, and per segment the VRF output and proof; ``assignment`` checks it."""

    order: Order
    signature: bytes
    ends: tuple[int, ...]
    betas: tuple[Hash32, ...]
    proofs: tuple[bytes, ...]
    request: Request | None = None
    salt: Hash32 | None = None

    def without_request(self) -> Announcement:
        """The announcement for parties that need no text."""
        return Announcement(self.order, self.signature, self.ends, self.betas, self.proofs)


def order_to_wire(order: Order) -> OrderPart:
    """The order as a header part; its split travels beside it."""
    return OrderPart(
        execution_class=order.execution_class,
        request_hash=order.request_hash,
        scheduler=order.scheduler,
        max_fee=str(order.max_fee),
        deadline=order.deadline,
        reference_block=order.reference_block,
        nonce=order.nonce,
    )


def order_from_wire(part: OrderPart, ends: tuple[int, ...]) -> Order:
    """The order of a header part and the split beside it; the address gets its checksum."""
    return Order(
        execution_class=Hash32(part.execution_class),
        request_hash=Hash32(part.request_hash),
        scheduler=_address(part.scheduler),
        max_fee=int(part.max_fee),
        deadline=part.deadline,
        reference_block=part.reference_block,
        nonce=part.nonce,
        ends=pack_ends(ends),
    )


def announcement_to_wire(announcement: Announcement) -> tuple[AnnouncementPart, bytes]:
    """Header part, and the canonical request with which the payload starts (empty without one)."""
    part = AnnouncementPart(
        order=order_to_wire(announcement.order),
        signature=announcement.signature,
        ends=announcement.ends,
        betas=announcement.betas,
        proofs=announcement.proofs,
        salt=announcement.salt,
    )
    return part, b"" if announcement.request is None else canonical_bytes(announcement.request)


def announcement_from_wire(part: AnnouncementPart, request: bytes | memoryview) -> Announcement:
    """Inverse of ``announcement_to_wire``; raises WireError where request and salt do not come together."""
    if (part.salt is None) != (len(request) == 0):
        raise WireError("A salt and a canonical request come together", len(request), "Send both or neither.")
    try:
        decoded = from_canonical_bytes(bytes(request)) if len(request) else None
    except InvalidRequest as error:
        raise WireError("The payload starts with no canonical request", str(error), error.remedy) from error
    return Announcement(
        order=order_from_wire(part.order, part.ends),
        signature=part.signature,
        ends=part.ends,
        betas=tuple(Hash32(beta) for beta in part.betas),
        proofs=part.proofs,
        request=decoded,
        salt=None if part.salt is None else Hash32(part.salt),
    )


def _address(text: str) -> Address:
    return address_from_bytes(bytes.fromhex(text[2:]))
