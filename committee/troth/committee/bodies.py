"""The body of a request to a member, bounded in bytes and seconds while it is read."""

from __future__ import annotations

import asyncio

from fastapi import Request

from troth.committee.errors import Full, RequestRefused

BODY_SECONDS = 20.0


async def body_of(request: Request, largest: int) -> bytes:
    """The body; raises Full for more than ``largest`` bytes, RequestRefused where it does not come in time."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > largest:
                    raise Full(f"This takes at most {largest} bytes", len(body))
    except TimeoutError as error:
        raise RequestRefused(f"The body did not come within {BODY_SECONDS:g} s", len(body)) from error
    return bytes(body)
