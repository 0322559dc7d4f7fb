"""What pages show: figures of the index with the few numbers, lanes and charts around them, rendered by Jinja.

The same pages are served and written out. All links are relative, so that they work below any path; a page that is
written ends in .html, and a link to what was not written is plain text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from troth.explorer import charts, words
from troth.explorer.database import Database, QueryTooSlow
from troth.explorer.errors import ExplorerError, NothingHere
from troth.explorer.figures import FILE_ROWS, PAGE_ROWS, Figure
from troth.explorer.finding import page_of
from troth.explorer.index import FORMAT
from troth.explorer.naming import require_known, written
from troth.explorer.opening import Place, open_to_read
from troth.explorer.services import reader_of
from troth.protocol.errors import InvalidField
from troth.protocol.market import log_data
from troth.protocol.market.log_data import LogLine
from troth.protocol.types import to_address

Made = TypeVar("Made")

AUDIT_SECONDS = 900.0
"""The badge turns, too, when blocks wait for an audit for so long."""
SHOWN_FIRST = 10
"""Models and changes of prices on the first page."""
STALE_SECONDS = 60.0
"""The badge turns when nothing was read for so long."""
QUERY_SECONDS = 3.0
"""After which the queries of a page are given up: some tens of times what the slowest page takes."""
_ABOVE = {"tasks": "logs", "schedulers": "", "disputes": "cases"}
"""The page of the navigation to which others belong."""
_DISPUTES = {"live": "live", "decided": "ended"}
"""Which disputes stand below the cases of a state."""
NAVIGATION = (
    ("", "Network"),
    ("nodes", "Nodes"),
    ("logs", "Logs"),
    ("cases", "Cases"),
    ("slashes", "Slashes"),
    ("reputation", "Reputation"),
    ("services", "Tickets"),
    ("audit", "Audit"),
    ("receipt", "Receipt"),
)


def jinja() -> Environment:
    """Templates whose every value is escaped."""
    made = Environment(
        loader=PackageLoader("troth.explorer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(words.FILTERS)
    return made


@dataclass(slots=True)
class PageLinks:
    """Relative links from one page; ``written``: to files, those of ``allowed`` pages only. Keeps what was linked."""

    page: str
    written: bool = False
    allowed: frozenset[str] | None = None
    pages: set[str] = field(default_factory=set)
    files: dict[str, tuple[str, str, Mapping[str, str]]] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The way up to the first page."""
        return "../" * self.page.count("/")

    def to(self, page: str, **query: str) -> str:
        """A page, or nothing where it was not written out."""
        self.pages.add(page)
        if self.allowed is not None and page not in self.allowed:
            return ""
        chosen = {key: value for key, value in query.items() if value}
        asked = f"?{urlencode(chosen)}" if chosen and not self.written else ""
        if self.written:
            return f"{self.root}{page or 'index'}.html"
        return f"{self.root}{page}{asked}" or "./"

    def file(self, figure: Figure, kind: str) -> str:
        """A figure as CSV or JSON."""
        if not self.written:
            asked = urlencode(dict(figure.options))
            return f"{self.root}figures/{figure.name}.{kind}" + (f"?{asked}" if asked else "")
        parts = "".join(f".{name}-{value}" for name, value in figure.options.items())
        path = f"figures/{figure.name}{parts}.{kind}"
        self.files[path] = (figure.name, kind, figure.options)
        return self.root + quote(path)


