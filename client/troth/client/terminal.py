"""What reaches a terminal: text without the characters that steer it."""

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
