"""A server that is told to stop finishes what is under way, and does not insist on it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from fastapi import FastAPI

from troth.transport.server import TlsServer, run_until_stopped


async def test_the_first_signal_waits_for_what_is_under_way_and_the_second_does_not() -> None:
    draining = asyncio.Event()

    async def never_done() -> None:
        draining.set()
        await asyncio.Event().wait()

    server = TlsServer(FastAPI(), None, "127.0.0.1", 0, drain=never_done)
    ready = asyncio.Event()
    running = asyncio.create_task(run_until_stopped(server, lambda port: ready.set()))
    await ready.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await draining.wait()
    assert not running.done()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(running, 60)


async def test_a_drain_that_fails_is_not_hidden() -> None:
    async def broken() -> None:
        raise RuntimeError("the journal is gone")

    server = TlsServer(FastAPI(), None, "127.0.0.1", 0, drain=broken)
    await server.start()
    with pytest.raises(RuntimeError, match="the journal is gone"):
        await server.stop()
