"""What a client keeps of tickets (SQLite, WAL): purchases, signatures, and payments before they are sent.

Nothing in it can be spent: seeds follow from the ticket key, a keyfile beside the wallet's. A payment is written before
its scheduler hears of it, and repeated word for word until the chain has taken it, so that a kill between two steps
costs nothing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.formats import SIGNED, OtherFormat, all_or_nothing, claim_format, private
from troth.client.errors import TicketsUnusable
from troth.protocol.tickets.purchases import Purchase
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, to_address

FORMAT = 1
BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS purchases (
    chain TEXT NOT NULL, number INTEGER NOT NULL, buyer TEXT NOT NULL, epoch INTEGER NOT NULL,
    denomination INTEGER NOT NULL, count INTEGER NOT NULL, root BLOB NOT NULL, created INTEGER NOT NULL,
    PRIMARY KEY (chain, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (chain TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tickets (
    name TEXT PRIMARY KEY, chain TEXT NOT NULL, number INTEGER NOT NULL, place INTEGER NOT NULL,
    signature BLOB NOT NULL, payment INTEGER, ended TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS payments (
    id INTEGER PRIMARY KEY, chain TEXT NOT NULL, payer TEXT NOT NULL, payee TEXT NOT NULL, key TEXT NOT NULL,
    fee TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0
);
"""


@dataclass(frozen=True, slots=True)
class OwnPurchase:
    """A purchase, and the number that its seed follows from."""

    number: int
    purchase: Purchase


@dataclass(frozen=True, slots=True)
class OwnTicket:
    """A ticket with its signature; ``ended`` is empty, "spent" or "refunded"."""

    name: Address
    number: int
    place: int
    signature: bytes
    payment: int | None
    ended: str


@dataclass(frozen=True, slots=True)
class Payment:
    """Tickets that were signed over to a scheduler for one tab; ``fee`` of each."""

    identifier: int
    payer: Address
    payee: Address
    tab_key: Address
    fee: int
    done: bool


class TicketStore:
    """One process's connection; TicketsUnusable wherever the disk or another program is in the way.

    Args:
        domain: of the Tickets contract whose tickets are meant.
    """

    def __init__(self, path: Path, domain: Domain) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._chain = f"{domain.chain_id}/{domain.contract}"
        try:
            self._database = sqlite3.connect(private(path), isolation_level=None, timeout=BUSY_SECONDS)
            self._prepare()
        except OtherFormat as error:
            self._database.close()
            raise TicketsUnusable("The file of tickets cannot be used", path, str(error)) from error
        except (OSError, sqlite3.Error) as error:
            raise TicketsUnusable(
                "The file of tickets cannot be used", f"{path}: {error}", "Free disk space."
            ) from error

    def _prepare(self) -> None:
        claim_format(self._database, FORMAT, SIGNED)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All of the block is written, or nothing; other processes wait."""
        try:
            with all_or_nothing(self._database):
                yield
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    # ---- purchases

    def next_number(self) -> int:
        """The number of the next purchase, given once; inside ``writing``.

        Whatever becomes of that purchase: two of one number have one seed, and by equal roots whoever was shown the
        first, as a dry run's chain node, would know the buyer of the second.
        """
        query = "SELECT COALESCE(MAX(number), -1) + 1 FROM purchases WHERE chain = ?"
        first = int(self._execute(query, self._chain)[0][0])
        query = (
            "INSERT INTO numbers VALUES (?, ?) ON CONFLICT (chain) DO UPDATE SET next = MAX(next + 1, excluded.next) "
            "RETURNING next"
        )
        return int(self._execute(query, self._chain, first)[0][0])

    def add_purchase(self, number: int, purchase: Purchase) -> None:
        """Note a purchase before it is paid."""
        values = (number, purchase.buyer, purchase.epoch, purchase.denomination, purchase.count, purchase.root)
        self._execute("INSERT INTO purchases VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._chain, *values, int(time.time()))

    def purchases(self) -> list[OwnPurchase]:
        """All of this contract, oldest first."""
        columns = "number, buyer, epoch, denomination, count, root"
        query = f"SELECT {columns} FROM purchases WHERE chain = ? ORDER BY number"  # noqa: S608 - constants
        return [
            OwnPurchase(number, Purchase(to_address(buyer), epoch, denomination, count, Hash32(root)))
            for number, buyer, epoch, denomination, count, root in self._execute(query, self._chain)
        ]

    def drop_purchase(self, number: int) -> None:
        """Forget a purchase that was never paid."""
        self._execute("DELETE FROM purchases WHERE chain = ? AND number = ?", self._chain, number)

    # ---- tickets

    def add_tickets(self, number: int, names: Sequence[Address], signatures: Sequence[bytes]) -> None:
        """Keep the signed tickets of a purchase; those that are here stay as they are."""
        with self.writing():
            for place, (name, signature) in enumerate(zip(names, signatures, strict=True)):
                query = "INSERT OR IGNORE INTO tickets (name, chain, number, place, signature) VALUES (?, ?, ?, ?, ?)"
                self._execute(query, name, self._chain, number, place, signature)

    def tickets(self) -> list[OwnTicket]:
        """All signed tickets of this contract, in their order."""
        columns = "name, number, place, signature, payment, ended"
        query = f"SELECT {columns} FROM tickets WHERE chain = ? ORDER BY number, place"  # noqa: S608 - constants
        return [OwnTicket(Address(name), *rest) for name, *rest in self._execute(query, self._chain)]

    def end(self, names: Sequence[Address], how: str) -> None:
        """Note what became of tickets: "spent" or "refunded"."""
        with self.writing():
            for name in names:
                self._execute("UPDATE tickets SET ended = ? WHERE name = ?", how, name)

    # ---- payments

    def add_payment(self, payer: Address, payee: Address, tab_key: Address, fee: int, names: Sequence[Address]) -> int:
        """Write a payment down before it is sent; inside ``writing``, where the tickets were seen to be free."""
        query = "INSERT INTO payments (chain, payer, payee, key, fee) VALUES (?, ?, ?, ?, ?) RETURNING id"
        identifier = int(self._execute(query, self._chain, payer, payee, tab_key, str(fee))[0][0])
        for name in names:
            self._execute("UPDATE tickets SET payment = ? WHERE name = ?", identifier, name)
        return identifier

    def payments(self) -> list[Payment]:
        """All payments with this contract's tickets, oldest first."""
        query = "SELECT id, payer, payee, key, fee, done FROM payments WHERE chain = ? ORDER BY id"
        return [
            Payment(identifier, Address(payer), Address(payee), Address(key), int(fee), bool(done))
            for identifier, payer, payee, key, fee, done in self._execute(query, self._chain)
        ]

    def finish_payment(self, identifier: int, spent: Sequence[Address]) -> None:
        """The chain has decided: these tickets are spent, and those that are not are free again."""
        with self.writing():
            for name in spent:
                self._execute("UPDATE tickets SET ended = 'spent' WHERE name = ?", name)
            self._execute("UPDATE tickets SET payment = NULL WHERE payment = ? AND ended = ''", identifier)
            self._execute("UPDATE payments SET done = 1 WHERE id = ?", identifier)

    def _execute(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: sqlite3.Error) -> TicketsUnusable:
        remedy = "Free disk space, make its folder writable, or end the other process, if that is the cause."
        return TicketsUnusable(f"The file of tickets cannot be used: {error}", self._path, remedy)
