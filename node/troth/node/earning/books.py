"""The books of this node's tabs with schedulers: the best voucher of each, and every number that was taken on.

A book is never stored: ``book`` makes it from the voucher and the leaves, each with what it is worth by this node's own
view of the chain now. So nothing is asked for a leaf that the court voided, and a rejection that stood is. Leaves that
are open are remembered, since each order looks at all of its tab, of which there may be thousands within a lag.

They also know why a node does not work for what it is offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from troth.node.earning.database import NodeDatabase
from troth.node.earning.leaf import Leaf, Stage
from troth.node.errors import PeerRefusal
from troth.protocol.market import canonical, messages, tabs
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import KeyCheck, Signed, signed_by_account, tab_id
from troth.protocol.market.papers import Pay
from troth.protocol.market.signed import Promise, Work
from troth.protocol.market.state import State
from troth.protocol.market.tabs import PayeeBook
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, to_address

SCHEMA = """
CREATE TABLE IF NOT EXISTS tabs (tab BLOB PRIMARY KEY, payer TEXT NOT NULL, voucher BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leaves (
    tab BLOB NOT NULL, number INTEGER NOT NULL, order_id BLOB NOT NULL, segment INTEGER NOT NULL,
    work INTEGER NOT NULL, promise BLOB NOT NULL, subject TEXT NOT NULL, begun_at REAL NOT NULL,
    begun_block INTEGER NOT NULL, stage INTEGER NOT NULL, worth TEXT NOT NULL, evidence BLOB NOT NULL,
    done_at REAL NOT NULL, done_block INTEGER NOT NULL, prompt INTEGER NOT NULL, cached INTEGER NOT NULL,
    written INTEGER NOT NULL, given_up INTEGER NOT NULL, acknowledged INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tab, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unpaid_rows (
    tab BLOB NOT NULL, number INTEGER NOT NULL, worth TEXT NOT NULL, done_at REAL NOT NULL, PRIMARY KEY (tab, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS leaves_by_order ON leaves (order_id, segment, work);
CREATE INDEX IF NOT EXISTS open_leaves ON leaves (tab, acknowledged);
CREATE INDEX IF NOT EXISTS leaves_by_time ON leaves (done_at);
CREATE INDEX IF NOT EXISTS leaves_by_stage ON leaves (tab, stage, acknowledged, worth);
"""
_COLUMNS = (
    "tab, number, order_id, segment, work, promise, subject, begun_at, begun_block, stage, worth, evidence,"
    " done_at, done_block, prompt, cached, written, given_up"
)
WORD_LIMIT = 4_096
"""Bytes of a voucher or a promise as JSON."""
BREAKS_OFF = 20
"""One unit in so many of what a scheduler pays may be forfeited without a word: orders break off on any network."""
NUMBER_LIMIT = 1 << 53
"""Numbers of orders beyond it are nobody's; SQLite holds half of what Solidity does."""


class NotPaid(PeerRefusal):
    """What pays for this work does not cover it, or too much of this scheduler's is unpaid already."""

    code = "not_paid"


@dataclass(frozen=True, slots=True)
class NodeLedger:
    """What the chain says that books depend on: the folded state, and the domain of every signature."""

    state: State
    domain: Domain
    me: Address
    block: int = 0
    key_check: KeyCheck = signed_by_account

    def voids(self, leaf: Leaf) -> bool:
        """Whether this node's own conviction voids a leaf."""
        return self.state.is_void(self.me, leaf.reference_block)


@dataclass(slots=True)
class _OpenLeaves:
    """The open leaves of one tab, and what they are worth by the parts of the chain's state that were ``seen``."""

    leaves: dict[int, Leaf]
    running: set[int]
    changed: set[int]
    worth: dict[int, int] = field(default_factory=dict)
    seen: tuple[object, ...] = ()
    denials: set[int] = field(default_factory=set)
    forfeited: int = 0
    """What was computed under numbers that ended without a result, or given beyond one."""
    paid: int = 0
    """What was acknowledged of finished work."""

    @classmethod
    def of(cls, leaves: Iterable[Leaf]) -> _OpenLeaves:
        """Leaves as they are on disk."""
        found = {leaf.number: leaf for leaf in leaves}
        return cls(found, {number for number, leaf in found.items() if leaf.stage is Stage.RUNNING}, set(found))

    def put(self, leaf: Leaf) -> None:
        """A new leaf, or one that has changed."""
        self.leaves[leaf.number] = leaf
        self.changed.add(leaf.number)
        (self.running.add if leaf.stage is Stage.RUNNING else self.running.discard)(leaf.number)

    def drop(self, number: int) -> None:
        """It is acknowledged."""
        for kept in (self.leaves, self.worth):
            kept.pop(number, None)
        for numbers in (self.running, self.changed, self.denials):
            numbers.discard(number)

    def worths(self, ledger: NodeLedger) -> dict[int, int]:
        """Each number's worth now: that of all where the court or a summons has decided something, else of the new.

        A denial whose result may still fall counts in full: else its payer would acknowledge it with nothing at once.
        """
        state = ledger.state
        seen = (state.convictions, state.voided, state.summons, ledger.me)
        if len(self.seen) != len(seen) or any(one is not other for one, other in zip(seen, self.seen, strict=True)):
            self.seen, self.changed = seen, set(self.leaves)
        for number in self.changed:
            self.worth[number] = self.leaves[number].value(state, ledger.me)
            (self.denials.add if self.leaves[number].denies else self.denials.discard)(number)
        self.changed.clear()
        open_ = [one for one in self.denials if not self.worth[one] and not ledger.voids(self.leaves[one])]
        waiting = (self.leaves[one] for one in open_ if self.leaves[one].may_fall(state, ledger.block))
        return {**self.worth, **{leaf.number: leaf.worth for leaf in waiting}}


class NodeBooks:
    """See the module. Used from the thread that owns the database."""

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        self._tabs: dict[Hash32, _OpenLeaves] = {}
        self._rollbacks = database.rollbacks
        database.create(SCHEMA)

    # ------------------------------------------------------------------------------------------------------- reading

    def tabs(self) -> tuple[Hash32, ...]:
        """Every tab of which this node holds a word."""
        return tuple(Hash32(tab) for (tab,) in self._database.rows("SELECT tab FROM tabs ORDER BY tab"))

    def voucher(self, tab: Hash32) -> Signed[Voucher] | None:
        """The best word on a tab; None before the first."""
        found = self._database.row("SELECT voucher FROM tabs WHERE tab=?", tab)
        if found is None:
            return None
        return _voucher(found[0])

    def leaf(self, order: bytes, segment: int, work: Work) -> Leaf | None:
        """The promise of one piece of work, if it was taken on."""
        found = self._leaves("order_id=? AND segment=? AND work=?", order, segment, int(work))
        return found[0] if found else None

    def numbered(self, tab: Hash32, number: int) -> Leaf | None:
        """One number of a tab, acknowledged or not."""
        found = self._leaves("tab=? AND number=?", tab, number)
        return found[0] if found else None

    def open_leaves(self, tab: Hash32) -> tuple[Leaf, ...]:
        """What the best voucher does not pay, ascending."""
        leaves = self._held(tab).leaves
        return tuple(leaves[number] for number in sorted(leaves))

    def _held(self, tab: Hash32) -> _OpenLeaves:
        if self._rollbacks != self._database.rollbacks:
            self._rollbacks = self._database.rollbacks
            self._tabs.clear()
        held = self._tabs.get(tab)
        if held is None:
            # Else SQLite goes over all leaves of the tab in the order of their numbers, which is a month of them.
            leaves = self._leaves("tab=? AND acknowledged=0", tab, by="INDEXED BY open_leaves")
            held = self._tabs[tab] = _OpenLeaves.of(leaves)
            ended = self._database.rows("SELECT worth FROM leaves WHERE tab=? AND stage=?", tab, int(Stage.ENDED))
            beyond = self._database.rows("SELECT worth FROM unpaid_rows WHERE tab=?", tab)
            held.forfeited = sum(int(worth) for (worth,) in (*ended, *beyond))
            # As a float: sums of integers overflow in SQLite, and a share of it needs no wei.
            total = "SELECT TOTAL(CAST(worth AS REAL)) FROM leaves WHERE tab=? AND acknowledged=1 AND stage=?"
            paid = self._database.row(total, tab, int(Stage.DONE))
            held.paid = 0 if paid is None else int(paid[0])
        return held

    def done_since(self, moment: float) -> tuple[Leaf, ...]:
        """Work that was finished since a Unix time."""
        return self._leaves("done_at>=? AND stage=?", moment, int(Stage.DONE))

    def book(self, tab: Hash32, ledger: NodeLedger) -> PayeeBook:
        """The book of a tab now."""
        signed = self.voucher(tab)
        best = tabs.first_voucher(tab) if signed is None else signed.message
        return PayeeBook(best, self._held(tab).worths(ledger))

    def claimable(self, tab: Hash32, ledger: NodeLedger) -> dict[int, int]:
        """Numbers that are done and worth something, and how much."""
        done = (leaf for leaf in self.open_leaves(tab) if leaf.stage is Stage.DONE and not leaf.given_up)
        values = {leaf.number: leaf.value(ledger.state, ledger.me) for leaf in done}
        return {number: value for number, value in values.items() if value}

    def forfeited(self, tab: Hash32) -> int:
        """What was computed under numbers that ended without a result, or given beyond one, and is never paid; as long
        as it is kept."""
        return self._held(tab).forfeited

    def lost(self, tab: Hash32) -> int:
        """What of it counts as unpaid: more than breaks off among so much paid work."""
        return max(self.forfeited(tab) - self._held(tab).paid // BREAKS_OFF, 0)

    # ------------------------------------------------------------------------------------------------------- writing

    def take_on(self, pay: Pay, subject: Address, ledger: NodeLedger, *, limit: int, now: float) -> tuple[Leaf, ...]:
        """Accept the voucher and admit the promise; both are on disk when this returns.

        The same promise again is taken on once; after a restart it goes on where nothing was signed yet. Returns
        running work that the voucher ends. Inside of a transaction, nothing is kept where the promise is refused.

        Raises:
            NotPaid: with this work too much would be unpaid, it was promised otherwise before, or its number is that of
                other work, which would never be paid.
            InvalidVoucher: tab, voucher and promise do not pay.
        """
        ended = self.hear(pay.tab, pay.voucher, ledger)
        promise = pay.promise.message
        if promise.tab != tab_id(pay.tab) or promise.sequence > NUMBER_LIMIT:
            raise NotPaid("the promise is for another tab, or numbered beyond reason", promise.sequence, "Number on.")
        with self._database.transaction():
            known = self.leaf(promise.order, promise.segment, Work(promise.work))
            if known is not None and known.promise != pay.promise and known.stage is not Stage.ENDED:
                raise NotPaid("this work was promised with another number", known.number, "Repeat the first promise.")
            if known is None or known.stage is not Stage.DONE:
                self._require_free(promise)
                self._require_room(pay, ledger, limit)
                if known is not None:
                    self._held(known.tab).drop(known.number)  # its row is replaced, whatever its number was
                self._insert(_begun(pay.promise, subject, ledger.block, now))
        return ended

    def _require_free(self, promise: Promise) -> None:
        """One number pays once: a second promise under it would take the place of the first."""
        other = self.numbered(promise.tab, promise.sequence)
        if other is None or (other.stage is Stage.ENDED and not other.worth):
            return
        if (other.order, other.segment, other.work) != (promise.order, promise.segment, Work(promise.work)):
            what = "this number of the tab was promised for other work"
            raise NotPaid(what, promise.sequence, "Promise each piece of work under a number of its own.")

    def _require_room(self, pay: Pay, ledger: NodeLedger, limit: int) -> None:
        promise = pay.promise.message
        book = self.book(promise.tab, ledger)
        others = dict(book.worth)
        others.pop(promise.sequence, None)
        state = ledger.state.tab_state(promise.tab)
        after = tabs.admit(PayeeBook(book.best, others), promise.sequence, promise.price, state)
        lost = self.lost(promise.tab)
        if after.exposure + lost > limit and lost:
            what = f"this scheduler never asked for the result of work worth {lost}, and owes other work"
            raise NotPaid(what, promise.price, "Ask for the result of each order; this is forgotten after a month.")
        if after.exposure > limit:
            what = f"of this scheduler's work {sum(others.values())} is unpaid; with this, more than {limit} would be"
            raise NotPaid(what, promise.price, "Acknowledge what was served, then ask again.")

    def hear(self, tab: Tab, signed: Signed[Voucher], ledger: NodeLedger) -> tuple[Leaf, ...]:
        """Keep a newer word of the payer; an older one changes nothing. Returns running work that it ends unpaid.

        Raises InvalidVoucher where it pays less than what it acknowledges, goes backwards, or was not signed.
        """
        self._require_tab(tab, signed, ledger)
        number, voucher = tab_id(tab), signed.message
        best = self.voucher(number)
        if best is not None and self._is_known(voucher, best.message):
            return ()
        # Nothing is owed for work without a result: its payer may say so at any time, and then it ends.
        held, book = self._held(number), self.book(number, ledger)
        ended = sorted(one for one in held.running if tabs.is_acknowledged(voucher, one))
        unpaid = tuple(held.leaves[one] for one in ended)
        before = PayeeBook(book.best, {**book.worth, **dict.fromkeys(ended, 0)}) if ended else book
        # Before anything is written: what is rolled back has all tabs read from disk again.
        after = tabs.accept(before, voucher)
        with self._database.transaction():
            for leaf in unpaid:
                self._set_stage(leaf, Stage.ENDED)
            self._keep(tab, signed, before, after)
        return unpaid

    def _is_known(self, voucher: Voucher, best: Voucher) -> bool:
        """Whether a word says nothing that the best one does not; words of orders side by side overtake each other."""
        names = ("spent", "sequence", "acknowledged_through")
        if any(getattr(voucher, name) > getattr(best, name) for name in names):
            return False
        return not any(tabs.is_acknowledged(voucher, number) for number in self._held(best.tab).leaves)

    def _require_tab(self, tab: Tab, signed: Signed[Voucher], ledger: NodeLedger) -> None:
        what = "The voucher is not for a tab of this scheduler with this node"
        if signed.message.tab != tab_id(tab) or tab.payee != ledger.me or tab.key != tab.payer:
            remedy = "Pay on the tab whose payer and key are the scheduler's operator and whose payee is the node."
            raise InvalidVoucher(what, signed.message.tab, remedy)
        digest = messages.signing_digest(signed.message, ledger.domain)
        if not ledger.key_check(tab.key, digest, signed.signature):
            raise InvalidVoucher("The tab key did not sign this voucher", digest, messages.BY_ACCOUNT)

    def _keep(self, tab: Tab, signed: Signed[Voucher], before: PayeeBook, book: PayeeBook) -> None:
        number = tab_id(tab)
        self._database.write("INSERT OR REPLACE INTO tabs VALUES (?,?,?)", number, tab.payer, canonical.encode(signed))
        held = self._held(number)
        for paid in held.leaves.keys() - book.worth.keys():
            # 2: with nothing, as a no whose result stood.
            how = 1 if before.worth.get(paid) else 2
            self._database.write("UPDATE leaves SET acknowledged=? WHERE tab=? AND number=?", how, number, paid)
            if how == 1 and held.leaves[paid].stage is Stage.DONE:
                held.paid += held.leaves[paid].worth
            held.drop(paid)

    def done(self, leaf: Leaf, beyond: int = 0) -> None:
        """A leaf's work is finished: what it is worth, and what proves it. ``beyond``: what was given besides, and is
        never paid: a scheduler could else have whole texts computed and ask for the result of their first token."""
        with self._database.transaction():
            self._database.write(
                "UPDATE leaves SET stage=?, worth=?, evidence=?, done_at=?, done_block=?, prompt=?, cached=?, written=?"
                " WHERE tab=? AND number=?",
                *(int(Stage.DONE), str(leaf.worth), leaf.evidence, leaf.done_at, leaf.done_block),
                *(leaf.prompt, leaf.cached, leaf.written, leaf.tab, leaf.number),
            )
            held = self._held(leaf.tab)  # read before there is a row: else it would count twice
            if beyond:
                row = (leaf.tab, leaf.number, str(beyond), leaf.done_at)
                self._database.write("INSERT OR REPLACE INTO unpaid_rows VALUES (?,?,?,?)", *row)
                held.forfeited += beyond
            self._note(leaf)

    def broke_off(self, order: bytes, segment: int, work: Work, lost: int = 0) -> None:
        """Work ended without a result: its number is worth nothing. ``lost``: what was computed, and is never paid.

        A scheduler could have whole texts written and not ask for their results. Who did so for all that may be unpaid,
        and a twentieth of what it paid, is served no more: orders of an honest one break off, too, where other nodes
        fail or are slow.
        """
        with self._database.transaction():
            leaf = self.leaf(order, segment, work)
            if leaf is None or leaf.stage is Stage.DONE:
                return
            if leaf.stage is Stage.RUNNING:
                self._set_stage(leaf, Stage.ENDED)
            if lost:
                held = self._held(leaf.tab)
                statement = "UPDATE leaves SET worth=? WHERE tab=? AND number=?"
                self._database.write(statement, str(lost), leaf.tab, leaf.number)
                held.forfeited += lost

    def end_running(self) -> None:
        """After a start: nothing runs any more."""
        with self._database.transaction():
            self._database.write("UPDATE leaves SET stage=? WHERE stage=?", int(Stage.ENDED), int(Stage.RUNNING))
            self._tabs.clear()

    def give_up(self, tab: Hash32, numbers: Iterable[int]) -> None:
        """Leaves whose claim was struck are not claimed again."""
        with self._database.transaction():
            for number in numbers:
                self._database.write("UPDATE leaves SET given_up=1 WHERE tab=? AND number=?", tab, number)
            self._tabs.pop(tab, None)

    def forget_before(self, moment: float) -> int:
        """Drop paid leaves that were finished before a Unix time, and what broke off before it; how many."""
        with self._database.transaction():
            over = "(acknowledged<>0 OR stage=?) AND MAX(done_at, begun_at)<?"
            gone = self._database.write(f"DELETE FROM leaves WHERE {over}", int(Stage.ENDED), moment)  # noqa: S608
            if gone + self._database.write("DELETE FROM unpaid_rows WHERE done_at<?", moment):
                self._tabs.clear()
        return gone

    # -------------------------------------------------------------------------------------------------------- storage

    def _set_stage(self, leaf: Leaf, stage: Stage) -> None:
        self._database.write("UPDATE leaves SET stage=? WHERE tab=? AND number=?", int(stage), leaf.tab, leaf.number)
        self._note(replace(leaf, stage=stage))

    def _note(self, leaf: Leaf) -> None:
        """Remember a change of a leaf, if it is still open."""
        held = self._held(leaf.tab)
        if leaf.number in held.leaves:
            held.put(leaf)

    def _insert(self, leaf: Leaf) -> None:
        numbers = (leaf.tab, leaf.number, leaf.order, leaf.segment, int(leaf.work), canonical.encode(leaf.promise))
        begun = (leaf.subject, leaf.begun_at, leaf.begun_block, int(leaf.stage), str(leaf.worth), leaf.evidence)
        done = (leaf.done_at, leaf.done_block, leaf.prompt, leaf.cached, leaf.written, int(leaf.given_up))
        places = ",".join("?" * (len(numbers) + len(begun) + len(done)))
        self._database.write(f"INSERT OR REPLACE INTO leaves ({_COLUMNS}) VALUES ({places})", *numbers, *begun, *done)  # noqa: S608
        self._held(leaf.tab).put(leaf)

    def _leaves(self, condition: str, *values: object, by: str = "") -> tuple[Leaf, ...]:
        query = f"SELECT {_COLUMNS} FROM leaves {by} WHERE {condition} ORDER BY number"  # noqa: S608 -- own words only
        return tuple(_leaf(*found) for found in self._database.rows(query, *values))


@lru_cache(maxsize=1 << 8)
def _voucher(data: bytes) -> Signed[Voucher]:
    """A stored voucher; an order looks at that of its tab more than once."""
    return canonical.decode(Signed[Voucher], data, WORD_LIMIT)


@lru_cache(maxsize=1 << 12)
def _promise(data: bytes) -> Signed[Promise]:
    """A stored promise; an order looks at every open one of its tab."""
    return canonical.decode(Signed[Promise], data, WORD_LIMIT)


def _begun(promise: Signed[Promise], subject: Address, block: int, now: float) -> Leaf:
    said = promise.message
    return Leaf(said.tab, said.sequence, said.order, said.segment, Work(said.work), promise, subject, now, block)


def _leaf(*found: Any) -> Leaf:
    tab, number, order, segment, work, promise, subject, begun_at, begun_block, stage, worth, *rest = found
    evidence, done_at, done_block, prompt, cached, written, given_up = rest
    return Leaf(
        tab=Hash32(tab),
        number=number,
        order=Hash32(order),
        segment=segment,
        work=Work(work),
        promise=_promise(promise),
        subject=to_address(subject),
        begun_at=begun_at,
        begun_block=begun_block,
        stage=Stage(stage),
        worth=int(worth),
        evidence=evidence,
        done_at=done_at,
        done_block=done_block,
        prompt=prompt,
        cached=cached,
        written=written,
        given_up=bool(given_up),
    )
