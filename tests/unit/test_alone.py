"""A home that was copied: whoever serves with the keys of a process that serves already is told so, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from troth.protocol.types import to_address
from troth.transport import alone, health
from troth.transport.alone import MOST_OWN, Alone, Answerer, answerer_at, process_number
from troth.transport.errors import KeyInUse
from troth.transport.health import health_routes
from troth.transport.identity import create_identity
from troth.transport.server import Drain, TlsServer, run_until_stopped, serving

ME = to_address("0x" + "11" * 20)


class Machine:
    """One home, at one endpoint."""

    def __init__(self, folder: Path) -> None:
        self.identity = create_identity(folder)
        self.port = 0

    def server(self, drain: Drain | None = None) -> TlsServer:
        app = FastAPI()
        app.include_router(health_routes(lambda: [], CollectorRegistry()))
        return TlsServer(app, self.identity, "127.0.0.1", self.port, drain=drain, grace_seconds=0.1)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        async with serving(self.server()) as server:
            self.port = server.port
            yield

    @property
    def alone(self) -> Alone:
        party = SimpleNamespace(endpoint=f"https://127.0.0.1:{self.port}", tls_key_hash=self.identity.spki_sha256)
        state: Any = SimpleNamespace(parties={ME: party})
        return Alone(lambda: state, ME)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "tls")


@pytest.fixture
def copied(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The same keys in another process."""
    monkeypatch.setattr(health, "process_number", lambda: "another one")
    return machine


async def test_a_copy_does_not_start_beside_what_it_was_copied_from(copied: Machine) -> None:
    async with copied.served():
        with pytest.raises(KeyInUse, match="Stop one of the two"):
            await copied.alone.require(0.0)


async def test_a_copy_that_runs_ends_once_the_other_one_answers(copied: Machine) -> None:
    async with copied.served():
        with pytest.raises(KeyInUse):
            await asyncio.wait_for(copied.alone.watch(0.01), 30)


async def test_who_was_set_up_anew_elsewhere_with_the_same_operator_stops_where_it_was(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a TLS key of its own, which the chain names by now. A scheduler that knows the former endpoint could give
    both the same order."""
    party = SimpleNamespace(endpoint="", tls_key_hash=machine.identity.spki_sha256)
    state: Any = SimpleNamespace(parties={ME: party})
    former, elsewhere = Alone(lambda: state, ME), Machine(tmp_path / "elsewhere")
    async with machine.served():
        party.endpoint = f"https://127.0.0.1:{machine.port}"
        await former.require(0.0)
        monkeypatch.setattr(health, "process_number", lambda: "another one")
        async with elsewhere.served():
            party.endpoint, party.tls_key_hash = elsewhere.alone.registered
            with pytest.raises(KeyInUse):
                await asyncio.wait_for(former.watch(0.01), 30)
            with pytest.raises(KeyInUse):
                await former.require(0.0)


async def test_what_is_about_to_stop_is_waited_for(copied: Machine, caplog: pytest.LogCaptureFixture) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(copied.served())
        starting = asyncio.create_task(copied.alone.require(60.0))
        async with asyncio.timeout(30):
            while "waiting for it to stop" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.01)
        assert not starting.done()
        await stack.aclose()
        await asyncio.wait_for(starting, 30)


async def test_what_finishes_what_is_under_way_is_waited_for_as_long_as_it_takes(
    copied: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is started in its place would else give up, and nothing would start it again."""
    done = asyncio.Event()
    server = copied.server(drain=done.wait)
    await server.start()
    copied.port = server.port
    with pytest.raises(KeyInUse):
        await copied.alone.require(0.0)
    stopping = asyncio.create_task(server.stop())
    async with asyncio.timeout(30):
        while await answerer_at(*copied.alone.registered) is not Answerer.ENDING:  # noqa: ASYNC110 - it is asked
            await asyncio.sleep(0)
    caplog.clear()
    starting = asyncio.create_task(copied.alone.require(0.0))
    await asyncio.sleep(0.5)
    assert not starting.done()
    assert len([one for one in caplog.records if "waiting for it to stop" in one.message]) == 1
    done.set()
    await asyncio.wait_for(asyncio.gather(stopping, starting), 30)


@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        ([Answerer.ANOTHER, Answerer.NOBODY, Answerer.ANOTHER], True),
        ([Answerer.ANOTHER, Answerer.OURSELVES, Answerer.ANOTHER], True),
        ([Answerer.ANOTHER, *[Answerer.OURSELVES] * MOST_OWN, Answerer.ANOTHER], False),
        ([Answerer.NOBODY] * 20, False),
        ([Answerer.ENDING] * 20, False),
    ],
    ids=["one look in two is in vain", "a name leads to both in turn", "long ago", "nobody answers", "it is ending"],
)
async def test_a_running_process_counts_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, answers: list[Answerer], ends: bool
) -> None:
    told = iter(answers)

    async def look(*_arguments: Any) -> Answerer:
        try:
            return next(told)
        except StopIteration:
            raise TimeoutError from None

    monkeypatch.setattr(alone, "answerer_at", look)
    with pytest.raises(KeyInUse if ends else TimeoutError):
        await machine.alone.watch(0.0)


async def test_who_is_alone_starts_and_goes_on(machine: Machine) -> None:
    await machine.alone.require(0.0)
    async with machine.served():
        await machine.alone.require(0.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(machine.alone.watch(0.01), 1.0)


async def test_a_stranger_at_the_endpoint_stops_nobody(copied: Machine, tmp_path: Path) -> None:
    """Else whoever leads a name elsewhere would stop a party."""
    own = create_identity(tmp_path / "own").spki_sha256
    async with copied.served():
        assert await answerer_at(copied.alone.registered[0], own) is Answerer.NOBODY
    for nowhere in ("", "http://127.0.0.1:1", "https://127.0.0.1:1"):
        assert await answerer_at(nowhere, own) is Answerer.NOBODY


def test_a_fork_is_another_process() -> None:
    own, (read, write) = process_number(), os.pipe()
    child = os.fork()
    if not child:
        os.write(write, process_number().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 99).decode() != own == process_number()


async def test_a_server_that_is_watched_ends_with_what_was_seen(machine: Machine) -> None:
    async def watch() -> None:
        raise KeyInUse("Another process serves with this key", "https://here", "Stop one.")

    with pytest.raises(KeyInUse):
        await asyncio.wait_for(run_until_stopped(machine.server(), None, watch), 30)
    stopping = asyncio.create_task(run_until_stopped(machine.server(), lambda _: os.kill(os.getpid(), signal.SIGTERM)))
    await asyncio.wait_for(stopping, 30)
