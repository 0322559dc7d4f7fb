"""Where the index lies: an SQLite file, or a Postgres database named by its URL. The statements are the same.

They are written in the part of SQL that both understand, with ``?`` for values. This module alone knows the rest:
transactions, limits of time, how a table is declared, and what replaces a row with the same key. An integer is of 64
bits in both, and text sorts by its bytes.
"""

from __future__ import annotations

import re
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from troth.chain.formats import OtherFormat, claim_format
from troth.explorer.errors import ExplorerError, IndexUnusable

if TYPE_CHECKING:
    from troth.explorer.postgres import PostgresDatabase

Row = tuple[Any, ...]
Place = Path | str
"""An SQLite file's path, or a Postgres database's URL."""

SCHEMES = ("postgres://", "postgresql://")
PATIENCE = 10.0
"""Seconds to wait for another writer, or for a server."""
WRITER_LOCK = 0x74726F74
"""The advisory lock that the one reader of a Postgres database holds: two would write into each other's rows."""
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
_MAKE_AGAIN = "Move the file away: it is made again from the chain"


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


def open_to_write(place: Place, version: int, schema: str) -> Database:
    """Open or make an index of this format; raises IndexUnusable for another version's, or where it cannot be."""
    if is_url(place):
        made: Database = _postgres().to_write(str(place), version, schema)
        return made
    return SqliteDatabase.to_write(Path(place), version, schema)


def open_to_read(place: Place, version: int) -> Database:
    """Open an index that there is; raises IndexUnusable otherwise."""
    return _postgres().to_read(str(place), version) if is_url(place) else SqliteDatabase.to_read(Path(place), version)


def is_url(place: Place) -> bool:
    """Whether a place is a Postgres database."""
    return isinstance(place, str) and place.startswith(SCHEMES)


def _postgres() -> type[PostgresDatabase]:
    try:
        from troth.explorer.postgres import PostgresDatabase
    except ImportError as error:
        what = f"An index in Postgres needs psycopg: {error}"
        raise IndexUnusable(what, "psycopg", "Install it: pip install 'WHEEL[postgres]' with Troth's wheel.") from error
    return PostgresDatabase


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        return "a URL that cannot be read"


# ---------------------------------------------------------------------------------------------------------- SQLite


class SqliteDatabase(Database):
    """A file in WAL mode, which one process writes and any number read."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self.where = connection, str(path)

    @classmethod
    def to_write(cls, path: Path, version: int, schema: str) -> SqliteDatabase:
        """The writer's connection; see ``open_to_write``."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            claim_format(connection, version, _MAKE_AGAIN)
            connection.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {schema}")
        except OtherFormat as error:
            raise IndexUnusable(str(error), path) from error
        except (sqlite3.Error, OSError) as error:
            raise IndexUnusable(f"The index cannot be opened: {error}", path, "Name another --home.") from error
        return cls(connection, path)

    @classmethod
    def to_read(cls, path: Path, version: int) -> SqliteDatabase:
        """A server's connection; see ``open_to_read``."""
        try:
            address = f"file:{quote(str(path))}?mode=ro"
            connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute("PRAGMA query_only=ON")
        except sqlite3.Error as error:
            raise IndexUnusable(f"There is no index: {error}", path, "Wait until the reader made it.") from error
        if found != version:
            connection.close()
            raise IndexUnusable("The index was made by another version of Troth", path, "Move the file away.")
        return cls(connection, path)

    def execute(self, text: str, values: Sequence[Any] = ()) -> FoundRows:
        """See Database."""
        with self._failing():
            cursor = self._connection.execute(text, values)
            return FoundRows([one[0] for one in cursor.description or ()], cursor.fetchall())

    def executemany(self, text: str, values: Iterable[Sequence[Any]]) -> None:
        """See Database."""
        with self._failing():
            self._connection.executemany(text, values)

    def insert(self, table: str, made: Sequence[Row]) -> None:
        """See Database."""
        marks = ",".join("?" * len(made[0]))
        self.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", made)  # noqa: S608 -- own names

    def tables(self) -> list[str]:
        """See Database."""
        return [name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type='table'")]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See Database."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self.execute("ROLLBACK")

    @contextmanager
    def snapshot(self, seconds: float) -> Iterator[None]:
        """See Database."""
        until = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: int(time.monotonic() > until), _STEPS)
        self.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)
            with suppress(DatabaseFailed):
                self.execute("ROLLBACK")

    def close(self) -> None:
        """See Database."""
        self._connection.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            kind = QueryTooSlow if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT else DatabaseFailed
            raise kind(
                f"The index's database failed: {error}", self.where, "Look at the disk, and try again."
            ) from error


# ------------------------------------------------------------------------------------------- what Postgres understands


@cache
def as_postgres(text: str) -> str:
    """A statement with Postgres' marks for values."""
    return text.replace("%", "%%").replace("?", "%s")


def schema_as_postgres(schema: str) -> str:
    """Tables as Postgres declares them: integers of 64 bits, text that sorts by its bytes, rows without a clause."""
    for pattern, instead in (
        (r"\bINTEGER\b", "BIGINT"),
        (r"\bREAL\b", "DOUBLE PRECISION"),
        (r"\bTEXT\b", 'TEXT COLLATE "C"'),
        (r"\) WITHOUT ROWID\b", ")"),
    ):
        schema = re.sub(pattern, instead, schema)
    return schema


def as_sqlite_gives(value: Any) -> Any:
    """A value that Postgres gave, in the type in which SQLite gives it: sums of integers are integers."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)
