"""kill -9 before and after every commit of an order's life: nothing is signed twice, nothing lost, books agree."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from support.tab_scene import CLIENT_TAB, DOMAIN, TAB_KEY, Asked, TabScene
from support.toy_peers import ToyWay
from support.waiting import eventually

from troth.protocol.market import canonical, messages, prices, tabs
from troth.protocol.market.bodies import Acknowledgement
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.messages import sign
from troth.protocol.types import Hash32
from troth.protocol.wire_fields import RowSignature
from troth.protocol.wire_market import Advance, Conclude, Judge, Recommit
from troth.scheduler.checks import running
from troth.scheduler.checks.lottery import drawn_verifiers, reveal
from troth.scheduler.orders.admission import admit
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.rows_kept import HELD_BYTES, KeptRows
from troth.scheduler.tabs.database import SchedulerDatabase, Statement, StorageFailed
from troth.transport.errors import ChannelUnavailable


class Killed(SchedulerDatabase):
    """A disk whose machine loses its power at a given commit, before or after it."""

    commits = 0
    at = -1
    before = True
    died: asyncio.Event

    async def commit(self, *statements: Statement) -> None:
        kind = type(self)
        number, kind.commits = kind.commits, kind.commits + 1
        if number >= kind.at >= 0:
            if number == kind.at and not kind.before:
                await super().commit(*statements)
            kind.died.set()
            await asyncio.Event().wait()
        await super().commit(*statements)


async def life(scene: TabScene, asked: Any) -> None:
    """Everything that a client does with one order."""
    await scene.send(asked)
    await scene.show(asked)
    await scene.tiles(asked)


async def until_killed(scene: TabScene, asked: Any) -> bool:
    """Whether it was killed before its end."""
    living = asyncio.create_task(life(scene, asked))
    dying = asyncio.create_task(Killed.died.wait())
    await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
    killed = not living.done()
    for task in (living, dying):
        task.cancel()
    await asyncio.gather(living, dying, return_exceptions=True)
    if not killed:
        living.result()
    return killed


async def power_lost(scene: TabScene) -> None:
    """The process is gone with all that it had in memory."""
    await scene.orders.abandon()
    await scene.http.aclose()
    assert scene.database is not None
    await scene.database.close()


FEWEST_COMMITS, MOST_LIVES = 12, 100


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(2,), (1, 2)])
@pytest.mark.parametrize("before", [True, False])
async def test_an_order_survives_a_kill_at_every_commit(tmp_path: Path, ends: tuple[int, ...], before: bool) -> None:
    at, seen = 0, set()
    for life_number in itertools.count():
        Killed.commits, Killed.at, Killed.before, Killed.died = 0, at, before, asyncio.Event()
        scene = TabScene(tmp_path / str(life_number), ends=ends)
        scene.start(Killed)
        asked = scene.asked()
        killed = await until_killed(scene, asked)
        if not killed:
            await scene.stop()
            assert life_number < MOST_LIVES
            if at > FEWEST_COMMITS:
                break
            continue  # its three seats fell to few verifiers: another order has more commits
        await power_lost(scene)
        seen.add(await after_restart(scene, asked))
        at += 1
    assert seen == {"lost", "failed", "drawn"} - ({"lost"} if not before else set())
    assert at > FEWEST_COMMITS


async def after_restart(scene: TabScene, asked: Any) -> str:
    """Start again over the same disk, and go on as a client does; how the order ended."""
    scene.start()
    stored = scene.context.store.get(asked.order_id)
    assert stored is None or (stored.answered is None) == (stored.drawn is None)  # they are written as one
    await scene.orders.resume()
    history = scene.context.store.get(asked.order_id)
    tab = messages.tab_id(CLIENT_TAB)
    if history is None:
        assert scene.context.client_tabs.book(tab).worth == {}
        await life(scene, asked)  # it was never taken: the same order may be sent again
        await scene.stop()
        return "lost"
    assert (history.failed is None) == (history.drawn is not None)
    if history.failed is not None:
        assert scene.context.client_tabs.book(tab).worth == {1: 0}
        for segment, node in enumerate(history.admitted.nodes):
            # What it had signed it is owed, since it could claim it: a word that paid nothing for it would be refused.
            signed = scene.nodes[node].result_of(asked.order_id, segment)
            promise = history.admitted.promises[segment].message
            owed = scene.context.node_tabs.held(node).owed[promise.sequence]
            assert owed.due is not None
            assert owed.fee == (0 if signed is None else prices.promise_worth(promise, signed.message))
        fee = 0
    else:
        fee = await go_on(scene, asked)
    voucher = tabs.acknowledge(scene.payer, 1, fee).voucher
    body = Acknowledgement(CLIENT_TAB, sign(voucher, DOMAIN, TAB_KEY))
    answer = await scene.http.post("/v1/vouchers", content=canonical.encode(body))
    assert answer.status_code == 200, answer.text
    assert scene.context.client_tabs.exposure == 0
    await scene.stop()
    return "failed" if history.failed is not None else "drawn"


async def go_on(scene: TabScene, asked: Any) -> int:
    """Show both secrets again; the fee. Words that were told before are the same now."""
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    for line in asked.lines:
        if line["type"] == "admitted":
            assert line["admission"] == canonical.to_json(history.admitted.admission)
    before = (dict(history.commitments), dict(history.verdicts), dict(history.unveiled))
    lines = await scene.show(asked)
    assert lines[-1] == {"type": "end", "complete": True}
    segments = await scene.tiles(asked)
    assert all(one["node"] and len(one["opened"]) >= 1 for one in segments)
    for old, new in zip(before, (history.commitments, history.verdicts, history.unveiled), strict=True):
        assert old.items() <= new.items()
    rules = scene.context.view(history.order, CLIENT_TAB).rules
    return prices.fee(history.order, rules, history.segments, history.results[-1])


async def test_nodes_that_lost_their_sessions_go_on_with_a_check(tmp_path: Path) -> None:
    """A scheduler that is killed while verifying loses no answer because nodes have freed what they computed."""
    scene = TabScene(tmp_path, ends=(1, 2))
    scene.start()
    asked = await scene.send(scene.asked())
    judged = {"count": 0}
    for node in scene.nodes.values():
        real = node._judge

        def once(header: Any, payload: Any, node: Any = node, real: Any = real) -> Any:
            judged["count"] += 1
            if judged["count"] <= 3:
                node.restart()
                raise KeyError("session")
            return real(header, payload)

        node._judge = once  # type: ignore[method-assign]
    lines = await scene.show(asked)
    if lines[-1] != {"type": "end", "complete": True}:
        lines = await scene.show(asked)
    assert lines[-1] == {"type": "end", "complete": True}
    await scene.stop()


async def test_a_full_disk_refuses_orders_and_owes_nothing(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    assert scene.database is not None
    real = scene.database._write

    def full(batch: Any) -> Any:
        scene.database.failure = "database or disk is full"  # type: ignore[union-attr]
        return [OSError("database or disk is full")] * len(batch)

    scene.database._write = full  # type: ignore[method-assign]
    status, error = await scene.refused(scene.asked())
    assert (status, error["code"]) == (503, "busy")
    assert scene.context.client_tabs.exposure == 0
    scene.database._write = real  # type: ignore[method-assign]
    await interrupted(scene, full, real)
    asked = await scene.send(scene.asked())
    assert asked.lines[-1]["type"] == "draw"
    assert scene.database.failure is None
    await scene.stop()


async def interrupted(scene: TabScene, full: Any, real: Any) -> None:
    """The disk fills while an order runs: it is failed as soon as there is room, and never summoned in vain."""
    assert scene.database is not None
    scene.payer = tabs.PayerBook(messages.tab_id(CLIENT_TAB))
    asked = scene.asked()
    lines = await scene.orders.submit(asked.submission)
    scene.database._write = full  # type: ignore[method-assign]
    kinds = [line["type"] async for fresh, _ in lines.follow() for line in fresh]
    assert kinds[-1] == "token"
    await scene.orders.drain()
    scene.orders.draining = False
    scene.database._write = real  # type: ignore[method-assign]
    assert await scene.orders.resume() == 1
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    assert history.failed is not None
    assert scene.context.client_tabs.book(asked.order.tab).worth == {1: 0}


async def drawn_order(folder: Path, verifiers: int = 1) -> tuple[TabScene, Asked, OrderHistory, DrawnSeats]:
    """An answer that a draw has hit, and who is to check it, so many at least; nobody was asked yet."""
    scene = TabScene(folder)
    scene.start()
    while True:
        asked = await scene.send(scene.asked())
        history = scene.context.store.get(asked.order_id)
        assert history is not None
        await reveal(scene.context, history, asked.secrets.draw)
        (drawn,) = drawn_verifiers(scene.context, history)
        if len(drawn.seats) >= verifiers:
            return scene, asked, history, drawn


@pytest.mark.parametrize("question", [Advance, Recommit, Judge])
async def test_a_check_waits_for_a_verifier_that_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: type
) -> None:
    """Otherwise the log would show a drawn verifier without a verdict: nobody commits once most have spoken."""
    monkeypatch.setattr(running, "RETRY_SECONDS", 0.01)
    scene, asked, _, drawn = await drawn_order(tmp_path)
    faults = scene.nodes[drawn.operators[0]].faults
    faults.away = {question: 3}
    assert (await scene.show(asked))[-1] == {"type": "end", "complete": True}
    assert faults.away == {question: 0}
    await scene.stop()


async def test_a_check_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summons comes at half of the lag; who asks is told before."""
    monkeypatch.setattr(running, "LAG_SHARE", 1 << 40)
    scene, asked, _, drawn = await drawn_order(tmp_path)
    faults = scene.nodes[drawn.operators[0]].faults
    faults.away = {Recommit: 2}
    assert (await scene.show(asked))[-1] == {"type": "end", "complete": False}
    assert faults.away == {Recommit: 1}
    await scene.stop()


