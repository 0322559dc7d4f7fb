"""Which findings were shown already, on stable storage: a watcher that is restarted shows nothing twice."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from troth.audit.errors import SourceUnusable
from troth.audit.report import Finding
from troth.chain.formats import all_or_nothing, claim_format

FORMAT = 1
SCHEMA = "CREATE TABLE IF NOT EXISTS shown (finding TEXT PRIMARY KEY, message TEXT NOT NULL, since INTEGER NOT NULL)"


class ShownFindings:
    """One SQLite file in WAL mode with synchronous FULL."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            claim_format(self._database, FORMAT)
            self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {SCHEMA}")
        except sqlite3.Error as error:
            raise SourceUnusable("The watcher's state cannot be opened", path, str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def compare(self, found: Iterable[Finding], block: int) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """Findings that were not there before, and the messages of those that are gone; nothing is noted yet."""
        now = {name_of(one): one for one in found}
        known = dict(self._database.execute("SELECT finding, message FROM shown"))
        fresh = tuple(one for name, one in now.items() if name not in known)
        return fresh, tuple(message for name, message in known.items() if name not in now)

    def note(self, found: Iterable[Finding], block: int) -> None:
        """These are shown now; those that are gone may come again."""
        now = {name_of(one): one for one in found}
        known = {name for (name,) in self._database.execute("SELECT finding FROM shown")}
        rows = [(name, one.message, block) for name, one in now.items() if name not in known]
        try:
            with all_or_nothing(self._database):
                gone = [(name,) for name in known - now.keys()]
                self._database.executemany("DELETE FROM shown WHERE finding=?", gone)
                self._database.executemany("INSERT INTO shown VALUES (?,?,?)", rows)
        except sqlite3.Error as error:
            raise SourceUnusable("The watcher's state takes nothing", "findings", str(error)) from error


def name_of(finding: Finding) -> str:
    """What makes a finding the same one in two looks."""
    about = (finding.check, finding.kind.value, finding.task_id, finding.segment, finding.party, finding.message)
    return hashlib.sha256(repr(about).encode()).hexdigest()
