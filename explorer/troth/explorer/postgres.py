"""An index in a Postgres database: for explorers whose tasks outgrow a file, or whose servers are other machines.

One reader writes it, and holds an advisory lock for that; any number of servers read it. A connection that broke is
made anew at the next statement outside a transaction, so a restart of the database ends neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from psycopg import errors

from troth.explorer.database import (
    PATIENCE,
    Database,
    DatabaseFailed,
    FoundRows,
    QueryTooSlow,
    Row,
)
from troth.explorer.errors import IndexUnusable

_FORMAT: Final = "explorer_format"
_ANOTHER = "Name another database, or drop this one's tables: the index is made again from the chain"
_REACH = "Check the URL and that the database answers; its password may come from PGPASSWORD or ~/.pgpass."
WRITER_LOCK = 0x74726F74
"""The advisory lock that the one reader of a Postgres database holds: two would write into each other's rows."""


class PostgresDatabase(Database):
    """One connection to a Postgres server; make it with ``to_write`` or ``to_read``."""

    def __init__(self, url: str, writes: bool) -> None:
        self._url, self._writes = url, writes
        self.where = without_password(url)
        self._keys: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._within = False
        self._connection = self._connect()

    @classmethod
    def to_write(cls, url: str, version: int, schema: str) -> PostgresDatabase:
        """The writer's connection; see ``open_to_write``."""
        made = cls(url, writes=True)
        try:
            with made.writing():
                made._claim(version)
                for statement in schema_as_postgres(schema).split(";"):
                    if statement.strip():
                        made.execute(statement)
        except DatabaseFailed as error:
            made.close()
            raise IndexUnusable(f"The index cannot be opened: {error.what}", made.where, _REACH) from error
        except IndexUnusable:
            made.close()
            raise
        return made

    @classmethod
    def to_read(cls, url: str, version: int) -> PostgresDatabase:
        """A server's connection; see ``open_to_read``."""
        made = cls(url, writes=False)
        found = made._stamp()
        if found != version:
            made.close()
            if found is None:
                raise IndexUnusable("There is no index yet", made.where, "Wait until the reader made it.")
            raise IndexUnusable("The index was made by another version of Troth", made.where, _ANOTHER)
        return made

    # ---- what every connection does

    def execute(self, text: str, values: Sequence[Any] = ()) -> FoundRows:
        """See Database."""
        with self._failing():
            cursor = self._alive().execute(as_postgres(text), tuple(values))
            if cursor.description is None:
                return FoundRows((), [])
            rows = [tuple(as_sqlite_gives(value) for value in row) for row in cursor.fetchall()]
            return FoundRows([one.name for one in cursor.description], rows)

    def executemany(self, text: str, values: Iterable[Sequence[Any]]) -> None:
        """See Database."""
        with self._failing(), self._alive().cursor() as cursor:
            cursor.executemany(as_postgres(text), [tuple(map(_storable, row)) for row in values])

    def insert(self, table: str, made: Sequence[Row]) -> None:
        """See Database."""
        columns, keys = self._columns(table)
        named = ", ".join(f'"{one}"' for one in columns)
        marks = ", ".join("?" * len(columns))
        rest = ", ".join(f'"{one}" = excluded."{one}"' for one in columns if one not in keys)
        act = f"DO UPDATE SET {rest}" if rest else "DO NOTHING"
        key = ", ".join(f'"{one}"' for one in keys)
        # A row that comes twice in one call: the last one counts, as in SQLite; statements are sent one by one.
        self.executemany(f"INSERT INTO {table} ({named}) VALUES ({marks}) ON CONFLICT ({key}) {act}", made)  # noqa: S608

    def tables(self) -> list[str]:
        """See Database."""
        found = self.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> ?", (_FORMAT,)
        )
        return [name for (name,) in found]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See Database."""
        with self._transaction("BEGIN", "COMMIT"):
            yield

    @contextmanager
    def snapshot(self, seconds: float) -> Iterator[None]:
        """See Database."""
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "ROLLBACK"):
            self.execute(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
            yield

    def close(self) -> None:
        """See Database."""
        self._connection.close()

    # ---- one connection, kept

    def _connect(self) -> psycopg.Connection[Row]:
        try:
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=int(PATIENCE), application_name="troth explorer"
            )
        except (psycopg.Error, ValueError, OSError) as error:
            said = str(error).replace(self._url, self.where).splitlines()
            what = f"The database cannot be reached: {said[0] if said else type(error).__name__}"
            raise IndexUnusable(what, self.where, _REACH) from error
        if self._writes:
            self._take_lock(connection)
        return connection

    def _take_lock(self, connection: psycopg.Connection[Row]) -> None:
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", (WRITER_LOCK,)).fetchone()
        if row is None or not row[0]:
            connection.close()
            raise IndexUnusable("Another reader writes into this database", self.where, "Stop it, or name another.")

    def _alive(self) -> psycopg.Connection[Row]:
        if self._connection.closed and not self._within:
            self._connection = self._connect()
        return self._connection

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[None]:
        self._begin(begin)
        self._within = True
        try:
            yield
            self.execute(end)
        except BaseException:
            with suppress(DatabaseFailed):
                self.execute("ROLLBACK")
            raise
        finally:
            self._within = False

    def _begin(self, begin: str) -> None:
        """Begin; a reader whose connection turns out to be broken does so over another, since nothing was done yet."""
        try:
            self.execute(begin)
        except DatabaseFailed:
            if self._writes or not self._connection.closed:
                raise
            self.execute(begin)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except errors.QueryCanceled as error:
            raise QueryTooSlow("The query took too long", self.where, "Choose less, or ask again.") from error
        except psycopg.Error as error:
            what = f"The index's database failed: {(str(error) or type(error).__name__).splitlines()[0]}"
            raise DatabaseFailed(what, self.where, _REACH) from error

    # ---- formats and keys

    def _stamp(self) -> int | None:
        """The format that the database says it has; None where it holds no index."""
        if self.execute("SELECT to_regclass(?)", (_FORMAT,)).fetchone()[0] is None:
            return None
        row = self.execute(f"SELECT version FROM {_FORMAT}").fetchone()  # noqa: S608 -- own name
        return None if row is None else int(row[0])

    def _claim(self, version: int) -> None:
        found = self._stamp()
        if found == version:
            return
        if found is not None:
            what = f"The index was made by another version of Troth (its format is {found}, this one's is {version})"
            raise IndexUnusable(what, self.where, _ANOTHER)
        if held := self.tables():
            raise IndexUnusable(f"The database holds something else: {held[0]}", self.where, "Name an empty one.")
        self.execute(f"CREATE TABLE {_FORMAT} (version BIGINT PRIMARY KEY)")
        self.execute(f"INSERT INTO {_FORMAT} VALUES (?)", (version,))  # noqa: S608 -- own name

    def _columns(self, table: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A table's columns in their order, and those of its key."""
        if table not in self._keys:
            columns = self.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 ORDER BY attnum",
                (table,),
            )
            keys = self.execute(
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
                "AND a.attnum = ANY(i.indkey) WHERE i.indrelid = to_regclass(?) AND i.indisprimary",
                (table,),
            )
            self._keys[table] = (tuple(one for (one,) in columns), tuple(one for (one,) in keys))
        return self._keys[table]


def _storable(value: Any) -> Any:
    """Postgres keeps no NUL in a text, and a stranger's words may hold one."""
    return value.replace("\0", "") if isinstance(value, str) and "\0" in value else value


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        return "a URL that cannot be read"


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
