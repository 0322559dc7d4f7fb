"""Calls of a scheduler that take tokens: one approval for all that wait, and then side by side."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from troth.protocol.types import to_address
from troth.scheduler import ledger as module
from troth.scheduler.ledger import MarketLedger

TOKEN = to_address("0x" + "11" * 20)


class Chain:
    """Executes each call when it is let go; ``refuses`` calls of these names."""

    def __init__(self, *refuses: str) -> None:
        self.refuses = set(refuses)
        self.begun: list[str] = []
        self.begins: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.sent: list[str] = []
        self.approved: list[int] = []
        self.most_at_once = self._now = 0

    async def execute(self, call: Any, _key: Any) -> Any:
        self.begun.append(call)
        self.begins[call].set()
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
    assert chain.approved == [20], "once for all"
    assert chain.most_at_once == 4


async def test_what_comes_while_others_are_sent_is_approved_after_them(chain: Chain, ledger: MarketLedger) -> None:
    calls: list[Any] = ["a", "b", "d"]
    first = asyncio.create_task(ledger.execute(calls[0], 5))
    await chain.begins["a"].wait()
    assert await asyncio.gather(first, *[ledger.execute(call, 5) for call in calls[1:]]) == [7, 7, 7]
    assert chain.approved == [5, 10], "one approval replaces another"


async def test_where_an_approval_fails_the_others_are_approved_anew(chain: Chain, ledger: MarketLedger) -> None:
    """A chain node that fails once costs one call its turn, and not all of them."""
    chain.refuses = {"approve 15"}
    calls: list[Any] = ["a", "b", "d"]
    outcomes = await asyncio.gather(*[ledger.execute(call, 5) for call in calls], return_exceptions=True)
    assert isinstance(outcomes[0], ValueError)
    assert outcomes[1:] == [7, 7]
    assert chain.approved == [15, 10]


async def test_where_nothing_can_be_approved_each_is_told(chain: Chain, ledger: MarketLedger) -> None:
    chain.refuses = {"approve 10", "approve 5"}
    calls: list[Any] = ["a", "b"]
    outcomes = await asyncio.gather(*[ledger.execute(call, 5) for call in calls], return_exceptions=True)
    assert [isinstance(one, ValueError) for one in outcomes] == [True, True]
    chain.refuses = set()
    assert await ledger.execute(calls[0], 5) == 7, "and later ones are sent"


async def test_who_waits_when_the_ledger_is_closed_is_cancelled(chain: Chain, ledger: MarketLedger) -> None:
    calls: list[Any] = ["a", "b"]
    waiting = [asyncio.create_task(ledger.execute(call, 5)) for call in calls]
    await chain.begins["b"].wait()
    await ledger.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert all(isinstance(one, asyncio.CancelledError) for one in outcomes)


async def test_who_comes_after_the_ledger_is_closed_is_cancelled_too(chain: Chain, ledger: MarketLedger) -> None:
    """Else a sender would begin that nobody ends, with a connection that is closed under it."""
    calls: list[Any] = ["a", "b"]
    assert await ledger.execute(calls[0], 5) == 7
    await ledger.close()
    late = asyncio.create_task(ledger.execute(calls[1], 5))
    await asyncio.wait([late], timeout=5)
    assert late.cancelled()
    await ledger.close()  # twice is as once
    assert chain.begun == ["approve 5", "a"]


async def test_who_is_cancelled_before_it_is_sent_stays_unsent(chain: Chain, ledger: MarketLedger) -> None:
    calls: list[Any] = ["a", "b", "d", "e"]
    first, second, *others = [asyncio.create_task(ledger.execute(call, 5)) for call in calls]
    await chain.begins["approve 20"].wait()
    second.cancel()
    assert await asyncio.wait_for(asyncio.gather(first, *others), 5) == [7, 7, 7]
    assert [one for one in chain.begun if len(one) == 1] == ["a", "d", "e"]


async def test_who_is_cancelled_has_nobodys_call_sent_again(chain: Chain, ledger: MarketLedger) -> None:
    calls: list[Any] = ["a", "b", "d", "e"]
    first, second, *others = [asyncio.create_task(ledger.execute(call, 5)) for call in calls]
    await chain.begins["e"].wait()
    second.cancel()
    assert await asyncio.wait_for(asyncio.gather(first, *others), 5) == [7, 7, 7]
    assert sorted(one for one in chain.begun if len(one) == 1) == calls, "each once"
