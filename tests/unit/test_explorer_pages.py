"""The explorer's pages and files: what they show, what they never show, and what strangers' words may do to them."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from starlette.testclient import TestClient
from support.explorer_stage import CASES, Stage, bring_up, home_of, lines, reproduce, stage
from support.market_logs import META, log_of
from support.market_record import PLACE, SCHEDULER
from support.market_scene import DOMAIN, TAB
from typer.testing import CliRunner

from troth.audit.checks import logs as log_checks
from troth.audit.report import Finding, FindingKind
from troth.explorer import charts, exporting, reading, words
from troth.explorer.command import app as commands
from troth.explorer.errors import ExplorerError, IndexUnusable, NoSuchFigure, NothingHere
from troth.explorer.figures import QUERIES, Column, Figure
from troth.explorer.index import ExplorerIndex
from troth.explorer.pages import application, policy
from troth.explorer.reading import INDEX_FILE
from troth.explorer.services import ALL_QUERIES
from troth.explorer.site import Site
from troth.protocol.market import events as on
from troth.protocol.market import log_data
from troth.protocol.market.log_data import LogLine
from troth.protocol.types import ZERO_HASH

PAGE_LIMIT = 100_000
CASE = "0x" + CASES.case_id.hex()
TASK = lines()[0].order
PAGES = (
    "",
    "nodes",
    "logs",
    "cases",
    "slashes",
    "reputation",
    "services",
    "audit",
    "receipt",
    f"nodes/{CASES.node}",
    f"schedulers/{SCHEDULER}",
)
PAGES = (*PAGES, f"tasks/{TASK}", f"tasks/{lines()[1].order}", f"cases/{CASE}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_of(tmp_path_factory.mktemp("explorer"))


@pytest.fixture
def site(home: Path) -> Iterator[Site]:
    made = Site.open(home / INDEX_FILE)
    yield made
    made.close()


@pytest.fixture
def web(home: Path) -> Iterator[TestClient]:
    with TestClient(application(lambda: Site.open(home / INDEX_FILE))) as client:
        yield client


# -------------------------------------------------------------------------------------------------------- what is shown


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_small_and_says_how_fresh_it_is(web: TestClient, page: str) -> None:
    answer = web.get(f"/{page}")
    assert answer.status_code == 200
    assert len(answer.content) < PAGE_LIMIT
    assert "audited to block 2,060, 0 behind, 0 findings" in answer.text


@pytest.mark.slow
def test_pages_say_what_happened(site: Site) -> None:
    network, case, task = site.page(""), site.page(f"cases/{CASE}"), site.page(f"tasks/{TASK}")
    assert re.search(r"<dt>Nodes</dt><dd>24 ", network)
    assert "layers 0–11: 24 nodes of 24 owners, 240 seats" in network
    assert "decided: convicted" in case
    assert "opened by its client" in case
    assert "10 reviewers drawn for round 1" in case
    assert "it hits, and the seats that it draws gave their verdicts" in task
    assert "The client never showed its secret" in site.page(f"tasks/{lines()[1].order}")
    assert "Its result was false" in site.page("slashes")


def test_a_check_of_a_veiled_class_is_shown_without_names(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = site.page(f"tasks/{TASK}")
    said = log_data.LoggedBallots(0, "0x", tuple(log_data.LoggedBallot(opinion, "0x") for opinion in (1, 2, 3)))
    line = msgspec.structs.replace(lines()[0], verdicts=(), ballots=(said,))
    monkeypatch.setattr(Site, "_line", lambda *_: line)
    veiled = site.page(f"tasks/{TASK}")
    names = [one.verifier for one in lines()[0].verdicts]
    assert names
    assert all(name in plain for name in names)
    assert not any(name in veiled for name in names)
    assert all(word in veiled for word in ("unnamed", ">accepts<", ">rejects<", ">cannot tell<"))


def test_what_was_taken_is_what_left_the_stake(site: Site) -> None:
    (slash,) = [
        dict(zip((one.name for one in QUERIES["slashes"].columns), row, strict=True))
        for row in site.figure("slashes", {}).rows
    ]
    penalty = 4_000_000
    assert int(slash["taken"]) == penalty
    assert 0 < int(slash["burnt"]) < penalty
    assert (slash["reason"], slash["evidence"], slash["subject"]) == ("false_result", "case", CASE)


@pytest.mark.slow
def test_no_page_or_file_puts_who_pays_beside_who_serves(web: TestClient, home: Path, tmp_path: Path) -> None:
    """Payer and tab key, in any form, are nowhere: not in pages, figures, or an export."""
    payers = [TAB.payer[2:].lower(), TAB.key[2:].lower()]
    texts = [web.get(f"/{page}").text for page in PAGES]
    texts += [web.get(f"/figures/{name}.{kind}").text for name in QUERIES for kind in ("csv", "json")]
    texts.append(web.get(f"/figures/life.json?case={CASE}").text)
    written = Site.open(home / INDEX_FILE, written=True)
    exporting.export(written, tmp_path / "out")
    texts += [one.read_text(encoding="utf-8") for one in (tmp_path / "out").rglob("*") if one.is_file()]
    assert len(texts) > 80
    assert [text[:80] for text in texts for payer in payers if payer in text.lower()] == []


def test_the_index_itself_holds_no_payer(home: Path) -> None:
    raw = b"".join(one.read_bytes() for one in home.glob("index.sqlite*"))
    for account in (TAB.payer, TAB.key):
        assert account.encode() not in raw
        assert account.lower().encode() not in raw


# ------------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("name", QUERIES)
def test_files_and_command_say_the_same(web: TestClient, home: Path, name: str) -> None:
    shown = json.loads(web.get(f"/figures/{name}.json").text)
    table = list(csv.DictReader(io.StringIO(web.get(f"/figures/{name}.csv").text)))
    printed = CliRunner().invoke(commands, ["show", name, "--home", str(home), "--most", "5000", "--json"])
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.output) == shown
    assert len(table) == len(shown["rows"])
    assert [list(row) for row in table[:1]] == [list(row) for row in shown["rows"][:1]]


UNKNOWN = {
    "case": f"0x{7:064x}",
    "dispute": f"0x{7:064x}",
    "order": f"0x{7:064x}",
    "class": f"0x{7:064x}",
    "operator": f"0x{7:040x}",
    "node": SCHEDULER,
    "scheduler": CASES.node,
    "party": f"0x{7:040x}",
    "owner": f"0x{7:040x}",
    "entry": "99999",
}
"""By an option, what the index does not know of this kind; a node is no scheduler."""
NAMED = [(name, option) for name, query in ALL_QUERIES.items() for option in query.filters if option in UNKNOWN]


@pytest.mark.parametrize(("name", "option"), NAMED)
def test_what_the_index_does_not_know_is_no_empty_table(site: Site, name: str, option: str) -> None:
    with pytest.raises(NothingHere, match="The index knows no such") as caught:
        site.figure(name, {option: UNKNOWN[option]})
    assert UNKNOWN[option] in str(caught.value)
    if option != "entry":
        with pytest.raises(NothingHere, match="This is no"):
            site.figure(name, {option: "0x1234"})


def test_an_entry_of_another_scheduler_is_none_of_this_one(site: Site) -> None:
    known = str(site.figure("entries", {"scheduler": SCHEDULER}).rows[0][1])
    assert site.figure("tasks", {"scheduler": SCHEDULER, "entry": known}).rows
    with pytest.raises(NothingHere, match="no such log entry"):
        site.figure("tasks", {"scheduler": SCHEDULER, "entry": "99999"})


def test_a_name_is_found_however_it_is_written(site: Site) -> None:
    for typed in (CASE, CASE[:2] + CASE[2:].upper()):
        assert site.figure("life", {"case": typed}).rows
    for operator in (SCHEDULER, SCHEDULER.lower()):
        assert site.figure("tasks", {"scheduler": operator}).rows


def test_what_is_known_and_did_nothing_is_an_empty_table(site: Site) -> None:
    assert not site.figure("work", {"operator": SCHEDULER}).rows


def test_the_command_and_the_web_say_that_a_case_is_unknown(home: Path, web: TestClient) -> None:
    run = CliRunner().invoke(commands, ["show", "life", "--case", UNKNOWN["case"], "--home", str(home)])
    assert run.exit_code != 0
    assert not run.output
    assert "troth explorer show cases" in str(run.exception)
    assert web.get(f"/figures/life.csv?case={UNKNOWN['case']}").status_code == 404


def test_cursors_lead_through_all_rows(site: Site) -> None:
    for name, query in QUERIES.items():
        if not query.cursor:
            continue
        whole = site.figure(name, {}).rows
        seen, cursor = [], ""
        while True:
            part = site.figure(name, {}, cursor, most=1)
            seen += part.rows
            cursor = part.cursor
            if not cursor:
                break
        assert sorted(seen, key=repr) == sorted(whole, key=repr)


@pytest.mark.parametrize(
    "asked",
    [
        "figures/none.csv",
        "figures/tasks.exe",
        "figures/tasks.csv?state=odd",
        "figures/tasks.csv?x=1",
        "figures/tasks.csv?after=1",
        "figures/tasks.csv?after=a~b~c~d",
        "figures/gas.csv?after=1",
        "nodes/0x12",
        "nodes/../../etc/passwd",
        "cases/0x00",
        "tasks/x",
        "a/b/c",
        "static/../pages.py",
        "static/%2e%2e/pages.py",
    ],
)
def test_what_is_not_there_is_refused_with_words(web: TestClient, asked: str) -> None:
    answer = web.get(f"/{asked}")
    assert answer.status_code == 404
    assert len(answer.content) < PAGE_LIMIT
    assert "Traceback" not in answer.text


def test_no_cell_is_a_formula_or_a_lost_digit() -> None:
    columns = (Column("said", "Said"), Column("amount", "Amount", "amount"), Column("count", "Count", "number"))
    figure = Figure("x", "X", columns, (("=1+1", f"{10**28:030d}", 1 << 60), ("@x", "", 5)))
    assert list(csv.reader(io.StringIO(figure.as_csv())))[1:] == [
        ["'=1+1", str(10**28), str(1 << 60)],
        ["'@x", "", "5"],
    ]
    assert json.loads(figure.as_json())["rows"][0] == {"said": "=1+1", "amount": str(10**28), "count": str(1 << 60)}


# ----------------------------------------------------------------------------------------------------- strangers' words


EVIL = "https://x/\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"


def test_a_stranger_s_words_stay_words(tmp_path: Path) -> None:
    """An endpoint is whatever its owner wrote into the registry."""
    known = stage()
    place = replace(META, block=2_050, log_index=9_000)
    event = log_of(on.EndpointChanged(SCHEDULER, EVIL, ZERO_HASH, place))
    chain = Stage((*known.logs, event), known.served)
    home_of(tmp_path, chain)
    web = TestClient(application(lambda: Site.open(tmp_path / INDEX_FILE)))
    for page in ("/", f"/schedulers/{SCHEDULER}"):
        text = web.get(page).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "49" not in re.sub(r"[^{}]*\{\{7\*7\}\}", "", text[text.index("&lt;script&gt;") :][:200])
        assert "&lt;script&gt;" in text


def test_answers_forbid_whatever_is_not_their_own(web: TestClient) -> None:
    for page in ("/", "/receipt", "/figures/tasks.csv", "/none/none", "/static/explorer.js", "/freshness.json"):
        headers = web.get(page).headers
        said = headers["content-security-policy"]
        assert "default-src 'none'" in said
        assert "script-src 'self';" in said
        assert "unsafe" not in said
        assert "frame-ancestors 'none'" in said
        assert headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in headers
    assert "127.0.0.1" in policy("receipt")
    assert "127.0.0.1" not in policy("logs")
    assert web.get("/logs?state=" + "x" * 2_000).status_code == 414
    assert web.post("/").status_code == 405


class Links(HTMLParser):
    """Where a page leads, and what in it would need another policy."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.forbidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src"} and value:
                self.found.append(value)
            if name == "style" or name.startswith("on"):
                self.forbidden.append(f"{tag} {name}")
        if tag == "style" or (tag == "script" and not any(name == "src" for name, _ in attrs)):
            self.forbidden.append(tag)


