"""A real Chromium for tests, and what it must never see on a page of ours: errors, other hosts, inaccessible parts."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
ARGUMENTS = (
    *("--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHY_NOT = "Chromium is not installed (apt-get install chromium): pages are not looked at in a browser"
DESKTOP, PHONE = (1280, 900), (390, 844)


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An application on a free port of this machine; its URL."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@dataclass
class Looked:
    """A page with all that went wrong on it."""

    page: Page
    host: str
    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        self.requests.append(url)
        if urlsplit(url).scheme in {"http", "https"} and urlsplit(url).netloc != self.host:
            self.elsewhere.append(url)

    def require_clean(self) -> None:
        """No script failed, nothing was refused by the policy, no other host was asked."""
        assert self.errors == [], self.errors
        assert self.elsewhere == [], self.elsewhere

    def require_accessible(self) -> None:
        """No violation of WCAG 2.2 AA that axe-core sees."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        told = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found["violations"]]
        assert told == [], told

    def require_narrow(self) -> None:
        """Nothing is wider than the screen."""
        widths = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], widths


@contextmanager
def looking(browser: Browser, url: str, *, size: tuple[int, int] = DESKTOP, scheme: Any = "light") -> Iterator[Looked]:
    """A fresh page at a size, in the dark or in the light."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    try:
        yield Looked(context.new_page(), urlsplit(url).netloc)
    finally:
        context.close()
