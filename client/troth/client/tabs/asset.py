"""A payer's permit for the deployment's token (EIP-2612), which stands for an approval."""

from __future__ import annotations

from dataclasses import dataclass

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from troth.chain.errors import ChainError
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import selector
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import sign_digest
from troth.protocol.types import Address, Hash32

_PERMIT_TYPE = keccak256(b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)")


@dataclass(frozen=True, slots=True)
class Permit:
    """An owner's signature that stands for an approval."""

    deadline: int
    v: int
    r: Hash32
    s: Hash32


async def permit(market: Market, token: Address, key: Key, amount: int, deadline: int) -> Permit | None:
    """A permit for the Bank; None where the token knows none, and an approval is needed."""
    try:
        separator = await market.call(token, selector("DOMAIN_SEPARATOR()"))
        nonces = selector("nonces(address)") + encode(["address"], [key.address])
        (nonce,) = decode(["uint256"], await market.call(token, nonces))
    except (ChainError, DecodingError, ValueError, OverflowError):
        return None
    if len(separator) != 32:
        return None
    kinds = ["bytes32", "address", "address", "uint256", "uint256", "uint256"]
    values = [_PERMIT_TYPE, key.address, market.contracts.bank, amount, nonce, deadline]
    digest = Hash32(keccak256(b"\x19\x01" + separator + keccak256(encode(kinds, values))))
    signature = sign_digest(digest, key.secret)
    return Permit(deadline, signature[64], Hash32(signature[:32]), Hash32(signature[32:64]))
