"""Exchanges of one proxy at a destination: each is counted until it ends, also where its number is used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from support.waiting import eventually

from troth.overlay.relay.delivery import ALPN, EXCHANGE, DeliveryFrame, DeliveryKind
from troth.overlay.relay.delivery_server import DeliveryServer

NUMBER = bytes(EXCHANGE)
NOTHING: Any = None


class Transport:
    """As much of a TLS connection as a proxy's end asks for."""

    def get_extra_info(self, _name: str) -> Any:
        return type("Tls", (), {"selected_alpn_protocol": lambda _: ALPN})()

    def write(self, data: bytes) -> None:
        pass


async def test_an_exchange_that_takes_the_number_of_a_cancelled_one_is_counted_and_ends_with_its_proxy() -> None:
    under_way = 0

    async def answers(_message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
        nonlocal under_way
        under_way += 1
        try:
            await asyncio.Event().wait()
            yield b"", True
        finally:
            under_way -= 1

    proxy: Any = DeliveryServer(NOTHING, answers).protocol()
    proxy.connection_made(Transport())
    message, cancel = (DeliveryFrame(kind, NUMBER, b"") for kind in (DeliveryKind.MESSAGE, DeliveryKind.CANCEL))
    proxy._came(message)
    await eventually(lambda: under_way == 1)
    for _ in range(3):
        proxy._came(cancel)
        proxy._came(message)
        await eventually(lambda: under_way == 1)
        await asyncio.sleep(0)
        assert not proxy.idle
    proxy.connection_lost(None)
    await eventually(lambda: under_way == 0)
