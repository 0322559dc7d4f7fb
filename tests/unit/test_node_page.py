"""The operator's page: what it says, that nothing of it is markup, and that no other site can read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from troth.node.inspection import page as module
from troth.node.inspection.page import Glance, OperatorPage, application, look, tail
from troth.transport.health import HealthFinding

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>"
SPAN = {"earned": "1 ether", "answers": 2, "checks": 1, "tokens": 90}
STANDING = {
    "operator": "0x12", "slice": "0:2", "stake": "2 ether", "seats": 2,
    "groups": [{"layers": "0:2", "seats": 2, "since_block": 7, "members": 3}],
}  # fmt: skip
MONEY = {
    "today": SPAN,
    "week": SPAN,
    "payable": "3 gwei",
    "unpaid": "0 ether",
    "credit": "4 ether",
    "forfeited": "7 gwei",
}


def client(glance: Glance, log: Path | None = None, looks: list[int] | None = None) -> TestClient:
    def looking() -> Glance:
        if looks is not None:
            looks.append(1)
        return glance

    page = OperatorPage(looking, log, "https://node.example:9443", "0:2")
    return TestClient(application(page, 9480), base_url="http://127.0.0.1:9480")


def test_the_page_says_what_an_operator_asks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(f"line {number}" for number in range(100)))
    glance = Glance([HealthFinding("gas", False, "0 ether", "Send coins.")], STANDING, MONEY, ["nobody asks"])
    text = client(glance, log).get("/").text
    for words in (
        "1 ether: 2 answers",
        "1 check,",
        "90 tokens",
        "2 seats since block 7",
        "3 nodes",
        "3 gwei",
        "7 gwei",
        "gas: 0 ether. Send coins.",
        "nobody asks",
        "line 99",
        "0:2",
    ):
        assert words in text
    assert "line 10\n" not in text, "the end of the log alone"
    assert "Nothing. Work comes by itself." in client(Glance([], STANDING, MONEY, [])).get("/").text


def test_it_loads_itself_again_for_those_who_want_that() -> None:
    page = client(Glance([], STANDING, MONEY, []))
    once, again = page.get("/").text, page.get("/?again").text
    assert "http-equiv" not in once
    assert 'href="/?again"' in once
    assert '<meta http-equiv="refresh" content="30">' in again
    assert 'href="/"' in again


def test_one_of_anything_is_one() -> None:
    once = {"earned": "1 ether", "answers": 1, "checks": 1, "tokens": 1}
    standing = STANDING | {"seats": 1, "groups": [{"layers": "0:2", "seats": 1, "since_block": 7, "members": 1}]}
    text = client(Glance([], standing, MONEY | {"today": once}, [])).get("/").text
    for words in ("1 answer,", "1 check,", "1 token<", "1 seat<", "1 seat since", "1 node<"):
        assert words in text
    assert not re.findall(r"\b1 (answers|checks|tokens|seats|nodes)", text)


def test_nothing_of_it_is_markup(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(EVIL)
    glance = Glance([HealthFinding(EVIL, False, EVIL, EVIL)], STANDING | {"operator": EVIL}, MONEY, [EVIL], "")
    for shown in (glance, Glance([], {}, {}, [], EVIL)):
        text = client(shown, log).get("/").text
        assert "<script" not in text
        assert "<img" not in text
        assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run `troth node start`.", "Run <code>troth node start</code>."),
        ("one ` alone", "one ` alone"),
        ("`a` and `<b>` and `", "<code>a</code> and <code>&lt;b&gt;</code> and `"),
        ("none", "none"),
    ],
)
def test_what_stands_between_backticks_is_a_command(text: str, shown: str) -> None:
    assert str(module.commands(text)) == shown


def test_no_other_site_reads_it() -> None:
    page = client(Glance([], STANDING, MONEY, []))
    for host in ("evil.example:9480", "evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:9480", ""):
        refused = page.get("/", headers={"host": host})
        assert (refused.status_code, "ether" in refused.text) == (421, False), host
    for host in ("127.0.0.1:9480", "localhost:9480", "[::1]:9480", "LOCALHOST:9480"):
        assert page.get("/", headers={"host": host}).status_code == 200, host
    answer = page.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in answer.headers
    (nonce,) = re.findall(r"'nonce-([\w-]+)'", policy)
    assert f'<style nonce="{nonce}">' in answer.text
    assert nonce not in page.get("/").text
    assert not re.findall(r'src="|<link|href="(?!/(?:"|\?again"))', answer.text), "it loads nothing"
    assert page.post("/").status_code == 405


def test_the_chain_is_not_asked_with_every_load() -> None:
    looks: list[int] = []
    page = client(Glance([], STANDING, MONEY, []), looks=looks)
    for _ in range(5):
        page.get("/")
    assert len(looks) == 1


def test_a_folder_that_is_not_set_up_is_said(tmp_path: Path) -> None:
    assert "troth node init" in look(tmp_path).next_thing


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 100)
    log = tmp_path / "log"
    log.write_bytes(b"x" * 1000 + b"\nthe end\n")
    assert tail(log) == ["x" * 91, "the end"]
    assert tail(None) == []
    assert "No such file" in tail(tmp_path / "none")[0]
