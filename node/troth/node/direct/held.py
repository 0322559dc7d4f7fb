"""A streamed answer that holds something: places, connections, listeners."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class HeldResponse(StreamingResponse):
    """Gives everything back with its last piece, and also where the client is gone before the first.

    Args:
        held: what is given back.
        pieces: the body; closed before what it needs is given back.
    """

    def __init__(self, held: AsyncExitStack, pieces: AsyncGenerator[bytes, None], media_type: str) -> None:
        super().__init__(pieces, media_type=media_type)
        self._held = held
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI 3.0."""
        async with self._held, aclosing(self._pieces):
            await super().__call__(scope, receive, send)
