"""The operator's page in a real Chromium: it fits a desk and a phone, and is accessible in both themes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed (make setup): pages are not looked at")

from support.browser import CHROMIUM, DESKTOP, PHONE, WHY_NOT, chromium, looking, served
from unit.test_node_page import MONEY, STANDING

from troth.node.inspection.page import Glance, OperatorPage, application
from troth.transport.health import HealthFinding

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)]

OPERATOR = "0x" + "Ab" * 20
FINDINGS = [
    HealthFinding("config", True, "/var/lib/troth/" + "a-folder-with-a-long-name/" * 3 + "node.toml", ""),
    HealthFinding("stake", False, "leaving", f"Run `troth node withdraw --home {'long/' * 20} --broadcast`."),
]
GLANCE = Glance(FINDINGS, STANDING | {"operator": OPERATOR}, MONEY, ["nobody asks"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    page = OperatorPage(lambda: GLANCE, None, "https://node.example:9443", "0:2")

    async def at_its_port(scope: Any, receive: Any, send: Any) -> None:
        await application(page, scope["server"][1])(scope, receive, send)

    with served(at_its_port) as made:
        yield made


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark"), ((320, 640), "light")])
def test_it_fits_and_is_accessible(url: str, size: tuple[int, int], scheme: str) -> None:
    with chromium() as browser, looking(browser, url, size=size, scheme=scheme) as looked:
        looked.page.goto(url)
        assert OPERATOR in looked.page.locator("h1").inner_text()
        looked.require_narrow()
        looked.require_accessible()
