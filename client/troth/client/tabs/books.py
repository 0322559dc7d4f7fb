"""The payer's books of all tabs, each with the newest voucher that was signed: written before it can be sent.

A book changes by the rules of ``protocol.market.tabs`` alone, one step a transaction, with its newest voucher beside
it. So a number is never given twice, whoever else works with the file, and no word goes back behind one that was sent.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from troth.chain.keystore import Key
from troth.client.tabs.errors import NoTab, TabShort
from troth.client.tabs.store import TabStore
from troth.protocol.market import canonical, tabs
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import Signed, market_domain, sign, tab_id
from troth.protocol.market.tabs import PayerBook
from troth.protocol.market.types import Tab, TabState, Voucher
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, to_address

_BEGINNING = re.compile(r"0x[0-9a-f]{1,64}")
_COLUMNS = "id, chain_id, bank, factory, start_block, rpc, payer, payee, key, created, book, voucher, delivered, doubt"

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class OwnTab:
    """A tab of this client, where its deployment is, and its book.

    ``voucher`` is the newest word, None before the first; ``delivered``: its scheduler has it. ``doubt`` says why no
    more is ordered on it; empty: it is used.
    """

    tab: Tab
    chain_id: int
    bank: Address
    factory: Address
    start_block: int
    rpc: str
    created: int
    book: PayerBook
    voucher: Signed[Voucher] | None
    delivered: bool
    doubt: str

    @property
    def identifier(self) -> Hash32:
        """The tab's id."""
        return self.book.tab

    @property
    def domain(self) -> Domain:
        """In which its words are signed."""
        return market_domain(self.chain_id, self.bank)


class TabBooks:
    """All tabs in a store."""

    def __init__(self, store: TabStore) -> None:
        self._store = store

    def add(
        self, tab: Tab, *, chain_id: int, bank: Address, factory: Address, start_block: int = 0, rpc: str = ""
    ) -> OwnTab:
        """Note a tab before it is opened; one that is here already keeps its book."""
        identifier = tab_id(tab)
        with self._store.writing():
            self._store.execute(
                "INSERT INTO tabs (id, chain_id, bank, factory, start_block, rpc, payer, payee, key, created, book) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO NOTHING",
                _name(identifier),
                str(chain_id),
                bank,
                factory,
                start_block,
                rpc,
                tab.payer,
                tab.payee,
                tab.key,
                int(time.time()),
                _book_text(PayerBook(identifier)),
            )
        return self.record(identifier)

    def all(self, domain: Domain | None = None) -> list[OwnTab]:
        """All tabs, or those of one deployment, oldest first."""
        rows = self._store.execute(f"SELECT {_COLUMNS} FROM tabs ORDER BY created, rowid")  # noqa: S608 - constants
        found = [_record(*row) for row in rows]
        return [one for one in found if domain in {None, one.domain}]

    def record(self, identifier: Hash32) -> OwnTab:
        """One tab; NoTab if it is none of this client's."""
        query = f"SELECT {_COLUMNS} FROM tabs WHERE id = ?"  # noqa: S608 - constants
        rows = self._store.execute(query, _name(identifier))
        if not rows:
            raise NoTab("This client has no such tab", _name(identifier), "`troth client tabs` lists them.")
        return _record(*rows[0])

    def find(self, text: str) -> OwnTab:
        """The tab whose id, or whose scheduler's address, starts like this; NoTab if that is not exactly one."""
        wanted = text.strip().lower()
        fits = [
            one
            for one in self.all()
            if _BEGINNING.fullmatch(wanted)
            and (_name(one.identifier).startswith(wanted) or one.tab.payee.lower().startswith(wanted))
        ]
        if len(fits) != 1:
            what = "Several tabs start like this" if fits else "This client has no such tab"
            raise NoTab(what, text[:80], "`troth client tabs` lists them.")
        return fits[0]

    def transaction(self) -> AbstractContextManager[None]:
        """Several steps that are written together, or not at all."""
        return self._store.writing()

    # ---- steps of a book

    def order(
        self,
        identifier: Hash32,
        most: int,
        state: TabState,
        key: Key,
        make: Callable[[int, Signed[Voucher]], Made],
    ) -> Made:
        """Give the next number out. ``make`` writes the order into the same transaction, before anything is sent.

        Raises TabShort where the tab does not cover it, NoTab where it is not open.
        """
        with self._store.writing():
            record = self.record(identifier)
            book, number = _next(record.book, most, state)
            return make(number, self._put(record, book, key))

    def acknowledge(self, identifier: Hash32, number: int, fee: int, key: Key) -> Signed[Voucher]:
        """Pay a number; raises InvalidVoucher where the rules of tabs do not let it be paid now."""
        with self._store.writing():
            record = self.record(identifier)
            return self._put(record, tabs.acknowledge(record.book, number, fee), key)

    def go_on(self, identifier: Hash32, book: PayerBook, voucher: Signed[Voucher]) -> None:
        """Go on from another word of this key, which its scheduler has shown."""
        with self._store.writing():
            self._write(self.record(identifier), book, voucher, delivered=True)

    def delivered(self, identifier: Hash32, voucher: Signed[Voucher]) -> None:
        """Note that the scheduler has a voucher."""
        text = canonical.encode(voucher).decode()
        with self._store.writing():
            self._store.execute("UPDATE tabs SET delivered = ? WHERE id = ?", text, _name(identifier))

    def doubt(self, identifier: Hash32, why: str) -> None:
        """Note why no more is ordered on a tab; empty: it may be used again."""
        with self._store.writing():
            self._store.execute("UPDATE tabs SET doubt = ? WHERE id = ?", why, _name(identifier))

    def _put(self, record: OwnTab, book: PayerBook, key: Key) -> Signed[Voucher]:
        signed = sign(book.voucher, record.domain, key.secret)
        self._write(record, book, signed, delivered=False)
        return signed

    def _write(self, record: OwnTab, book: PayerBook, voucher: Signed[Voucher], *, delivered: bool) -> None:
        name, text = _name(record.identifier), canonical.encode(voucher).decode()
        self._store.execute("UPDATE tabs SET book = ?, voucher = ? WHERE id = ?", _book_text(book), text, name)
        if delivered:
            self._store.execute("UPDATE tabs SET delivered = ? WHERE id = ?", text, name)


