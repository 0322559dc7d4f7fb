"""A node or a scheduler that lost its disk, and begins with empty records: it signs nothing a second time."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from support.order_market import BLOCK, SCHEDULER, state_of
from support.order_network import Network, Ordered, build
from support.tab_scene import Asked, TabScene, history_of
from support.tabs_stage import PARAMETERS
from support.toy_market import CLASS, FACTORY

from troth.node.errors import NotAssigned
from troth.node.orders.context import with_first_block
from troth.protocol.errors import InvalidSignature
from troth.protocol.market import canonical, convictions, prices, reminders
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.reminders import REMINDER_LIMIT, OpenPromise, Reminder
from troth.protocol.market.signed import Admission, Promise, Work
from troth.protocol.market.tabs import PayerBook
from troth.protocol.market.views import first_reference_block
from troth.protocol.types import Hash32
from troth.protocol.wire_market import Remind
from troth.scheduler.orders.context import first_block
from troth.scheduler.tabs.reminding import NodeReminders


async def served_again(network: Network, ordered: Ordered) -> Ordered:
    """The same order once more, as a scheduler that wants two words of its node would send it.

    A machine that computes the very same rows signs another result, too: the salt of the heads is the scheduler's.
    """
    again = replace(ordered, tokens=[], rows=[], ends=[], results=[], head_salt=Hash32(b"\x99" * 32))
    return await network.conclude(await network.infer(again))


async def test_a_node_that_lost_its_records_signs_no_second_result(tmp_path: Path) -> None:
    network = build(tmp_path)
    first = await network.serve()
    node = network.nodes[first.nodes[0]]
    await node.lose()
    with pytest.raises(NotAssigned, match="records begin"):
        await served_again(network, first)
    network.ground.block = BLOCK + 20
    later = await network.serve(network.order(reference_block=BLOCK + 10))
    assert later.results


async def test_without_that_it_would_be_convicted(tmp_path: Path) -> None:
    network = build(tmp_path)
    first = await network.serve()
    node = network.nodes[first.nodes[0]]
    await node.lose(aware=False)
    again = await served_again(network, first)
    proven = convictions.two_results(first.results[0], again.results[0], node.domain)
    assert (proven.convict, proven.fault) == (node.address, Fault.TWO_RESULTS)


async def test_a_verifier_that_lost_its_records_commits_to_no_second_trace(tmp_path: Path) -> None:
    network = build(tmp_path)
    first = await network.serve()
    verifier = next(iter(network.drawn(first)[0].seats))
    await network.verify(first, 0, verifier)
    await network.nodes[verifier].lose()
    with pytest.raises(NotAssigned, match="records begin"):
        await network.verify(first, 0, verifier)


async def test_records_that_began_with_the_node_hide_nothing(tmp_path: Path) -> None:
    """Also after a restart, however old the records are."""
    network = build(tmp_path)
    first = await network.serve()
    node = network.nodes[first.nodes[0]]
    await node.restart()
    assert (await with_first_block(node.context)).first == 0


@pytest.mark.parametrize(("registered", "block", "first"), [(901, 1_000, 0), (899, 1_000, 1_003), (899, 500, 0)])
def test_only_records_that_began_long_after_the_registration_hide_something(
    registered: int, block: int, first: int
) -> None:
    state = state_of([], CLASS, ())
    party = state.parties[SCHEDULER]
    joined = replace(party, registered=replace(party.registered, block=registered))
    state = replace(state, parties=state.parties.set(SCHEDULER, joined))
    assert first_reference_block(state, SCHEDULER, 1_000, block) == first
    assert first_reference_block(state, FACTORY, 1_000, block) == 0, "not registered"


async def test_a_node_says_what_was_promised_to_it_and_what_it_signed(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.serve()
    node = network.nodes[ordered.nodes[0]]
    _, page = await node.ask(Remind())
    reminder = canonical.decode(Reminder, page, REMINDER_LIMIT)
    book = PayerBook(reminder.promises[0].promise.message.tab)
    reminders.require_own(reminder, book.tab, SCHEDULER, node.domain)
    with pytest.raises(InvalidSignature):
        reminders.require_own(reminder, book.tab, node.address, node.domain)
    (one,) = reminder.promises
    assert one.result == ordered.results[0]
    paid = prices.promise_worth(one.promise.message, ordered.results[0].message)
    assert reminders.worth(one, node.address, node.domain) == paid > 0
    assert reminders.worth(one, SCHEDULER, node.domain) == 0
    assert reminders.is_behind(book, reminder)
    own = reminders.caught_up(book, reminder)
    assert reminder.voucher is not None
    assert own.voucher == reminder.voucher.message
    assert not reminders.is_behind(own, reminder)
    _, page = await node.ask(Remind(one.number))
    assert not canonical.decode(Reminder, page, REMINDER_LIMIT).promises
    _, page = await node.ask(Remind(), sender=node.address)
    assert canonical.decode(Reminder, page, REMINDER_LIMIT) == Reminder(None, ()), "nobody else's tab is shown"


def test_a_node_that_shows_an_older_word_changes_nothing() -> None:
    tab = Hash32(bytes(32))
    book = PayerBook(tab, spent=9, sequence=5, acknowledged=3, bounds={4: 7, 5: 7})
    old = Signed(PayerBook(tab, spent=4, sequence=3, acknowledged=1, bounds={2: 5, 3: 7}).voucher, b"")
    assert not reminders.is_behind(book, Reminder(old, ()))
    promised = Promise(tab, 6, tab, 0, Work.INFERENCE, 0, 0, 0, 0, 11)
    shown = Reminder(old, (OpenPromise(Signed(promised, b"")),))
    assert reminders.is_behind(book, shown), "a number that the book does not know"
    assert reminders.caught_up(book, shown) == PayerBook(tab, 9, 6, 3, {4: 7, 5: 7, 6: 11})


async def test_a_node_that_is_started_from_an_old_copy_signs_no_second_result(tmp_path: Path) -> None:
    """Attack 210: yesterday's records began with the node, so that nothing seemed to be missing."""
    network = build(tmp_path)
    await network.serve()
    operator = next(iter(network.nodes))
    node = network.nodes[operator]
    await with_first_block(node.context)
    node.context.stores.words.note_block(BLOCK)
    network.ground.block = BLOCK + PARAMETERS.reference_age
    assert (await with_first_block(node.context)).first == 0, "it was away for a moment"
    node.context.stores.words.note_block(BLOCK)
    network.ground.block = BLOCK + PARAMETERS.reference_age + 1
    again = await with_first_block(node.context)
    assert again.first == network.ground.block + DRAW_AGE
    network.ground.block += 5
    assert (await with_first_block(node.context)).first == again.first, "also after one more start"


