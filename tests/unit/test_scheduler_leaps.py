"""A client's numbers may leap: its scheduler looks at the orders it took, however many numbers lie between them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.tab_scene import DOMAIN, TAB_KEY, Asked, TabScene

from troth.client.https_calls import Calls
from troth.client.orders.calls import MarketCalls
from troth.protocol.market import canonical, messages
from troth.protocol.market.bodies import Recovered, Recovery, TabQuery
from troth.protocol.market.messages import sign
from troth.scheduler.orders.http import READ_TOGETHER
from troth.scheduler.tabs.claiming import filings
from troth.scheduler.tabs.client_tabs import ClientTabs

LEAP, TOO_FAR = 1 << 30, 1 << 40
LIMIT = 1 << 20


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


async def leapt(scene: TabScene) -> tuple[Asked, Asked]:
    """Two orders that were answered, and a thousand million numbers between them that nobody ordered."""
    first = await scene.send(scene.asked())
    scene.payer = replace(scene.payer, sequence=LEAP)
    return first, await scene.send(scene.asked())


async def recover(scene: TabScene, asked: Asked) -> Recovered:
    query = Recovery(scene.now, sign(TabQuery(asked.order.tab, scene.now), DOMAIN, TAB_KEY).signature)
    answer = await scene.http.post(f"/v1/tabs/0x{asked.order.tab.hex()}/recover", content=canonical.encode(query))
    assert answer.status_code == 200, answer.text
    return canonical.decode(Recovered, answer.content, LIMIT)


async def test_a_tab_whose_numbers_leap_is_recovered(scene: TabScene) -> None:
    first, second = await leapt(scene)
    found = await recover(scene, second)
    assert found.voucher == second.submission.voucher
    assert [one.order.message for one in found.orders] == [first.order, second.order]


async def test_all_that_is_owed_on_such_a_tab_is_in_one_claim(scene: TabScene) -> None:
    """Owed is the largest sum that was ever shown: what a claim leaves out, the next one does not add to it."""
    first, second = await leapt(scene)
    (filed,) = await filings(scene.context, 0, young=True)
    worth = dict(scene.context.client_tabs.book(second.order.tab).worth)
    assert sorted(worth) == [first.order.sequence, second.order.sequence]
    assert min(worth.values()) > 0
    assert filed.amounts == worth
    assert filed.total == sum(worth.values())


async def test_a_number_that_no_claim_could_hold_is_refused(scene: TabScene) -> None:
    await scene.send(scene.asked())
    scene.payer = replace(scene.payer, sequence=TOO_FAR)
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (409, "voucher_refused")
    assert "too far" in error["message"]


async def test_others_have_their_turns_while_a_tab_with_many_orders_is_recovered(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await scene.send(scene.asked())
    tab, store = messages.tab_id(scene.client_tab), scene.context.store
    values = [(tab, number, "1", asked.order_id, 20) for number in range(2, 2_001)]
    await scene.context.database.commit(*(("INSERT INTO client_number VALUES (?, ?, ?, ?, ?)", one) for one in values))
    turns, seen, history = 0, list[int](), store.get(asked.order_id)
    monkeypatch.setattr(scene.context.client_tabs, "_tabs", ClientTabs(scene.context.database)._tabs)
    monkeypatch.setattr(store, "by_number", lambda _tab, _number: (seen.append(turns), history)[1])

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    others = asyncio.create_task(take_turns())
    query = sign(TabQuery(tab, scene.now), DOMAIN, TAB_KEY)
    found = await MarketCalls(Calls(scene.http, "http://scheduler")).recover(query)
    others.cancel()
    assert len(found.orders) == len(seen) == 2_000, "and its client takes all of them"
    assert max(Counter(seen).values()) <= 2 * READ_TOGETHER


async def test_books_of_many_open_orders_are_read_at_once(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    database, tab = scene.context.database, messages.tab_id(scene.client_tab)
    query = "INSERT INTO client_number VALUES (?, ?, ?, ?, ?)"
    rows = [(query, (tab, number, "1", asked.order_id, 20)) for number in range(2, 20_000)]
    await database.commit(*rows)
    begun = time.process_time()
    read = ClientTabs(database)
    assert time.process_time() - begun < 1
    book = read.book(tab)
    assert len(book.worth) == 19_999
    assert read.exposure == book.exposure == sum(book.worth.values())
