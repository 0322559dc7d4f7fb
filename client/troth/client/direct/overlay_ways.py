"""Ways to nodes through the overlay: sessions of their own, all on the same circuits."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from troth.client.api import SchedulerApi
from troth.client.direct.nodes import NodeChoice, model_nodes
from troth.client.direct.ways import Opening, Way
from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.directory.listing import ListedDestination, Listing
from troth.overlay.paths.pool import CircuitPool
from troth.overlay.sessions.sessions import Sessions
from troth.overlay.sessions.transport import OverlayTransport
from troth.protocol.state import Scheduler, State
from troth.protocol.types import Address

TIMEOUT_SECONDS = 30.0


def node_choice(listing: Callable[[], Listing], state: Callable[[], State]) -> NodeChoice:
    """Choose among the nodes that list and chain agree on now."""
    return NodeChoice(lambda wanted: model_nodes(listing(), state(), wanted))


def overlay_opening(
    pool: CircuitPool, listing: Callable[[], Listing], state: Callable[[], State], scheduler: Scheduler
) -> Opening:
    """Opens ways to the scheduler's interface as nodes relay it."""

    def opened(node: Address) -> Way:
        sessions = Sessions(pool, lambda: _destination(listing(), state(), node))
        # The name is never looked up: the transport knows the way.
        client = httpx.AsyncClient(
            base_url=f"https://{node.lower()}.invalid{base_path(scheduler)}",
            transport=OverlayTransport(sessions),
            timeout=TIMEOUT_SECONDS,
        )

        async def close() -> None:
            await client.aclose()
            await sessions.close()

        return Way(SchedulerApi(client, f"node {node}"), close)

    return opened


def base_path(scheduler: Scheduler) -> str:
    """Where a node serves the interface of this scheduler."""
    return f"/schedulers/{scheduler.operator}"


def _destination(listing: Listing, state: State, node: Address) -> ListedDestination:
    listed = model_nodes(listing, state, None).get(node)
    if listed is None:
        raise DirectoryUnavailable("The directory no longer lists this node", node, "Ask again, for another one.")
    return listed
