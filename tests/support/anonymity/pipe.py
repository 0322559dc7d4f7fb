"""A relay that hides nothing: it passes bytes on as they are. pipe.py ADDRESS PORT NEXT-ADDRESS NEXT-PORT."""

from __future__ import annotations

import asyncio
import sys


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(2**16):
        writer.write(content)
        await writer.drain()
    writer.close()


async def serve(host: str, port: int, following: str, following_port: int) -> None:
    """Pipe until killed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onwards, backwards = await asyncio.open_connection(following, following_port)
        await asyncio.gather(_pour(reader, backwards), _pour(onwards, writer))

    server = await asyncio.start_server(connected, host, port)
    print("pipe listens", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
