"""The directory's committee (contracts/overlay/Committee.sol): members, how many must sign, what changes them."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.errors import InvalidField
from troth.protocol.types import Address, Hash32, Uint64, to_address, to_hash32

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


def reports_needed(members: int) -> int:
    """How many of the members must call a node silent: half of the threshold, which is more than a third of them."""
    return (threshold(members) + 1) // 2


def read_member(text: str) -> CommitteeMember:
    """`operator,0xtlskeyhash,https://…`, as `troth committee init` prints it; raises InvalidField."""
    try:
        operator, tls_key_hash, endpoint = text.split(",", 2)
        key_hash = to_hash32(bytes.fromhex(tls_key_hash.removeprefix("0x")))
        return CommitteeMember(to_address(operator), key_hash, endpoint)
    except ValueError as error:
        remedy = "Write --member 0xOPERATOR,0xTLSKEYHASH,https://name:port, as `troth committee init` prints it."
        raise InvalidField("This is no member of a committee", text, remedy) from error
