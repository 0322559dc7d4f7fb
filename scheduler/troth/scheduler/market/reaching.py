"""What is read of a deployment's chain beside its events."""

from __future__ import annotations

from troth.chain import decoding
from troth.chain.adapter import REQUEST_TIMEOUT
from troth.chain.errors import ChainError
from troth.chain.rpc import Rpc
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Address

COIN_DECIMALS = 18
_DECIMALS_SELECTOR = "0x313ce567"
"""decimals() of an ERC-20, which the standard leaves to the token."""


async def asset_decimals(rpc_url: str, asset: Address) -> int:
    """How many decimals the asset's whole unit has; a token that does not say so is taken to count whole units."""
    if asset == NO_ADDRESS:
        return COIN_DECIMALS
    rpc = Rpc(rpc_url, timeout=REQUEST_TIMEOUT)
    try:
        said = decoding.data(await rpc.request("eth_call", {"to": asset, "data": _DECIMALS_SELECTOR}, "latest"))
    except ChainError:
        return 0
    finally:
        await rpc.close()
    return int.from_bytes(said) if len(said) == 32 and int.from_bytes(said) <= 77 else 0
