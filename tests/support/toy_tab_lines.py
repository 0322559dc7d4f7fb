"""What a toy scheduler sends: lines of a stream, sealed openings, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi.responses import JSONResponse, StreamingResponse

from troth.protocol.errors import ProtocolError
from troth.protocol.market import bodies, canonical
from troth.protocol.market.checks import Opened
from troth.protocol.types import Address
from troth.transport.sealing import seal


def line_of(kind: str, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bodies.line(kind, value))
    return found


def sealed(one: Any, segment: int, party: Address, value: Opened) -> str:
    context = bodies.opening_context(one.identifier, segment, party)
    return "0x" + seal(canonical.encode(value), one.order.reply_key, context).hex()


def refused(status: int, code: str, error: ProtocolError, **more: Any) -> JSONResponse:
    body = {"code": code, "message": error.what, "remedy": error.remedy, **more}
    return JSONResponse({"error": body}, status)


def stream(lines: Sequence[Any]) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for line in lines:
            if line is None:
                await asyncio.Event().wait()
            elif isinstance(line, asyncio.Event):
                await line.wait()
            elif isinstance(line, float):
                await asyncio.sleep(line)
            elif isinstance(line, Exception):
                raise line
            elif isinstance(line, bytes):
                yield line
            else:
                yield json.dumps(line).encode() + b"\n"

    return StreamingResponse(pieces(), media_type="application/x-ndjson")
