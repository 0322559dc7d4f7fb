"""The asset of a deployment: the chain's coin, or one ERC-20; and what the Bank may take of an account's tokens."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from troth.chain import decoding
from troth.chain.errors import ChainError
from troth.chain.market import Market, find_place
from troth.chain.rpc import Rpc
from troth.protocol.amounts import RESERVED_UNITS, Asset
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import PartCall, view
from troth.protocol.market.parts import Part
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Address, address_to_bytes, to_address

_LONGEST_SYMBOL = 12
_BALANCE_OF = keccak256(b"balanceOf(address)")[:4]
UNLIMITED = (1 << 96) - 1
"""From here an allowance is no amount: wallets let a contract take "all", which tokens write as their largest number.
Some have 96 bits for it, as the Bank has for amounts."""
_SPENDING: WeakKeyDictionary[Market, asyncio.Lock] = WeakKeyDictionary()


class ContractReader(Protocol):
    """Asks contracts that are none of Troth's: a market, or `RpcContracts` where none stands yet."""

    async def call(self, to: Address, data: bytes) -> bytes:
        """What the contract answers; a ChainError if it reverts."""


class RpcContracts:
    """Asks any contract of a chain, over its node."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def call(self, to: Address, data: bytes) -> bytes:
        """What the contract answers; RpcRefused if it reverts."""
        asked = {"to": to, "data": decoding.hexadecimal(data)}
        return decoding.data(await self._rpc.request("eth_call", asked, "latest"))


async def holdings(rpc: Rpc, asset: Address, account: Address, block: int) -> int:
    """What an account had of an asset at a block, in smallest units; RpcRefused where the node forgot that state."""
    if asset == NO_ADDRESS:
        return decoding.quantity(await rpc.request("eth_getBalance", account, hex(block)))
    data = decoding.hexadecimal(_BALANCE_OF + bytes(12) + address_to_bytes(account))
    answer = await rpc.request("eth_call", {"to": asset, "data": data}, hex(block))
    return int.from_bytes(decoding.data(answer)[:32], "big")


async def asset_of(market: Market) -> Asset:
    """The asset of the deployment."""
    return await read_asset(market, await market.read(view(market.contracts, Part.BANK, "ASSET", returns=Address)))


async def asset_at(rpc: str, factory: str, bank: str = "", start_block: int = 0) -> Asset:
    """The asset of the deployment that a factory made."""
    place = await find_place(rpc, to_address(factory), to_address(bank) if bank else None, start_block)
    async with await Market.connect(rpc, place) as market:
        return await asset_of(market)


def described(asset: Asset) -> dict[str, Any]:
    """The asset as results of commands name it, beside amounts whose names end in ``_units``."""
    return {"asset": asset.symbol, "asset_decimals": asset.decimals}


async def read_asset(contracts: ContractReader, token: Address) -> Asset:
    """An asset, as its token describes itself; raises a ChainError or DecodingError for a contract that is no token."""
    if token == NO_ADDRESS:
        return Asset(token)
    (decimals,) = decode(["uint8"], await contracts.call(token, selector("decimals()")))
    try:
        (symbol,) = decode(["string"], await contracts.call(token, selector("symbol()")))
    except (ChainError, DecodingError, ValueError, OverflowError):
        # A token without a readable name is still money.
        symbol = "token"
    # A stranger's text: only what steers no terminal, is no number, and is not the coin's.
    shown = re.sub(r"[^A-Za-z]", "", symbol)[:_LONGEST_SYMBOL]
    return Asset(token, "token" if shown.lower() in RESERVED_UNITS or not shown else shown, int(decimals))


async def balance(market: Market, asset: Asset, owner: Address) -> int:
    """What an account holds of the asset."""
    if asset.is_coin:
        return await market.chain.balance(owner)
    data = selector("balanceOf(address)") + encode(["address"], [owner])
    (found,) = decode(["uint256"], await market.call(asset.token, data))
    return int(found)


async def allowance(market: Market, token: Address, owner: Address, spender: Address | None = None) -> int:
    """What the Bank, or another spender, may take of an account's tokens."""
    names = [owner, spender or market.contracts.bank]
    data = selector("allowance(address,address)") + encode(["address", "address"], names)
    (found,) = decode(["uint256"], await market.call(token, data))
    return int(found)


def approval(market: Market, token: Address, amount: int, spender: Address | None = None) -> PartCall:
    """Lets the Bank, or another spender, take so much."""
    names = [spender or market.contracts.bank, amount]
    data = selector("approve(address,uint256)") + encode(["address", "uint256"], names)
    return PartCall(token, Call("approve", data))


async def approvals(
    market: Market, token: Address, owner: Address, amount: int, spender: Address | None = None
) -> tuple[PartCall, ...]:
    """What ``owner`` has to send before the Bank, or another, can take ``amount``; nothing where it may already.

    Some tokens refuse to change an allowance that is not zero: there it is taken back first.
    """
    allowed = await allowance(market, token, owner, spender)
    if allowed >= amount:
        return ()
    call = approval(market, token, amount, spender)
    if allowed and (await market.simulate(call, owner)).rejection is not None:
        return approval(market, token, 0, spender), call
    return (call,)


async def approvals_beside(
    market: Market, token: Address, owner: Address, amount: int, spender: Address | None = None
) -> tuple[PartCall, ...]:
    """What ``owner`` has to send before the Bank, or another, can take ``amount`` beside all that was approved for
    other calls; nothing where it may take any amount."""
    allowed = await allowance(market, token, owner, spender)
    return () if allowed >= UNLIMITED else await approvals(market, token, owner, allowed + amount, spender)


def spending(market: Market) -> asyncio.Lock:
    """Held from the look at an allowance to the call that takes it: one approval of a token replaces another, so that
    of two that are made at once one call would find nothing."""
    return _SPENDING.setdefault(market, asyncio.Lock())


async def approvals_in_asset(
    market: Market, owner: Address, amount: int, spender: Address | None = None
) -> tuple[PartCall, ...]:
    """The same for the deployment's own asset; nothing where that is the chain's coin."""
    token: Address = await market.read(view(market.contracts, Part.BANK, "ASSET", returns=Address))
    return () if token == NO_ADDRESS or not amount else await approvals(market, token, owner, amount, spender)


def selector(signature: str) -> bytes:
    """The first four bytes of a call."""
    return keccak256(signature.encode("ascii"))[:4]