async def test_a_verifier_that_comes_after_the_decision_commits_to_nothing(tmp_path: Path) -> None:
    """Those that were shown the rows could have told it what to commit to; it is not paid for that."""
    scene, asked, history, drawn = await drawn_order(tmp_path, verifiers=2)
    late = min(drawn.seats, key=lambda one: drawn.seats[one])
    assert 2 * drawn.seats[late] < len(drawn.operators)
    scene.nodes[late].faults.refuses = {Recommit}
    lines = await scene.show(asked)
    assert lines[-1] == {"type": "end", "complete": False}
    scene.nodes[late].faults.refuses = set()
    for _ in range(2):
        assert (await scene.show(asked))[-1] == {"type": "end", "complete": False}
        assert set(history.commitments) == {(0, one) for one in drawn.seats if one != late}
        await scene.tiles(asked)
    assert history.frozen is not None
    assert len(history.frozen.shown) == len(drawn.seats) - 1
    await scene.stop()


async def test_a_number_that_no_disk_holds_keeps_nobody_waiting(tmp_path: Path) -> None:
    database = SchedulerDatabase(tmp_path / "market.sqlite")
    wrong = ("INSERT INTO claims VALUES (?, ?, ?)", (b"a", 1 << 64, b""))
    right = ("INSERT INTO claims VALUES (?, ?, ?)", (b"b", b"", b""))
    outcomes = await asyncio.gather(database.commit(wrong), database.commit(right), return_exceptions=True)
    assert [type(one) for one in outcomes] == [StorageFailed, type(None)]
    assert database.read("SELECT claim FROM claims") == [(b"b",)]
    await database.close()


