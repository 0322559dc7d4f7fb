"""A streamed answer gives back what it holds, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from troth.node.direct.entry_app import HeldResponse, Places
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
