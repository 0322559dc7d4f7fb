"""Who gets a scheduler's places when there are fewer than are wanted."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from troth.protocol.types import Hash32
from troth.scheduler.errors import Busy
from troth.scheduler.orders import service
from troth.scheduler.orders.service import GREED, Orders

NUMBERS = itertools.count()
HONEST = Hash32(b"h" * 32)


def tab_of(number: int) -> Hash32:
    return Hash32(bytes([number]) * 32)


def order_of(tab: Hash32) -> Any:
    return SimpleNamespace(
        order=SimpleNamespace(message=SimpleNamespace(tab=tab)), name=next(NUMBERS).to_bytes(32, "big")
    )


class Run:
    """An order under way, until it is ended."""

    def __init__(self, _context: Any, _book: Any, session: Any) -> None:
        self.lines, self.nodes, self.tab = session, (), session.tab
        self.ended = asyncio.Event()

    async def run(self) -> None:
        await self.ended.wait()


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Orders:
    async def admit(_context: Any, sent: Any, _preferred: Any, entering: Any) -> Any:
        with entering():
            await asyncio.sleep(0)
        return SimpleNamespace(order_id=sent.name, tab=sent.order.message.tab)

    monkeypatch.setattr(service, "admit", admit)
    monkeypatch.setattr(service, "OrderRun", Run)
    monkeypatch.setattr(Orders, "_has_failed", lambda _self, _order: False)
    monkeypatch.setattr(Orders, "_await_client", lambda _self, _order: None)
    context: Any = None
    return Orders(context, context, concurrent=getattr(request, "param", 256))


def held(orders: Orders) -> Counter[Hash32]:
    runs: Any = orders._runs.values()
    return Counter(run.tab for run in runs)


async def fill(orders: Orders, tabs: list[Hash32]) -> None:
    """Orders of all these tabs in turn, until each is refused."""
    left = list(tabs)
    while left:
        for tab in list(left):
            try:
                await orders.submit(order_of(tab))
            except Busy:
                left.remove(tab)


async def end(orders: Orders, runs: list[Any]) -> None:
    for run in runs:
        run.ended.set()
    await asyncio.gather(*orders._tasks)


@pytest.mark.parametrize(("greedy", "left"), [(1, 28), (4, 16), (10, 16)])
async def test_who_orders_again_at_once_leaves_places_for_others(orders: Orders, greedy: int, left: int) -> None:
    """Hundreds of clients end their answers and order again at once; the next honest one waits for none of them."""
    tabs = [tab_of(number) for number in range(greedy)]
    for _ in range(5):
        await fill(orders, tabs)
        assert 256 - orders.running == left
        assert await orders.submit(order_of(HONEST)) is not None
        await end(orders, list(orders._runs.values()))
    assert orders.running == 0
    assert not orders._held


async def test_whoever_wants_all_places_needs_a_tab_for_each_of_the_last(orders: Orders) -> None:
    tabs = 0
    while orders.running < 256:
        tabs += 1
        await fill(orders, [tab_of(tabs)])
    assert tabs == 18
    assert sorted(held(orders).values(), reverse=True) == [228, 12, *[1] * 16]
    await end(orders, list(orders._runs.values()))


@pytest.mark.parametrize("orders", [GREED, 9, 15, 31], indirect=True)
async def test_of_few_places_one_is_left_whoever_orders(orders: Orders) -> None:
    """Two clients that share them by halves, too, leave one to who holds none."""
    places = orders._concurrent
    for greedy in ([tab_of(1)], [tab_of(1), tab_of(2)]):
        await fill(orders, greedy)
        assert places - orders.running == max(1, places // 9 if len(greedy) == 1 else 1)
        assert await orders.submit(order_of(HONEST)) is not None
        await end(orders, list(orders._runs.values()))


@pytest.mark.parametrize("orders", [1, GREED - 1], indirect=True)
async def test_fewer_places_are_all_given_to_one_client(orders: Orders) -> None:
    places = orders._concurrent
    await fill(orders, [HONEST])
    assert held(orders) == {HONEST: places}
    with pytest.raises(Busy, match=f"All {places} places are taken"):
        await orders.submit(order_of(tab_of(1)))
    await end(orders, list(orders._runs.values()))


async def test_orders_of_one_tab_that_come_at_once_take_no_more(orders: Orders) -> None:
    sent = [orders.submit(order_of(HONEST)) for _ in range(300)]
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert sum(not isinstance(one, Busy) for one in outcomes) == orders.running == 228
    await end(orders, list(orders._runs.values()))
