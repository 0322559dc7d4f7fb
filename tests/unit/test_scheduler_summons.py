"""Summonses that a scheduler answers or passes on, what it keeps for them, and verifiers that fall silent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from support.market_logs import META
from support.summons_duty import worked_off
from support.tab_scene import CLIENT_TAB, DOMAIN, TabScene, called, history_of, verifiers_of
from support.tabs_stage import PARAMETERS

from troth.audit.checks import logs
from troth.cases.keeping import FINALITY, last_block
from troth.chain.errors import ChainUnavailable
from troth.protocol import typed_data
from troth.protocol.hashing import keccak256
from troth.protocol.market import events as on
from troth.protocol.market import log_data, messages
from troth.protocol.market.bodies import Lottery, read_part
from troth.protocol.market.calls import argument, read_call
from troth.protocol.market.court import last_opening_block
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts, SummonsKind, SummonsState
from troth.protocol.market.signed import Draw, Opinion, Result, Word
from troth.protocol.market.state import State
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Hash32
from troth.protocol.wire_market import Judge, Recommit
from troth.scheduler.checks.summons import SummonsDuty, stuck
from troth.scheduler.duties import acknowledge_nodes
from troth.scheduler.errors import TooLate
from troth.scheduler.orders.rows_kept import HELD_BYTES


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


def summoned(scene: TabScene, asked: Any, kind: SummonsKind, **changes: Any) -> Any:
    history = history_of(scene, asked)
    drawn = history.drawn
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
        named=Hash32(bytes(32)),
        secret=asked.secrets.draw,
        client=CLIENT_TAB.payer,
        scheduler=CLIENT_TAB.payee,
        summoner=CLIENT_TAB.payer,
        passed_to=NO_ADDRESS,
        deposit=5,
        fee=asked.order.max_fee,
    )
    state = replace(state, **changes)
    summons_id = messages.summons_id(asked.order_id, kind, 0)
    return on.Summoned(summons_id, asked.order_id, CLIENT_TAB.payee, state, META)


async def look(scene: TabScene) -> None:
    duty = SummonsDuty(scene.orders)
    await duty.look()
    await worked_off(duty)


async def test_a_summons_for_results_is_answered_with_a_draw_as_new_as_it(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    scene.ledger.block += 9
    scene.ledger.fold(summoned(scene, asked, SummonsKind.RESULTS))
    assert "results" in stuck(scene.context)[0]
    await look(scene)
    read = called(scene, Part.SUMMONS, "answerResults")
    draw = argument(read, "draw", Draw)
    assert draw.block_number == scene.ledger.block - 1
    assert argument(read, "results", tuple[Result, ...]) == history_of(scene, asked).results
    signature = argument(read, "drawSignature", bytes)
    typed_data.require_signer(draw, DOMAIN, signature, CLIENT_TAB.payee)


async def test_a_summons_leaves_the_draw_to_a_running_order(scene: TabScene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = await scene.send(scene.asked())
    scene.ledger.fold(summoned(scene, asked, SummonsKind.RESULTS))
    with monkeypatch.context() as its_draw_is_on_the_way:
        its_draw_is_on_the_way.setattr(history_of(scene, asked), "drawn", None)
        its_draw_is_on_the_way.setitem(scene.orders._runs, asked.order_id, None)
        drawn_again = AsyncMock()
        its_draw_is_on_the_way.setattr("troth.scheduler.checks.summons.draw", drawn_again)
        await look(scene)
        drawn_again.assert_not_called()
    await look(scene)
    assert called(scene, Part.SUMMONS, "answerResults")


async def test_a_summons_for_an_order_whose_node_failed_is_passed_on_to_it(scene: TabScene) -> None:
    for node in scene.nodes.values():
        node.faults.dies_at_position = 4
    asked = await scene.send(scene.asked())
    await scene.orders.drain()
    event = summoned(scene, asked, SummonsKind.RESULTS)
    scene.ledger.fold(event)
    await look(scene)
    read = called(scene, Part.SUMMONS, "passOnResults")
    node = history_of(scene, asked).admitted.nodes[0]
    assert read.value("tab")[1].lower() == node.lower()
    assert scene.ledger.sent[-1].call.value == 1_000
    # Silent until the end of its window: it pays.
    state = replace(event.state, extended=True, passed_to=node, deadline=scene.ledger.block + 6)
    promised = history_of(scene, asked).admitted.promises[0]
    passed = on.PassedOn(event.summons_id, node, state, promised.message, promised.signature, META)
    scene.ledger.fold(passed)
    sent = len(scene.ledger.sent)
    await look(scene)
    assert len(scene.ledger.sent) == sent
    scene.ledger.block = state.deadline + 1
    await look(scene)
    called(scene, Part.SUMMONS, "convict")


async def test_a_summons_for_a_check_is_answered_with_all_verdicts(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    scene.ledger.block += PARAMETERS.lag // 2 + 1  # too late for a secret here, but it was summoned in time
    scene.ledger.fold(summoned(scene, asked, SummonsKind.CHECK))
    await look(scene)
    read = called(scene, Part.SUMMONS, "answerCheck")
    verdicts = argument(read, "words", tuple[Word, ...])
    assert len(verdicts) == len(history_of(scene, asked).check_of(0).operators)
    assert all(one.opinion == Opinion.ACCEPT for one in verdicts)


async def test_a_silent_verifier_is_passed_the_summons_and_the_next_is_drawn(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    event = summoned(scene, asked, SummonsKind.CHECK)
    quiet = scene.nodes[verifiers_of(scene, asked)[0]]
    quiet.faults.refuses = {Recommit}
    scene.ledger.fold(event)
    await look(scene)
    called(scene, Part.SUMMONS, "passOnCheck")
    state = replace(event.state, extended=True, passed_to=NO_ADDRESS, deadline=scene.ledger.block + 6)
    scene.ledger.fold(on.NodeSilent(event.summons_id, quiet.address, state, 10, META))
    await look(scene)
    read = called(scene, Part.SUMMONS, "answerCheck")
    check = history_of(scene, asked).check_of(0)
    assert check.round == 1
    assert quiet.address not in check.operators
    assert len(argument(read, "words", tuple[Word, ...])) == len(check.operators)


async def test_a_summons_is_answered_after_a_restart(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    scene.ledger.fold(summoned(scene, asked, SummonsKind.CHECK))
    scene.ledger.failure = ChainUnavailable("away", "nowhere", "wait")
    await look(scene)
    assert not scene.ledger.sent
    await scene.stop()
    scene.ledger.failure = None
    scene.start()
    await scene.orders.resume()
    await look(scene)
    called(scene, Part.SUMMONS, "answerCheck")


@pytest.mark.parametrize("held", [0, HELD_BYTES])
async def test_prompts_and_rows_are_held_as_long_as_they_are_owed_and_no_longer(
    scene: TabScene, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr("troth.scheduler.orders.rows_kept.HELD_BYTES", held)
    undrawn, checked = await scene.send(scene.asked()), await scene.send(scene.asked())
    await scene.show(checked)
    rows, file = scene.context.rows.open(undrawn.order_id, 64), scene.folder / "rows" / undrawn.order_id.hex()
    first = rows.rows(0, 0, 1)
    assert file.exists() == (held == 0)
    scene.ledger.block = last_block(undrawn.order.reference_block, PARAMETERS)
    await scene.orders.forget_old()
    assert rows.rows(0, 0, 1) == first
    assert history_of(scene, undrawn).request is not None
    fresh = replace(META, block=scene.ledger.block)
    scene.ledger.fold(replace(summoned(scene, checked, SummonsKind.CHECK), meta=fresh))
    scene.ledger.block += 1
    await scene.orders.forget_old()
    assert not file.exists()
    with pytest.raises(FileNotFoundError):
        rows.rows(0, 0, 1)
    assert history_of(scene, undrawn).request is None
    assert history_of(scene, checked).request is not None
    summons_id = messages.summons_id(checked.order_id, SummonsKind.CHECK, 0)
    answered = replace(META, block=scene.ledger.block)
    scene.ledger.fold(on.SummonsAnswered(summons_id, CLIENT_TAB.payee, Hash32(bytes(32)), answered))
    await scene.orders.forget_old()
    assert history_of(scene, checked).request is not None
    scene.ledger.block += last_opening_block(0, PARAMETERS) + FINALITY + 1
    await scene.orders.forget_old()
    assert history_of(scene, checked).request is None
    # What a claim needs is still there, and nothing of prompt or answer is left in the file.
    assert history_of(scene, undrawn).answered is not None
    with pytest.raises(TooLate, match="kept no longer"):
        await scene.orders.again(undrawn.order_id, undrawn.submission.salt)
    raw = b"".join(path.read_bytes() for path in scene.folder.glob("market.sqlite*"))
    assert undrawn.submission.request not in raw
    assert undrawn.submission.salt not in raw
    assert first not in raw


def posted_event(scene: TabScene, call: Any) -> list[Any]:
    read = read_call(Part.LOG, call.call.data)
    number, counts = read.value("number"), argument(read, "counts", LogCounts)
    root, hashed = argument(read, "root", Hash32), argument(read, "dataHash", Hash32)
    before = scene.ledger.state.head_of(CLIENT_TAB.payee)[1]
    chain = log_data.next_chain(before, number, root, counts, hashed)
    return [on.EntryLogged(CLIENT_TAB.payee, number, root, counts, hashed, chain, META)]


class _Seen:
    """A subject for the auditor's checks over a log."""

    def __init__(self, state: State) -> None:
        self.history = type("History", (), {"state": state})()
        self.evidence = type("Evidence", (), {"domain": DOMAIN, "parameters": PARAMETERS})()


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_the_auditors_own_checks_pass_over_what_is_served(tmp_path: Path, ends: tuple[int, ...]) -> None:
    scene = TabScene(tmp_path, ends=ends)
    scene.start(orders=3)
    asked = [await scene.send(scene.asked()) for _ in range(3)]
    await scene.show(asked[0])
    least = await scene.send(scene.asked(check_rate=scene.definition.least_check_rate))
    await scene.show(least)
    scene.ledger.react = lambda call: posted_event(scene, call)
    await scene.book.post_due()
    assert not scene.ledger.sent  # a secret may still be shown
    scene.ledger.block += PARAMETERS.lag + 1
    await scene.book.post_due()
    scene.now += 4_000
    await scene.book.post_due()
    # Posted once, and after a restart not again.
    assert len(scene.ledger.sent) == 2
    await scene.stop()
    scene.start(orders=3)
    await scene.book.post_due()
    assert len(scene.ledger.sent) == 2
    newest = (await scene.http.get("/v1/log")).json()["entries"]
    assert newest == [2, 1]
    data = {number: (await scene.http.get(f"/v1/log/{number}")).content for number in newest}
    assert (await scene.http.get("/v1/log/3")).status_code == 404
    promises = tuple(
        inclusion for one in (*asked, least) if (inclusion := read_part(Lottery, one.of("draw")).inclusion) is not None
    )
    assert len(promises) == 4
    served = logs.ServedLogs(CLIENT_TAB.payee, data, {}, promises)
    subject: Any = _Seen(scene.ledger.state)
    found = [
        (report.number, finding.message)
        for report in logs.examine(subject, served)
        for result in report.results
        for finding in result.findings
    ]
    assert found == []
    text = b"".join(data.values())
    for one in asked:
        assert one.submission.salt.hex().encode() not in text
        assert messages.tab_id(CLIENT_TAB).hex().encode() not in text
    assert keccak256(data[1]) == scene.ledger.state.logs[CLIENT_TAB.payee][0].data_hash
    assert json.loads(data[1].splitlines()[0])
    await scene.stop()