@pytest.mark.slow
def test_an_export_is_whole_and_leads_nowhere_else(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    site = Site.open(home / INDEX_FILE, written=True)
    assert exporting.export(site, folder) > 30
    assert exporting.export(site, folder) > 30
    pages = list(folder.rglob("*.html"))
    for page in pages:
        assert page.stat().st_size < PAGE_LIMIT
        links = Links()
        links.feed(page.read_text(encoding="utf-8"))
        assert links.forbidden == []
        for link in links.found:
            parts = urlsplit(link)
            assert not parts.scheme, link
            assert not parts.netloc, link
            if parts.path:
                assert (page.parent / unquote(parts.path)).resolve().is_file(), (page, link)
    few = Site.open(home / INDEX_FILE, written=True)
    assert exporting.export(few, tmp_path / "few", 10) == 10
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(ExplorerError, match="something else"):
        exporting.export(site, tmp_path / "mine")


# ------------------------------------------------------------------------------------------------------------ the index


def test_the_badge_tells_of_findings_and_of_a_reader_that_is_away(tmp_path: Path) -> None:
    home_of(tmp_path)
    index = ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE)
    chain = stage()
    bring_up(index, chain, 2_063)
    site = Site.open(tmp_path / INDEX_FILE)
    assert site.freshness()["text"] == "audited to block 2,060, 3 behind, 0 findings"
    index.troubled("the chain node does not answer")
    assert site.freshness()["state"] == "late"
    assert "does not answer" in site.page("")
    index.database.execute("UPDATE progress SET trouble='', seen=seen-7200")
    assert "nothing was read for 2 hours" in site.freshness()["trouble"]
    index.database.execute("UPDATE progress SET seen=seen+7200, audited_at=audited_at-3000")
    assert site.freshness()["trouble"] == "the last audit ended 50 minutes ago"
    index.database.execute("UPDATE results SET violations=2")
    assert site.freshness()["state"] == "bad"
    assert words.badge(-1, 0, 0) == "not audited yet"


