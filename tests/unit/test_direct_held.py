"""A streamed answer gives back what it holds, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry

from troth.node.direct import entry_app
from troth.node.direct.counters import Counters
from troth.node.direct.entry_app import EntryContext, HeldResponse, Places
from troth.node.errors import IntakeRefused
from troth.protocol.types import Address

SCHEDULER, OTHER = Address("0x" + "a1" * 20), Address("0x" + "b2" * 20)
SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


class Client:
    """Takes so many messages, then fails as one that is gone; or says that it goes."""

    def __init__(self, takes: int = 99) -> None:
        self.left, self.gone = takes, asyncio.Event()
        self.got: list[Any] = []

    async def send(self, message: Any) -> None:
        if not self.left:
            raise ConnectionError
        self.left -= 1
        self.got.append(message)

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def answered(client: Client, places: Places, *, endless: bool = False) -> bool:
    """Whether the body was closed; the place is looked at by the test."""
    closed = False

    async def pieces() -> AsyncGenerator[bytes, None]:
        nonlocal closed
        try:
            yield b"one"
            if endless:
                await asyncio.sleep(60)
            yield b"two"
        finally:
            closed = True

    async with AsyncExitStack() as stack:
        stack.enter_context(places.one(SCHEDULER))
        response = HeldResponse(stack.pop_all(), pieces(), "text/plain")
    assert places.taken == 1
    await response(dict(SCOPE), client.receive, client.send)
    return closed


async def test_with_the_last_piece() -> None:
    client, places = Client(), Places(1)
    assert await answered(client, places)
    assert places.taken == 0
    assert b"".join(message.get("body", b"") for message in client.got) == b"onetwo"


@pytest.mark.parametrize("takes", [0, 1])
async def test_where_the_client_is_gone_already(takes: int) -> None:
    places = Places(1)
    with pytest.raises((ConnectionError, ExceptionGroup)):
        await answered(Client(takes), places)
    assert places.taken == 0


async def test_where_the_client_goes() -> None:
    client, places = Client(), Places(1)
    asyncio.get_running_loop().call_later(0.05, client.gone.set)
    assert await answered(client, places, endless=True)
    assert places.taken == 0


def test_places_are_bounded() -> None:
    places = Places(1)
    with places.one(SCHEDULER), pytest.raises(IntakeRefused) as full, places.one(SCHEDULER):
        pass
    assert (full.value.status, full.value.retry_after) == (503, 5)
    with places.one(SCHEDULER):
        assert places.taken == 1


def test_one_scheduler_leaves_places_to_the_others() -> None:
    places = Places(4)
    with places.one(SCHEDULER), places.one(SCHEDULER), places.one(SCHEDULER):
        with pytest.raises(IntakeRefused), places.one(SCHEDULER):
            pass
        with places.one(OTHER):
            assert places.taken == 4


class EndlessScheduler:
    """Its stream of an order that was taken before says a line again and again, and never comes to an end."""

    def bonded(self, name: str) -> Any:
        return SimpleNamespace(operator=name)

    @asynccontextmanager
    async def again(self, *_arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        while True:
            yield b'{"type": "token"}'
            await asyncio.sleep(0.01)


async def test_a_scheduler_that_repeats_an_order_without_end_holds_no_place_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry_app, "LONGEST_SECONDS", 0.1)
    tools: Any = SimpleNamespace(counters=Counters(CollectorRegistry()))
    none: Any = None
    context = EntryContext(none, none, none, lambda: 0, cast(Any, EndlessScheduler()), tools, list)
    transport = httpx.ASGITransport(entry_app.entry_app(context))
    async with httpx.AsyncClient(transport=transport, base_url="http://entry") as client, asyncio.timeout(60):
        word = "0x" + "07" * 32
        answer = await client.get(f"/schedulers/0x01/v1/orders/{word}", headers={"troth-salt": word})
    assert answer.status_code == 200
    assert answer.content.startswith(b'{"type": "token"}\n')
