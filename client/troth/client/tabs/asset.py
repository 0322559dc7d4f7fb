"""The asset of a deployment: the chain's coin, or one ERC-20 with its own decimals and, perhaps, permits (EIP-2612)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eth_abi.abi import decode, encode

from troth.chain.errors import ChainError
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import selector
from troth.client.errors import AmountError
from troth.client.terminal import printable_line
from troth.protocol.hashing import keccak256
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.typed_data import sign_digest
from troth.protocol.types import Address, Hash32

LARGEST = (1 << 96) - 1
_AMOUNT = re.compile(r"(?P<whole>[0-9]{1,40})(\.(?P<fraction>[0-9]{1,18}))?\s*(?P<unit>[A-Za-z]*)")
_PERMIT_TYPE = keccak256(b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)")
_LONGEST_SYMBOL = 12


@dataclass(frozen=True, slots=True)
class Asset:
    """What prices and deposits are in; ``token`` is the zero address for the chain's coin."""

    token: Address
    symbol: str = "ether"
    decimals: int = 18

    @property
    def is_coin(self) -> bool:
        """Whether it goes with a transaction as its value."""
        return self.token == NO_ADDRESS

    def parse(self, text: str) -> int:
        """Read `0.05`, `0.05ether`, `2.5usdc` or `1000units`; without a unit it is whole ones. Raises AmountError."""
        match = _AMOUNT.fullmatch(text.strip())
        places = self._units().get((match["unit"] or self.symbol).lower()) if match else None
        if match is None or places is None:
            raise AmountError("This is not an amount", text[:40], f"Write it like 0.05{self.symbol} or 1000units.")
        fraction = (match["fraction"] or "").rstrip("0")
        if len(fraction) > places:
            raise AmountError("The amount has a fraction of a unit", text[:40], f"Use at most {places} decimals.")
        amount = int(match["whole"] + fraction.ljust(places, "0"))
        if not 0 < amount <= LARGEST:
            raise AmountError("The amount is outside what a tab can hold", text[:40], f"Use 1 to {LARGEST} units.")
        return amount

    def show(self, amount: int) -> str:
        """An amount exactly, in whole ones, and in units where that would be all zeros."""
        if abs(amount) < 10 ** max(self.decimals - 9, 0) and amount:
            return f"{amount} units"
        whole, fraction = divmod(abs(amount), 10**self.decimals)
        text = f"{whole}.{fraction:0{self.decimals}d}".rstrip("0").rstrip(".") if self.decimals else str(whole)
        return f"{'-' if amount < 0 else ''}{text} {self.symbol}"

    def _units(self) -> dict[str, int]:
        coin = {"ether": 18, "eth": 18, "gwei": 9, "wei": 0} if self.is_coin else {}
        return {**coin, self.symbol.lower(): self.decimals, "units": 0}


async def read_asset(market: Market, token: Address) -> Asset:
    """The asset of a deployment, as its token describes itself."""
    if token == NO_ADDRESS:
        return Asset(token)
    (decimals,) = decode(["uint8"], await market.call(token, selector("decimals()")))
    try:
        (symbol,) = decode(["string"], await market.call(token, selector("symbol()")))
    except (ChainError, ValueError, OverflowError):
        # A token without a readable name is still money.
        symbol = "token"
    shown = re.sub(r"[^A-Za-z0-9]", "", printable_line(symbol))[:_LONGEST_SYMBOL]
    return Asset(token, shown or "token", int(decimals))


async def balance(market: Market, asset: Asset, owner: Address) -> int:
    """What an account holds of the asset."""
    if asset.is_coin:
        return await market.chain.balance(owner)
    data = selector("balanceOf(address)") + encode(["address"], [owner])
    (found,) = decode(["uint256"], await market.call(asset.token, data))
    return int(found)


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
    except (ChainError, ValueError, OverflowError):
        return None
    if len(separator) != 32:
        return None
    kinds = ["bytes32", "address", "address", "uint256", "uint256", "uint256"]
    values = [_PERMIT_TYPE, key.address, market.contracts.bank, amount, nonce, deadline]
    digest = Hash32(keccak256(b"\x19\x01" + separator + keccak256(encode(kinds, values))))
    signature = sign_digest(digest, key.secret)
    return Permit(deadline, signature[64], Hash32(signature[:32]), Hash32(signature[32:64]))
