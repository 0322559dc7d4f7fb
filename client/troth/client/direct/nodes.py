"""The nodes at which a request may enter, and which of them to try: at random, the one asked for first."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection

from troth.overlay.directory.listing import ListedDestination, Listing
from troth.protocol.errors import ProtocolError
from troth.protocol.market.state import State
from troth.protocol.market.views import hosts_of
from troth.protocol.types import Address, Hash32, to_address

SHUNNED_SECONDS = 600.0
"""How long a node that failed is tried last."""
MOST_SHUNNED = 1024


def model_nodes(listing: Listing, state: State, wanted: Hash32) -> dict[Address, ListedDestination]:
    """Destinations whose operator is, on this chain, a node that may be drawn for the whole model of a class.

    That the operator signed the destination, the directory's keeper has checked; which node it is and what it hosts, no
    directory is believed about.
    """
    hosts = hosts_of(state, wanted)
    listed = ((_operator(one), one) for one in listing.destinations)
    return {operator: one for operator, one in listed if operator is not None and operator in hosts}


def _operator(listed: ListedDestination) -> Address | None:
    if listed.kind != "node":
        return None
    try:
        return to_address(listed.operator)
    except ProtocolError:
        return None


class NodeChoice:
    """Which node to enter at, and which have failed of late.

    Args:
        nodes: those that may be entered for a class, by the list and the chain that hold now.
    """

    def __init__(self, nodes: Callable[[Hash32], Collection[Address]]) -> None:
        self._nodes = nodes
        self._shunned: dict[Address, float] = {}
        self._random = secrets.SystemRandom()

    def one(self, wanted: Hash32, near: Address | None = None) -> Address | None:
        """A node that has not failed of late, ``near`` if it is one of them; None where there is none."""
        # Not by load or distance: what all clients can see would lead all of them to the same node.
        found = [node for node in self._nodes(wanted) if self._shunned.get(node, 0.0) <= time.monotonic()]
        if not found:
            return None
        return near if near is not None and near in found else self._random.choice(sorted(found))

    def failed(self, node: Address) -> None:
        """It could not be reached, did not answer to the end, or said what is not so."""
        self._shunned.pop(node, None)
        self._shunned[node] = time.monotonic() + SHUNNED_SECONDS
        while len(self._shunned) > MOST_SHUNNED:
            del self._shunned[next(iter(self._shunned))]
