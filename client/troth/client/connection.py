"""How the client reaches its scheduler: through the overlay where a committee is configured, else openly.

In direct mode the overlay leads to a node that hosts the whole model, and the node passes the scheduler's word on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from troth.client.api import SchedulerApi
from troth.client.configuration import Configuration
from troth.client.direct.calls import DirectCalls
from troth.client.direct.overlay_ways import node_choice, overlay_opening
from troth.client.direct.ways import Ways
from troth.client.home import Home
from troth.client.reaching import Directory, naming_paths, reaching
from troth.client.scheduler_calls import SchedulerCalls
from troth.overlay.paths.pool import CircuitPool
from troth.protocol.state import Scheduler, State
from troth.protocol.types import Hash32


@dataclass(frozen=True, slots=True)
class Connection:
    """Where requests go. `pool` is None without the overlay."""

    api: SchedulerCalls
    pool: CircuitPool | None


@asynccontextmanager
async def connection(
    home: Home, configuration: Configuration, scheduler: Scheduler, state: Callable[[], State]
) -> AsyncIterator[Connection]:
    """The interface of this scheduler and of nobody else; `state` is the chain's, which says which nodes there are.

    Raises:
        OverlayFailed: no directory, or the scheduler is not in it. The request is never sent openly instead.
    """
    async with reaching(home, configuration) as reach:
        if configuration.direct and reach.pool is not None and reach.directory is not None:
            with naming_paths():
                calls = _through_nodes(reach.stack, reach.pool, reach.directory, configuration, scheduler, state)
            yield Connection(calls, reach.pool)
        else:
            yield Connection(SchedulerApi.over(await reach.to(scheduler)), reach.pool)


def _through_nodes(  # noqa: PLR0917
    stack: AsyncExitStack,
    pool: CircuitPool,
    directory: Directory,
    configuration: Configuration,
    scheduler: Scheduler,
    state: Callable[[], State],
) -> DirectCalls:
    ways = Ways(overlay_opening(pool, directory.current, state, scheduler))
    stack.push_async_callback(ways.close)
    wanted = configuration.execution_class
    identifier = Hash32(bytes.fromhex(wanted[2:])) if wanted else None
    return DirectCalls(node_choice(directory.current, state), ways, identifier)
