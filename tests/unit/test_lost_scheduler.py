"""A scheduler whose records are lost, or an old copy: it goes on from what nodes hold, and answers summonses."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from support.market_logs import META
from support.summons_duty import worked_off
from support.tab_scene import CLIENT_TAB, DOMAIN, TabScene, called, history_of, verifiers_of
from support.tabs_stage import PARAMETERS

from troth.protocol import typed_data
from troth.protocol.market import events as on
from troth.protocol.market import messages
from troth.protocol.market.calls import argument
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind, SummonsState
from troth.protocol.market.signed import Promise, Work
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Remind
from troth.scheduler import duties
from troth.scheduler.checks.seat import DrawnVerifier
from troth.scheduler.checks.summons import SummonsDuty
from troth.scheduler.nodes.peers import Peers
from troth.scheduler.tabs import reminding
from troth.scheduler.tabs.reminding import NodeReminders
from troth.transport.errors import RemoteFailure


class Scene(TabScene):
    """One that asks its nodes at each start, as the command does."""

    async def begin(self) -> None:
        self.start()
        context = self.context
        self.reminders = NodeReminders(context.database, context.node_tabs, self.ledger, context.operator, self.peers)
        await self.reminders.hear(self.nodes)

    async def begin_again(self, *, lost: bool = True) -> None:
        await self.stop()
        if lost:
            shutil.rmtree(self.folder)
        await self.begin()


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "scheduler")
    made.ledger.block = 500
    await made.begin()
    yield made
    await made.stop()


def summons(scene: Scene, asked: Any, kind: SummonsKind) -> Any:
    history = history_of(scene, asked)
    drawn = history.drawn
    named = drawn.draw.message.beta if kind is SummonsKind.CHECK else messages.nodes_hash(history.admitted.nodes)
    state = SummonsState(
        kind=kind,
        segment=0,
        extended=False,
        deadline=scene.ledger.block + PARAMETERS.summons_window,
        offence_block=scene.ledger.block,
        reference_block=asked.order.reference_block,
        order=asked.order_id,
        execution_class=asked.order.execution_class,
        ends=asked.order.ends,
        results=Hash32(bytes(32)) if drawn is None else drawn.draw.message.results,
        named=named,
        secret=asked.secrets.draw,
        client=CLIENT_TAB.payer,
        scheduler=CLIENT_TAB.payee,
        summoner=CLIENT_TAB.payer,
        passed_to=NO_ADDRESS,
        deposit=5,
        fee=asked.order.max_fee,
    )
    return on.Summoned(messages.summons_id(asked.order_id, kind, 0), asked.order_id, CLIENT_TAB.payee, state, META)


async def look(scene: Scene) -> None:
    duty = SummonsDuty(scene.orders)
    await duty.look()
    await worked_off(duty)


async def test_a_scheduler_without_records_goes_on_with_its_nodes(scene: Scene) -> None:
    first = await scene.send(scene.asked(check_rate=250_000))
    node = history_of(scene, first).admitted.nodes[0]
    best = scene.nodes[node].vouchers[scene.context.node_tabs.held(node).book.tab].message
    await scene.begin_again()
    held = scene.context.node_tabs.held(node)
    assert held.book.sequence == best.sequence == 1
    assert held.owed[1].fee
    assert held.owed[1].due == scene.ledger.block + PARAMETERS.lag, "it is paid for what it served"
    status, error = await scene.refused(first)
    assert (status, error["code"]) == (503, "new_records")
    scene.ledger.block += 10
    for _ in range(6):
        assert (await scene.send(scene.asked(check_rate=250_000))).tokens


async def test_what_was_cut_off_is_owed_nothing(scene: Scene) -> None:
    for one in scene.nodes.values():
        one.faults.dies_at_position = 4
    asked = await scene.send(scene.asked())
    node = history_of(scene, asked).admitted.nodes[0]
    await scene.begin_again()
    held = scene.context.node_tabs.held(node)
    assert held.owed[1].fee == 0
    assert held.owed[1].due == scene.ledger.block


async def test_an_old_copy_goes_on_from_what_nodes_hold(scene: Scene, tmp_path: Path) -> None:
    await scene.send(scene.asked(check_rate=250_000))
    await scene.stop()
    shutil.copytree(scene.folder, tmp_path / "backup")
    await scene.begin()
    later = [await scene.send(scene.asked(check_rate=250_000)) for _ in range(4)]
    sequences = {one: scene.context.node_tabs.held(one).book.sequence for one in scene.nodes}
    await scene.stop()
    shutil.rmtree(scene.folder)
    shutil.copytree(tmp_path / "backup", scene.folder)
    await scene.begin()
    assert {one: scene.context.node_tabs.held(one).book.sequence for one in scene.nodes} == sequences
    status, error = await scene.refused(later[-1])
    assert (status, error["code"]) == (503, "new_records"), "it would be admitted a second time"
    await scene.begin_again(lost=False)
    status, error = await scene.refused(later[-1])
    assert (status, error["code"]) == (503, "new_records"), "also after one more start"


async def test_records_that_are_whole_are_not_doubted(scene: Scene) -> None:
    await scene.send(scene.asked(check_rate=250_000))
    await scene.begin_again(lost=False)
    assert scene.context.node_tabs.fence == 0
    assert (await scene.send(scene.asked(check_rate=250_000))).tokens


async def test_a_node_that_says_nothing_holds_up_no_other(scene: Scene) -> None:
    await scene.send(scene.asked(check_rate=250_000))
    await scene.stop()
    slow = next(iter(scene.nodes.values()))
    asked: list[type] = []

    async def never(header: Any, _payload: memoryview) -> Any:
        asked.append(type(header))
        await asyncio.Event().wait()

    slow.handle = never  # type: ignore[method-assign]
    scene.start()
    context = scene.context
    asking = NodeReminders(context.database, context.node_tabs, scene.ledger, context.operator, scene.peers)  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        await asking.hear(scene.nodes, seconds=0.2)
        await asking.hear(scene.nodes, seconds=0.2)
    assert asked == [Remind], "it is still asked"
    assert [node for node in scene.nodes if not context.node_tabs.is_heard(node)] == [slow.address]
    await asking.close()


async def test_a_node_that_shows_old_words_one_by_one_keeps_nobody_from_ordering(scene: Scene) -> None:
    """After a loss it would have every order refused for some blocks with each of them, for as long as it has any."""
    await scene.send(scene.asked(check_rate=250_000))
    node = next(one for one in scene.nodes.values() if one.promises)
    (promised,) = node.promises.values()
    await scene.begin_again()
    fence, book = scene.context.node_tabs.fence, scene.context.node_tabs.held(node.address).book
    assert fence == scene.ledger.block + DRAW_AGE
    scene.ledger.block += 20
    for number in (book.sequence + 1, book.sequence + 2):
        old = replace(promised[1].message, sequence=number)
        promised[number] = scene.context.signed(old)
        scene.context.node_tabs.note_refusal(node.address, RemoteFailure("it", "invalid_voucher", "x", "y"))
        await scene.reminders.hear([node.address])
        assert scene.context.node_tabs.held(node.address).book.sequence == number
        assert scene.context.node_tabs.fence == fence
    young = replace(promised[1].message, sequence=book.sequence + 3, reference_block=fence)
    promised[young.sequence] = scene.context.signed(young)
    scene.context.node_tabs.note_refusal(node.address, RemoteFailure("it", "not_paid", "x", "y"))
    await scene.reminders.hear([node.address])
    assert scene.context.node_tabs.fence == scene.ledger.block + DRAW_AGE, "another machine signs with this key"


async def test_nothing_is_promised_to_a_node_that_has_not_said_what_it_holds(scene: Scene) -> None:
    await scene.send(scene.asked(check_rate=250_000))
    await scene.stop()
    scene.start()
    NodeReminders(scene.context.database, scene.context.node_tabs, scene.ledger, scene.context.operator, scene.peers)  # type: ignore[arg-type]
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (503, "no_paid_node")


async def test_an_order_goes_to_nodes_that_have_said_what_they_hold(scene: Scene) -> None:
    first, *others = scene.nodes
    scene.context.node_tabs.order_only_from(set(others))
    served = {history_of(scene, await scene.send(scene.asked())).admitted.nodes[0] for _ in range(12)}
    assert len(served) > 1
    assert first not in served


async def test_nor_to_one_that_refused_a_word_since_it_was_chosen(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.context.node_tabs, "covers", lambda *_asked: True)
    scene.context.node_tabs.order_only_from(set())
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (503, "no_paid_node")
    assert not any(one.promises for one in scene.nodes.values())


async def test_a_verifier_that_has_not_said_what_it_holds_keeps_no_check_from_being_made(scene: Scene) -> None:
    """It was drawn, alive or not: else its scheduler would be convicted for a check that nobody made."""
    asked = await scene.send(scene.asked())
    unheard = verifiers_of(scene, asked)[0]
    scene.context.node_tabs.order_only_from({node for node in scene.nodes if node != unheard})
    await scene.show(asked)
    assert {verifier for _, verifier in history_of(scene, asked).verdicts} == set(verifiers_of(scene, asked))


async def test_a_verifier_that_refuses_its_word_is_asked_what_it_holds_though_it_has_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is drawn for orders over blocks from before it left; members alone were asked."""
    asked = await scene.send(scene.asked())
    verifier, plain = verifiers_of(scene, asked)[0], DrawnVerifier.commit

    async def refusing(seat: DrawnVerifier) -> Any:
        if seat.verifier == verifier:
            raise RemoteFailure("it", "not_paid", "this number was promised for other work", "")
        return await plain(seat)

    monkeypatch.setattr(DrawnVerifier, "commit", refusing)
    monkeypatch.setattr(duties, "nodes_of", lambda _orders: [])
    await scene.show(asked)
    node_tabs = scene.context.node_tabs
    assert (duties.to_hear(scene.orders), node_tabs.is_heard(verifier)) == ([verifier], False)
    scene.nodes[verifier].seen.clear()
    await scene.reminders.hear(duties.to_hear(scene.orders))
    assert scene.nodes[verifier].seen.count("Remind") == 1
    assert (duties.to_hear(scene.orders), node_tabs.is_heard(verifier)) == ([], True)


