"""The nodes at which a request may enter, and which of them to try: at random, the one asked for first."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection

from troth.overlay.directory.listing import ListedDestination, Listing
from troth.protocol.errors import ProtocolError
from troth.protocol.state import State, bonded
from troth.protocol.types import Address, Hash32, to_address

MOST_TRIED = 3
"""Nodes that one request tries to reach."""
SHUNNED_SECONDS = 600.0
"""How long a node that failed is tried last."""
MOST_SHUNNED = 1024


def model_nodes(listing: Listing, state: State, wanted: Hash32 | None) -> dict[Address, ListedDestination]:
    """Destinations whose operator is, on this chain, a bonded node of the class that hosts the whole model.

    `wanted` is the class; None for any class. That the operator signed the destination, the directory's keeper has
    checked; which node it is and what it hosts, no directory is believed about.
    """
    found = {}
    for listed in listing.destinations:
        operator = _operator(listed)
        if operator is not None and _hosts_all(state, operator, wanted):
            found[operator] = listed
    return found


def _operator(listed: ListedDestination) -> Address | None:
    if listed.kind != "node":
        return None
    try:
        return to_address(listed.operator)
    except ProtocolError:
        return None


def _hosts_all(state: State, operator: Address, wanted: Hash32 | None) -> bool:
    node = state.nodes.get(operator)
    if node is None or (wanted is not None and node.execution_class != wanted):
        return False
    rules = state.classes.get(node.execution_class)
    model = None if rules is None else state.models.get(rules.model)
    if rules is None or model is None or not bonded(state, operator, rules):
        return False
    return node.slice.first == 0 and node.slice.end == model.layers


class NodeChoice:
    """Which nodes to try for a request, and which have failed of late.

    Args:
        nodes: those that may be entered for a class (None: for any), by the list and the chain that hold now.
    """

    def __init__(
        self, nodes: Callable[[Hash32 | None], Collection[Address]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nodes = nodes
        self._clock = clock
        self._shunned: dict[Address, float] = {}
        self._random = secrets.SystemRandom()

    def some(self, wanted: Hash32 | None, near: Address | None = None) -> list[Address]:
        """At most MOST_TRIED nodes in the order in which to try them; empty if there is none."""
        found = sorted(self._nodes(wanted))
        # Not by load or distance: what all clients can see would lead all of them to the same node.
        self._random.shuffle(found)
        found.sort(key=lambda node: (self._is_shunned(node), node != near))
        return found[:MOST_TRIED]

    def failed(self, node: Address) -> None:
        """It could not be reached, or did not answer to the end."""
        self._shunned.pop(node, None)
        self._shunned[node] = self._clock() + SHUNNED_SECONDS
        while len(self._shunned) > MOST_SHUNNED:
            del self._shunned[next(iter(self._shunned))]

    def _is_shunned(self, node: Address) -> bool:
        return self._shunned.get(node, 0.0) > self._clock()
