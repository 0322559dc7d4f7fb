"""What reaches a terminal: text without the characters that steer it, and amounts of ether, shown exactly."""

from __future__ import annotations

import re

# C0 and C1 controls but for tab and line feed, and the marks that reorder text around them (Unicode Bidi controls).
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """`text` without escape sequences' first characters: it can no longer move the cursor or hide what was printed."""
    return _STEERING.sub("", text)


def printable_line(value: object, longest: int = 300) -> str:
    """Somebody else's words as one short line, for error messages."""
    text = printable(str(value)).replace("\n", " ").strip()
    return text if len(text) <= longest else text[:longest] + "…"


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
