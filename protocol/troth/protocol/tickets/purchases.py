"""What a buyer keeps and commits to: tickets that follow from one seed, and the tree over their blinded points.

Everything of a purchase follows from its 32-byte seed, so that a client that was restored asks members again and is
given the same signatures. The chain keeps the tree's root: members sign what is in it and nothing else, and a ticket
that was lost is shown to be in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from py_arkworks_bls12381 import G1Point

from troth.protocol.hashing import keccak256
from troth.protocol.tickets.curve import ORDER, InvalidTicket, encode_point, padded
from troth.protocol.tickets.signing import blind
from troth.protocol.typed_data import CURVE_ORDER, address_of
from troth.protocol.types import Address, Hash32, Uint8, Uint16, Uint64, address_to_bytes

MAXIMUM_COUNT = 256
NAME_TAG, BLINDING_TAG = b"troth/tickets/name/1", b"troth/tickets/blinding/1"


@dataclass(frozen=True, slots=True)
class Purchase:
    """Tickets that an account paid for, as the contract's struct."""

    buyer: Address
    epoch: Uint64
    denomination: Uint8
    count: Uint16
    root: Hash32

    @property
    def identifier(self) -> Hash32:
        """What the chain knows it by."""
        words = (self.epoch, self.denomination, self.count)
        buyer = bytes(12) + address_to_bytes(self.buyer)
        return Hash32(keccak256(buyer + b"".join(one.to_bytes(32, "big") for one in words) + self.root))


@dataclass(frozen=True, slots=True)
class TicketSecret:
    """A ticket's own key, whose account is its name, and its blinding."""

    secret: bytes
    blinding: int

    @property
    def name(self) -> Address:
        """The account that signs when it is spent."""
        return address_of(self.secret)

    @property
    def point(self) -> G1Point:
        """What members see of it."""
        return blind(self.name, self.blinding)


def ticket_secret(seed: bytes, index: int) -> TicketSecret:
    """One ticket of a purchase."""
    tail = seed + index.to_bytes(2, "big")
    return TicketSecret(_below(NAME_TAG + tail, CURVE_ORDER).to_bytes(32, "big"), _below(BLINDING_TAG + tail, ORDER))


def ticket_secrets(seed: bytes, count: int) -> tuple[TicketSecret, ...]:
    """All tickets of a purchase, in their order; raises InvalidTicket for more than 256."""
    if not 1 <= count <= MAXIMUM_COUNT:
        raise InvalidTicket(f"A purchase has 1 to {MAXIMUM_COUNT} tickets", count, "Buy the others by another.")
    return tuple(ticket_secret(seed, index) for index in range(count))


def leaf_of(index: int, point: bytes) -> Hash32:
    """The leaf of a blinded point of 96 bytes."""
    return Hash32(keccak256(keccak256(index.to_bytes(2, "big") + padded(point))))


def root_of(points: Sequence[bytes]) -> Hash32:
    """The root over blinded points in their order: pairs are sorted, one without a neighbour goes up as it is."""
    level = [leaf_of(index, point) for index, point in enumerate(points)]
    while len(level) > 1:
        level = _above(level)
    return level[0]


def proof_of(points: Sequence[bytes], index: int) -> tuple[Hash32, ...]:
    """The neighbours on the way up, as OpenZeppelin's MerkleProof takes them."""
    level = [leaf_of(number, point) for number, point in enumerate(points)]
    proof = []
    while len(level) > 1:
        if index ^ 1 < len(level):
            proof.append(level[index ^ 1])
        level, index = _above(level), index // 2
    return tuple(proof)


def is_inside(purchase: Purchase, index: int, point: bytes, proof: Sequence[Hash32]) -> bool:
    """Whether a blinded point of 96 bytes stands at this place of a purchase, as the contract decides it."""
    node = leaf_of(index, point)
    for other in proof:
        node = _pair(node, other)
    return 0 <= index < purchase.count and node == purchase.root and any(point)


def points_of(secrets: Sequence[TicketSecret]) -> tuple[bytes, ...]:
    """Blinded points, 96 bytes each."""
    return tuple(encode_point(one.point) for one in secrets)


def _above(level: Sequence[Hash32]) -> list[Hash32]:
    pairs = [level[place : place + 2] for place in range(0, len(level), 2)]
    return [_pair(pair[0], pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]


def _pair(one: Hash32, other: Hash32) -> Hash32:
    return Hash32(keccak256(b"".join(sorted((one, other)))))


def _below(data: bytes, limit: int) -> int:
    """1 to ``limit`` - 1, by 512 bits: as good as uniform."""
    return 1 + int.from_bytes(hashlib.sha512(data).digest(), "big") % (limit - 1)
