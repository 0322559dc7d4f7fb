"""What the options of a figure name: a party, a case, a task. One that the index does not know is an error.

An empty table would say that nothing happened to it. A name is written as the index has it before it is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from troth.explorer.database import Database
from troth.explorer.errors import NothingHere
from troth.protocol.errors import InvalidField
from troth.protocol.types import to_address

_PARTIES = ("SELECT 1 FROM parties WHERE operator = ?",)
_ACCOUNTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "operator": ("party", (*_PARTIES, "SELECT 1 FROM standings WHERE operator = ?")),
    "party": ("party", (*_PARTIES, "SELECT 1 FROM findings WHERE party = ?")),
    "node": ("node", ("SELECT 1 FROM parties WHERE role = 'node' AND operator = ?",)),
    "scheduler": ("scheduler", ("SELECT 1 FROM parties WHERE role = 'scheduler' AND operator = ?",)),
    "owner": ("organisation", ("SELECT 1 FROM credits WHERE owner = ?", "SELECT 1 FROM deployments WHERE owner = ?")),
}
_HASHES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "case": ("case", ("SELECT 1 FROM cases WHERE case_id = ?",)),
    "dispute": ("dispute", ("SELECT 1 FROM disputes WHERE dispute = ?",)),
    "class": ("class", ("SELECT 1 FROM classes WHERE class = ?",)),
    "order": (
        "task",
        (
            "SELECT 1 FROM tasks WHERE order_id = ?",
            "SELECT 1 FROM cases WHERE order_id = ?",
            "SELECT 1 FROM disputes WHERE order_id = ?",
            "SELECT 1 FROM findings WHERE order_id = ?",
        ),
    ),
}
"""By an option: what it names, and the queries of which one must find it."""
_LISTED = {
    **dict.fromkeys(("party", "node"), "`troth explorer show nodes`"),
    "scheduler": "`troth explorer show schedulers`",
    "organisation": "`troth explorer show credits`",
    "case": "`troth explorer show cases`",
    "dispute": "`troth explorer show disputes`",
    "class": "`troth explorer show classes`",
    "task": "`troth explorer show tasks`",
    "log entry": "`troth explorer show entries`",
}


def written(options: Mapping[str, str]) -> dict[str, str]:
    """Options with every address and hash as the index writes it; NothingHere for what is neither."""
    return {name: _written(name, value) for name, value in options.items()}


def _written(name: str, value: str) -> str:
    if not value:
        return value
    if name in _ACCOUNTS:
        try:
            return str(to_address(value))
        except InvalidField as error:
            raise _nothing("This is no {}'s address", _ACCOUNTS[name][0], value) from error
    if name in _HASHES:
        if not re.fullmatch("0x[0-9a-fA-F]{64}", value):
            raise _nothing("This is no {}'s id", _HASHES[name][0], value)
        return value.lower()
    return value


def require_known(database: Database, options: Mapping[str, str]) -> None:
    """Raises NothingHere for the first option that names what is not in the index."""
    for name, value in options.items():
        kind, queries = {**_ACCOUNTS, **_HASHES}.get(name, ("", ()))
        if queries and not any(database.execute(f"{one} LIMIT 1", (value,)).fetchone() for one in queries):
            raise _nothing("The index knows no such {}", kind, value)
    if (entry := options.get("entry")) and not _has_entry(database, int(entry), options.get("scheduler", "")):
        raise _nothing("The index knows no such {}", "log entry", entry)


def _has_entry(database: Database, entry: int, scheduler: str) -> bool:
    chosen, values = ("AND scheduler = ?", (entry, scheduler)) if scheduler else ("", (entry,))
    return database.execute(f"SELECT 1 FROM entries WHERE number = ? {chosen} LIMIT 1", values).fetchone() is not None  # noqa: S608 -- own words


def _nothing(what: str, kind: str, value: str) -> NothingHere:
    remedy = f"{_LISTED[kind]} lists what it knows; `troth explorer read` brings what is newer."
    return NothingHere(what.format(kind), value[:80], remedy)
