"""Ways to other nodes: an endpoint is a stranger's word, and whoever stalls or answers nonsense costs two seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.responses import JSONResponse

from troth.node.pool import probing
from troth.node.pool.contacts import OperatorContact
from troth.node.pool.probing import REMEMBERED_SECONDS, ProbedLinks, ways_to
from troth.protocol.types import Address, Hash32
from troth.transport.identity import create_identity
from troth.transport.server import TlsServer, serving


def node(number: int, endpoint: str, key: bytes) -> OperatorContact:
    return OperatorContact(Address(f"0x{number:040x}"), endpoint, Hash32(key))


async def test_who_answers_is_measured_and_nobody_else_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "TIMEOUT", 0.5)
    identity = create_identity(tmp_path / "tls")
    app, stalled = FastAPI(), FastAPI()

    @app.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"live": True})

    @stalled.get("/livez")
    async def stall() -> None:
        await asyncio.sleep(3600)

    answering, stalling = (TlsServer(one, identity, "127.0.0.1", 0, grace_seconds=0.1) for one in (app, stalled))
    async with serving(answering), serving(stalling):
        key = identity.spki_sha256
        found = await ways_to(
            [
                node(1, f"https://127.0.0.1:{answering.port}", key),
                node(2, f"https://127.0.0.1:{answering.port}", bytes(32)),
                node(3, f"https://127.0.0.1:{stalling.port}", key),
                node(4, "https://[", key),
                node(5, "https://127.0.0.1:99999", key),
                node(6, "https://127.0.0.1:1", key),
            ]
        )
    assert [link.node for link in found] == [Address(f"0x{1:040x}")]
    assert 0 < found[0].microseconds < 10_000_000


async def test_nobody_is_knocked_at_more_than_once_a_minute_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler repeats a name in its answers, other schedulers name it too: the victim sees one probe."""
    knocks: list[str] = []
    now = [0.0]

    async def knock(victim: OperatorContact) -> float | None:
        knocks.append(victim.operator)
        await asyncio.sleep(0)
        return None if victim.operator.endswith("2") else 0.001

    monkeypatch.setattr(probing, "_one_way", knock)
    victim, silent = (node(number, "https://127.0.0.1:1", bytes(32)) for number in (1, 2))
    ways = ProbedLinks(lambda: now[0])
    both = await asyncio.gather(ways.to([victim] * 16 + [silent]), ways.to([victim, silent]))
    assert knocks == [victim.operator, silent.operator]
    assert [link.node for link in both[0]] == [victim.operator]
    now[0] = REMEMBERED_SECONDS - 1
    assert await ways.to([victim, silent]) == both[0]
    assert len(knocks) == 2
    now[0] = REMEMBERED_SECONDS
    assert await ways.to([victim]) == both[0]
    assert knocks[2:] == [victim.operator]
