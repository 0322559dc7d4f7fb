"""More requests than the gateway answers at a time: they wait in line, and none of their readers pays for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.toy_tab_gateway import TabGateway, tab_gateway
from support.waiting import SECONDS

from troth.client.gateway.errors import NotReady, TooMany
from troth.client.gateway.line import WaitingLine

DONE: Any = object()


class Places:
    """So many places; ``start`` takes one of them."""

    def __init__(self, free: int = 0) -> None:
        self.free = free
        self.started: list[str] = []
        self.closing = False

    def start(self, name: str) -> Any:
        async def start() -> Any:
            if self.closing:
                raise NotReady("The gateway is stopping", "", "", "gateway")
            if not self.free:
                raise TooMany("All places are taken", "1")
            self.free -= 1
            self.started.append(name)
            return DONE

        return start


async def stays() -> bool:
    return False


async def leaves() -> bool:
    return True


async def test_who_came_first_is_first() -> None:
    places, line = Places(), WaitingLine()
    asking = []
    for name in "abc":
        asking.append(asyncio.create_task(line.started(places.start(name), stays, lambda: False)))
        await asyncio.sleep(0)
    for number in range(1, 4):
        places.free += 1
        await asking[number - 1]
        assert places.started == list("abc")[:number]


async def test_a_reader_that_left_the_line_orders_nothing() -> None:
    places, line = Places(), WaitingLine()
    gone = asyncio.create_task(line.started(places.start("gone"), leaves, lambda: False))
    there = asyncio.create_task(line.started(places.start("there"), stays, lambda: False))
    assert await gone is None
    places.free = 2
    assert await there is DONE
    assert places.started == ["there"]


async def test_the_line_is_bounded_in_time_and_length_and_ends_with_the_gateway() -> None:
    places = Places()
    with pytest.raises(TooMany):
        await WaitingLine(seconds=0.2).started(places.start("a"), stays, lambda: False)
    line = WaitingLine(most=1)
    waiting = asyncio.create_task(line.started(places.start("a"), stays, lambda: places.closing))
    await asyncio.sleep(0.01)
    with pytest.raises(TooMany, match="line is full"):
        await line.started(places.start("b"), stays, lambda: False)
    places.closing = True
    with pytest.raises(NotReady):
        await waiting


async def test_more_questions_at_once_than_places_are_all_answered(tmp_path: Path) -> None:
    """Of twenty at once, sixteen were answered and four refused."""

    async def answered(stage: TabGateway) -> int:
        return (await stage.post(max_tokens=4)).status_code

    async with tab_gateway(tmp_path, concurrent=2) as stage:
        assert await asyncio.gather(*[answered(stage) for _ in range(6)]) == [200] * 6


async def test_what_is_wrong_with_a_request_is_said_before_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waits(*_arguments: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(WaitingLine, "started", waits)
    async with tab_gateway(tmp_path) as stage:
        async with asyncio.timeout(SECONDS):
            refused = await stage.post(max_tokens="nonsense")
        assert refused.status_code == 400
