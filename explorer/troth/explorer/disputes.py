"""Disputes over arithmetic in the index: a row for each, and its life in lanes, written anew at each audit.

Whose turn it is, until when, and where the two sides differ is what the contract's events make of the state; by what it
ended is the call that ended it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from troth.audit.checks.disputes import events_of
from troth.audit.subject import AuditSubject
from troth.explorer.database import Database
from troth.explorer.figures import BLOCK, Column, Query
from troth.explorer.rows import Row, hexadecimal
from troth.protocol.arithmetic.operations import Operation
from troth.protocol.bindings import DISPUTES, functions_by_selector
from troth.protocol.disputes.calls import (
    Defended,
    DisputeEvent,
    DisputeLost,
    DisputeMoot,
    DisputeOpened,
    DisputesDeployed,
    DisputeWon,
    NodeChosen,
    NodesShown,
    RowAsked,
    RowGiven,
    SumAsked,
    SumGiven,
    TensorChosen,
)
from troth.protocol.disputes.game import Dispute, DisputeTurn, Matter
from troth.protocol.disputes.layout import LAST, OPERATIONS
from troth.protocol.disputes.life import Life, after
from troth.protocol.disputes.sums import unpacked
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Hash32

SCHEMA = """
CREATE TABLE IF NOT EXISTS disputes (
    dispute TEXT PRIMARY KEY, accused TEXT NOT NULL, accuser TEXT NOT NULL, order_id TEXT NOT NULL,
    segment INTEGER NOT NULL, signed_row INTEGER NOT NULL, opened INTEGER NOT NULL, last INTEGER NOT NULL,
    deadline INTEGER NOT NULL, turn TEXT NOT NULL, rounds INTEGER NOT NULL, outcome TEXT NOT NULL, bond TEXT NOT NULL,
    differs TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS disputes_opened ON disputes (opened);
CREATE TABLE IF NOT EXISTS dispute_events (
    dispute TEXT NOT NULL, block INTEGER NOT NULL, log_index INTEGER NOT NULL, number INTEGER NOT NULL,
    "transaction" TEXT NOT NULL, lane TEXT NOT NULL, words TEXT NOT NULL, amount TEXT NOT NULL,
    PRIMARY KEY (dispute, block, log_index, number)
) WITHOUT ROWID;
"""
OUTCOMES: Mapping[type, str] = {DisputeWon: "convicted", DisputeLost: "accuser_silent", DisputeMoot: "moot"}
WON_BY = {
    "silent": "convicted: it was silent in its turn",
    "wrongStep": "convicted: one number does not follow from those before it",
    "wrongPart": "convicted: one part of a sum is not the sum of its terms",
    "wrongSum": "convicted: the parts that it gave do not make the number",
    "wrongRow": "convicted: its signed row is too far from its own trace",
}
DISPUTE_QUERIES: Mapping[str, Query] = {
    "disputes": Query(
        "Disputes over arithmetic",
        (
            Column("dispute", "Dispute", "dispute"),
            Column("accused", "Accused", "node"),
            Column("accuser", "Accuser", "hash"),
            Column("order", "Task", "maybe_task"),
            Column("segment", "Segment", "number", shown=False),
            Column("row", "Row", "number"),
            Column("opened_block", "Opened", "number"),
            Column("last_block", "Last step", "number"),
            Column("turn", "Turn"),
            Column("deadline_block", "Until", "number"),
            Column("rounds", "Rounds", "number"),
            Column("differs", "Where they differ"),
            Column("outcome", "Outcome", "ended"),
            Column("bond", "Bond", "amount"),
        ),
        "SELECT dispute, accused, accuser, order_id, segment, signed_row, opened, last, turn, deadline, rounds, "
        "differs, outcome, bond FROM disputes WHERE 1 = 1 {where}",
        "opened DESC, dispute DESC",
        filters={"node": "accused = ?", "order": "order_id = ?", "dispute": "dispute = ?"},
        choices={"state": {"live": "outcome = ''", "ended": "outcome != ''"}},
        cursor=("opened", "dispute"),
        after=("opened_block", "dispute"),
    ),
    "dispute-life": Query(
        "Life of a dispute",
        (
            BLOCK,
            Column("lane", "Lane"),
            Column("step", "Step"),
            Column("amount", "Amount", "amount"),
            Column("transaction", "Transaction", "hash"),
        ),
        'SELECT block, lane, words, amount, "transaction" FROM dispute_events WHERE 1 = 1 {where}',
        "block, log_index, number",
        filters={"dispute": "dispute = ?"},
    ),
}
Step = tuple[str, str, str]
"""Lane, words, and an amount; empty: none."""


@dataclass(frozen=True, slots=True)
class ReadDisputes:
    """Rows of both tables."""

    disputes: tuple[Row, ...]
    events: tuple[Row, ...]


def fill(database: Database, read: ReadDisputes) -> None:
    """Put what was read in place of what was there; inside the index's ``writing``."""
    for table, rows in (("disputes", read.disputes), ("dispute_events", read.events)):
        database.execute(f"DELETE FROM {table}")  # noqa: S608 -- own names
        if rows:
            database.insert(table, rows)


def read_disputes(subject: AuditSubject) -> ReadDisputes:
    """All disputes of a deployment; one whose events do not fit together is the audit's to name (M26), and left out."""
    events = ((event, _call_of(subject, event)) for event in events_of(subject))
    return told(events, subject.evidence.parameters.answer_window)


def told(events: Iterable[tuple[DisputeEvent, str]], window: int) -> ReadDisputes:
    """The same from events, each with the function that its transaction called; a turn has ``window`` blocks."""
    found = dict[Hash32, _Told]()
    for event, call in events:
        if not isinstance(event, DisputesDeployed):
            found.setdefault(event.dispute, _Told()).take(event, window, call)
    whole = [one for one in found.values() if one.life is not None]
    return ReadDisputes(tuple(one.row for one in whole), tuple(row for one in whole for row in one.events))


def _call_of(subject: AuditSubject, event: DisputeEvent) -> str:
    """The function that a transaction called; empty where it is not known, or went through another contract."""
    transaction = subject.evidence.transactions.get(event.meta.transaction)
    entry = None if transaction is None else functions_by_selector(DISPUTES).get(transaction.data[:4])
    return "" if entry is None else entry.name


class _Told:
    """One dispute as far as it was read."""

    def __init__(self) -> None:
        self.life: Life | None = None
        self.events: list[Row] = []
        self._opened = self._last = 0

    def take(self, event: DisputeEvent, window: int, call: str) -> None:
        """One more event."""
        before = self.life
        try:
            self.life = now = after(before, event, window)
        except ProtocolError:
            self.life = None
            return
        if before is None:
            self._opened = event.meta.block
        self._last = event.meta.block
        place = hexadecimal(now.id), event.meta.block, event.meta.log_index
        for number, (lane, words, amount) in enumerate(_lanes(event, before or now, now, call)):
            self.events.append((*place, number, hexadecimal(event.meta.transaction), lane, words, amount))

    @property
    def row(self) -> Row:
        life = self.life
        assert life is not None
        state, matter = life.state, life.matter
        outcome = "" if life.ending is None else OUTCOMES[type(life.ending)]
        turn = "" if outcome else ("the accuser's" if state.turn == DisputeTurn.ACCUSER else "the accused's")
        parties = str(state.accused), str(state.accuser), hexadecimal(matter.order)
        blocks = self._opened, self._last, 0 if outcome else state.deadline
        differs = tensor_name(matter, state) if state.in_tensor else ""
        return (
            hexadecimal(life.id), *parties, matter.segment, matter.position, *blocks, turn, len(life.looks), outcome,
            str(state.bond), differs,
        )  # fmt: skip


def tensor_name(matter: Matter, state: Dispute) -> str:
    """The tensor that a dispute is about, in words."""
    single = OPERATIONS * (matter.end - matter.first) + (LAST if matter.end == matter.layers else 0)
    nudged, alone = divmod(state.tensor, single)
    layer, operation = matter.first + alone // OPERATIONS, Operation(alone % OPERATIONS)
    where = "the last norm" if layer == matter.layers else f"layer {layer}"
    return f"{operation.name.lower().replace('_', ' ')} of {where}{', nudged' if nudged else ''}"


def _lanes(event: DisputeEvent, before: Life, now: Life, call: str) -> Iterator[Step]:
    """What an event says, each with its lane, and until when the other side has time."""
    match event:
        case DisputeWon() | DisputeLost() | DisputeMoot():
            yield from _ended(event, call)
            return
        case DisputeOpened():
            row = f"row {event.matter.position} of segment {event.matter.segment}"
            yield "accuser", f"names {row}, which the accused signed", ""
            yield "money", "bond of the accuser", str(event.bond)
        case Defended():
            yield "accused", f"defends its row by nudge {event.nudge}: rounding alone moves it as far", ""
            return
        case NodesShown() | RowGiven() | SumGiven():
            yield "accused", _shown(event, before), ""
        case NodeChosen() | TensorChosen() | RowAsked() | SumAsked():
            yield "accuser", _asked(event, before, now), ""
        case _:
            return
    whose = "the accuser" if now.state.turn == DisputeTurn.ACCUSER else "the accused"
    yield "clock", f"{whose} has until block {now.state.deadline:,}", ""


def _shown(event: NodesShown | RowGiven | SumGiven, before: Life) -> str:
    if isinstance(event, NodesShown):
        tree = tensor_name(before.matter, before.state) if before.state.in_tensor else "the tree over all tensors"
        return f"shows {len(event.nodes)} nodes of {tree}"
    if isinstance(event, RowGiven):
        return f"gives the signed row {before.state.asked - 1}"
    parts = len(unpacked(event.parts))
    return f"gives {parts} parts of the sum" if parts else "has no parts to give: the number is no long sum"


def _asked(event: NodeChosen | TensorChosen | RowAsked | SumAsked, before: Life, now: Life) -> str:
    if isinstance(event, RowAsked):
        return f"asks for the signed row {event.position}"
    nodes = len(before.looks[-1].nodes)
    if isinstance(event, TensorChosen):
        return f"names the first tensor that differs: {tensor_name(now.matter, now.state)}"
    if isinstance(event, SumAsked):
        return f"names a word, and asks for the parts of its number {event.number}"
    return f"names node {event.index} of {nodes} as the first that differs"


def _ended(event: DisputeWon | DisputeLost | DisputeMoot, call: str) -> Iterator[Step]:
    match event:
        case DisputeWon():
            yield "accused", WON_BY.get(call, "convicted"), ""
            yield "money", "bond and reward to the accuser", str(event.paid)
        case DisputeLost():
            yield "accuser", "was silent in its turn", ""
            yield "money", "bond to the accused", str(event.paid)
        case DisputeMoot():
            yield "clock", "nothing can come of it any more: another conviction came first, or no stake is left", ""
            yield "money", "bond back to the accuser", str(event.paid)
