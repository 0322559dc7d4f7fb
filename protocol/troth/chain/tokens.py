"""What the Bank may take of an account's tokens, in a deployment whose asset is an ERC-20."""

from __future__ import annotations

from eth_abi.abi import decode, encode

from troth.chain.market import Market
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import PartCall, view
from troth.protocol.market.parts import Part
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Address


async def allowance(market: Market, token: Address, owner: Address) -> int:
    """What the Bank may take of an account's tokens."""
    data = selector("allowance(address,address)") + encode(["address", "address"], [owner, market.contracts.bank])
    (found,) = decode(["uint256"], await market.call(token, data))
    return int(found)


def approval(market: Market, token: Address, amount: int) -> PartCall:
    """Lets the Bank take so much."""
    data = selector("approve(address,uint256)") + encode(["address", "uint256"], [market.contracts.bank, amount])
    return PartCall(token, Call("approve", data))


async def approvals(market: Market, token: Address, owner: Address, amount: int) -> tuple[PartCall, ...]:
    """What ``owner`` has to send before the Bank can take ``amount``; nothing where it may already.

    Some tokens refuse to change an allowance that is not zero: there it is taken back first.
    """
    allowed = await allowance(market, token, owner)
    if allowed >= amount:
        return ()
    call = approval(market, token, amount)
    if allowed and (await market.simulate(call, owner)).rejection is not None:
        return approval(market, token, 0), call
    return (call,)


async def approvals_in_asset(market: Market, owner: Address, amount: int) -> tuple[PartCall, ...]:
    """The same for the deployment's own asset; nothing where that is the chain's coin."""
    token: Address = await market.read(view(market.contracts, Part.BANK, "ASSET", returns=Address))
    return () if token == NO_ADDRESS or not amount else await approvals(market, token, owner, amount)


def selector(signature: str) -> bytes:
    """The first four bytes of a call."""
    return keccak256(signature.encode("ascii"))[:4]
