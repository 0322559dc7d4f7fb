"""Where the index lies: an SQLite file, or a Postgres database named by its URL."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from troth.chain.formats import OtherFormat, all_or_nothing, claim_format
from troth.explorer.database import PATIENCE, Database, DatabaseFailed, FoundRows, QueryTooSlow, Row
from troth.explorer.errors import IndexUnusable

if TYPE_CHECKING:
    from troth.explorer.postgres import PostgresDatabase

Place = Path | str
"""An SQLite file's path, or a Postgres database's URL."""

SCHEMES = ("postgres://", "postgresql://")
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
_MAKE_AGAIN = "Move the file away: it is made again from the chain"


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
            connection.close()
            raise IndexUnusable("The index cannot be used", path, str(error)) from error
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
        with self._failing(), all_or_nothing(self._connection):
            yield

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
