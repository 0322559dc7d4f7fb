"""What the index asks of its database, be it SQLite or Postgres: the statements are the same in both.

They are written in the part of SQL that both understand, with ``?`` for values. An integer is of 64 bits in both, and
text sorts by its bytes. Transactions, limits of time, how a table is declared, and what replaces a row with the same
key is known to the two databases alone: ``opening`` has SQLite's, ``postgres`` the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from troth.explorer.errors import ExplorerError

Row = tuple[Any, ...]

PATIENCE = 10.0
"""Seconds to wait for another writer, or for a server."""


class DatabaseFailed(ExplorerError):
    """The index's database did not do what it was asked; ``value`` is where it lies, without a password."""


class QueryTooSlow(DatabaseFailed):
    """A query took longer than it may."""


class FoundRows:
    """The rows that a statement gave, and the names of their columns."""

    __slots__ = ("_next", "names", "rows")

    def __init__(self, names: Sequence[str], rows: list[Row]) -> None:
        self.names, self.rows, self._next = tuple(names), rows, 0

    def fetchone(self) -> Any:
        """The next row, or None."""
        self._next += 1
        return self.rows[self._next - 1] if self._next <= len(self.rows) else None

    def fetchall(self) -> list[Row]:
        """All rows."""
        return self.rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)


class Database(ABC):
    """One connection. Raises DatabaseFailed where it fails, QueryTooSlow where a ``snapshot`` lasts too long."""

    where: str
    """The place as messages show it."""

    @abstractmethod
    def execute(self, text: str, values: Sequence[Any] = ()) -> FoundRows:
        """One statement."""

    @abstractmethod
    def executemany(self, text: str, values: Iterable[Sequence[Any]]) -> None:
        """One statement for each row of values."""

    @abstractmethod
    def insert(self, table: str, made: Sequence[Row]) -> None:
        """Rows of a table, in place of those with the same key."""

    @abstractmethod
    def tables(self) -> list[str]:
        """Names of the index's tables."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """A context: one transaction, all of it or nothing."""

    @abstractmethod
    def snapshot(self, seconds: float) -> AbstractContextManager[None]:
        """A context: one view of the index for several queries, which together may take so long."""

    @abstractmethod
    def close(self) -> None:
        """End the connection."""
