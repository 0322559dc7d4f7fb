"""A chain node that leaves logs out or makes them up: the follower says so, and goes on once it is told the truth."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.waiting import eventually

from troth.chain.errors import ChainUnavailable, FollowTimeout, NotFollowed, WrongChain
from troth.chain.follower import TOGETHER, Folding, Follower
from troth.chain.records import Block
from troth.chain.store import WINDOW, EventStore
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.types import Address, Hash32

Asked = TypeVar("Asked")
CONTRACT = Address("0x5FbDB2315678afecb367f032d93F642f64180aa3")


def block_hash(number: int) -> Hash32:
    return Hash32(keccak256(b"block %d" % number))


class FakeChain:
    """`head` blocks; `lying` adds a log that the contract cannot have emitted to the newest; `elsewhere`: it is
    another chain."""

    chain_id, contract, place = 31337, CONTRACT, "http://fake"

    def __init__(self) -> None:
        self.head = 3
        self.lying = False
        self.elsewhere = False
        self.asked: list[int] = []

    async def require_chain(self) -> None:
        if self.elsewhere:
            raise WrongChain("The node is on chain 1, not 31337", self.place, "Use a node of that chain.")

    async def block(self, number: int | None = None) -> Block:
        wanted = self.head if number is None else number
        # Of another chain no hash is the same.
        names = [block_hash(one + 1_000_000 * self.elsewhere) for one in (wanted, wanted - 1)]
        return Block(wanted, names[0], names[1], wanted)

    async def logs_of_block(self, wanted: Hash32) -> list[EventLog]:
        number = next(number for number in range(self.head + 1) if block_hash(number) == wanted)
        self.asked.append(number)
        if not self.lying or number != self.head:
            return []
        meta = LogMeta(number, 0, wanted, Hash32(bytes(32)))
        return [EventLog(CONTRACT, (Hash32(b"\x01" * 32),), b"", meta)]


def refused(_log: EventLog, _state: int) -> int:
    raise InvalidField("No event has this topic", None, "Ask another node.")


def following(chain: Any, **options: Any) -> Follower[int]:
    return Follower(chain, Folding(0, refused), **options)


async def test_a_log_that_cannot_be_is_named_and_asked_for_again() -> None:
    chain: Any = FakeChain()
    follower = following(chain)
    await follower.catch_up()
    chain.head, chain.lying = 5, True
    for _ in range(2):
        with pytest.raises(ChainUnavailable, match="do not follow"):
            await follower.catch_up()
    chain.lying, chain.asked = False, []
    await follower.catch_up()
    assert follower.block == 5
    assert chain.asked == [0, 1, 2, 3, 4, 5]
    await follower.close()


async def test_following_does_not_die_of_a_lie() -> None:
    chain: Any = FakeChain()
    chain.lying = True
    async with following(chain, poll_interval=0.01) as follower:
        await eventually(lambda: follower.failure is not None)
        with pytest.raises(FollowTimeout, match="do not follow"):
            await follower.reach(3, timeout=0.1)
        chain.lying = False
        await follower.reach(3, timeout=60)


async def test_a_node_on_another_chain_is_no_reorganisation_and_nothing_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An address may come to lead to another chain, shorter or longer, and back."""
    chain: Any = FakeChain()
    async with following(chain, path=tmp_path / "events.sqlite", poll_interval=0.01) as follower:
        await follower.reach(3, timeout=60)
        for head in (2, 9):
            chain.head, chain.elsewhere = head, True
            await eventually(lambda: isinstance(follower.failure, WrongChain))
            with pytest.raises(WrongChain, match="is on chain 1, not 31337"):
                await follower.catch_up()
            assert follower.block == 3
            assert "is on chain 1, not 31337" in follower.trouble
            chain.head, chain.elsewhere, chain.asked = 3, False, []
            await eventually(lambda: follower.failure is None)
            assert chain.asked == []
    warned = [one.getMessage().split(":")[0] for one in caplog.records if one.levelno >= logging.WARNING]
    assert (
        warned
        == [
            "reading the chain's events failed and is tried again",
            "reading the chain's events goes on",
        ]
        * 2
    )


async def test_a_full_disk_ends_no_follower_and_its_age_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain: Any = FakeChain()
    async with following(chain, path=tmp_path / "events.sqlite", poll_interval=0.01) as follower:
        await follower.reach(3, timeout=60)
        assert follower.age < 30
        with monkeypatch.context() as patched:
            patched.setattr(EventStore, "append", refuse)
            chain.head = 5
            await eventually(lambda: isinstance(follower.failure, NotFollowed))
            with pytest.raises(NotFollowed, match="disk is full"):
                await follower.catch_up()
            before = follower.age
            await asyncio.sleep(0.05)
            assert follower.age > before
            assert follower.block == 3
        await follower.reach(5, timeout=60)
        await eventually(lambda: follower.failure is None)


