"""The explorer's index in Postgres: the same rows, figures and pages as in SQLite, and what goes wrong between."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.explorer_stage import bring_up, examine, forked, home_of, reproduce, stage, tables
from support.market_record import PLACE
from support.market_scene import DOMAIN
from support.postgres import server
from typer.testing import CliRunner

from troth.audit.report import CheckReport, CheckResult, Finding, FindingKind
from troth.explorer import index as indexes
from troth.explorer import site as sites
from troth.explorer.command import app
from troth.explorer.database import DatabaseFailed
from troth.explorer.errors import ExplorerError, IndexUnusable
from troth.explorer.exporting import _reachable
from troth.explorer.figures import QUERIES
from troth.explorer.index import ExplorerIndex
from troth.explorer.pages import application
from troth.explorer.reading import INDEX_FILE
from troth.explorer.site import Site

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install -e '.[postgres]'")

from troth.explorer.postgres import as_postgres, without_password  # noqa: E402

LAST = 2_060
NUMBERS = count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture
def database(postgres: str) -> str:
    """The URL of an empty database."""
    name = f"explorer{next(NUMBERS)}"
    with psycopg.connect(f"{postgres}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgres}/{name}"


@pytest.fixture
def both(database: str, tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """One chain's pages, from a file and from Postgres."""
    files, rows = (home_of(tmp_path / name, place=place) for name, place in (("file", None), ("rows", database)))
    pair = Site.open(files / INDEX_FILE), Site.open(database, rows)
    yield pair
    for one in pair:
        one.close()


def opened(url: str) -> ExplorerIndex:
    return ExplorerIndex.open(url, DOMAIN.chain_id, PLACE)


def break_off(index: ExplorerIndex) -> None:
    """A transaction that fails after it changed something."""
    with index.writing():
        index.database.execute("DELETE FROM cases")
        index.database.execute("DELETE FROM blocks")
        index.database.execute("nonsense")


def test_every_page_is_the_same(both: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites.time, "time", lambda: 2_000_000_000.0)
    pages = _reachable(both[0], 500)
    assert len(pages) > 30
    for page in pages:
        of_file, of_rows = (one.page(page) for one in both)
        assert of_rows == of_file, page


def test_every_figure_is_the_same_and_goes_on_where_it_stopped(both: tuple[Site, Site]) -> None:
    for name, query in QUERIES.items():
        choices: list[dict[str, str]] = [{}, *({key: one} for key, of in query.choices.items() for one in of)]
        for options in choices:
            of_file, of_rows = (one.figure(name, options) for one in both)
            assert of_rows == of_file, (name, options)
        cursor, rows = "", []
        while query.cursor:
            part = both[1].figure(name, {}, cursor, 1)
            assert part == both[0].figure(name, {}, cursor, 1)
            rows += part.rows
            cursor = part.cursor
            if not cursor:
                assert tuple(rows) == both[0].figure(name, {}).rows
                break


def test_an_index_that_grew_through_a_reorganisation_and_kills_is_one_made_at_once(
    database: str, tmp_path: Path
) -> None:
    chain = stage()
    grown = opened(database)
    bring_up(grown, chain, LAST)
    examine(grown, chain, LAST)
    # As after kill -9: the connection goes without a word, and another process opens the database.
    grown.close()
    grown = opened(database)
    bring_up(grown, forked(chain, chain.blocks[3], chain.blocks[20], "fork"), chain.blocks[20])
    with pytest.raises(DatabaseFailed):
        break_off(grown)
    bring_up(grown, chain, LAST)
    examine(grown, chain, LAST)
    once = ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE)
    bring_up(once, chain, LAST)
    examine(once, chain, LAST)
    assert tables(grown) == tables(once)
    grown.close()


def test_two_readers_do_not_write_one_database(database: str) -> None:
    first = opened(database)
    with pytest.raises(IndexUnusable, match="Another reader writes"):
        opened(database)
    first.close()
    opened(database).close()


