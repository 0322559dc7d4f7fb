"""Whom a node reports to: to bonded schedulers, where they listen now, and to nobody else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from support.waiting import eventually

from troth.node.pool import reporting
from troth.node.pool.contacts import OperatorContact
from troth.node.pool.reporting import Reporting
from troth.protocol.types import Address, Hash32, address_from_bytes
from troth.transport.errors import ChannelUnavailable

FIRST, SECOND = (address_from_bytes(bytes([number]) * 20) for number in (1, 2))
NOTHING: Any = None


class Line:
    """A channel that notes who was asked, and that it was closed."""

    asked: list[tuple[str, Address]]
    closed: list[tuple[str, Address]]

    def __init__(self, endpoint: str, _key: bytes, _operator: object, peer: Address, **_: object) -> None:
        self.name = endpoint, peer
        self.connected = False

    async def request(self, _report: object) -> Any:
        self.asked.append(self.name)
        raise ChannelUnavailable("Nobody answers")

    async def close(self) -> None:
        self.closed.append(self.name)


def contact(name: Address, endpoint: str) -> OperatorContact:
    return OperatorContact(name, endpoint, Hash32(bytes(32)))


async def test_who_is_bonded_no_more_is_not_reported_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor heard: it would go on naming the layers that the node hosts."""
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(reporting, "Channel", Line)
    monkeypatch.setattr(reporting.msgspec.structs, "replace", lambda report, **_: report)
    Line.asked, Line.closed = [], []
    bonded = [contact(FIRST, "https://a"), contact(SECOND, "https://b")]
    contacts: Any = type("Chain", (), {"schedulers": lambda _: bonded})()
    running = asyncio.create_task(Reporting(NOTHING, lambda _: NOTHING, contacts, NOTHING).run())
    await eventually(lambda: {("https://a", FIRST), ("https://b", SECOND)} <= set(Line.asked))
    bonded[:] = [replace(bonded[1], endpoint="https://c")]
    await eventually(lambda: ("https://c", SECOND) in Line.asked)
    await eventually(lambda: sorted(Line.closed) == [("https://a", FIRST), ("https://b", SECOND)])
    Line.asked.clear()
    await eventually(lambda: len(Line.asked) > 3)
    assert set(Line.asked) == {("https://c", SECOND)}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
