"""Calls of a scheduler that take tokens: one approval for all that wait, and then side by side."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import eventually

from troth.protocol.types import to_address
from troth.scheduler import ledger as module
from troth.scheduler.ledger import MarketLedger

TOKEN = to_address("0x" + "11" * 20)


class Chain:
    """Executes each call when it is let go; ``refuses`` calls of these names."""

    def __init__(self, *refuses: str) -> None:
        self.refuses = set(refuses)
        self.sent: list[str] = []
        self.approved: list[int] = []
        self.most_at_once = self._now = 0

    async def execute(self, call: Any, _key: Any) -> Any:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        await asyncio.sleep(0.01)
        self._now -= 1
        if call in self.refuses:
            raise ValueError(call)
        self.sent.append(call)
        return SimpleNamespace(block=7)


@pytest.fixture
def chain() -> Chain:
    return Chain("c")


@pytest.fixture
def ledger(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> MarketLedger:
    async def approvals(_market: Any, _owner: Any, amount: int) -> tuple[str, ...]:
        chain.approved.append(amount)
        return (f"approve {amount}",)

    async def reach(_block: int, _seconds: float) -> None:
        pass

    monkeypatch.setattr(module, "approvals_in_asset", approvals)
    monkeypatch.setattr(module.views, "parameters_of", lambda _state: SimpleNamespace(asset=TOKEN))
    follower: Any = SimpleNamespace(reach=reach, state=None)
    market: Any = chain
    made = MarketLedger(market, follower, SimpleNamespace(address=TOKEN))  # type: ignore[arg-type]
    made.courtroom = None  # type: ignore[assignment]
    return made


async def test_what_waits_is_approved_together_and_sent_side_by_side(chain: Chain, ledger: MarketLedger) -> None:
    calls: list[Any] = ["a", "b", "c", "d"]
    outcomes = await asyncio.gather(*[ledger.execute(call, 5) for call in calls], return_exceptions=True)
    assert [isinstance(one, ValueError) for one in outcomes] == [False, False, True, False]
    assert sum(chain.approved) == 20, "each once"
    assert len(chain.approved) == 2, "the first, and those that came while it was sent"
    assert chain.most_at_once == 3


async def test_who_is_cancelled_leaves_the_others_to_the_next_one(chain: Chain, ledger: MarketLedger) -> None:
    calls: list[Any] = ["a", "b", "d", "e"]
    first, second, *others = [asyncio.create_task(ledger.execute(call, 5)) for call in calls]
    await eventually(lambda: len(chain.approved) == 2)
    assert chain.approved == [5, 15], "the second one approves for those after it"
    second.cancel()
    assert await asyncio.wait_for(asyncio.gather(first, *others), 5) == [7, 7, 7]
    assert [one for one in chain.sent if len(one) == 1] == ["a", "d", "e"]