def test_an_index_of_another_deployment_or_version_is_refused(tmp_path: Path) -> None:
    home_of(tmp_path)
    with pytest.raises(IndexUnusable, match="another deployment"):
        ExplorerIndex.open(tmp_path / INDEX_FILE, 1, PLACE)
    index = ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE)
    index.database.execute("PRAGMA user_version=99")
    index.close()
    for again in (
        lambda: ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE),
        lambda: Site.open(tmp_path / INDEX_FILE),
        lambda: Site.open(tmp_path / "none.sqlite"),
    ):
        with pytest.raises(IndexUnusable):
            again()
    web = TestClient(application(lambda: Site.open(tmp_path / "none.sqlite")))
    answer = web.get("/")
    assert answer.status_code == 503
    assert "Reading the chain" in answer.text
    assert 'href="static/explorer.css"' in answer.text, "links are relative: the pages may lie below any path"
    assert web.get("/livez").status_code == 200
    unready = web.get("/readyz")
    assert unready.status_code == 503
    assert "Wait until the reader made it." in str(unready.json()["reasons"])


def test_readiness_says_why_the_pages_are_not_to_be_relied_on(tmp_path: Path) -> None:
    home_of(tmp_path)
    index = ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE)
    web = TestClient(application(lambda: Site.open(tmp_path / INDEX_FILE)))
    index.database.execute("UPDATE progress SET seen=?", (time.time(),))
    assert (web.get("/readyz").status_code, web.get("/readyz").json()) == (200, {"ready": True, "reasons": []})
    index.database.execute("UPDATE results SET violations=2")
    assert web.get("/readyz").status_code == 200, "a finding is what the pages are there for"
    index.troubled("the chain node does not answer")
    index.database.execute("UPDATE progress SET audited=-1")
    answer = web.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "reasons": ["no audit has ended yet", "the chain node does not answer"]}
    index.close()


