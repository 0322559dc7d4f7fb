"""Amounts of ether: read from the command line exactly, shown exactly. Inside the program every amount is in wei."""

from __future__ import annotations

import re
from decimal import Decimal

from .errors import AmountError

WEI_PER = {"wei": 1, "gwei": 10**9, "ether": 10**18, "eth": 10**18}
LARGEST = 2**96 - 1
_AMOUNT = re.compile(r"(?P<number>\d{1,40}(\.\d{1,18})?)\s*(?P<unit>[a-z]*)")


def parse_amount(text: str) -> int:
    """Read `0.05`, `0.05ether`, `20gwei` or `1000wei` into wei; a bare number is ether.

    Raises AmountError for anything else, for fractions of a wei, zero, and more than the contract can hold.
    """
    match = _AMOUNT.fullmatch(text.strip().lower())
    unit = (match["unit"] or "ether") if match else ""
    if match is None or unit not in WEI_PER:
        raise AmountError("This is not an amount", text, "Write it like 0.05ether, 20gwei or 1000wei.")
    wei = Decimal(match["number"]) * WEI_PER[unit]
    if wei != int(wei):
        raise AmountError("The amount has a fraction of a wei", text, "Use at most 18 decimals of ether.")
    if not 0 < wei <= LARGEST:
        raise AmountError("The amount is outside what the contract can hold", text, f"Use 1wei to {LARGEST}wei.")
    return int(wei)


def format_amount(wei: int) -> str:
    """Show wei exactly, in ether from a micro-ether up and in gwei or wei below."""
    for unit, least in (("ether", 10**12), ("gwei", 10**6)):
        if abs(wei) >= least:
            return f"{_exact(wei, WEI_PER[unit])} {unit}"
    return f"{wei} wei"


def _exact(wei: int, per: int) -> str:
    text = f"{Decimal(wei).scaleb(-(len(str(per)) - 1)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
