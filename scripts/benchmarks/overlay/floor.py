"""The least that one link can cost: a small cell over TLS 1.3 and uvloop to a process that echoes."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from benchmarks.overlay.network import free_port, start_python, wait_for
from troth.overlay.cells.format import SMALL
from troth.overlay.circuits.descriptors import Place
from troth.overlay.identity import create_identity, load_identity
from troth.overlay.tls import pinned_context, server_context

ROUNDS = 1000


async def round_trips(place: Place) -> list[float]:
    """Milliseconds of each round trip."""
    loop = asyncio.get_running_loop()
    _, echo = await loop.create_connection(
        _Echo, place.host, place.port, ssl=pinned_context(place.tls_key_hash), server_hostname=""
    )
    cell, samples = os.urandom(SMALL), []
    for _ in range(ROUNDS):
        echo.answer = loop.create_future()
        begun = time.perf_counter()
        echo.transport.write(cell)
        await echo.answer
        samples.append((time.perf_counter() - begun) * 1e3)
    echo.transport.close()
    return samples[ROUNDS // 10 :]


@contextmanager
def echo_process() -> Iterator[Place]:
    """A process that sends back what it gets."""
    with tempfile.TemporaryDirectory(prefix="troth-bench-") as folder:
        place = Place("127.0.0.1", free_port(), create_identity(Path(folder)).spki_sha256)
        process = start_python("-c", "from benchmarks.overlay.floor import serve; serve()", folder, str(place.port))
        try:
            wait_for(place, [process])
            yield place
        finally:
            process.kill()
            process.wait()


def serve() -> None:
    """The echoing process: its arguments are the folder of its TLS key and its port."""
    import uvloop

    async def run() -> None:
        context = server_context(load_identity(Path(sys.argv[1])))
        await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", int(sys.argv[2]), ssl=context)
        await asyncio.Event().wait()

    uvloop.run(run())


class _Echo(asyncio.Protocol):
    """Answers the future of who waits, or sends back."""

    answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.answer is None:
            self.transport.write(data)
        elif not self.answer.done():
            self.answer.set_result(data)
