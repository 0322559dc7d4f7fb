"""Receipts: what they say while an order runs, and files that an auditor accepts with nothing of the text in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.byte_language import LANGUAGE
from support.toy_market import DOMAIN
from support.toy_tab_stage import Stage, toy_stage
from unit.test_tabs_asking import ALWAYS, PROMPT, SELDOM, asked, ended

from troth.audit import receipts as auditor
from troth.client.errors import AnswerUnavailable, ReceiptNotFound
from troth.client.orders.failing import OrderStalled
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.receipts import proof_of, shown
from troth.client.orders.updates import OrderOutcome
from troth.protocol.amounts import Asset
from troth.protocol.market import receipt
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.request import tokens_to_words

ASSET = Asset(NO_ADDRESS, "usdc", 6)


def proven(stage: Stage, folder: Path) -> Path:
    """The file that `troth client receipts --prove` writes."""
    path = folder / "receipt.json"
    path.write_bytes(receipt.encode(proof_of(stage.session.journal.all()[0], stage.world.state, DOMAIN)))
    return path


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_an_auditor_accepts_the_file_of_a_checked_answer(ends: tuple[int, ...], tmp_path: Path) -> None:
    async with toy_stage(tmp_path, ends=ends) as stage:
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        path = proven(stage, tmp_path)
        found = auditor.read_receipt(path)
        report = auditor.audit_receipt(found, None)
        assert not [finding for check in report.checks for result in check.results for finding in result.findings]
        groups = [stage.world.state.group(one) for one in stage.world.state.sizes]
        if len(ends) == 1:
            assert receipt.verify(found, groups, seasoning=100).checked


async def test_nothing_of_prompt_answer_or_salt_is_in_the_file(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        entry = stage.session.journal.all()[0]
        assert entry.submission is not None
        text = proven(stage, tmp_path).read_text()
        for secret in (
            entry.submission.salt.hex(),
            entry.submission.request.hex(),
            tokens_to_words(entry.tokens).hex(),
            tokens_to_words(PROMPT[:4]).hex(),
            "hello",
        ):
            assert secret not in text


async def test_an_undrawn_answer_is_proven_without_a_check(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        while ended(await asked(stage, SELDOM)).outcome is not OrderOutcome.UNDRAWN:
            continue
        found = auditor.read_receipt(proven(stage, tmp_path))
        told = receipt.verify(found)
        assert (told.drawn, told.checked) == (False, False)
        one = shown(stage.session.journal.all()[0], stage.world.state)
        assert one.to_json() | {"drawn": False, "checked": False, "acknowledged": False} == one.to_json()
        assert "from block" in "\n".join(one.lines(ASSET))


async def test_the_file_of_a_rejected_answer_shows_the_auditor_who_cheated(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.node_noise, stage.scheduler.opinion = 1.0, Opinion.REJECT
        await asked(stage)
        report = auditor.audit_receipt(auditor.read_receipt(proven(stage, tmp_path)), None)
        (finding,) = [one for check in report.checks for result in check.results for one in result.findings]
        assert finding.kind.name == "CHEATED"
        assert finding.party == auditor.read_receipt(proven(stage, tmp_path)).nodes[0]


async def test_what_has_no_results_proves_nothing_and_says_so(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper = lambda _one, lines: lines[:4]
        with pytest.raises(OrderStalled):
            await asked(stage)
        entry = stage.session.journal.all()[0]
        with pytest.raises(AnswerUnavailable, match="nothing to prove"):
            proof_of(entry, stage.world.state, DOMAIN)
        one = shown(entry, stage.world.state)
        assert (one.answered, one.drawn, one.to_json()["state"]) == (False, None, "admitted")


async def test_a_receipt_follows_to_the_acknowledgement(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage, ALWAYS)
        await OrderKeeper(stage.session).once()
        told = shown(stage.session.journal.all()[0], stage.world.state).to_json()
        assert (told["answered"], told["drawn"], told["checked"], told["acknowledged"]) == (True, True, True, True)
        assert told["paid_units"] == told["fee_units"]
        with pytest.raises(ReceiptNotFound):
            stage.session.journal.find("0x%")


def test_the_language_of_the_stage_is_loaded() -> None:
    assert LANGUAGE.end_tokens