async def test_a_disk_that_is_full_for_a_while_takes_steps_again(tmp_path: Path) -> None:
    """SQLite's own limit stands for the disk's."""
    database = SchedulerDatabase(tmp_path / "market.sqlite")
    row = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)"
    (pages,) = database.read("PRAGMA page_count")[0]
    database._connection.execute(f"PRAGMA max_page_count={pages}")
    for _ in range(2):
        with pytest.raises(StorageFailed, match="full"):
            await database.commit((row, (b"a", b"", bytes(1 << 16))))
        assert database.failure is not None
    database._connection.execute("PRAGMA max_page_count=1000000")
    await database.commit((row, (b"a", b"", b"")))
    assert database.failure is None
    await database.close()


async def test_an_order_that_cannot_be_taken_up_keeps_no_other_waiting(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    store, cut_off = scene.context.store, []
    for _ in range(3):
        work = await admit(scene.context, scene.asked().submission)
        cut_off.append(work.order_id)
    note = store.note

    async def fails(history: Any, *steps: Any) -> None:
        if history.order_id == cut_off[0]:
            raise StorageFailed("A step could not be stored", "full", "Look at the disk.")
        await note(history, *steps)

    store.note = fails  # type: ignore[method-assign]
    assert await scene.orders.resume() == 2
    assert [history.order_id for history in store.running()] == cut_off[:1]
    store.note = note  # type: ignore[method-assign]
    assert await scene.orders.resume() == 1
    assert not store.running()
    await scene.stop()


async def test_an_order_whose_client_was_cut_off_while_it_was_written_is_one_that_was_taken(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    asked, written = scene.asked(), threading.Event()
    assert scene.database is not None
    write = scene.database._write

    def slow(batch: Any) -> Any:
        written.wait(60)
        return write(batch)

    scene.database._write = slow  # type: ignore[method-assign]
    submitting = asyncio.create_task(scene.orders.submit(asked.submission))
    await eventually(lambda: scene.context.client_tabs.exposure > 0)
    submitting.cancel()
    await asyncio.gather(submitting, return_exceptions=True)
    written.set()
    assert await scene.orders.resume() == 1
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    assert history.failed is not None
    assert scene.context.client_tabs.exposure == 0
    await scene.stop()


@pytest.mark.slow
async def test_only_what_runs_or_was_asked_for_lately_is_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troth.scheduler.orders.store.REMEMBERED", 2)
    scene = TabScene(tmp_path)
    scene.start()
    asked = [await scene.send(scene.asked()) for _ in range(6)]
    await scene.orders.drain()
    gc.collect()
    assert len(scene.context.store._held) == 2
    # What is read again is one object for all who hold it, and its check goes on from the disk.
    first, second = (scene.context.store.get(asked[0].order_id) for _ in range(2))
    assert first is second
    assert (await scene.show(asked[0]))[-1] == {"type": "end", "complete": True}
    assert first is not None
    assert first.is_checked
    await scene.stop()


async def test_rows_that_a_full_disk_took_in_part_are_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptRows(tmp_path, SchedulerDatabase(tmp_path / "market.sqlite")).open(b"order", 4)
    monkeypatch.setattr("troth.scheduler.orders.rows_kept.HELD_BYTES", 0)
    whole, sizes = os.write, iter([2])

    def short(descriptor: int, data: bytes) -> int:
        size = next(sizes, None)
        if size is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(descriptor, bytes(data[:size]))

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="No space"):
        kept.append(0, b"\1\2\3\4", RowSignature(0, Hash32(bytes(32)), Hash32(bytes(32)), bytes(65)))
    monkeypatch.undo()
    with pytest.raises((EOFError, OSError)):
        kept.rows(0, 0, 1)


async def test_rows_of_short_and_of_long_answers_are_read_alike(tmp_path: Path) -> None:
    database = SchedulerDatabase(tmp_path / "market.sqlite")
    for count in (1, 3):
        order, size = bytes([count]) * 32, HELD_BYTES // 2
        opened = KeptRows(tmp_path / "rows", database).open(order, size // 4)
        for number in range(count):
            link = RowSignature(4 * number + 3, Hash32(bytes([number]) * 32), Hash32(bytes(32)), bytes(65))
            opened.append(1, bytes([number]) * size, link)
        assert opened.in_files == (count == 3) == bool((tmp_path / "rows").exists())
        opened.sync()
        await database.commit(*opened.statements())
        opened.close()
        again = KeptRows(tmp_path / "rows", database)
        assert list(again.open(order, size // 4).links(1)) == [4 * number + 3 for number in range(count)]
        last = again.open(order, size // 4).rows(1, 4 * count - 3, 3)
        assert last == bytes([count - 1]) * (size // 4 * 3)
        with pytest.raises(EOFError):
            again.open(order, size // 4).rows(1, 4 * count - 3, 4)
    await database.close()


async def test_a_result_whose_answer_was_lost_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node has signed it, and is owed for it: an order that was given up then would not pay."""
    monkeypatch.setattr("troth.scheduler.orders.concluding.AGAIN_SECONDS", 0.01)
    scene = TabScene(tmp_path)
    scene.start()
    request, lost = ToyWay.request, []

    async def losing(self: Any, header: Any, *arguments: Any) -> Any:
        answer = await request(self, header, *arguments)
        if isinstance(header, Conclude) and len(lost) < 3:
            lost.append(header)
            raise ChannelUnavailable("The connection broke before the answer came")
        return answer

    monkeypatch.setattr(ToyWay, "request", losing)
    asked = await scene.send(scene.asked())
    assert [line["type"] for line in asked.lines][-1] == "draw"
    assert len(lost) == 3
    await scene.stop()
