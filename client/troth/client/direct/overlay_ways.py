"""Ways to nodes through the overlay: sessions of their own, all on the same circuits."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from troth.client.direct.nodes import NodeChoice, model_nodes
from troth.client.direct.ways import Opening, SchedulerWay
from troth.client.https_calls import Calls
from troth.client.orders.calls import MarketCalls
from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.directory.listing import ListedDestination, Listing
from troth.overlay.directory.vouched import VouchedMachines
from troth.overlay.paths.pool import CircuitPool
from troth.overlay.sessions.sessions import SessionRotation
from troth.overlay.sessions.transport import OverlayTransport
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32
from troth.transport.errors import OverlayError

TIMEOUT_SECONDS = 30.0


def node_choice(listing: Callable[[], Listing], state: Callable[[], State]) -> NodeChoice:
    """Choose among the nodes that list and chain agree on now; nobody while there is no list."""

    def nodes(wanted: Hash32) -> dict[Address, ListedDestination]:
        try:
            return model_nodes(listing(), state(), wanted)
        except OverlayError:
            return {}

    return NodeChoice(nodes)


def overlay_opening(
    pool: CircuitPool,
    listing: Callable[[], Listing],
    state: Callable[[], State],
    machines: VouchedMachines | None = None,
) -> Opening:
    """Opens ways to schedulers' interfaces as nodes relay them; with ``machines`` by attested nodes alone."""

    def opened(scheduler: Address, node: Address) -> SchedulerWay:
        sessions = SessionRotation(pool, lambda: _destination(listing(), state(), node, machines))
        # The name is never looked up: the transport knows the way.
        client = httpx.AsyncClient(
            base_url=f"https://{node.lower()}.invalid{base_path(scheduler)}",
            transport=OverlayTransport(sessions),
            timeout=TIMEOUT_SECONDS,
        )

        async def close() -> None:
            await client.aclose()
            await sessions.close()

        return SchedulerWay(MarketCalls(Calls(client, f"node {node}")), close)

    return opened


def base_path(scheduler: Address) -> str:
    """Where a node serves the interface of this scheduler."""
    return f"/schedulers/{scheduler}"


def _destination(listing: Listing, state: State, node: Address, machines: VouchedMachines | None) -> ListedDestination:
    party = state.parties.get(node)
    if machines is not None and party is not None:
        return machines.require(node, "node", party.tls_key_hash)
    listed = None if party is None else model_nodes(listing, state, party.execution_class).get(node)
    if listed is None:
        raise DirectoryUnavailable("The directory no longer lists this node", node, "Ask again, for another one.")
    return listed
