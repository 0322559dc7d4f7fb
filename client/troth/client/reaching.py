"""Ways to schedulers: open ones, or through the overlay where a committee is configured."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import httpx

from troth.client.configuration import ClientConfiguration
from troth.client.direct.entrance import Entrance
from troth.client.direct.overlay_ways import node_choice, overlay_opening
from troth.client.direct.ways import SchedulerWays
from troth.client.errors import OverlayFailed
from troth.client.home import Home
from troth.client.https_calls import Calls, Pinned, openly
from troth.client.own_relay import own_relay_name
from troth.overlay.circuits.client import CircuitClient
from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.directory.fetching import DirectoryClient
from troth.overlay.directory.listing import ListedDestination, Listing
from troth.overlay.directory.vouched import VouchedMachines
from troth.overlay.paths.guards import Guards
from troth.overlay.paths.pool import CircuitPool
from troth.overlay.sessions.sessions import SessionRotation
from troth.overlay.sessions.transport import OverlayTransport
from troth.protocol.market.state import State
from troth.protocol.types import to_address
from troth.transport.errors import OverlayError

RETRY_SECONDS = 5.0


class ClientDirectory:
    """The list that is valid now, without this home's own relay: it would be no hop on the way to itself."""

    def __init__(self, home: Home, configuration: ClientConfiguration) -> None:
        self._own = own_relay_name(home)
        self._listing: Listing | None = None
        self._client = DirectoryClient.over(
            configuration.rpc, to_address(configuration.committee), home.directory, self._came, RETRY_SECONDS
        )
        self.stop = self._client.stop

    async def start(self) -> None:
        """Follow; returns with a list, or raises an OverlayError."""
        self._client.start()
        if self._client.current() is None:
            await self._client.refresh()

    def current(self) -> Listing:
        """The same object while it is the same list; raises an OverlayError when none holds."""
        if self._client.current() is None or self._listing is None:
            raise self._client.failure or DirectoryUnavailable("No list holds now", remedy="Try again in a minute.")
        return self._listing

    async def refresh(self) -> None:
        """Fetch a list now; raises an OverlayError."""
        await self._client.refresh()

    def _came(self, listing: Listing) -> None:
        others = tuple(listed for listed in listing.relays if listed.relay.name != self._own)
        self._listing = replace(listing, relays=others)


@dataclass(frozen=True, slots=True)
class Reach:
    """Ways to schedulers, all over the same circuits; they close with the block.

    `pool` is None without the overlay. With `machines` they lead to attested ones alone, and seal to attested keys.
    """

    stack: AsyncExitStack
    pool: CircuitPool | None
    directory: ClientDirectory | None
    machines: VouchedMachines | None = None

    async def to(self, scheduler: Pinned) -> Calls:
        """The interface of this scheduler and of nobody else; OverlayFailed where it is not in the directory."""
        if self.pool is None or self.directory is None:
            return await self.stack.enter_async_context(openly(scheduler))
        with naming_paths():
            return await _through_entry(self.stack, self.pool, self.directory, scheduler, self.machines)

    def entrance(self, state: Callable[[], State]) -> Entrance:
        """Ways to schedulers by way of nodes of their models; `state` is the chain's, which says who these are."""
        if self.pool is None or self.directory is None:
            what = "Direct mode needs the overlay"
            raise OverlayFailed(what, "no directory", "Name the --committee.", hop="path", delivered="no")
        ways = SchedulerWays(overlay_opening(self.pool, self.directory.current, state, self.machines))
        self.stack.push_async_callback(ways.close)
        return Entrance(node_choice(self.directory.current, state), ways)


@asynccontextmanager
async def reaching(home: Home, configuration: ClientConfiguration) -> AsyncIterator[Reach]:
    """Ways to schedulers: open ones, or through the overlay where a committee is configured.

    Raises:
        OverlayFailed: there is no directory. No request is ever sent openly instead.
    """
    async with AsyncExitStack() as stack:
        if not configuration.anonymous:
            yield Reach(stack, None, None)
            return
        directory = ClientDirectory(home, configuration)
        stack.push_async_callback(directory.stop)
        circuits = CircuitClient()
        stack.push_async_callback(circuits.close)
        with naming_paths():
            await directory.start()
            pool = CircuitPool(circuits, directory.current, Guards(home.guards), region=configuration.region)
            await pool.start()
        stack.push_async_callback(pool.close)
        trusted = configuration.measurements
        machines = VouchedMachines(directory.current, trusted) if configuration.confidential else None
        yield Reach(stack, pool, directory, machines)


@contextmanager
def naming_paths() -> Iterator[None]:
    try:
        yield
    except OverlayError as error:
        raise OverlayFailed(error.what, error.value, error.remedy, hop="path", delivered="no") from error


async def _through_entry(
    stack: AsyncExitStack,
    pool: CircuitPool,
    directory: ClientDirectory,
    scheduler: Pinned,
    machines: VouchedMachines | None,
) -> Calls:
    def destination() -> ListedDestination:
        if machines is not None:
            return machines.require(scheduler.operator, "scheduler", scheduler.tls_key_hash)
        return _destination(directory.current(), scheduler)

    sessions = SessionRotation(pool, destination, refresh=directory.refresh)
    await sessions.current()
    stack.push_async_callback(sessions.close)
    # The address is never connected to; it names the scheduler in errors.
    client = httpx.AsyncClient(base_url=scheduler.endpoint, transport=OverlayTransport(sessions), timeout=30.0)
    return Calls(await stack.enter_async_context(client), scheduler.endpoint)


def _destination(listing: Listing, scheduler: Pinned) -> ListedDestination:
    """The scheduler's overlay entry; that its operator signed it, the directory's keeper has checked."""
    for listed in listing.destinations:
        if listed.kind == "scheduler" and listed.operator.lower() == scheduler.operator.lower():
            return listed
    raise DirectoryUnavailable(
        "The directory does not list the overlay entry of this scheduler",
        scheduler.operator,
        "Wait for the next list, choose another scheduler, or connect to it openly with --overlay off.",
    )