def test_a_server_cannot_write_and_waits_for_a_reader(database: str, tmp_path: Path) -> None:
    with pytest.raises(IndexUnusable, match="no index yet"):
        Site.open(database, tmp_path)
    web = TestClient(application(lambda: Site.open(database, tmp_path)))
    assert web.get("/").status_code == 503
    home_of(tmp_path, place=database)
    assert web.get("/").status_code == 200
    site = Site.open(database, tmp_path)
    with pytest.raises(DatabaseFailed, match="read-only"), site.database.snapshot(3):
        site.database.execute("DELETE FROM tasks")
    site.close()


def test_pages_and_reader_go_on_after_the_database_was_restarted(database: str, postgres: str, tmp_path: Path) -> None:
    home_of(tmp_path, place=database)
    reader, web = opened(database), TestClient(application(lambda: Site.open(database, tmp_path)))
    assert web.get("/").status_code == 200
    with psycopg.connect(f"{postgres}/postgres", autocommit=True) as connection:
        # What a restart does to connections, without making other tests wait for one.
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'explorer%'")
    assert web.get("/").status_code == 200, "nothing was asked over the broken connection yet: it is made anew"
    with pytest.raises(DatabaseFailed):
        reader.troubled("it was away")
    reader.troubled("it is back")
    assert "it is back" in web.get("/").text
    reader.close()


def test_a_query_that_takes_too_long_is_given_up(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_of(tmp_path, place=database)
    site = Site.open(database, tmp_path)
    monkeypatch.setattr(sites, "QUERY_SECONDS", 0.05)
    with pytest.raises(ExplorerError, match="takes too long"):
        site._reading(lambda: site.database.execute("SELECT pg_sleep(5)"))
    monkeypatch.undo()
    assert site.page("nodes")
    site.close()


def test_other_versions_deployments_and_programs_are_refused(
    database: str, postgres: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened(database).close()
    with pytest.raises(IndexUnusable, match="another deployment"):
        ExplorerIndex.open(database, DOMAIN.chain_id + 1, PLACE)
    monkeypatch.setattr(indexes, "FORMAT", 99)
    with pytest.raises(IndexUnusable, match="another version"):
        opened(database)
    monkeypatch.setattr(sites, "FORMAT", 99)
    with pytest.raises(IndexUnusable, match="another version"):
        Site.open(database, tmp_path)
    with psycopg.connect(f"{postgres}/postgres", autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS songs (name TEXT)")
    with pytest.raises(IndexUnusable, match="something else: songs"):
        opened(f"{postgres}/postgres")


def test_a_stranger_s_nul_in_a_finding_does_not_stop_the_reader(database: str) -> None:
    index = opened(database)
    bring_up(index, stage(), LAST)
    finding = Finding("M1", FindingKind.CHEATED, "an endpoint\0with a NUL")
    index.audited(LAST, [CheckReport("M1", "Events fold", (CheckResult(None, (finding,)),))], reproduce)
    assert index.database.execute("SELECT message FROM findings").fetchone() == ("an endpointwith a NUL",)
    index.close()


@pytest.mark.parametrize(
    "url", ["postgresql://troth:secret@127.0.0.1:9/no", "postgres://a:secret@[::1/x", "postgresql://troth:secret@h:x/n"]
)
def test_an_unreachable_database_is_an_error_that_shows_no_password(url: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["show", "nodes", "--database", url, "--home", str(tmp_path)])
    assert isinstance(done.exception, IndexUnusable)
    assert "secret" not in f"{done.exception} {done.exception.value} {done.exception.remedy} {done.output}"


def test_the_command_prints_a_figure_from_postgres(database: str, tmp_path: Path) -> None:
    home_of(tmp_path, place=database)
    done = CliRunner().invoke(app, ["show", "cases", "--database", database, "--home", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].startswith("case,node")
    assert CliRunner().invoke(app, ["show", "nodes", "--database", "hunter2"]).exit_code == 2
    assert "hunter2" not in CliRunner().invoke(app, ["show", "nodes", "--database", "hunter2"]).output


def test_marks_and_names() -> None:
    assert as_postgres("a LIKE '5%' AND b = ?") == "a LIKE '5%%' AND b = %s"
    assert (
        without_password("postgresql://me:secret@db.example.org:5432/troth?x=y")
        == "postgresql://db.example.org:5432/troth"
    )
