"""Amounts of ether, shown exactly. Inside the program every amount is in wei."""

from __future__ import annotations

DECIMALS = {"wei": 0, "gwei": 9, "ether": 18, "eth": 18}
"""Places after the point: a unit is 10 to this power in wei."""


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