async def test_a_check_under_a_number_of_lost_work_takes_nothing_of_what_is_owed_for_that(scene: Scene) -> None:
    """A node is away while its scheduler starts from an old copy: a check is promised to it before it is heard."""
    await scene.stop()
    shutil.copytree(scene.folder, old := scene.folder.parent / "old")
    await scene.begin()
    served = await scene.send(scene.asked(check_rate=250_000))
    node = history_of(scene, served).admitted.nodes[0]
    worth = scene.context.node_tabs.held(node).owed[1].fee
    await scene.stop()
    shutil.rmtree(scene.folder)
    shutil.copytree(old, scene.folder)
    scene.nodes[node].faults.away[Remind] = 1
    await scene.begin()
    while 1 not in scene.context.node_tabs.held(node).owed:
        asked = await scene.send(scene.asked())
        if node in verifiers_of(scene, asked):
            await scene.show(asked)
    assert scene.context.node_tabs.held(node).owed[1].order == asked.order_id, "the number was given out again"
    await scene.reminders.hear([node])
    owed = scene.context.node_tabs.held(node).owed[1]
    assert (owed.order, owed.work, owed.fee) == (served.order_id, Work.INFERENCE, worth)
    await scene.begin_again(lost=False)
    assert scene.context.node_tabs.held(node).owed[1] == owed, "it is stored, too"


