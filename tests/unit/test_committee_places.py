"""What one stranger does to a member of the committee costs nobody else: places for requests, entries of the list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from troth.committee import requests
from troth.committee.directory.member import Member
from troth.committee.directory.proposal import Entries
from troth.committee.errors import RequestRefused
from troth.committee.rating.requests import AT_ONCE, REVIEW, SIGNED, rating_router
from troth.protocol import typed_data
from troth.protocol.types import ZERO_ADDRESS

SECRET = b"\x07" * 32
DOMAIN = typed_data.Domain(31337, ZERO_ADDRESS)


@pytest.fixture
def app() -> FastAPI:
    membership: Any = SimpleNamespace(domain=DOMAIN, member=lambda address: address)
    rater: Any = None
    made = FastAPI()
    made.include_router(rating_router(rater, lambda: membership))

    @made.exception_handler(RequestRefused)
    async def refused(_request: Request, error: RequestRefused) -> Response:
        return PlainTextResponse(str(error), 422)

    return made


def client_at(app: FastAPI, host: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(host, 1)), base_url="https://member")


@pytest.mark.parametrize(("kind", "path"), [(REVIEW, "proposals"), (SIGNED, "signed")])
async def test_who_sends_slowly_holds_up_nobody_else(app: FastAPI, kind: str, path: str) -> None:
    headers, place = requests.headers_of(kind, b"x", 1, DOMAIN, SECRET), f"/v1/reputation/{path}"
    ever = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"a"
        await ever.wait()

    async with client_at(app, "10.0.0.1") as slow, client_at(app, "10.0.0.2") as other:
        sending = [
            asyncio.create_task(slow.post(place, content=slowly(), headers=headers)) for _ in range(4 * AT_ONCE[kind])
        ]
        await asyncio.sleep(0.05)
        answer = await asyncio.wait_for(other.post(place, content=b"x", headers=headers), 2)
        assert answer.status_code == 422  # it was read: these bytes are no message
        for one in sending:
            one.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


async def test_an_entry_that_cannot_be_checked_keeps_no_other_out_of_the_list() -> None:
    """Else one destination that trips a member up would leave all clients without a list."""

    async def require_acceptable(entry: Any) -> None:
        if entry.name == b"broken":
            raise ValueError("what nobody foresaw")

    member: Any = object.__new__(Member)
    member.schedule = SimpleNamespace(period=60)
    member.admission = SimpleNamespace(require_acceptable=require_acceptable)
    relays: Any = (SimpleNamespace(name=b"broken"), SimpleNamespace(name=b"whole"))
    entries = await member.acceptable(Entries(relays, ()))
    assert entries.names() == {b"whole"}
