"""One node: an engine, a Group with pinned channels to the others, and the driver's line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI

from research.forwarding.real.answers import Answers
from research.forwarding.real.entry import Entry
from research.forwarding.real.group import group_among, operator_of
from research.forwarding.real.messages import (
    Ask,
    Begin,
    Counted,
    Failed,
    Finish,
    Line,
    Look,
    Members,
    Named,
    Ready,
)
from research.forwarding.real.policies import POLICIES
from research.forwarding.real.workloads import WORKLOADS
from troth.node.engine.interface import Cleared, EngineLoad, Removed, Stored, WholeEngine
from troth.node.errors import EngineError, NotAMember
from troth.node.group.group import Group
from troth.node.group.telling import PATH
from troth.node.pool.meter import Meter
from troth.protocol.request import Request
from troth.protocol.types import ZERO_HASH, Address
from troth.protocol.wire_group import Listen, Tell
from troth.routing.prefixes.sentry import SAMPLE
from troth.routing.prefixes.update import Update, decode
from troth.transport.channel_server import ChannelServer
from troth.transport.identity import create_identity
from troth.transport.server import TlsServer

WARM_UP = 256
"""Tokens of the prompt that measures the pace; the second one of two, since the first also pays for the start."""
EMPTYING = 30.0
"""Seconds until a cache must be empty."""


class CachedEngine(WholeEngine, Protocol):
    """A whole engine whose cache can be emptied."""

    async def empty_cache(self) -> None:
        """Forget all prefixes that no request uses."""


class Member:
    """Does what the driver says.

    Args:
        number: from 0.
        places: requests that the engine computes at once.
        folder: of its TLS key.
    """

    def __init__(self, number: int, engine: CachedEngine, places: int, folder: Path, line: Line) -> None:
        self._number, self._engine, self._places, self._line = number, engine, places, line
        self._operator = operator_of(number)
        self._identity = create_identity(folder / f"node{number}")
        self._meter = Meter()
        self._members: Sequence[Ready] = ()
        self._group: Group | None = None
        self._jobs: list[asyncio.Task[Any]] = []
        self._held: set[bytes] = set()
        self._stored = self._update_bytes = self._heartbeat_bytes = 0

    async def run(self) -> None:
        """Until the driver hangs up. What goes wrong is told to the driver."""
        server = self._server()
        await server.start()
        following = asyncio.create_task(self._follow())
        try:
            pace = await self._warm_up()
            endpoint = f"https://127.0.0.1:{server.port}"
            own = self._operator.address
            await self._line.send(Ready(self._number, own, endpoint, self._identity.spki_sha256, pace))
            async for message in self._line.to_node():
                await self._obey(message)
        finally:
            following.cancel()
            await self._leave()
            await server.stop()

    def _server(self) -> TlsServer:
        app = FastAPI()
        channel = ChannelServer(self._operator, self._handle, self._is_member, requests=(Tell, Listen), path=PATH)
        channel.mount(app)
        return TlsServer(app, self._identity, "127.0.0.1", 0)

    def _is_member(self, sender: Address) -> bool:
        return any(member.address == sender for member in self._members)

    async def _handle(self, sender: Address, header: Tell | Listen, payload: memoryview) -> Any:
        if self._group is None:
            raise NotAMember("no run is under way", sender, "Wait for the next one.")
        if isinstance(header, Tell):
            if isinstance(decode(bytes(payload)), Update):
                self._update_bytes += len(payload)
            else:
                self._heartbeat_bytes += len(payload)
            return await self._group.tell(sender, header, payload)
        if len(payload):
            return self._entry.take(header, payload), b""
        return await self._answers.hear(header)

    async def _obey(self, message: object) -> None:
        if isinstance(message, Members):
            self._members = message.members
        elif isinstance(message, Begin):
            await self._begin(message)
        elif isinstance(message, Ask):
            self._jobs.append(asyncio.create_task(self._ask(message)))
        elif isinstance(message, Look) and self._group is not None:
            view, own = self._group.sharing.view, self._group.own
            alive = sum(row.alive for name, row in view.members.rows() if name != own)
            await self._line.send(Named(view.naming.identity, alive))
        elif isinstance(message, Finish):
            await self._line.send(self._counted())
            await self._leave()

    async def _begin(self, begin: Begin) -> None:
        await self._empty()
        compared = POLICIES[begin.policy]
        group = group_among(
            self._members, self._operator, self._engine, self._meter, places=self._places, policy=compared.policy
        )
        # Every node's Sentry saw other requests about the same texts, so that all propose the same lengths.
        for session in WORKLOADS[begin.before](SAMPLE, begin.seed):
            for request in session:
                group.path(request.prompt)
        self._answers = Answers(self._engine, group.served)
        names = sorted((Address(member.address) for member in self._members), key=str.lower)
        self._entry = Entry(group, self._answers, compared, names, self._line.send)
        self._stored = self._update_bytes = self._heartbeat_bytes = 0
        self._before = self._engine.load
        self._group = group
        self._jobs = [asyncio.create_task(group.run())]

    async def _ask(self, ask: Ask) -> None:
        try:
            await self._entry.enter(ask)
        except Exception as error:  # noqa: BLE001 - the driver must not wait for an answer that never comes
            await self._line.send(Failed(f"request {ask.number}: {type(error).__name__}: {error}"))

    def _counted(self) -> Counted:
        now: EngineLoad = self._engine.load
        return Counted(
            now.prompt_tokens - self._before.prompt_tokens,
            now.cached_tokens - self._before.cached_tokens,
            self._answers.count,
            self._stored,
            self._update_bytes,
            self._heartbeat_bytes,
        )

    async def _leave(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        await self._answers.close()
        await group.close()

    async def _follow(self) -> None:
        async for event in self._engine.events():
            if isinstance(event, Stored):
                self._held.update(event.blocks)
                self._stored += len(event.blocks)
            elif isinstance(event, Removed):
                self._held.difference_update(event.blocks)
            elif isinstance(event, Cleared):
                self._held.clear()

    async def _empty(self) -> None:
        """Until nothing is held: a cache whose blocks a request still uses does not empty."""
        deadline = time.monotonic() + EMPTYING
        while self._held:
            if time.monotonic() > deadline:
                raise EngineError("the cache does not empty", len(self._held), "Run it again.")
            await self._engine.empty_cache()
            # vLLM tells of it with its next step; a prompt shorter than a block leaves nothing behind.
            await self._write(range(200, 204))
            await asyncio.sleep(0.2)

    async def _warm_up(self) -> float:
        await self._write(range(200, 200 + WARM_UP))
        begun = time.monotonic()
        await self._write(range(300, 300 + WARM_UP))
        seconds = time.monotonic() - begun
        self._meter.note(self._engine.layers, WARM_UP, seconds)
        return seconds / WARM_UP

    async def _write(self, prompt: Sequence[int]) -> None:
        """One token after this prompt, for nobody."""
        async for _ in self._engine.generate(Request(ZERO_HASH, tuple(prompt), 1, 0, 1_000_000, ()), ZERO_HASH):
            pass
