"""Amounts of money as people write and read them: exact, in coins or tokens, gwei, wei or smallest units.

Every command reads amounts with `Asset.parse`. A price of the asset in some currency is only ever shown, never counted
with: amounts are whole numbers of smallest units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from troth.protocol.errors import ProtocolError
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Address

LARGEST = (1 << 96) - 1
"""Smallest units: what a contract's uint96 holds."""
PER_MILLION = 1000
"""Prices are signed for 10^9 positions, and named with a unit for a million."""
_LARGEST_PRICE = (1 << 64) - 1
RESERVED_UNITS = frozenset({"ether", "eth", "gwei", "wei", "units"})
"""What no token is called here, whatever it calls itself."""
_LONGEST_NUMBER = 40
_AMOUNT = re.compile(r"(?P<whole>[0-9]{1,40})(\.(?P<fraction>[0-9]{1,18}))?\s*(?P<unit>[A-Za-z]*)")
_QUOTE = re.compile(r"(?P<number>[0-9]{1,12}(\.[0-9]{1,8})?)\s*(?P<currency>[A-Za-z]{2,6})")
_UNITS = ("_units_per_billion", "_units", "_wei")
_FRACTIONS = {"_per_million": (4, " %"), "_per_ten_thousand": (2, " %"), "_millionths": (6, "")}
"""Ends of names of numbers that are no amounts: their decimals, and what follows; the longer end first."""


class AmountError(ProtocolError):
    """An amount of money, or a price, cannot be read."""


@dataclass(frozen=True, slots=True)
class AssetPrice:
    """What one whole coin or token costs in some currency, by the word of whoever runs the command."""

    number: Decimal
    currency: str

    @classmethod
    def parse(cls, text: str) -> AssetPrice:
        """Read `3150.20eur`; raises AmountError."""
        match = _QUOTE.fullmatch(text.strip())
        if match is None or not Decimal(match["number"]):
            raise AmountError("This is not a price", text[:40], "Write what one whole coin costs, like 3150.20eur.")
        return cls(Decimal(match["number"]), match["currency"].upper())

    def show(self, amount: int, decimals: int) -> str:
        """An amount in the currency: two decimals, and two digits where these would be zeros."""
        value = self.number * Decimal(amount) / (Decimal(10) ** decimals)
        shown = f"{value:.2f}" if not value or abs(value) >= Decimal("0.01") else f"{value:.2g}"
        return f"{shown} {self.currency}"


@dataclass(frozen=True, slots=True)
class Asset:
    """What prices and deposits are in; ``token`` is the zero address for the chain's coin.

    With a ``price`` amounts are shown in its currency, too.
    """

    token: Address
    symbol: str = "ether"
    decimals: int = 18
    price: AssetPrice | None = None

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
        """An amount exactly, in whole ones, and in gwei or units where that would be all zeros."""
        worth = "" if self.price is None else f" ({self.price.show(amount, self.decimals)})"
        return self._exactly(amount) + worth

    def _exactly(self, amount: int) -> str:
        if amount and abs(amount) < 10 ** max(self.decimals - 6, 0):
            if self.is_coin and abs(amount) >= 10**6:
                return f"{_exact(amount, 9)} gwei"
            return f"{amount} wei" if self.is_coin else f"{amount} units"
        return f"{_exact(amount, self.decimals)} {self.symbol}"

    def prices(self, text: str) -> tuple[int, int, int]:
        """PROMPT,CACHED,WRITTEN, as signed: units per 10^9 positions.

        A price with a unit, such as 0.5gwei, is for a million positions; a plain number is what is signed. 0 is a
        price. Raises AmountError.
        """
        parts = [part.strip() for part in text.split(",")]
        if len(parts) != 3:
            remedy = f"Say PROMPT,CACHED,WRITTEN for a million positions, such as {self._example()}."
            raise AmountError("There are three prices", text[:120], remedy)
        prompt, cached, written = (self.one_price(part) for part in parts)
        return prompt, cached, written

    def show_price(self, price: int) -> str:
        """A signed price, for a million positions."""
        whole, rest = divmod(price, PER_MILLION)
        return f"{price} units per 10^9" if rest else f"{self.show(whole)} a million"

    def one_price(self, text: str) -> int:
        """One of them."""
        plain = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
        price = int(text) if plain else self.parse(text) * PER_MILLION
        if price > _LARGEST_PRICE:
            raise AmountError("The price is above 2^64 - 1 units per 10^9 positions", text[:40], "Ask less.")
        return price

    def _example(self) -> str:
        unit = "gwei" if self.is_coin else self.symbol
        return f"0.3{unit},0.03{unit},0.6{unit}"

    def _units(self) -> dict[str, int]:
        coin = {"ether": 18, "eth": 18, "gwei": 9, "wei": 0} if self.is_coin else {}
        return {**coin, self.symbol.lower(): self.decimals, "units": 0}


