"""The least HTTP/1.1 over TLS that a load needs: one kept connection, one request at a time, bodies by line.

The clients of a load share two cores with what they measure, so that they are as light as they can be.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator


def unpinned() -> ssl.SSLContext:
    """A throw-away network on this machine has nobody to be taken for somebody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Wire:
    """One connection."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port = port
        self._context = context
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> AsyncIterator[bytes]:
        """The answer's body, line by line; RuntimeError for another status than 200."""
        try:
            reader = await self._send(path, body)
            status = await reader.readline()
        except (ConnectionError, asyncio.IncompleteReadError):
            status = b""
        if not status:
            # The server closes what has been idle for a while.
            self.close()
            reader = await self._send(path, body)
            status = await reader.readline()
        length: int | None = None
        while (header := (await reader.readline()).strip().lower()) != b"":
            if header.startswith(b"content-length:"):
                length = int(header[15:])
        if b" 200 " not in status:
            raise RuntimeError(f"{status.decode().strip()}: {(await reader.readexactly(length or 0)).decode()}")
        if length is not None:
            yield await reader.readexactly(length)
            return
        async for part in _chunks(reader):
            for line in part.splitlines():
                yield line

    async def _send(self, path: str, body: bytes) -> asyncio.StreamReader:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context, limit=1 << 22)
        reader, writer = self._streams
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        return reader

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
