"""Work that goes on for as long as a process runs: nothing that a turn of it meets ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from support.duties import pauses_of
from support.waiting import eventually

from troth.chain.duty import Duty
from troth.chain.errors import ChainUnavailable

AWAY = ChainUnavailable("The chain node cannot be reached", "http://127.0.0.1:9", "Check that the node runs.")


class Turns:
    """Fails with each of these in turn, and succeeds from then on."""

    def __init__(self, *failures: BaseException | None) -> None:
        self.failures, self.times = iter(failures), 0

    async def __call__(self) -> None:
        failure = next(self.failures, None)
        self.times += 1
        if failure is not None:
            raise failure


async def waits_for_another_task() -> None:
    """What it waits for is cancelled by somebody else, as a connection that several share may be."""
    shared = asyncio.create_task(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(shared.cancel)
    await shared


@pytest.mark.parametrize("failure", [AWAY, OSError("no space left"), KeyError("x"), asyncio.CancelledError()])
async def test_no_failure_of_a_turn_ends_a_duty(failure: BaseException) -> None:
    turns = Turns(failure)
    duty = Duty("redeeming", turns, every=0.001).start()
    await eventually(lambda: turns.times > 3)
    assert not duty.trouble
    await duty.stop()
    assert not duty.is_running


async def test_a_cancellation_that_was_meant_for_something_else_ends_no_duty(caplog: pytest.LogCaptureFixture) -> None:
    """A node whose duty ended so would answer no summons any more, and say nothing."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            await waits_for_another_task()

    duty = Duty("answering summons", turn, every=0.001).start()
    await eventually(lambda: turns > 2)
    assert "answering summons failed and is tried again: something that it waited for was cancelled" in caplog.text
    await duty.stop()


@pytest.mark.parametrize("within", [asyncio.sleep, lambda _: waits_for_another_task()])
async def test_whoever_cancels_it_ends_it_in_the_middle_of_a_turn(within: Callable[[float], Awaitable[None]]) -> None:
    begun = asyncio.Event()

    async def turn() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.shield(within(0.0))

    running = asyncio.create_task(Duty("redeeming", turn).run())
    await begun.wait()
    running.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


async def test_a_duty_shows_its_age_and_why_it_is_not_done() -> None:
    now, times, reached = [0.0], 0, {2: asyncio.Event(), 4: asyncio.Event()}

    async def turn() -> None:
        nonlocal times
        times += 1
        if times in reached:
            reached[times].set()
        if times < 3:
            raise OSError("no space left on device")

    duty = Duty("redeeming", turn, every=0.001, stale_after=10, clock=lambda: now[0]).start()
    await reached[2].wait()
    now[0] = 60.0
    assert "60 s ago: no space left" in duty.reason
    await reached[4].wait()
    assert duty.reason == ""
    await duty.stop()


async def test_pauses_grow_while_turns_fail_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    duty = Duty("redeeming", Turns(AWAY, AWAY, AWAY, AWAY, None, AWAY), every=2.0, longest=10.0)
    assert await pauses_of(duty.run(), 7, monkeypatch) == [2.0, 4.0, 8.0, 10.0, 2.0, 2.0, 2.0]


async def test_what_says_the_pause_is_asked_after_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(range(1, 100))
    duty = Duty("leading", Turns(None, AWAY, AWAY), every=lambda: next(said))
    assert await pauses_of(duty.run(), 4, monkeypatch) == [1, 2, 3, 4]


async def test_a_duty_that_is_hurried_does_not_wait_also_in_the_middle_of_a_turn() -> None:
    turns, going_on = 0, asyncio.Event()

    async def turn() -> None:
        nonlocal turns
        turns += 1
        await going_on.wait()

    duty = Duty("following", turn, every=60.0).start()
    await eventually(lambda: turns == 1)
    duty.hurry()
    going_on.set()
    await eventually(lambda: turns == 2)
    duty.hurry()
    await eventually(lambda: turns == 3)
    await duty.stop()


@pytest.mark.parametrize(("error", "traced"), [(AWAY, False), (ZeroDivisionError("division by zero"), True)])
async def test_a_failure_is_said_once_and_only_what_nobody_foresaw_with_its_trace(
    error: Exception, traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns(error, error, error)
    with caplog.at_level(logging.INFO):
        duty = Duty("following the chain", turns, every=0.0).start()
        await eventually(lambda: turns.times > 4)
        await duty.stop()
    first, second = caplog.records
    assert first.getMessage() == f"following the chain failed and is tried again: {error}"
    assert bool(first.exc_info) == traced
    assert second.getMessage() == "following the chain goes on"


@pytest.mark.parametrize(("error", "said"), [(KeyError("a prompt"), "KeyError"), (AWAY, str(AWAY))])
async def test_words_that_may_hold_a_prompt_are_not_said(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns(error)
    with caplog.at_level(logging.INFO):
        duty = Duty("reviewing", turns, every=0.0, private=True).start()
        await eventually(lambda: turns.times > 1)
        await duty.stop()
    assert caplog.records[0].getMessage() == f"reviewing failed and is tried again: {said}"
    assert not caplog.records[0].exc_info
