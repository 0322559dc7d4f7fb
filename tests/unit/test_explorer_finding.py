"""Ids that are typed into the explorer's field, and a reader that ends with its command."""

from __future__ import annotations

import multiprocessing
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.explorer_stage import CASES, home_of, lines
from support.market_record import PLACE, SCHEDULER
from support.market_scene import TAB

from troth.explorer import reading
from troth.explorer.errors import NothingHere
from troth.explorer.pages import application
from troth.explorer.reading import INDEX_FILE
from troth.explorer.site import Site

CASE, TASK = "0x" + CASES.case_id.hex(), lines()[0].order


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_of(tmp_path_factory.mktemp("explorer"))


@pytest.fixture
def web(home: Path) -> Iterator[TestClient]:
    with TestClient(application(lambda: Site.open(home / INDEX_FILE))) as client:
        yield client


@pytest.mark.parametrize(
    ("typed", "page"),
    [
        (CASES.node, f"nodes/{CASES.node}"),
        (CASES.node.lower()[:12], f"nodes/{CASES.node}"),
        (f"  {SCHEDULER[2:]} ", f"schedulers/{SCHEDULER}"),
        (CASE[:20], f"cases/{CASE}"),
        (TASK, f"tasks/{TASK}"),
    ],
)
def test_an_id_or_its_beginning_is_found(web: TestClient, typed: str, page: str) -> None:
    answer = web.get("/find", params={"q": typed}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, page)


@pytest.mark.parametrize(
    "typed", ["", "0x1", "<script>", "0x' OR 1=1", "https://elsewhere.example", "0xffffffff", "0x"]
)
def test_what_is_no_id_leads_nowhere(web: TestClient, typed: str) -> None:
    answer = web.get("/find", params={"q": typed}, follow_redirects=False)
    assert answer.status_code == 404
    assert "Type the id of a node" in answer.text
    assert "<script>" not in answer.text


def test_of_several_ids_that_begin_alike_none_is_taken(home: Path, tmp_path: Path) -> None:
    shutil.copy(home / INDEX_FILE, tmp_path / INDEX_FILE)
    with sqlite3.connect(tmp_path / INDEX_FILE) as database:
        database.execute("UPDATE tasks SET order_id = '0xabcd' || substr(order_id, 7)")
    made = Site.open(tmp_path / INDEX_FILE)
    with pytest.raises(NothingHere, match="Several"):
        made.found("0xabcd")
    made.close()


def test_nobody_is_found_by_the_account_that_pays(web: TestClient) -> None:
    for account in (TAB.payer, TAB.key):
        assert web.get("/find", params={"q": account}, follow_redirects=False).status_code == 404


@pytest.mark.slow
def test_a_reader_that_is_stopped_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    """A port that is taken stops it at once: a process that was left would hold up the command's exit."""
    for pause in (0.0, 0.02):
        before = {one.pid for one in multiprocessing.active_children()}
        reader = reading.ReaderProcess(reading.ReaderSettings("http://127.0.0.1:9", PLACE.factory, None, 0, tmp_path))
        reader.start()
        time.sleep(pause)
        reader.stop()
        assert not reader._thread.is_alive()
        assert {one.pid for one in multiprocessing.active_children()} == before
