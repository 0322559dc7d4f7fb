"""A pool over real relays in one event loop, each in a network and of an operator of its own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from support.overlay_stage import Stage, StagedRelay, overlay_stage

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.client import BUILD_SECONDS, CircuitClient
from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.circuits.rotation import Rotation
from troth.overlay.directory.listing import ListedRelay, Listing
from troth.overlay.paths.guards import Guards
from troth.overlay.paths.pace import CircuitPace
from troth.overlay.paths.pool import CircuitPool
from troth.overlay.relay.listener import LinkListener
from troth.transport.identity import load_identity

QUICK = CircuitPace(rate=50, burst=20, first=0.02, longest=0.2, ping=0.2, answer=0.3, build=3, look=0.05)


class CountingClient(CircuitClient):
    """Notes each path that is tried."""

    def __init__(self, rotation: Rotation | None = None) -> None:
        super().__init__(rotation)
        self.tried: list[Sequence[RelayDescriptor]] = []

    async def build(self, path: Sequence[RelayDescriptor], seconds: float = BUILD_SECONDS) -> Circuit:
        self.tried.append(path)
        return await super().build(path, seconds)


@dataclass
class PoolStage:
    """What a test plays with."""

    stage: Stage
    folder: Path
    client: CountingClient
    listing: Listing
    pool: CircuitPool = field(init=False)
    guards: Guards = field(init=False)

    def relay(self, descriptor: RelayDescriptor) -> StagedRelay:
        return next(relay for relay in self.stage.relays if relay.descriptor == descriptor)

    async def kill(self, descriptor: RelayDescriptor) -> None:
        """It takes no more links, and those it had break."""
        relay = self.relay(descriptor)
        relay.listener.stop_listening()
        await relay.switch.pool.close()
        relay.listener.close()

    def revive(self, descriptor: RelayDescriptor) -> None:
        """It listens at its place again."""
        relay = self.relay(descriptor)
        folder = self.folder / f"relay{self.stage.relays.index(relay)}"
        relay.listener = LinkListener(relay.switch, load_identity(folder))
        relay.listener.start(descriptor.place.host, descriptor.place.port)

    def list_without(self, *names: bytes) -> None:
        """Another list is valid now."""
        kept = tuple(one for one in self.listing.relays if one.relay.name not in names)
        self.listing = Listing(self.listing.valid_after + 1, self.listing.valid_until + 1, kept, ())


@asynccontextmanager
async def pool_stage(
    folder: Path,
    relays: int = 20,
    *,
    paths: int = 4,
    spare: int = 2,
    pace: CircuitPace = QUICK,
    rotation: Rotation | None = None,
) -> AsyncIterator[PoolStage]:
    """A pool that was started, over `relays` relays."""
    async with overlay_stage(folder, relays, apart=True) as stage:
        now = int(time.time())
        listed = tuple(ListedRelay(one.descriptor, "", 1_000, now - 30 * 86_400) for one in stage.relays)
        found = PoolStage(stage, folder, CountingClient(rotation), Listing(now - 60, now + 3_600, listed, ()))
        found.guards = Guards(folder / "guards.json", random=Random(1))
        found.pool = CircuitPool(
            found.client, lambda: found.listing, found.guards, paths=paths, spare=spare, pace=pace, random=Random(2)
        )
        await found.pool.start()
        try:
            yield found
        finally:
            await found.pool.close()
            await found.client.close()