@dataclass(slots=True)
class Site:
    """All pages of one index. ``written``: as files, without what needs a server."""

    database: Database
    home: Path
    written: bool = False
    allowed: frozenset[str] | None = None
    linked: PageLinks = field(default_factory=lambda: PageLinks(""))
    environment: Environment = field(default_factory=jinja)

    @classmethod
    def open(cls, index: Place, home: Path | None = None, *, written: bool = False) -> Site:
        """Open an index to read; IndexUnusable if there is none yet, or another version's.

        ``home`` is the reader's folder, where the data of log entries lie; the folder of the file, if it is one.
        """
        database = open_to_read(index, FORMAT)
        return cls(database, Path(index).parent if home is None else home, written)

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def page(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """A page's HTML; raises NothingHere for one that there is not, NoSuchFigure for a wrong choice."""
        name, _, rest = path.partition("/")
        maker = _PAGES.get((name, bool(rest)))
        if maker is None or "/" in rest:
            raise NothingHere("There is no such page", path[:100], "Start at the first one.")
        template, values = self._reading(lambda: maker(self, rest, query or {}))
        return self.render(template, path, **values)

    def render(self, template: str, path: str, **values: Any) -> str:
        """A template, with what every page has."""
        self.linked = PageLinks(path, self.written, self.allowed)
        progress = self.progress()
        made = self.environment.get_template(template)
        return made.render(
            links=self.linked,
            navigation=NAVIGATION,
            here=_ABOVE.get(path.partition("/")[0], path.partition("/")[0]),
            freshness=self.freshness(),
            progress=progress,
            money=words.Money(progress["asset"]),
            names=self._class_names(),
            written=self.written,
            **values,
        )

    def found(self, typed: str) -> str:
        """The page to which an id or its beginning leads; NothingHere where there is none."""
        return self._reading(lambda: page_of(self.database, typed))

    def figure(self, name: str, options: Mapping[str, str], cursor: str = "", most: int = FILE_ROWS) -> Figure:
        """A figure for a file or a command; NothingHere where an option names what the index does not know."""
        chosen = written(options)

        def read() -> Figure:
            found = reader_of(self.database).figure(name, chosen, most=most, cursor=cursor)
            if not found.rows:
                require_known(self.database, chosen)
            return found

        return self._reading(read)

    def _reading(self, work: Callable[[], Made]) -> Made:
        """One view of the index for all queries of a page; a query that takes too long is given up."""
        try:
            with self.database.snapshot(QUERY_SECONDS):
                return work()
        except QueryTooSlow as error:
            raise ExplorerError("This takes too long", error.value, "Choose less, or ask again.") from error

    def _some(
        self, name: str, query: Mapping[str, str] | None = None, *, most: int = PAGE_ROWS, **options: str
    ) -> Figure:
        """A figure's first rows, or those after the page's cursor, as the page's query chooses."""
        given = dict(query or {})
        cursor = given.pop("after", "")
        return reader_of(self.database).figure(name, {**given, **options}, most=most, cursor=cursor)

    # ---- what every page has

    def progress(self) -> dict[str, Any]:
        """How far the reader is."""
        found = self.database.execute("SELECT * FROM progress")
        return dict(zip(found.names, found.fetchone(), strict=True))

    def freshness(self) -> dict[str, Any]:
        """The badge: how far was audited, how far behind that is, and what was found."""
        at = self.progress()
        (found,) = self.database.execute("SELECT coalesce(sum(violations), 0) FROM results").fetchone()
        (waiting,) = self.database.execute("SELECT count(*) FROM entries WHERE state='waiting'").fetchone()
        age = time.time() - at["seen"]
        behind = max(0, at["block"] - at["audited"])
        said = words.badge(at["audited"], behind, found)
        unaudited = time.time() - at["audited_at"]
        trouble = at["trouble"] or (f"nothing was read for {words.duration(age)}" if age > STALE_SECONDS else "")
        if not trouble and behind and at["audited_at"] and unaudited > AUDIT_SECONDS:
            trouble = f"the last audit ended {words.duration(unaudited)} ago"
        state = "bad" if found else "late" if (trouble and not self.written) or at["audited"] < 0 else "good"
        return {
            "text": said,
            "state": state,
            "block": at["block"],
            "audited": at["audited"],
            "behind": behind,
            "findings": found,
            "waiting": waiting,
            "seen": int(at["seen"]),
            "trouble": "" if self.written else trouble,
        }

    def _class_names(self) -> dict[str, tuple[str, str]]:
        """Each class's model and how it runs."""
        found = self.database.execute("SELECT class, architecture, name FROM classes")
        return {execution_class: (words.family(architecture), name) for execution_class, architecture, name in found}

    def _one(self, text: str, *values: Any) -> Any:
        return self.database.execute(text, values).fetchone()

    # ---- pages

    def network(self, _: str, __: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """The first page."""
        orders, drawn, checked, rejected = self._one(
            "SELECT coalesce(sum(orders),0), coalesce(sum(drawn),0), coalesce(sum(checked),0), "
            "coalesce(sum(rejected),0) FROM entries"
        )
        nodes, stake = self._one(
            "SELECT count(*), coalesce(sum(CAST(stake AS DOUBLE PRECISION)), 0) FROM parties "
            "WHERE role='node' AND exit_block=0"
        )
        (schedulers,) = self._one("SELECT count(*) FROM parties WHERE role='scheduler' AND exit_block=0")
        live, cases = self._one("SELECT count(*) FILTER (WHERE outcome = ''), count(*) FROM cases")
        slashes, taken = self._one("SELECT count(*), coalesce(sum(CAST(taken AS DOUBLE PRECISION)), 0) FROM slashes")
        groups, classes = self._some("groups"), self._some("classes", most=SHOWN_FIRST)
        lanes = [charts.lanes(row, groups.rows, self._slices(row[0])) for row in classes.rows]
        return "network.html", {
            "totals": {
                **{"nodes": nodes, "stake": int(stake), "schedulers": schedulers, "orders": orders, "drawn": drawn},
                **{"checked": checked, "rejected": rejected, "live": live, "cases": cases},
                **{"slashes": slashes, "taken": int(taken)},
            },
            "schedulers": self._some("schedulers", most=25),
            "groups": groups,
            "classes": classes,
            "lanes": lanes,
            "gas": self._some("gas"),
            "asks": self._some("asks", most=SHOWN_FIRST),
            "gas_chart": charts.gas(self.database),
            "price_chart": charts.prices(self.database),
        }

    def _slices(self, execution_class: str) -> list[Any]:
        found = self.database.execute(
            'SELECT first, "end", count(*) FROM parties WHERE class=? AND exit_block=0 GROUP BY 1, 2 ORDER BY 1, 2',
            (execution_class,),
        )
        return found.fetchall()

    def nodes(self, _: str, query: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """All nodes, or those of a model or a slice."""
        return "nodes.html", {"nodes": self._some("nodes", query), "classes": self._some("classes"), "query": query}

    def party(self, operator: str, query: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """One node or scheduler."""
        address = _address(operator)
        found = self.database.execute("SELECT * FROM parties WHERE operator=?", (address,))
        row = found.fetchone()
        if row is None:
            raise NothingHere("No such party is registered", address, "Check the address.")
        party = dict(zip(found.names, row, strict=True))
        common = {"party": party, "slashes": self._some("slashes", operator=address)}
        if party["role"] == "scheduler":
            return "scheduler.html", {
                **common,
                "entries": self._some("entries", query, scheduler=address),
                "tasks": self._some("tasks", scheduler=address),
            }
        tallies = self.database.execute(
            "SELECT part, opinion, sum(count) FROM tallies WHERE operator=? GROUP BY 1, 2 ORDER BY 1, 2", (address,)
        ).fetchall()
        groups = self.database.execute(
            'SELECT class, first, "end", seats, prompt, cached, written FROM members WHERE operator=? ORDER BY 1, 2, 3',
            (address,),
        ).fetchall()
        figures = {
            "work": self._some("work", query, operator=address),
            "cases": self._some("cases", node=address),
            "disputes": self._some("disputes", node=address),
            "ratings": self._some("ratings", operator=address),
        }
        more = {"standing": self._standing(address), "tallies": tallies, "groups": groups}
        return "node.html", {**common, **figures, **more}

    def logs(self, _: str, query: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Log entries and tasks."""
        chosen = {key: value for key, value in query.items() if key != "entries_after"}
        entries = self._some("entries", {"after": query.get("entries_after", "")}, most=20)
        return "logs.html", {"entries": entries, "tasks": self._some("tasks", chosen), "query": chosen}

    def task(self, order: str, _: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """One order, as its scheduler logged it, with what was recomputed."""
        tasks = self._some("tasks", order=order[:80])
        if not tasks.rows:
            raise NothingHere("No log that was read has this task", order[:80], "Its entry may not be examined yet.")
        row = dict(zip((one.name for one in tasks.columns), tasks.rows[0], strict=True))
        line = self._line(row["scheduler"], row["entry"], order)
        return "task.html", {
            "tasks": tasks,
            "task": row,
            "line": line,
            "spans": _spans(line),
            "findings": self._some("findings", order=order),
            "cases": self._some("cases", order=order),
        }

    def _line(self, scheduler: str, number: int, order: str) -> LogLine | None:
        """A task's line in the entry's data, as the reader keeps it beside the index; None if it is not there."""
        path = self.home / "logs" / scheduler.lower() / f"{number}.jsonl"
        if not path.is_file():
            return None
        wanted = f'{{"order":"{order}",'.encode()
        with path.open("rb") as file:
            for line in file:
                if line.startswith(wanted):
                    try:
                        return log_data.decode_line(line.rstrip(b"\n"))
                    except InvalidField:
                        return None
        return None

    def cases(self, _: str, query: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """All cases, and the newest disputes."""
        return "cases.html", {
            "cases": self._some("cases", query),
            "disputes": self._some("disputes", {"state": _DISPUTES.get(query.get("state", ""), "")}),
            "query": query,
        }

    def case(self, case_id: str, _: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """One case's life in lanes."""
        found = self._some("cases", case=case_id[:80])
        if not found.rows:
            raise NothingHere("There is no such case", case_id[:80], "Check its id.")
        row = dict(zip((one.name for one in found.columns), found.rows[0], strict=True))
        order, scheduler, fee = self._one("SELECT order_id, scheduler, fee FROM cases WHERE case_id=?", case_id)
        logged = self._one("SELECT 1 FROM tasks WHERE order_id=?", order) is not None
        life = reader_of(self.database).figure("life", {"case": case_id}, most=400)
        more = {"order": order, "scheduler": scheduler, "fee": fee, "logged": logged}
        return "case.html", {"case": row, "life": life, "steps": charts.steps(life.rows), **more}

    def dispute(self, identity: str, _: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """One dispute's life in lanes."""
        found = self._some("disputes", dispute=identity[:80])
        if not found.rows:
            raise NothingHere("There is no such dispute", identity[:80], "Check its id; audits bring the newest.")
        row = dict(zip((one.name for one in found.columns), found.rows[0], strict=True))
        logged = self._one("SELECT 1 FROM tasks WHERE order_id=?", row["order"]) is not None
        life = reader_of(self.database).figure("dispute-life", {"dispute": identity}, most=400)
        return "dispute.html", {"dispute": row, "life": life, "steps": charts.steps(life.rows), "logged": logged}

    def slashes(self, _: str, query: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Who lost stake, and why."""
        return "slashes.html", {"slashes": self._some("slashes", query)}

    def _standing(self, operator: str) -> dict[str, Any] | None:
        """A node's score and what it means; None where members do not rate it."""
        found = self._some("reputation", operator=operator)
        names = [one.name for one in found.columns]
        return dict(zip(names, found.rows[0], strict=True)) if found.rows else None

    def reputation(self, _: str, query: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """What the committee's members say of nodes, and how their epochs went."""
        chosen = {key: value for key, value in query.items() if key != "epochs_after"}
        found = self.database.execute("SELECT * FROM reputation_rules")
        row = found.fetchone()
        epochs = self._some("epochs", {"after": query.get("epochs_after", "")}, most=20)
        banned, nodes = self._one("SELECT coalesce(sum(banned), 0), count(*) FROM standings")
        return "reputation.html", {
            "rules": None if row is None else dict(zip(found.names, row, strict=True)),
            "standings": self._some("reputation", chosen),
            "epochs": epochs,
            "banned": banned,
            "rated": nodes,
            "query": chosen,
        }

    def services(self, _: str, __: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """What stands beside the market."""
        names = {"tickets": "tickets", "sums": "ticket-money", "credits": "credits", "deployments": "deployments"}
        return "services.html", {name: self._some(figure) for name, figure in names.items()}

    def audit(self, _: str, __: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """What was checked, and what is not in order."""
        return "audit.html", {"checks": self._some("checks"), "findings": self._some("findings")}

    def receipt(self, _: str, __: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """The page on which a receipt is checked."""
        return "receipt.html", {}


_PAGES: Mapping[tuple[str, bool], Any] = {
    ("", False): Site.network,
    ("nodes", False): Site.nodes,
    ("nodes", True): Site.party,
    ("schedulers", True): Site.party,
    ("logs", False): Site.logs,
    ("tasks", True): Site.task,
    ("cases", False): Site.cases,
    ("cases", True): Site.case,
    ("disputes", True): Site.dispute,
    ("slashes", False): Site.slashes,
    ("reputation", False): Site.reputation,
    ("services", False): Site.services,
    ("audit", False): Site.audit,
    ("receipt", False): Site.receipt,
}


def _address(text: str) -> str:
    try:
        return str(to_address(text))
    except InvalidField as error:
        raise NothingHere("This is no address", text[:80], "Check it.") from error


def _spans(line: LogLine | None) -> list[tuple[int, int]]:
    """Layers of each segment of a task."""
    if line is None:
        return []
    try:
        ends = list(log_data.read_hash(line.ends).rstrip(b"\0"))
    except InvalidField:
        return []
    return list(zip([0, *ends], ends, strict=False))
