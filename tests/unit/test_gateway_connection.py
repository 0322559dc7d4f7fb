"""The gateway's session: made anew after a failure, while whoever uses the old one keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from support.waiting import eventually

from troth.chain.errors import ChainUnavailable
from troth.client.errors import OverlayFailed, SchedulerUnreachable
from troth.client.gateway.connection import Connection
from troth.client.gateway.errors import NotReady


class Followed:
    trouble = ""


class Session:
    """As much of a session as the connection looks at."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.follower = Followed()


class Sessions:
    """A factory whose next sessions fail with `failures`."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.made = 0
        self.open: set[int] = set()

    @asynccontextmanager
    async def _make(self) -> AsyncIterator[Any]:
        if self.failures:
            raise self.failures.pop(0)
        self.made += 1
        number = self.made
        self.open.add(number)
        try:
            yield Session(number)
        finally:
            self.open.discard(number)

    @property
    def factory(self) -> Callable[[], AbstractAsyncContextManager[Any]]:
        return self._make


UNREACHABLE = SchedulerUnreachable("Nobody answers", "x", "Wait.")


@pytest.mark.parametrize(
    ("failure", "hop"),
    [
        (UNREACHABLE, "scheduler"),
        (ChainUnavailable("The node is away", "x", "Wait."), "chain"),
        (OverlayFailed("Lost", "x", "Wait.", hop="guard", delivered="no"), "guard"),
        (KeyError("what nobody foresaw"), "scheduler"),
    ],
)
async def test_without_a_session_the_reason_is_told_and_tried_again(failure: Exception, hop: str) -> None:
    sessions = Sessions(failure)
    async with Connection(sessions.factory) as connection:
        assert connection.reasons()
        with pytest.raises(NotReady) as refused:
            async with connection.lease(patience=0.2):
                pass
        assert refused.value.troth == {"hop": hop, "charged": False, "retry_free": True}
        assert any(failure.args[0] in reason for reason in connection.reasons())
        async with connection.lease() as held:
            assert held.session.number == 1  # type: ignore[attr-defined]
        assert connection.reasons() == []


async def test_a_session_whose_opening_is_cancelled_from_elsewhere_is_opened_again() -> None:
    """Of what it waits for, such as a connection that several share; else no question would ever be served."""
    sessions = Sessions(asyncio.CancelledError())
    async with Connection(sessions.factory) as connection, connection.lease() as held:
        assert held.session.number == 1  # type: ignore[attr-defined]


async def test_an_old_session_ends_with_its_last_user() -> None:
    sessions = Sessions()
    async with Connection(sessions.factory) as connection:
        async with connection.lease() as old:
            with old.use():
                connection.report(UNREACHABLE)
                # Told twice, made once.
                connection.report(UNREACHABLE)
                async with connection.lease() as new:
                    assert new is not old
                    assert sessions.open == {1, 2}
            await asyncio.sleep(0)
            assert sessions.open == {1, 2}
        await eventually(lambda: sessions.open == {2})
        assert sessions.made == 2
    assert sessions.open == set()


async def test_a_chain_that_is_away_is_a_reason() -> None:
    sessions = Sessions()
    async with Connection(sessions.factory) as connection:
        async with connection.lease() as held:
            held.session.follower.trouble = "the chain was last followed 70 s ago"
        assert connection.reasons() == ["the chain was last followed 70 s ago"]


async def test_who_asks_why_it_is_not_ready_hears_of_a_slow_chain_node(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "waiting for the chain node http://slow: 3 answers in 33 s; a faster one makes this shorter (--rpc)"
    never = asyncio.Event()

    @asynccontextmanager
    async def factory() -> AsyncIterator[Any]:
        await never.wait()
        yield None

    monkeypatch.setattr("troth.client.gateway.connection.slowness", lambda: "")
    async with Connection(factory) as connection:
        assert connection.reasons() == ["no session at a scheduler: connecting"]
        monkeypatch.setattr("troth.client.gateway.connection.slowness", lambda: words)
        assert connection.reasons() == [f"no session at a scheduler: {words}"]
        with pytest.raises(NotReady, match="3 answers in 33 s") as refused:
            async with connection.lease(0.01):
                pass
        assert refused.value.to_json()["error"]["troth"]["hop"] == "chain"
