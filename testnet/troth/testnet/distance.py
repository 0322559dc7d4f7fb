"""A way that takes time: a process that passes bytes on to a port of this machine, each so many seconds later."""

from __future__ import annotations

import asyncio
import sys
from collections import deque

CHUNK = 1 << 16


async def serve(port: int, target: int, seconds: float) -> None:
    """Listen on `port` and forward to `target`, in both directions, until the process ends."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(late(reader, far_writer, seconds), late(far_reader, writer, seconds))
        finally:
            writer.close()
            far_writer.close()

    async with await asyncio.start_server(forward, "127.0.0.1", port) as server:
        await server.serve_forever()


async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Pass on what is read, `seconds` after it came, in order; the end as well."""
    loop, waiting, there = asyncio.get_running_loop(), deque[tuple[float, bytes]](), asyncio.Event()

    async def read() -> None:
        while True:
            try:
                data = await reader.read(CHUNK)
            except OSError:
                data = b""
            waiting.append((loop.time() + seconds, data))
            there.set()
            if not data:
                return

    reading = asyncio.create_task(read())
    try:
        while True:
            await there.wait()
            there.clear()
            while waiting:
                due, data = waiting.popleft()
                await asyncio.sleep(due - loop.time())
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()
    except OSError:
        return
    finally:
        reading.cancel()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
