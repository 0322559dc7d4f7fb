"""What parties of a case hand each other: whole pieces, in time, so that none of them holds a reviewer or driver up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from troth.cases import parties
from troth.cases.parties import ChannelParties
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH
from troth.protocol.wire_cases import Fetch, Fetched, Furnish, Furnished

DATA = bytes(range(256)) * 10
NOTHING: Any = None


class Answering(ChannelParties):
    """Parties whose other ends answer in pieces of ``piece``, and say no more after ``answers`` of them."""

    def __init__(self, piece: int, answers: int = 100_000) -> None:
        super().__init__(NOTHING, NOTHING)
        self.piece, self.answers, self.asked, self.sent = piece, answers, 0, 0

    async def _ask(self, party: Any, header: Any, payload: bytes, expected: Any) -> Any:
        self.asked += 1
        self.sent += len(payload)
        if self.asked > self.answers:
            await asyncio.Event().wait()
        match header:
            case Fetch():
                return Fetched(len(DATA)), memoryview(DATA[header.start : header.start + self.piece])
            case Furnish():
                return Furnished(header.start + min(self.piece, len(payload))), memoryview(b"")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties, "PIECE_LIMIT", 1_000)


async def fetched(answering: Answering, most: int = len(DATA)) -> bytes | None:
    return await answering.fetch(ZERO_ADDRESS, ZERO_HASH, "rows", 0, most)


async def test_rows_come_in_whole_pieces() -> None:
    honest = Answering(1_000)
    assert await fetched(honest) == DATA
    assert honest.asked == 3
    assert await fetched(Answering(1_000), len(DATA) - 1) is None


async def test_a_holder_that_gives_a_byte_at_a_time_is_left_for_the_next_one() -> None:
    """A scheduler that stands by its node would have a reviewer miss its window, which costs the reviewer stake."""
    dripping = Answering(1)
    assert await fetched(dripping) is None
    assert dripping.asked == 1


async def test_a_holder_that_takes_longer_than_its_rows_may_is_left_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parties, "FETCH_SECONDS", 0.5)
    slow = Answering(1_000, answers=1)
    assert await fetched(slow) is None
    assert slow.asked == 2


async def test_a_reviewer_that_takes_a_byte_at_a_time_is_sent_no_more() -> None:
    dripping = Answering(1)
    assert not await dripping._put(ZERO_ADDRESS, ZERO_HASH, "rows", 0, DATA)
    assert dripping.asked == 1
    honest = Answering(1_000)
    assert await honest._put(ZERO_ADDRESS, ZERO_HASH, "rows", 0, DATA)
    assert (honest.asked, honest.sent) == (3, len(DATA))
