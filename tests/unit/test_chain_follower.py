"""A chain node that leaves logs out or makes them up: the follower says so, and goes on once it is told the truth."""

from __future__ import annotations

from typing import Any

import pytest
from support.waiting import eventually

from troth.chain.errors import ChainUnavailable, FollowTimeout
from troth.chain.follower import Folding, Follower
from troth.chain.records import Block
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.logs import Log, LogMeta
from troth.protocol.types import Address, Hash32

CONTRACT = Address("0x5FbDB2315678afecb367f032d93F642f64180aa3")


def block_hash(number: int) -> Hash32:
    return Hash32(keccak256(b"block %d" % number))


class FakeChain:
    """`head` blocks; `lying` adds a log that the contract cannot have emitted to the newest."""

    chain_id, contract, place = 31337, CONTRACT, "http://fake"

    def __init__(self) -> None:
        self.head = 3
        self.lying = False
        self.asked: list[int] = []

    async def block(self, number: int | None = None) -> Block:
        wanted = self.head if number is None else number
        return Block(wanted, block_hash(wanted), block_hash(wanted - 1), wanted)

    async def logs_of_block(self, wanted: Hash32) -> list[Log]:
        number = next(number for number in range(self.head + 1) if block_hash(number) == wanted)
        self.asked.append(number)
        if not self.lying or number != self.head:
            return []
        meta = LogMeta(number, 0, wanted, Hash32(bytes(32)))
        return [Log(CONTRACT, (Hash32(b"\x01" * 32),), b"", meta)]


def refused(_log: Log, _state: int) -> int:
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
