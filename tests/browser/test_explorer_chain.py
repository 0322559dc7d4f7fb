"""A receipt of a real deployment, dropped onto the explorer that reads it, and asked of the chain by the browser."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed (make setup): pages are not looked at")

from playwright.sync_api import expect
from support.browser import CHROMIUM, WHY_NOT, chromium, looking, served
from support.court_logs import line_of, post
from support.court_stage import CourtStage, court_stage

from troth.cases.evidence import Evidence
from troth.cases.standing import signer_of
from troth.explorer.pages import application
from troth.explorer.reading import INDEX_FILE, ReaderSettings, read
from troth.explorer.site import Site
from troth.protocol.market import checks, receipt
from troth.protocol.market.log_data import LogLine
from troth.protocol.market.receipt import CheckedSegment, Receipt
from troth.protocol.market.signed import Opinion
from troth.testnet import cli

pytestmark = [
    *(pytest.mark.browser, pytest.mark.chain, pytest.mark.slow),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]


@pytest.fixture
async def court(anvil: Any, tmp_path: Path) -> AsyncIterator[CourtStage]:
    async with court_stage(anvil, tmp_path / "court") as made:
        yield made


def receipt_of(court: CourtStage, held: Evidence) -> Receipt:
    """What the client keeps of an order that was served and checked on this deployment."""
    stage = court.stage
    assert held.order
    assert held.secret
    order, view = held.order.message, court.view(held.order.message)
    results = [one.message for one in held.results]
    drawn = checks.verifiers(order, results, held.secret, held.draws[0].message.beta, nodes=held.nodes, view=view)
    return Receipt(
        version=receipt.VERSION,
        chain_id=held.chain_id,
        bank=held.bank,
        model=stage.model,
        execution_class=stage.execution_class,
        tab=stage.client_tab,
        vrf_x=view.vrf_key[0],
        vrf_y=view.vrf_key[1],
        order=held.order,
        admission=held.admissions[0],
        nodes=held.nodes,
        infer_proof=held.infer_proof,
        results=held.results,
        draw=held.draws[0],
        draw_proof=held.draw_proof,
        secret=held.secret,
        checks=tuple(
            CheckedSegment(
                seats.operators,
                tuple(one for one in held.commitments if one.message.segment == segment),
                tuple(one for one in held.verdicts if one.message.segment == segment),
            )
            for segment, seats in enumerate(drawn)
        ),
    )


async def logged(court: CourtStage, home: Path, number: int, line: LogLine) -> None:
    """An entry on chain, and its data where the reader keeps what it has fetched."""
    data = await post(court, number, [line])
    place = home / "logs" / court.stage.scheduler.address.lower() / f"{number}.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)


async def test_a_real_log_is_recomputed_and_a_real_receipt_asked_of_the_chain(
    court: CourtStage, tmp_path: Path
) -> None:
    held = await court.serve(opinion=Opinion.ACCEPT)
    unchecked = await court.serve(opinion=Opinion.ACCEPT)
    await logged(court, tmp_path / "home", 1, line_of(held))
    await logged(court, tmp_path / "home", 2, line_of(unchecked, checked=False))
    found = receipt_of(court, held)
    assert receipt.verify(found).checked
    place = court.stage.market.place
    told = ReaderSettings(court.stage.anvil.url, place.factory, place.contracts.bank, 0, tmp_path / "home")
    await read(told, once=True)
    site = Site.open(tmp_path / "home" / INDEX_FILE)
    assert {row[1]: row[-1] for row in site.figure("entries", {}).rows} == {1: "clean", 2: "wrong"}
    assert "it hits, and the seats that it draws gave their verdicts" in site.page(f"tasks/0x{held.order_id.hex()}")
    wrong = site.page(f"tasks/0x{unchecked.order_id.hex()}")
    assert "The answer was drawn, and there is no check of it" in wrong
    assert "Summons.summonCheck" in wrong
    assert site.freshness()["findings"] == 1
    site.close()
    # A verifier's word in another's place: signatures hold, and only the chain knows who was drawn.
    check = found.checks[0]
    friend = next(one.address for one in court.stage.nodes if one.address not in {*check.drawn, *found.nodes})
    drawn = (*check.drawn[:-1], friend)
    verdicts = tuple(one for one in check.verdicts if signer_of(one, held) in drawn)
    forged = replace(found, checks=(replace(check, drawn=drawn, verdicts=verdicts), *found.checks[1:]))
    receipt.verify(forged)
    await asyncio.to_thread(looked_at, tmp_path / "home", court.stage.anvil.url, found, forged)


def run_as_told(told: list[str], home: Path, content: bytes) -> int:
    """The exit status of the command that the page shows, for this receipt."""
    file = home / "shown.receipt"
    file.write_bytes(content)
    assert told[:4] == ["troth", "audit", "receipt", "FILE"]
    return subprocess.run(cli.command(*told[1:3], file, *told[4:]), check=False, timeout=120).returncode


def looked_at(home: Path, rpc: str, found: Receipt, forged: Receipt) -> None:
    """Both receipts in a browser, each asked of the chain."""
    with (
        served(application(lambda: Site.open(home / INDEX_FILE))) as url,
        chromium() as browser,
        looking(browser, url) as looked,
    ):
        page = looked.page
        page.goto(f"{url}/receipt")
        page.fill("#rpc", rpc)
        for shown, answer in ((found, "The chain says the same."), (forged, "Other verifiers were drawn")):
            content = receipt.encode(shown)
            page.set_input_files("#file", {"name": "a", "mimeType": "application/json", "buffer": content})
            page.click("#ask")
            expect(page.locator("#chain-verdict")).to_contain_text(answer, timeout=20_000)
            told = shlex.split(page.locator("#chain ~ footer code.command").inner_text())
            assert told[-2:] == ["--rpc", rpc]
            assert run_as_told(told, home, content) == (0 if shown is found else 1)
        # What is no address of this machine never gets into a command that is copied into a shell.
        page.fill("#rpc", "http://127.0.0.1:8545/$(touch x)")
        assert page.locator("#rpc-named").inner_text() == rpc
        assert looked.errors == []
