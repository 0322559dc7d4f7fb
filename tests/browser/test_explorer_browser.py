"""The explorer in a real Chromium: dark and light, on a phone, by keyboard; a receipt checked in the page."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed (make setup): pages are not looked at")

from playwright.sync_api import Browser, Page, Route, expect
from support.browser import CHROMIUM, DESKTOP, PHONE, WHY_NOT, chromium, looking, served
from support.dispute_events import WINDOW, dispute_events
from support.explorer_stage import CASES, home_of, lines
from support.market_case import receipt_of
from support.market_record import PLACE, SCHEDULER
from support.market_scene import DOMAIN, Scene, hash_of
from support.receipt_chain import answers

from troth.explorer.disputes import told
from troth.explorer.index import ExplorerIndex
from troth.explorer.pages import application
from troth.explorer.reading import INDEX_FILE
from troth.explorer.site import Site
from troth.protocol.disputes.calls import DisputeWon
from troth.protocol.market import receipt

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)]

DISPUTE = f"disputes/0x{hash_of('won').hex()}"
CASE, TASK = f"cases/0x{CASES.case_id.hex()}", f"tasks/{lines()[0].order}"
SEEN = (
    ("", DESKTOP, "light"),
    ("", PHONE, "dark"),
    (CASE, DESKTOP, "dark"),
    (DISPUTE, DESKTOP, "light"),
    (DISPUTE, PHONE, "dark"),
    (TASK, PHONE, "light"),
    ("logs", DESKTOP, "dark"),
    ("reputation", DESKTOP, "light"),
    ("reputation", PHONE, "dark"),
    ("receipt", PHONE, "dark"),
)
OTHERS = (
    "reputation",
    "nodes",
    "cases",
    "slashes",
    "services",
    "audit",
    f"nodes/{CASES.node}",
    f"schedulers/{SCHEDULER}",
    CASE,
    DISPUTE,
    "logs",
    "none/x",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = home_of(tmp_path_factory.mktemp("explorer"))
    index = ExplorerIndex.open(home / INDEX_FILE, DOMAIN.chain_id, PLACE)
    index.disputed(told(dispute_events("won", DisputeWon), WINDOW))
    index.close()
    with served(application(lambda: Site.open(home / INDEX_FILE))) as made:
        yield made


REAL = ("llama/0x" + "21db9967" * 8 + "/0x" + "4fc9b9b7" * 8 + "/weights-2")[:80]
"""An architecture as registration writes it, with the hashes of configuration and tokenizer, cut as in the index."""


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_real_models_name_breaks_no_page(browser: Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    home = home_of(tmp_path)
    with sqlite3.connect(home / INDEX_FILE) as database:
        database.execute(
            "UPDATE classes SET architecture=?, name='smollm2-135m/torch/float32/head:model.embed'", (REAL,)
        )
    with (
        served(application(lambda: Site.open(home / INDEX_FILE))) as url,
        looking(browser, url, size=size) as looked,
    ):
        for path in ("nodes", f"nodes/{CASES.node}", ""):
            looked.page.goto(f"{url}/{path}")
            looked.require_narrow()
            overlapping = looked.page.evaluate(OVERLAPPING)
            assert overlapping == [], path
        expect(looked.page.locator("main")).to_contain_text("llama/0x21db…/0x4fc9…")


OVERLAPPING = """() => [...document.querySelectorAll("td, th")].filter(one => {
  const words = document.createRange();
  words.selectNodeContents(one);
  return words.getBoundingClientRect().right > one.getBoundingClientRect().right + 1;
}).map(one => one.innerText)"""
"""Cells whose words run into the next cell."""


@pytest.mark.parametrize(("path", "size", "scheme"), SEEN)
def test_pages_are_clean_and_accessible(
    browser: Browser, url: str, path: str, size: tuple[int, int], scheme: str
) -> None:
    with looking(browser, url, size=size, scheme=scheme) as looked:
        looked.page.goto(f"{url}/{path}")
        expect(looked.page.locator("#badge")).to_contain_text("0 behind, 0 findings")
        looked.require_accessible()
        looked.require_narrow()
        looked.require_clean()


def test_a_dispute_is_found_and_read_lane_by_lane(browser: Browser, url: str) -> None:
    with looking(browser, url) as looked:
        page = looked.page
        page.goto(f"{url}/cases")
        page.locator("table a[href*='disputes/']").first.click()
        expect(page.locator("h1")).to_contain_text("convicted")
        lanes = page.locator("table.swim")
        expect(lanes.locator("thead th")).to_have_text(["Block", "Accuser", "Accused", "Clock", "Money"])
        expect(lanes.locator("td.accused .step").last).to_contain_text("one part of a sum is not the sum of its terms")
        expect(lanes.locator("td.money .step").last).to_contain_text("bond and reward to the accuser")
        blocks = {one.meta.block for one, _ in dispute_events("won", DisputeWon)}
        assert lanes.locator("tbody tr").count() == len(blocks)
        looked.require_clean()


def test_an_id_is_typed_and_its_page_opens(browser: Browser, url: str) -> None:
    with looking(browser, url) as looked:
        looked.page.goto(f"{url}/slashes")
        field = looked.page.get_by_role("searchbox")
        field.fill(CASE.removeprefix("cases/")[:14])
        field.press("Enter")
        looked.page.wait_for_url(f"{url}/{CASE}")
        expect(looked.page.locator("h1")).to_contain_text("Case")
        looked.require_clean()


def test_on_a_phone_a_case_is_read_without_scrolling_sideways(browser: Browser, url: str) -> None:
    with looking(browser, url, size=PHONE) as looked:
        looked.page.goto(f"{url}/{CASE}")
        looked.require_accessible()
        looked.require_narrow()
        lanes = looked.page.locator(".swim").locator("xpath=..")
        assert lanes.evaluate("one => one.scrollWidth <= one.clientWidth")
        shown = looked.page.locator(".swim td:visible")
        assert shown.count() > 0
        assert all(shown.nth(number).inner_text().strip() for number in range(shown.count()))


def test_what_is_not_accessible_is_noticed(browser: Browser, url: str) -> None:
    with looking(browser, url) as looked:
        looked.page.goto(f"{url}/slashes")
        looked.page.evaluate("document.querySelector('.lead').style.color = '#999'")
        looked.page.evaluate("document.querySelector('#theme').removeAttribute('aria-label')")
        looked.page.evaluate("document.querySelector('#theme').textContent = ''")
        with pytest.raises(AssertionError, match=r"button-name.*color-contrast"):
            looked.require_accessible()
        looked.page.evaluate("fetch('http://127.0.0.2:1/').catch(() => 0)")
        looked.page.wait_for_timeout(200)
        with pytest.raises(AssertionError, match="Content Security Policy"):
            looked.require_clean()


def test_all_other_pages_fit_a_phone(browser: Browser, url: str) -> None:
    with looking(browser, url, size=PHONE) as looked:
        for path in OTHERS:
            answer = looked.page.goto(f"{url}/{path}")
            assert answer is not None
            looked.require_narrow()
            if path == "none/x":
                assert answer.status == 404
                looked.errors.clear()
        looked.require_clean()


def test_everything_is_reached_by_keyboard(browser: Browser, url: str) -> None:
    with looking(browser, url) as looked:
        page = looked.page
        page.goto(f"{url}/")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#content")).to_be_focused()
        page.goto(f"{url}/")
        for _ in range(6):
            page.keyboard.press("Tab")
        expect(page.locator("nav a", has_text="Cases")).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url("**/cases")
        page.locator("table a").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("Case")
        page.locator("#theme").focus()
        page.keyboard.press("Space")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        looked.require_clean()


def choose(page: Page, content: bytes) -> None:
    page.set_input_files("#file", {"name": "an.receipt", "mimeType": "application/json", "buffer": content})


def test_a_file_that_is_chosen_before_the_script_runs_is_checked(browser: Browser, url: str) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    with looking(browser, url) as looked:
        page = looked.page
        page.route("**/receipt-page.js*", hold)
        with page.expect_request("**/receipt-page.js*"):
            page.goto(f"{url}/receipt", wait_until="commit")
        choose(page, receipt.encode(receipt_of(Scene())))
        late[0].continue_()
        expect(page.locator("#verdict-title")).to_have_text("It holds, and was checked")


def test_a_receipt_is_checked_in_the_page_and_goes_nowhere(browser: Browser, url: str) -> None:
    whole = receipt.encode(receipt_of(Scene()))
    with looking(browser, url) as looked:
        page = looked.page
        page.goto(f"{url}/receipt", wait_until="networkidle")
        asked = list(looked.requests)
        choose(page, whole)
        expect(page.locator("#verdict-title")).to_have_text("It holds, and was checked")
        expect(page.locator("#steps li.good")).to_have_count(7)
        expect(page.locator("#facts")).to_contain_text("accept")
        choose(page, receipt.encode(replace(receipt_of(Scene()), secret=hash_of("x"))))
        expect(page.locator("#verdict-title")).to_have_text("The receipt does not hold")
        expect(page.locator("#verdict-text")).to_have_text("This is not the first secret of the order.")
        choose(page, b"x" * (receipt.SIZE_LIMIT + 1))
        expect(page.locator("#verdict-title")).to_have_text("This is no receipt")
        drop(page, whole)
        expect(page.locator("#verdict-title")).to_have_text("It holds, and was checked")
        looked.require_accessible()
        assert looked.requests == asked
        looked.require_clean()


def drop(page: Page, content: bytes) -> None:
    """A file that is dropped, as from a folder's window."""
    made = page.evaluate_handle(
        "text => { const held = new DataTransfer(); held.items.add(new File([text], 'a.receipt')); return held; }",
        content.decode(),
    )
    for event in ("dragenter", "dragover", "drop"):
        page.dispatch_event("#drop", event, {"dataTransfer": made})