class SlowChain(FakeChain):
    """Counts what it is asked, how much at once, and after how many answers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.waits = self.active = self.most = 0

    async def _answer(self, work: Coroutine[Any, Any, Asked]) -> Asked:
        self.calls += 1
        self.waits += not self.active
        self.active += 1
        self.most = max(self.most, self.active)
        await asyncio.sleep(0.01)
        self.active -= 1
        return await work

    async def block(self, number: int | None = None) -> Block:
        return await self._answer(super().block(number))

    async def logs_of_block(self, wanted: Hash32) -> list[EventLog]:
        return await self._answer(super().logs_of_block(wanted))


async def test_a_slow_node_is_waited_for_a_few_times_and_not_once_for_each_block() -> None:
    chain: Any = SlowChain()
    chain.head = 4 * TOGETHER - 1
    follower = following(chain)
    await follower.catch_up()
    assert follower.block == chain.head
    assert chain.waits == 1 + 2 * 4, "the newest block; headers, then logs, of four parts"
    assert chain.most == TOGETHER
    assert chain.asked == list(range(chain.head + 1)), "in the order of the chain"
    chain.calls, chain.head = 0, chain.head + 1
    await follower.catch_up()
    assert chain.calls == 2, "one new block names the one before: its header and its logs are all that is asked"
    await follower.catch_up()
    assert chain.calls == 3
    await follower.close()


async def test_a_very_slow_node_is_asked_for_all_recent_blocks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, more blocks come while it answers than are asked for, and the newest one is never reached."""
    monkeypatch.setattr("troth.chain.follower.SLOW_SECONDS", 0.005)
    chain: Any = SlowChain()
    chain.head = WINDOW - 1
    follower = following(chain)
    await follower.catch_up()
    assert follower.block == chain.head
    assert chain.waits == 3, "the newest block; all headers; all logs"
    assert chain.asked == list(range(chain.head + 1)), "in the order of the chain"
    await follower.close()


async def test_whatever_breaks_following_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    chain: Any = FakeChain()
    whole = FakeChain.block

    async def broken(_self: Any, _number: int | None = None) -> Block:
        raise ZeroDivisionError

    monkeypatch.setattr(FakeChain, "block", broken)
    async with following(chain, poll_interval=0.01) as follower:
        await eventually(lambda: follower.failure is not None)
        monkeypatch.setattr(FakeChain, "block", whole)
        await follower.reach(3, timeout=60)


def refuse(*_arguments: Any) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_a_file_that_was_full_takes_blocks_again(tmp_path: Path) -> None:
    """SQLite's own limit stands for the disk's: what it refuses leaves no transaction open, and no half of a block."""
    store = EventStore(tmp_path / "events.sqlite", 31337, CONTRACT)
    store.append(1, block_hash(1), [])
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count={pages}")
    large = EventLog(CONTRACT, (), bytes(1 << 16), LogMeta(2, 0, block_hash(2), Hash32(bytes(32))))
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="full"):
            store.append(2, block_hash(2), [large])
    assert store.tip() == (1, block_hash(1))
    assert not list(store.logs())
    store._database.execute("PRAGMA max_page_count=1000000")
    store.append(2, block_hash(2), [large])
    assert [one.data for one in store.logs()] == [large.data]
    store.close()


class CrowdedChain(FakeChain):
    """Each block has many logs. Blocks of ``branch`` 1 above ``fork`` are others than those of branch 0."""

    logs_in_block = 50

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.fork = 0, 2

    def _name(self, number: int) -> Hash32:
        return block_hash(number + 1_000_000 * (self.branch if number > self.fork else 0))

    async def block(self, number: int | None = None) -> Block:
        wanted = self.head if number is None else number
        return Block(wanted, self._name(wanted), self._name(wanted - 1), wanted)

    async def logs_of_block(self, wanted: Hash32) -> list[EventLog]:
        number = next(number for number in range(self.head + 1) if self._name(number) == wanted)
        metas = (LogMeta(number, index, wanted, Hash32(bytes(32))) for index in range(self.logs_in_block))
        return [EventLog(CONTRACT, (), b"", meta) for meta in metas]


def counting(chain: Any, path: Path) -> Follower[int]:
    """Its state is the count of logs."""
    return Follower(chain, Folding(0, lambda _log, count: count + 1), path)


async def turns_beside(work: Coroutine[Any, Any, Any]) -> int:
    """How often another task had its turn until ``work`` was done."""
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_however_many_logs_are_folded_everything_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a reorganisation takes the first block after a restart, and all is folded anew."""
    monkeypatch.setattr("troth.chain.rounds.ROUND_SECONDS", -1.0)
    chain: Any = CrowdedChain()
    follower = counting(chain, tmp_path / "events.sqlite")
    assert await turns_beside(follower.catch_up()) >= 4 * chain.logs_in_block
    await follower.close()
    follower = counting(chain, tmp_path / "events.sqlite")
    assert (follower.block, follower.state) == (3, 4 * chain.logs_in_block)
    chain.branch = 1
    assert await turns_beside(follower.catch_up()) >= (3 + 1) * chain.logs_in_block
    assert (follower.block, follower.state) == (3, 4 * chain.logs_in_block)
    await follower.close()


async def test_what_is_broken_off_between_two_logs_has_changed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troth.chain.rounds.ROUND_SECONDS", -1.0)
    chain: Any = CrowdedChain()
    follower = counting(chain, tmp_path / "events.sqlite")
    await follower.catch_up()
    await follower.close()
    for branch, turns in ((1, 60), (1, 175), (0, 30)):
        follower = counting(chain, tmp_path / "events.sqlite")
        chain.branch = branch
        task = asyncio.ensure_future(follower.catch_up())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        assert follower.state == chain.logs_in_block * (follower.block + 1)
        assert len(follower.logs()) == follower.state
        await follower.close()
    follower = counting(chain, tmp_path / "events.sqlite")
    await follower.catch_up()
    assert (follower.block, follower.state) == (3, 4 * chain.logs_in_block)
    await follower.close()