async def test_a_verifier_that_was_cut_off_after_its_verdict_is_asked_again_and_paid(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    quiet = scene.nodes[verifiers_of(scene, asked)[0]]
    quiet.faults.refuses = {Judge}
    assert (await scene.show(asked))[-1] == {"type": "end", "complete": False}
    assert (0, quiet.address) not in history_of(scene, asked).verdicts
    quiet.faults.refuses = set()
    await scene.orders.ask_again()
    await scene.orders.drain()
    assert history_of(scene, asked).is_checked
    await acknowledge_nodes(scene.context)
    assert not any(held.owed for held in scene.context.node_tabs)


async def test_the_number_of_a_verifier_that_never_spoke_does_not_stay_open(scene: TabScene) -> None:
    asked = await scene.send(scene.asked())
    quiet = scene.nodes[verifiers_of(scene, asked)[0]]
    quiet.faults.refuses = {Judge}
    await scene.show(asked)
    held = scene.context.node_tabs.held(quiet.address)
    spent = held.book.spent
    await acknowledge_nodes(scene.context)
    assert len(held.owed) == 1
    scene.ledger.block = history_of(scene, asked).judged_at + 2 * PARAMETERS.lag + 1
    await scene.orders.ask_again()
    await scene.orders.drain()
    await acknowledge_nodes(scene.context)
    assert not any(one.owed for one in scene.context.node_tabs)
    assert held.book.spent == spent