def test_of_two_receipts_the_later_one_is_shown(browser: Browser, url: str) -> None:
    """The first is read more slowly, so that it arrives after the second."""
    whole, wrong = receipt_of(Scene()), replace(receipt_of(Scene()), secret=hash_of("x"))
    with looking(browser, url) as looked:
        page = looked.page
        page.goto(f"{url}/receipt", wait_until="networkidle")
        page.evaluate(
            """() => {
              const read = File.prototype.arrayBuffer;
              let pause = 600;
              File.prototype.arrayBuffer = async function () {
                const own = pause;
                pause = 0;
                await new Promise((done) => setTimeout(done, own));
                return read.call(this);
              };
            }"""
        )
        drop(page, receipt.encode(wrong))
        drop(page, receipt.encode(whole))
        expect(page.locator("#verdict-title")).to_have_text("It holds, and was checked")
        page.wait_for_timeout(900)
        expect(page.locator("#verdict-title")).to_have_text("It holds, and was checked")
        expect(page.locator("#steps li.bad")).to_have_count(0)
        expect(page.locator("#steps li.good")).to_have_count(7)
        looked.require_clean()


@pytest.mark.parametrize("lies", [False, True])
def test_a_chain_node_is_asked_on_demand(browser: Browser, url: str, lies: bool) -> None:
    scene = Scene()
    found = receipt_of(scene)
    _, known = answers(scene, found)
    with looking(browser, url) as looked:
        page = looked.page
        page.route("http://127.0.0.1:8545/**", lambda route: reply(route, known, lies))
        page.goto(f"{url}/receipt")
        choose(page, receipt.encode(found))
        expect(page.locator("#ask")).to_be_enabled()
        page.click("#ask")
        wanted = "The VRF key is not that of the scheduler." if lies else "The chain says the same."
        expect(page.locator("#chain-verdict")).to_have_text(wanted)
        assert {one.split("/")[2] for one in looked.elsewhere} == {"127.0.0.1:8545"}
        assert looked.errors == []


