"""What reaches a terminal: text without the characters that steer it, and our own lines in colours."""

from __future__ import annotations

import os
import re
from typing import TextIO

# C0 and C1 controls but for tab and line feed, the marks that reorder text around them (Unicode Bidi controls), and
# halves of surrogate pairs, which are no text: whoever writes them out as UTF-8 stops there.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_RED, _GREEN, _DIM, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"
_ALARMS = ("error", "REJECTED", "NO MAJORITY", "OWN MODEL", "CHECK REFUSED", "NOT CHECKED YET", "FAILED")


def printable(text: str) -> str:
    """`text` without escape sequences' first characters: it can no longer move the cursor or hide what was printed, and
    can be written out."""
    return _STEERING.sub("", text)


def printable_line(value: object, longest: int = 300) -> str:
    """Somebody else's words as one short line, for error messages."""
    text = printable(str(value)).replace("\n", " ").strip()
    return text if len(text) <= longest else text[:longest] + "…"


def coloured(line: str, stream: TextIO) -> str:
    """A line of our own: red for what must not be overlooked, green for a check that passed, else dim.

    Only on a terminal, and not where NO_COLOR is set (no-color.org).
    """
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return line
    colour = _RED if line.startswith(_ALARMS) else _GREEN if line.startswith("checked") else _DIM
    return f"{colour}{line}{_PLAIN}"
