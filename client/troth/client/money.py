"""Amounts of ether: read from the command line exactly, shown exactly. Inside the program every amount is in wei."""

from __future__ import annotations

import re

from .errors import AmountError

DECIMALS = {"wei": 0, "gwei": 9, "ether": 18, "eth": 18}
"""Places after the point: a unit is 10 to this power in wei."""
LARGEST = 2**96 - 1
_AMOUNT = re.compile(r"(?P<whole>[0-9]{1,40})(\.(?P<fraction>[0-9]{1,18}))?\s*(?P<unit>[a-z]*)")


def parse_amount(text: str) -> int:
    """Read `0.05`, `0.05ether`, `20gwei` or `1000wei` into wei; a bare number is ether.

    Raises AmountError for anything else, for fractions of a wei, zero, and more than the contract can hold.
    """
    match = _AMOUNT.fullmatch(text.strip().lower())
    unit = (match["unit"] or "ether") if match else ""
    if match is None or unit not in DECIMALS:
        raise AmountError("This is not an amount", text, "Write it like 0.05ether, 20gwei or 1000wei.")
    # Whole numbers throughout: decimal arithmetic would round at 28 digits.
    fraction, places = (match["fraction"] or "").rstrip("0"), DECIMALS[unit]
    wei = int(match["whole"] + fraction.ljust(places, "0"))
    if len(fraction) > places:
        raise AmountError("The amount has a fraction of a wei", text, "Use at most 18 decimals of ether.")
    if not 0 < wei <= LARGEST:
        raise AmountError("The amount is outside what the contract can hold", text, f"Use 1wei to {LARGEST}wei.")
    return wei


def format_amount(wei: int) -> str:
    """Show wei exactly, in ether from a micro-ether up and in gwei or wei below."""
    for unit, least in (("ether", 10**12), ("gwei", 10**6)):
        if abs(wei) >= least:
            return f"{_exact(wei, DECIMALS[unit])} {unit}"
    return f"{wei} wei"


def _exact(wei: int, places: int) -> str:
    whole, fraction = divmod(abs(wei), 10**places)
    text = f"{whole}.{fraction:0{places}d}".rstrip("0").rstrip(".")
    return f"-{text}" if wei < 0 else text