def test_pages_of_no_name_are_refused(site: Site) -> None:
    for page in ("nothing", "cases/a/b", "receipt/x"):
        with pytest.raises(NothingHere):
            site.page(page)
    with pytest.raises(NoSuchFigure):
        site.figure("tasks", {"state": "x"})


def test_commands_say_what_is_missing(tmp_path: Path) -> None:
    run = CliRunner().invoke(commands, ["show", "nodes", "--home", str(tmp_path)])
    assert "troth explorer read" in str(run.exception)
    assert CliRunner().invoke(commands, ["show", "odd", "--home", str(tmp_path)]).exit_code == 2


def test_commands_that_show_a_finding_again_hide_the_node_s_password(tmp_path: Path) -> None:
    told = reading.ReaderSettings("https://me:secret@node.example/key", PLACE.factory, None, 0, tmp_path)
    said = told.reproduce(Finding("M1", FindingKind.MISMATCH, "x"))
    assert "secret" not in said
    assert "TROTH_RPC" in said


def test_a_broken_log_waits_its_turn_and_a_forged_one_is_told(tmp_path: Path) -> None:
    known, at = stage(), 2_060
    index = ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE)
    bring_up(index, known, at)
    first, second = index.waiting()
    nothing = log_checks.ServedLogs(
        first.scheduler, {}, {1: log_checks.MissingLogData("HTTP status 404", reached=True)}
    )
    index.examined(first, (), log_checks.examine(known.subject(at), nothing, {1}), reproduce)
    assert index.waiting() == [second]
    (line,) = log_data.decode_data(known.served[second.scheduler, 2])
    lied = log_data.encode_line(LogLine(**{**fields_of(line), "beta": "0x" + "11" * 32})) + b"\n"
    served = log_checks.ServedLogs(second.scheduler, {2: lied}, {})
    index.examined(second, log_data.decode_data(lied), log_checks.examine(known.subject(at), served, {2}), reproduce)
    assert index.waiting() == []
    index.database.execute("UPDATE entries SET examined=examined-61")
    assert [one.number for one in index.waiting()] == [1]
    index.database.execute("UPDATE entries SET examined=examined-3600")
    assert [one.number for one in index.waiting()] == [1, 2]
    index.audited(at, [], reproduce)
    site = Site.open(tmp_path / INDEX_FILE)
    assert site.freshness()["state"] == "bad"
    assert "its data is not served" in site.page("audit")
    assert "what is served is not what was posted" in site.page("audit")


