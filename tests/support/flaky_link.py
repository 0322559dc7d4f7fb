"""A TCP link to a chain node that can be cut and mended: what a scheduler sees when its RPC provider goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FlakyLink:
    """Forwards to `port` of this machine. `cut` refuses new connections and breaks those there are."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.cuts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        self.cuts += 1
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(far_writer)
            try:
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            finally:
                self._writers.discard(far_writer)
                far_writer.close()
        except OSError:
            pass  # cut
        finally:
            self._writers.discard(writer)
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def flaky_link(port: int) -> AsyncIterator[FlakyLink]:
    link = FlakyLink(port)
    await link.mend()
    try:
        yield link
    finally:
        await link.cut()
