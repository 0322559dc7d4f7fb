"""Chains without a base fee, where gas is free: whoever objects to a claim adds one unit, as the Bank takes no zero."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.tab_scene import PARAMETERS, TabScene

from troth.chain.records import Fees
from troth.client.orders import objecting
from troth.scheduler.ledger import MarketLedger


async def free(*_: Any) -> int:
    return 0


async def no_fees() -> Fees:
    return Fees(0, 0)


async def test_a_scheduler_can_object_where_gas_is_free(tmp_path: Path) -> None:
    market, follower = SimpleNamespace(fees=no_fees), SimpleNamespace(state=TabScene(tmp_path).ledger.state)
    ledger = MarketLedger(market, follower, SimpleNamespace(address=""))  # type: ignore[arg-type]
    assert await ledger.objection_deposit() == 1


async def test_a_client_can_object_where_gas_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objecting, "base_fee", free)
    coin = SimpleNamespace(is_coin=True)
    assert await objecting.deposit_for(SimpleNamespace(), coin, PARAMETERS) == 1  # type: ignore[arg-type]