async def admitted_again(scene: TabScene, asked: Asked) -> Signed[Admission]:
    """The same order once more, from a client that wants another node this time."""
    others = ",".join(set(scene.nodes) - set(history_of(scene, asked).admitted.nodes))
    await lose(scene)
    body, headers = canonical.encode(asked.submission), {"troth-preferred": others}
    answer = await scene.http.post("/v1/orders", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: Signed[Admission] = history_of(scene, asked).admitted.admission
    return found


async def lose(scene: TabScene) -> None:
    """Its disk is gone: a start with the same key over an empty folder."""
    await scene.stop()
    shutil.rmtree(scene.folder)
    scene.start()


@pytest_asyncio.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[TabScene]:
    scene = TabScene(tmp_path / "scheduler")
    scene.ledger.block = 500
    scene.start()
    yield scene
    await scene.stop()


async def test_a_scheduler_that_lost_its_records_admits_nothing_twice(scheduler: TabScene) -> None:
    assert scheduler.database is not None
    asked = await scheduler.send(scheduler.asked())
    await lose(scheduler)
    scheduler.first = await first_block(scheduler.database, scheduler.ledger, scheduler.context.operator.address)
    await scheduler.stop()
    scheduler.start()
    status, error = await scheduler.refused(asked)
    assert (status, error["code"]) == (503, "new_records")
    assert "records are new" in error["message"]
    scheduler.ledger.block += 10
    again = await first_block(scheduler.database, scheduler.ledger, scheduler.context.operator.address)
    assert again == scheduler.first == 503, "also after a restart"
    context = scheduler.context
    asking = NodeReminders(context.database, context.node_tabs, scheduler.ledger, context.operator, scheduler.peers)  # type: ignore[arg-type]
    await asking.hear(scheduler.nodes)
    scheduler.ledger.block += 10
    later = await scheduler.send(scheduler.asked())
    assert later.tokens


async def test_a_scheduler_that_is_started_from_an_old_copy_admits_nothing_twice(scheduler: TabScene) -> None:
    async def first() -> int:
        assert scheduler.database is not None
        return await first_block(scheduler.database, scheduler.ledger, scheduler.context.operator.address)

    await scheduler.send(scheduler.asked())
    began = await first()
    assert scheduler.database is not None
    await scheduler.database.note_block(scheduler.ledger.block)
    scheduler.ledger.block += PARAMETERS.reference_age
    assert await first() == began, "it was away for a moment"
    scheduler.ledger.block += PARAMETERS.reference_age + 1
    fenced = await first()
    assert fenced == scheduler.ledger.block + DRAW_AGE
    scheduler.ledger.block += 5
    assert await first() == fenced, "also after one more start"


async def test_without_that_it_would_be_convicted_too(scheduler: TabScene) -> None:
    asked = await scheduler.send(scheduler.asked())
    one = history_of(scheduler, asked).admitted.admission
    other = await admitted_again(scheduler, asked)
    order, view = asked.order, scheduler.context.view(asked.order, scheduler.client_tab)
    proven = convictions.two_admissions(order, one, other, view)
    assert (proven.convict, proven.fault) == (scheduler.context.operator.address, Fault.TWO_ADMISSIONS)
