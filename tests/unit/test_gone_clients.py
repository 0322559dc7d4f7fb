"""Clients that never come back acknowledge nothing: what the chain has ended of their tabs is at stake no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.market_logs import META
from support.tab_scene import CLIENT_TAB, DOMAIN, TAB_KEY, TabScene, history_of, opened

from troth.protocol.market import canonical, messages, tabs
from troth.protocol.market import events as on
from troth.protocol.market.bodies import Acknowledgement
from troth.protocol.market.messages import sign
from troth.protocol.market.types import Tab
from troth.protocol.types import address_from_bytes
from troth.scheduler.tabs import client_tabs

DEPOSIT = 10**15
OTHER = Tab(address_from_bytes(b"\x70" * 20), CLIENT_TAB.payee, CLIENT_TAB.key)


def paid_by_a_claim(tab: Any, fee: int) -> list[Any]:
    return [on.TabRedeemed(tab, fee, META)]


def closed(tab: Any, _fee: int) -> list[Any]:
    return [on.TabClosing(tab, 500, META), on.TabClosed(tab, DEPOSIT, META)]


@pytest.mark.parametrize("end", [paid_by_a_claim, closed])
async def test_what_a_client_left_behind_takes_no_room_for_ever(
    tmp_path: Path, end: Callable[[Any, int], list[Any]]
) -> None:
    trial = TabScene(tmp_path / "trial")
    trial.start()
    most = trial.asked().order.max_fee
    await trial.stop()
    scene = TabScene(tmp_path / "scene", stake=2 * most)
    scene.start()
    left = await scene.send(scene.asked())
    scene.ledger.fold(opened(OTHER, DEPOSIT))
    scene.client_tab, scene.payer = OTHER, tabs.PayerBook(messages.tab_id(OTHER))
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (503, "stake_exhausted")
    scene.ledger.fold(*end(left.order.tab, history_of(scene, left).answered.fee))
    assert scene.context.client_tabs.exposure > 0
    scene.payer = tabs.PayerBook(messages.tab_id(OTHER))
    assert (await scene.send(scene.asked())).tokens
    await scene.stop()


async def test_who_acknowledges_after_all_makes_no_room_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tabs are gone over once for a state of the chain; a tab that changes meanwhile is seen all the same."""
    scene = TabScene(tmp_path)
    scene.start()
    left = await scene.send(scene.asked())
    scene.ledger.fold(*paid_by_a_claim(left.order.tab, history_of(scene, left).answered.fee))
    books, looked = scene.context.client_tabs, list[object]()
    ended_of = client_tabs._ended_of
    monkeypatch.setattr(client_tabs, "_ended_of", lambda *both: looked.append(both) or ended_of(*both))
    before = books.at_stake(scene.ledger.state)
    assert before < books.exposure
    assert books.at_stake(scene.ledger.state) == before
    assert len(looked) == 1
    voucher = tabs.acknowledge(scene.payer, 1, history_of(scene, left).answered.fee or 0).voucher
    body = Acknowledgement(CLIENT_TAB, sign(voucher, DOMAIN, TAB_KEY))
    assert (await scene.http.post("/v1/vouchers", content=canonical.encode(body))).status_code == 200
    assert books.at_stake(scene.ledger.state) == books.exposure
    await scene.stop()
