"""The signing identity of a party: its operator key on one chain and contract."""

from __future__ import annotations

from dataclasses import dataclass, field

from troth.protocol import typed_data
from troth.protocol.types import Address


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator key bound to the EIP-712 domain of one Troth contract. The secret never shows in repr or logs.

    Args:
        secret: 32-byte secp256k1 key.
        domain: chain id and contract that every signature is for.
        address: the operator address, derived from the secret.
    """

    secret: bytes = field(repr=False)
    domain: typed_data.Domain
    address: Address = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", typed_data.address_of(self.secret))

    def sign(self, message: object) -> bytes:
        """65-byte signature over the EIP-712 digest of a message."""
        return typed_data.sign(message, self.domain, self.secret)
