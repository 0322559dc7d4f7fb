"""The directory's committee (contracts/overlay/Committee.sol): members, how many must sign, what changes them."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.types import Address, Hash32, Uint64

MAXIMUM_MEMBERS = 32


@dataclass(frozen=True, slots=True)
class CommitteeMember:
    """Who signs lists: operator address, SHA-256 of the TLS key at the endpoint, and the endpoint (``https://…``)."""

    operator: Address
    tls_key_hash: Hash32
    endpoint: str


@dataclass(frozen=True, slots=True)
class AddMember:
    """EIP-712 message of more than 2/3 of the members: this one belongs to them from now on."""

    operator: Address
    tls_key_hash: Hash32
    endpoint: str
    nonce: Uint64


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """EIP-712 message of more than 2/3 of the members: this one leaves."""

    operator: Address
    nonce: Uint64


@dataclass(frozen=True, slots=True)
class MoveMember:
    """EIP-712 message of more than 2/3 of the members: this one has another endpoint or TLS key."""

    operator: Address
    tls_key_hash: Hash32
    endpoint: str
    nonce: Uint64


def threshold(members: int) -> int:
    """The least number that is more than 2/3 of ``members``."""
    return 2 * members // 3 + 1
