"""Where an id, or its beginning, leads: to the page of a node, a scheduler, a task, a case or a dispute.

Accounts that pay are in no index, so that nobody is found by one.
"""

from __future__ import annotations

import re

from troth.explorer.database import Database
from troth.explorer.errors import NothingHere

TYPED = re.compile(r"(?:0x)?([0-9a-f]{4,64})")
REMEDY = (
    "Type the id of a node, a scheduler, a task, a case or a dispute, or its beginning: four digits after 0x or more."
)
_PLACES = (
    (
        "schedulers",
        "SELECT operator FROM parties WHERE role='scheduler' AND lower(operator) >= ? AND lower(operator) < ?",
    ),
    ("nodes", "SELECT operator FROM parties WHERE role='node' AND lower(operator) >= ? AND lower(operator) < ?"),
    ("cases", "SELECT case_id FROM cases WHERE case_id >= ? AND case_id < ?"),
    ("disputes", "SELECT dispute FROM disputes WHERE dispute >= ? AND dispute < ?"),
    ("tasks", "SELECT DISTINCT order_id FROM tasks WHERE order_id >= ? AND order_id < ?"),
)


def page_of(database: Database, typed: str) -> str:
    """The page below the first one; NothingHere where nothing, or more than one thing, begins so."""
    digits = TYPED.fullmatch(typed.strip().lower())
    if digits is None:
        raise NothingHere("This is no id", typed[:80], REMEDY)
    begin = f"0x{digits[1]}"
    # No hexadecimal digit sorts after "f": everything that begins so lies before this.
    span = (begin, f"{begin}g")
    found = [
        f"{page}/{name}" for page, query in _PLACES for (name,) in database.execute(f"{query} LIMIT 2", span).fetchall()
    ]
    if len(found) != 1:
        what = "Several ids begin so" if found else "Nothing here has this id"
        raise NothingHere(what, begin, "Type more of it." if found else REMEDY)
    return found[0]