def reply(route: Route, known: dict[str, str], lies: bool) -> None:
    """A chain node's answers."""
    allowed = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}
    if route.request.method == "OPTIONS":
        route.fulfill(status=204, headers=allowed)
        return
    asked: Any = json.loads(route.request.post_data or "")
    said = "0x7a69"
    if asked["method"] == "eth_call":
        to, data = asked["params"][0]["to"], asked["params"][0]["data"]
        said = known[f"{to} {data}"]
        if lies and len(said) == 2 + 128:
            said = "0x" + "11" * 64
    route.fulfill(json={"jsonrpc": "2.0", "id": 1, "result": said}, headers=allowed)


def test_an_export_works_from_any_web_server(browser: Browser, tmp_path: Path) -> None:
    from starlette.applications import Starlette
    from starlette.staticfiles import StaticFiles

    from troth.explorer.exporting import export

    home_of(tmp_path / "home")
    export(Site.open(tmp_path / "home" / INDEX_FILE, written=True), tmp_path / "out")
    app = Starlette()
    app.mount("/below", StaticFiles(directory=tmp_path / "out", html=True))
    with served(app) as host, looking(browser, host) as looked:
        page: Page = looked.page
        page.goto(f"{host}/below/index.html")
        page.click("nav >> text=Cases")
        page.click("table a >> nth=0")
        expect(page.locator("h1")).to_contain_text("Case")
        page.goto(f"{host}/below/receipt.html")
        choose(page, receipt.encode(receipt_of(Scene())))
        expect(page.locator("#verdict-title")).to_have_text("It holds, and was checked")
        looked.require_clean()
