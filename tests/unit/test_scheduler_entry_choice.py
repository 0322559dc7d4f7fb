"""The entry's word at its scheduler: once, in time, among the candidates; or nobody."""

from __future__ import annotations

import asyncio

import pytest

from troth.protocol.types import Address
from troth.scheduler.entry_choice import EntryChoice
from troth.scheduler.errors import BadRequest, TooLate
from troth.scheduler.submission import read_operator

ONE, TWO, OTHER = (Address("0x" + f"{number:02x}" * 20) for number in (0x11, 0x22, 0x33))
LONG, SHORT = 600.0, 0.01


async def test_a_word_ends_the_wait() -> None:
    choice = EntryChoice((ONE, TWO), LONG)
    waiting = asyncio.create_task(choice.wait())
    await asyncio.sleep(0)
    choice.give(TWO)
    assert await waiting == TWO


async def test_nobody_ends_the_wait_too() -> None:
    choice = EntryChoice((ONE, TWO), LONG)
    choice.give(None)
    assert await choice.wait() is None
    with pytest.raises(TooLate):
        choice.give(ONE)


async def test_it_counts_once_and_only_for_candidates() -> None:
    choice = EntryChoice((ONE, TWO), LONG)
    with pytest.raises(BadRequest):
        choice.give(OTHER)
    choice.give(ONE)
    with pytest.raises(TooLate):
        choice.give(TWO)
    assert await choice.wait() == ONE


async def test_a_late_word_changes_nothing() -> None:
    choice = EntryChoice((ONE, TWO), SHORT)
    assert await choice.wait() is None
    with pytest.raises(TooLate):
        choice.give(ONE)


def test_what_an_entry_may_say() -> None:
    assert read_operator(b'{"operator":"0x' + b"11" * 20 + b'"}') == ONE
    assert read_operator(b'{"operator":null}') is None
    for junk in (
        b"",
        b"null",
        b"{}",
        b'{"operator":5}',
        b'{"operator":"0x11"}',
        b'{"operator":null,"more":1}',
        b"[" * 9999,
    ):
        with pytest.raises(BadRequest):
            read_operator(junk)