def top_up_command(name: str, missing: int) -> str:
    """The command that adds what is missing to a tab."""
    return f"troth client top-up {name[:12]} {missing}units --broadcast"


def is_newer(voucher: Voucher, book: PayerBook) -> bool:
    """Whether a word on a tab says more than a book: a later number, more spent, or a number paid that is open here."""
    if voucher.spent < book.spent:
        return False
    paid_there = any(tabs.is_acknowledged(voucher, number) for number in book.bounds)
    return voucher.sequence > book.sequence or voucher.spent > book.spent or paid_there


def _next(book: PayerBook, most: int, state: TabState) -> tuple[PayerBook, int]:
    name = _name(book.tab)
    missing = book.authorised + most - (state.balance + state.redeemed)
    if state.known and not state.closes_at and missing > 0:
        what = f"The tab covers {state.balance + state.redeemed}, and {book.authorised + most} could be owed"
        remedy = f"Top up with `{top_up_command(name, missing)}`, or wait until answers that run are paid."
        raise TabShort(what, f"{missing} short", remedy, missing, name)
    try:
        return tabs.order_next(book, most, state)
    except InvalidVoucher as error:
        raise NoTab(error.what, name, "`troth client open` opens one.") from error


def _book_text(book: PayerBook) -> str:
    bounds = {str(number): str(most) for number, most in sorted(book.bounds.items())}
    return json.dumps([str(book.spent), str(book.sequence), str(book.acknowledged), bounds])


def _book(tab: Hash32, text: str) -> PayerBook:
    spent, sequence, acknowledged, bounds = json.loads(text)
    left = {int(number): int(most) for number, most in bounds.items()}
    return PayerBook(tab, int(spent), int(sequence), int(acknowledged), left)


def _voucher(text: str) -> Signed[Voucher]:
    found: Signed[Voucher] = canonical.from_json(Signed[Voucher], json.loads(text))
    return found


def _record(  # noqa: PLR0917 - a row
    identifier: str,
    chain_id: str,
    bank: str,
    factory: str,
    start_block: int,
    rpc: str,
    payer: str,
    payee: str,
    key: str,
    created: int,
    book: str,
    voucher: str | None,
    delivered: str,
    doubt: str,
) -> OwnTab:
    return OwnTab(
        tab=Tab(to_address(payer), to_address(payee), to_address(key)),
        chain_id=int(chain_id),
        bank=to_address(bank),
        factory=to_address(factory),
        start_block=start_block,
        rpc=rpc,
        created=created,
        book=_book(Hash32(bytes.fromhex(identifier[2:])), book),
        voucher=None if voucher is None else _voucher(voucher),
        delivered=voucher is None or voucher == delivered,
        doubt=doubt,
    )


def _name(identifier: Hash32) -> str:
    return "0x" + identifier.hex()