def fields_of(line: LogLine) -> dict[str, Any]:
    return {name: getattr(line, name) for name in line.__struct_fields__}


@pytest.mark.slow
def test_no_name_in_an_index_leads_out_of_an_export(tmp_path: Path) -> None:
    home_of(tmp_path / "home")
    index = ExplorerIndex.open(tmp_path / "home" / INDEX_FILE, DOMAIN.chain_id, PLACE)
    index.database.execute("UPDATE tasks SET order_id='../../../stolen' WHERE order_id=?", (TASK,))
    index.close()
    site = Site.open(tmp_path / "home" / INDEX_FILE, written=True)
    exporting.export(site, tmp_path / "a" / "b" / "out")
    assert list(tmp_path.rglob("*stolen*")) == []
    with pytest.raises(ExplorerError, match="out of the folder"):
        exporting._write(tmp_path / "out", "tasks/../../stolen.html", b"")


def test_lines_of_prices_begin_where_somebody_asked_and_are_named(site: Site) -> None:
    asked = [("class", 100, "a", 8), ("class", 160, "b", 4)]
    values = charts._medians(asked, 40, 1)
    assert (values[0], values[60], max(values)) == (0, 8, 8)
    assert charts._points(values, 8).startswith("720.0,8.0")
    assert charts._points([0] * 30 + [8] * 31, 8).startswith("360.0,8.0 "), "not from the ground, which would be free"
    legend = site.page("").partition('<ul class="legend">')[2].partition("</ul>")[0]
    assert all(name in legend for name, _ in site._class_names().values())


def test_what_only_files_have_is_not_on_pages_and_leads_on(site: Site, web: TestClient) -> None:
    assert [one.name for one in QUERIES["slashes"].columns if not one.shown] == ["log_index"]
    assert ">Log</th>" not in site.page("slashes")
    assert web.get("/figures/slashes.csv").text.startswith("block,log_index,operator,")
    part = site.figure("asks", {}, "", 1)
    assert site.figure("asks", {}, part.cursor).rows == site.figure("asks", {}).rows[1:]


def test_an_entry_that_is_no_number_is_refused(web: TestClient) -> None:
    for wrong in ("x", "-1", "9" * 40, "²"):
        assert web.get(f"/figures/tasks.csv?entry={wrong}").status_code == 404, wrong
        assert web.get(f"/figures/asks.csv?after={wrong}~1").status_code == 404, wrong