COIN = Asset(NO_ADDRESS)


def price_text(price: int, decimals: int) -> str:
    """A signed price as decimal text of whole assets for one position, as OpenRouter's lists have it."""
    return _exact(price, decimals + 9)


def readable(told: Mapping[str, Any], price: AssetPrice | None = None, asset: Asset = COIN) -> dict[str, Any]:
    """A command's JSON for people: names that end in their unit lose it, and their values get it.

    ``_units`` is the deployment's asset, ``_wei`` the chain's coin, ``_units_per_billion`` a price. A share of a whole
    is in ``_per_million`` or ``_per_ten_thousand``, another number in ``_millionths``. ``asset`` and ``asset_decimals``
    in ``told`` say what the asset is. ``price``: of that asset.
    """
    if isinstance(told.get("asset"), str) and isinstance(told.get("asset_decimals"), int):
        token = NO_ADDRESS if told["asset"] == COIN.symbol else Address("")
        asset = Asset(token, told["asset"], told["asset_decimals"])
    asset = replace(asset, price=price)
    shown: dict[str, Any] = {}
    for name, value in told.items():
        if name != "asset_decimals":
            plain, text = _readable_one(name, value, asset)
            shown[plain] = text
    return shown


def _readable_one(name: str, value: Any, asset: Asset) -> tuple[str, Any]:
    if isinstance(value, Mapping):
        return name, readable(value, asset.price, asset)
    if isinstance(value, list):
        return name, [readable(one, asset.price, asset) if isinstance(one, Mapping) else one for one in value]
    if value in (None, "") and name.endswith(_UNITS):
        return next(name.removesuffix(one) for one in _UNITS if name.endswith(one)), None
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).isdecimal():
        return name, value
    for end, (decimals, unit) in _FRACTIONS.items():
        if name.endswith(end):
            return name.removesuffix(end), f"{_exact(int(value), decimals)}{unit}"
    if name.endswith("_units_per_billion"):
        return name.removesuffix("_units_per_billion"), asset.show_price(int(value))
    if name.endswith("_units"):
        return name.removesuffix("_units"), asset.show(int(value))
    if name.endswith("_wei"):
        return name.removesuffix("_wei"), (asset if asset.is_coin else COIN).show(int(value))
    return name, value


def lines(told: Mapping[str, Any], indent: int = 0) -> Iterator[str]:
    """What `readable` gave, as aligned lines; a table inside is indented below its name."""
    width = max((len(name) for name, value in told.items() if not isinstance(value, Mapping)), default=0)
    for name, value in told.items():
        head = f"{'':<{indent}}{name.replace('_', ' '):<{width}}"
        if isinstance(value, Mapping):
            yield f"{'':<{indent}}{name.replace('_', ' ')}"
            yield from lines(value, indent + 2)
        elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
            for number, one in enumerate(value, 1):
                yield f"{'':<{indent}}{name.replace('_', ' ')} {number}"
                yield from lines(one if isinstance(one, Mapping) else {"": one}, indent + 2)
        else:
            several = [str(one) for one in value] if isinstance(value, list | tuple) else [_plain(value)]
            yield f"{head}  {several[0] if several else '-'}"
            yield from (f"{'':<{indent + width}}  {one}" for one in several[1:])


def _plain(value: object) -> str:
    return {None: "-", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def _exact(amount: int, places: int) -> str:
    whole, fraction = divmod(abs(amount), 10**places)
    text = f"{whole}.{fraction:0{places}d}".rstrip("0").rstrip(".") if places else str(whole)
    return f"-{text}" if amount < 0 else text
