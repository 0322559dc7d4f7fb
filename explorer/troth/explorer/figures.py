"""Figures: everything that a page shows, as a table with a name, which is also CSV, JSON and a command's output.

A figure is read from the index in one query over an index of its own, bounded in rows, newest first. Columns say what
their values are, so that pages link nodes and cases, and files write amounts as exact decimal strings.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from troth.explorer.database import Database
from troth.explorer.errors import NoSuchFigure

PAGE_ROWS = 50
"""Rows of one page."""
FILE_ROWS = 5_000
"""Rows of one CSV or JSON file; the cursor in it leads to the next."""
_NUMBERS = frozenset({"entry"})
"""What is chosen by a number; everything else is text."""
_DIGITS = 18
"""Digits of the largest number that is asked for: an integer of the index has 64 bits."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take a cell for a formula: an endpoint is a stranger's word."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: ``name`` in files (with its unit), ``label`` on pages, ``kind`` says what its values are.

    One that is not ``shown`` is in files only: pages say the same otherwise.
    """

    name: str
    label: str
    kind: str = "text"
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """A table with its name; ``cursor`` leads to the rows after these, empty where there are none."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    options: Mapping[str, str] = field(default_factory=dict)
    cursor: str = ""

    @property
    def command(self) -> str:
        """The command that prints it."""
        chosen = "".join(f" --{name} {value}" for name, value in self.options.items())
        return f"troth explorer show {self.name}{chosen}"

    def as_json(self) -> str:
        """An object with the rows as objects; amounts are decimal strings."""
        made = [
            dict(zip((one.name for one in self.columns), map(_exact, self._plain(row)), strict=True))
            for row in self.rows
        ]
        about = {"figure": self.name, "title": self.title, "options": dict(self.options), "next": self.cursor or None}
        # A row a line: indenting it all would keep other readers waiting four times as long.
        lines = ",\n".join(map(json.dumps, made))
        return f'{json.dumps(about)[:-1]}, "rows": [\n{lines}\n]}}\n'

    def as_csv(self) -> str:
        """Comma-separated, with a heading; no cell is a formula."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([one.name for one in self.columns])
        writer.writerows([[_cell(value) for value in self._plain(row)] for row in self.rows])
        return out.getvalue()

    def _plain(self, row: tuple[Any, ...]) -> list[Any]:
        kinds = (one.kind for one in self.columns)
        return [_amount(value) if kind == "amount" else value for kind, value in zip(kinds, row, strict=True)]


def _amount(value: Any) -> str:
    return str(int(value)) if value not in {"", None} else ""


def _exact(value: Any) -> Any:
    return str(value) if isinstance(value, int) and abs(value) >= 1 << 53 else value


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return "'" + text if text.startswith(_FORMULA) else text


# -------------------------------------------------------------------------------------------------------- what there is


NODE = Column("operator", "Node", "node")
SCHEDULER = Column("scheduler", "Scheduler", "scheduler")
ORDER = Column("order", "Task", "task")
CASE = Column("case", "Case", "case")
BLOCK = Column("block", "Block", "number")
LOG_INDEX = Column("log_index", "Log", "number", shown=False)


@dataclass(frozen=True, slots=True)
class Query:
    """How a figure is read.

    ``select`` has a ``{where}``; ``filters`` are conditions by the name of an option, with one parameter each, or none
    where the option is a choice of ``choices``. ``cursor`` names columns by whose values the rows go on, newest first.
    """

    title: str
    columns: tuple[Column, ...]
    select: str
    order: str
    filters: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cursor: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


_TASK_COLUMNS = (
    ORDER,
    SCHEDULER,
    Column("entry", "Entry", "number"),
    Column("block_bucket", "Blocks", "bucket"),
    Column("positions_bucket", "Positions", "positions"),
    Column("segments", "Segments", "number"),
    Column("check_rate_millionths", "Rate", "rate"),
    Column("revealed", "Revealed", "flag"),
    Column("drawn", "Drawn", "flag"),
    Column("checked", "Checked", "flag"),
    Column("rejected", "Rejected", "flag"),
    Column("findings", "Findings", "count"),
)

QUERIES: Mapping[str, Query] = {
    "schedulers": Query(
        "Schedulers",
        (
            Column("operator", "Scheduler", "scheduler"),
            Column("stake", "Stake", "amount"),
            Column("most_earned_in_lag", "Most earned in a lag", "amount"),
            Column("open_tabs", "Tabs", "number"),
            Column("log_entries", "Log entries", "number"),
            Column("tasks", "Tasks", "number"),
            Column("drawn", "Drawn", "number"),
            Column("rejected", "Rejected", "number"),
            Column("convictions", "Convictions", "count"),
            Column("exit_block", "Leaving", "exit"),
            Column("endpoint", "Endpoint"),
        ),
        "SELECT p.operator, p.stake, p.earned, p.tabs, count(e.number), coalesce(sum(e.orders), 0), "
        "coalesce(sum(e.drawn), 0), coalesce(sum(e.rejected), 0), p.convictions, p.exit_block, p.endpoint "
        "FROM parties p LEFT JOIN entries e ON e.scheduler = p.operator WHERE p.role='scheduler' {where} "
        "GROUP BY p.operator",
        "p.stake DESC, p.operator",
    ),
    "nodes": Query(
        "Nodes",
        (
            NODE,
            Column("class", "Model", "class"),
            Column("first_layer", "From", "number"),
            Column("end_layer", "To", "number"),
            Column("stake", "Stake", "amount"),
            Column("seats", "Seats", "number"),
            Column("suspended", "Suspended", "flag"),
            Column("convictions", "Convictions", "count"),
            Column("exit_block", "Leaving", "exit"),
            Column("registered_block", "Since block", "number"),
        ),
        'SELECT p.operator, p.class, p.first, p."end", p.stake, p.seats, p.suspended, p.convictions, p.exit_block, '
        "p.registered FROM parties p WHERE p.role='node' {where}",
        "p.stake DESC, p.operator DESC",
        filters={"class": "p.class = ?"},
        cursor=("p.stake", "p.operator"),
        after=("stake", "operator"),
    ),
    "groups": Query(
        "Groups: who may serve which layers",
        (
            Column("class", "Model", "class"),
            Column("first_layer", "From", "number"),
            Column("end_layer", "To", "number"),
            Column("nodes", "Nodes", "number"),
            Column("owners", "Owners", "number"),
            Column("seats", "Seats", "number"),
            Column("least_prompt_ask", "Prompt from", "price"),
            Column("most_prompt_ask", "to", "price"),
            Column("least_written_ask", "Written from", "price"),
            Column("most_written_ask", "to", "price"),
        ),
        'SELECT m.class, m.first, m."end", count(*), count(DISTINCT p.owner), sum(m.seats), min(m.prompt), '
        "max(m.prompt), min(m.written), max(m.written) FROM members m JOIN parties p ON p.operator = m.operator "
        'WHERE 1 = 1 {where} GROUP BY m.class, m.first, m."end"',
        'm.class, m.first, m."end"',
        filters={"class": "m.class = ?"},
    ),
    "classes": Query(
        "Models and classes",
        (
            Column("class", "Class", "class"),
            Column("name", "Runs as"),
            Column("architecture", "Model", shown=False),
            Column("layers", "Layers", "number"),
            Column("exact", "Exact", "flag"),
            Column("verifiers", "Verifiers", "number"),
            Column("reviewers", "Reviewers", "number"),
            Column("least_check_rate_millionths", "Least rate", "rate"),
            Column("penalty", "Penalty", "amount"),
            Column("seat", "Seat", "amount"),
            Column("fee_cap", "Highest fee", "amount"),
        ),
        "SELECT class, name, architecture, layers, exact, verifiers, reviewers, check_rate, penalty, seat, fee_cap "
        "FROM classes WHERE 1 = 1 {where}",
        "name, class",
    ),
    "asks": Query(
        "Prices as nodes asked them",
        (
            BLOCK,
            LOG_INDEX,
            Column("class", "Model", "class"),
            Column("first_layer", "From", "number"),
            Column("end_layer", "To", "number"),
            NODE,
            Column("prompt_ask", "Prompt", "price"),
            Column("cached_ask", "Cached", "price"),
            Column("written_ask", "Written", "price"),
        ),
        'SELECT block, log_index, class, first, "end", operator, prompt, cached, written FROM asks WHERE 1 = 1 {where}',
        "block DESC, log_index DESC",
        filters={"class": "class = ?", "operator": "operator = ?"},
        cursor=("block", "log_index"),
        after=("block", "log_index"),
    ),
    "gas": Query(
        "Gas by what it was for",
        (
            Column("kind", "Transaction"),
            Column("count", "Count", "number"),
            Column("mean_gas", "Mean gas", "number"),
            Column("most_gas", "Most gas", "number"),
            Column("total_gas", "Total gas", "number"),
            Column("mean_price_wei", "Mean price", "wei"),
        ),
        "SELECT kind, count(*), CAST(round(avg(used)) AS BIGINT), max(used), sum(used), "
        "CAST(round(avg(price)) AS BIGINT) "
        "FROM transactions WHERE used IS NOT NULL {where} GROUP BY kind",
        "sum(used) DESC, kind",
    ),
    "entries": Query(
        "Log entries",
        (
            SCHEDULER,
            Column("entry", "Entry", "entry"),
            BLOCK,
            Column("orders", "Tasks", "number"),
            Column("positions", "Positions", "number"),
            Column("drawn", "Drawn", "number"),
            Column("checked", "Checked", "number"),
            Column("rejected", "Rejected", "number"),
            Column("unrevealed", "Unrevealed", "number"),
            Column("fees", "Fees", "amount"),
            Column("audit", "Recomputed", "state"),
        ),
        "SELECT scheduler, number, block, orders, positions, drawn, checked, rejected, unrevealed, fees, state "
        "FROM entries WHERE 1 = 1 {where}",
        "block DESC, scheduler DESC, number DESC",
        filters={"scheduler": "scheduler = ?"},
        choices={"state": {one: f"state = '{one}'" for one in ("clean", "wrong", "refused", "waiting")}},
        cursor=("block", "scheduler", "number"),
        after=("block", "scheduler", "entry"),
    ),
    "tasks": Query(
        "Tasks",
        _TASK_COLUMNS,
        "SELECT order_id, scheduler, number, bucket, positions, segments, check_rate, revealed, drawn, checked, "
        "rejected, wrong FROM tasks WHERE 1 = 1 {where}",
        "bucket DESC, order_id DESC, scheduler DESC, number DESC",
        filters={"scheduler": "scheduler = ?", "entry": "number = ?", "order": "order_id = ?"},
        choices={
            "state": {
                "drawn": "drawn > 0",
                "rejected": "rejected > 0",
                "unrevealed": "revealed = 0",
                "wrong": "wrong > 0",
            }
        },
        cursor=("bucket", "order_id", "scheduler", "number"),
        after=("block_bucket", "order", "scheduler", "entry"),
    ),
    "work": Query(
        "What a node did",
        (
            NODE,
            ORDER,
            Column("block_bucket", "Blocks", "bucket"),
            Column("part", "Part"),
            Column("segment", "Segment", "number"),
            Column("opinion", "Verdict", "opinion"),
        ),
        "SELECT operator, order_id, bucket, part, segment, opinion FROM work WHERE 1 = 1 {where}",
        "bucket DESC, order_id DESC, part DESC, segment DESC, operator DESC",
        filters={"operator": "operator = ?"},
        choices={"part": {"infer": "part = 'infer'", "check": "part = 'check'"}},
        cursor=("bucket", "order_id", "part", "segment", "operator"),
        after=("block_bucket", "order", "part", "segment", "operator"),
    ),
    "cases": Query(
        "Cases",
        (
            CASE,
            Column("node", "Node", "node"),
            Column("kind", "Why", "words"),
            Column("opened_by", "Opened by"),
            Column("opened_block", "Opened", "number"),
            Column("phase", "Phase", "phase"),
            Column("round", "Round", "round"),
            Column("reviewers", "Reviewers", "number"),
            Column("outcome", "Outcome", "outcome"),
            Column("last_block", "Last step", "number"),
            Column("bond", "Bond", "amount"),
        ),
        "SELECT case_id, node, kind, opener, opened, phase, round, reviewers, outcome, last, bond FROM cases "
        "WHERE 1 = 1 {where}",
        "opened DESC, case_id DESC",
        filters={"node": "node = ?", "order": "order_id = ?", "case": "case_id = ?"},
        choices={"state": {"live": "outcome = ''", "decided": "outcome != ''"}},
        cursor=("opened", "case_id"),
        after=("opened_block", "case"),
    ),
    "life": Query(
        "Life of a case",
        (
            BLOCK,
            Column("lane", "Lane"),
            Column("step", "Step"),
            Column("amount", "Amount", "amount"),
            Column("transaction", "Transaction", "hash"),
        ),
        'SELECT block, lane, words, amount, "transaction" FROM case_events WHERE 1 = 1 {where}',
        "block, log_index, number",
        filters={"case": "case_id = ?"},
    ),
    "slashes": Query(
        "Slashes",
        (
            BLOCK,
            LOG_INDEX,
            Column("operator", "Who", "party"),
            Column("role", "Role"),
            Column("reason", "Reason", "words"),
            Column("taken", "Taken", "amount"),
            Column("burnt", "of it burnt", "amount"),
            Column("evidence", "Evidence"),
            Column("subject", "Its id", "evidence"),
            Column("void_from", "Void from", "number"),
            Column("void_until", "until", "number"),
            Column("transaction", "Transaction", "hash"),
        ),
        "SELECT block, log_index, operator, role, reason, taken, burnt, evidence, subject, void_from, void_until, "
        '"transaction" FROM slashes WHERE 1 = 1 {where}',
        "block DESC, log_index DESC",
        filters={"operator": "operator = ?"},
        cursor=("block", "log_index"),
        after=("block", "log_index"),
    ),
    "checks": Query(
        "What the audit checked",
        (
            Column("check", "Check"),
            Column("title", "What must hold"),
            Column("ok", "In order", "number"),
            Column("violations", "Violations", "count"),
            Column("inconclusive", "Undecided", "count"),
        ),
        'SELECT "check", max(title), sum(ok), sum(violations), sum(inconclusive) FROM results WHERE 1 = 1 {where} '
        'GROUP BY "check"',
        'cast(substr("check", 2) AS INTEGER)',
    ),
    "findings": Query(
        "Findings",
        (
            Column("check", "Check"),
            Column("kind", "Kind", "finding"),
            Column("message", "What was found"),
            Column("order", "Task", "maybe_task"),
            Column("party", "Party", "party"),
            Column("role", "Role"),
            Column("block", "Block", "place"),
            Column("action", "What can be done"),
            Column("reproduce", "Shows it again", "command"),
        ),
        'SELECT "check", kind, message, order_id, party, role, block, action, reproduce FROM findings '
        "WHERE 1 = 1 {where}",
        "source != 'chain', block DESC, source, place",
        filters={"order": "order_id = ?", "party": "party = ?"},
    ),
}


@dataclass(frozen=True, slots=True)
class FigureReader:
    """Reads figures from a connection to the index; ``queries`` are those that there are."""

    database: Database
    queries: Mapping[str, Query] = field(default_factory=lambda: QUERIES)

    def figure(self, name: str, options: Mapping[str, str] | None = None, *, most: int, cursor: str = "") -> Figure:
        """A figure; raises NoSuchFigure for an unknown name, option or cursor."""
        query = self.queries.get(name)
        if query is None:
            raise NoSuchFigure("There is no such figure", name, f"There are {', '.join(self.queries)}.")
        given = {key: value for key, value in (options or {}).items() if value}
        conditions, values = _conditions(query, given)
        if cursor:
            conditions.append(_beyond(query))
            values += _cursor_values(query, cursor)
        where = "".join(f" AND {one}" for one in conditions)
        text = f"{query.select.format(where=where)} ORDER BY {query.order} LIMIT ?"
        found = [tuple(row) for row in self.database.execute(text, (*values, most + 1))]
        shown = tuple(found[:most])
        following = _cursor_of(query, shown[-1]) if len(found) > most and query.cursor else ""
        return Figure(name, query.title, query.columns, shown, given, following)


def _conditions(query: Query, given: Mapping[str, str]) -> tuple[list[str], list[Any]]:
    conditions, values = [], []
    for name, value in given.items():
        if name in query.filters:
            conditions.append(query.filters[name])
            values.append(_number(name, value) if name in _NUMBERS else value)
        elif value in query.choices.get(name, {}):
            conditions.append(query.choices[name][value])
        else:
            known = (*query.filters, *(f"{one}={'|'.join(of)}" for one, of in query.choices.items()))
            what = f"This figure is not chosen by {name[:40]}={value[:80]}"
            raise NoSuchFigure(what, None, f"It has {', '.join(known) or 'no options'}.")
    return conditions, values


def _number(name: str, text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
        return int(text)
    raise NoSuchFigure(f"{name} is a number", text[:80], "Write it in digits.")


def _beyond(query: Query) -> str:
    """A row comparison, for which SQLite walks the order's index from the cursor on."""
    return f"({', '.join(query.cursor)}) < ({', '.join('?' * len(query.cursor))})"


def _cursor_of(query: Query, row: tuple[Any, ...]) -> str:
    places = {column.name: place for place, column in enumerate(query.columns)}
    return "~".join(str(row[places[name]]) for name in query.after)


def _cursor_values(query: Query, cursor: str) -> list[Any]:
    parts = cursor.split("~")
    if not query.cursor or len(parts) != len(query.cursor) or len(cursor) > 300:
        raise NoSuchFigure("This cursor belongs to another figure", cursor[:80], "Follow the link of the page before.")
    kinds = {column.name: column.kind for column in query.columns}
    texts = {"node", "scheduler", "task", "case", "dispute", "amount", "text"}
    try:
        return [
            part if kinds[name] in texts else _number(name, part) for name, part in zip(query.after, parts, strict=True)
        ]
    except NoSuchFigure as error:
        raise NoSuchFigure("This is no cursor", cursor[:80], "Follow the link of the page before.") from error