async def test_results_that_are_summoned_of_a_lost_order_are_asked_of_its_node(scene: Scene) -> None:
    asked = await scene.send(scene.asked(check_rate=250_000))
    node, event = history_of(scene, asked).admitted.nodes[0], summons(scene, asked, SummonsKind.RESULTS)
    await scene.begin_again()
    scene.ledger.fold(event)
    await look(scene)
    read = called(scene, Part.SUMMONS, "passOnResults")
    assert read.value("tab")[1].lower() == node.lower()
    promised = argument(read, "promised", Promise)
    assert (promised.order, promised.work, promised.price) == (asked.order_id, Work.INFERENCE, 0)
    typed_data.require_signer(promised, DOMAIN, argument(read, "signature", bytes), CLIENT_TAB.payee)
    # Silent until the end of its window: it pays.
    state = replace(event.state, extended=True, passed_to=node, deadline=scene.ledger.block + 6)
    scene.ledger.fold(on.PassedOn(event.summons_id, node, state, promised, b"", META))
    sent = len(scene.ledger.sent)
    await look(scene)
    assert len(scene.ledger.sent) == sent
    scene.ledger.block = state.deadline + 1
    await look(scene)
    called(scene, Part.SUMMONS, "convict")


async def test_a_check_that_is_summoned_of_a_lost_order_is_answered_with_what_its_verifiers_said(scene: Scene) -> None:
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    event = summons(scene, asked, SummonsKind.CHECK)
    verifiers = set(verifiers_of(scene, asked))
    await scene.begin_again()
    scene.ledger.fold(event)
    await look(scene)
    read = called(scene, Part.SUMMONS, "answerCheck")
    assert len(read.value("words")) == len(verifiers)


async def test_a_check_that_was_not_made_is_passed_on_to_each_verifier(scene: Scene) -> None:
    asked = await scene.send(scene.asked())
    event, verifiers = summons(scene, asked, SummonsKind.CHECK), dict.fromkeys(verifiers_of(scene, asked))
    await scene.begin_again()
    scene.ledger.fold(event)
    state = event.state
    for verifier in verifiers:
        await look(scene)
        read = called(scene, Part.SUMMONS, "passOnCheck")
        assert read.value("tab")[1].lower() == verifier.lower()
        passed = replace(state, extended=True, passed_to=verifier)
        scene.ledger.fold(
            on.PassedOn(event.summons_id, verifier, passed, argument(read, "promised", Promise), b"", META)
        )
        state = replace(passed, passed_to=NO_ADDRESS)
        scene.ledger.fold(on.Responded(event.summons_id, verifier, state, b"", META))
    await look(scene)
    assert not called(scene, Part.SUMMONS, "answerCheck").value("words")


async def test_a_start_waits_only_so_long_for_nodes_that_do_not_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        connected = False

        def channel(self, node: Address) -> Silent:
            return self

        async def request(self, *asked: object) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(reminding, "START_SECONDS", 0.05)
    context, silent = scene.context, cast(Peers, Silent())
    await asyncio.wait_for(
        reminding.reminded(context.database, context.node_tabs, scene.ledger, context.operator, silent), 5
    )
    for node in scene.nodes:
        with pytest.raises(InvalidVoucher, match="has not said yet"):
            context.node_tabs.require_heard(node)
