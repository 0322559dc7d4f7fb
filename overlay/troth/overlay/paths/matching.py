"""The exact answer where drawing got stuck: is there any disjoint choice at all?

Relays that share neither operator nor network are a matching in the graph whose two sides are operators and networks
and whose edges are relays. So a maximum matching (augmenting paths: Kuhn 1955) decides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.paths.weights import network_of

_GUARD_SETS = 256
"""Choices of guards that are looked at: more than four or six of eight have."""

_Edges = dict[str, dict[str, RelayDescriptor]]


def matched(
    relays: Sequence[RelayDescriptor], guards: Sequence[RelayDescriptor], heads: int, others: int
) -> tuple[list[RelayDescriptor], list[RelayDescriptor]] | None:
    """`heads` of the guards and `others` of the relays, all of different operators and networks; None if impossible."""
    edges = _edges(relays)
    if len(_matching(_edges([*relays, *guards]), set(), set(), heads + others)) < heads + others:
        return None
    for chosen in islice(combinations(guards, heads), _GUARD_SETS):
        operators = {guard.operator.lower() for guard in chosen}
        networks = {network_of(guard.place.host) for guard in chosen}
        if len(operators) < heads or len(networks) < heads:
            continue
        found = _matching(edges, operators, networks, others)
        names = {guard.name for guard in chosen} | {relay.name for relay in found}
        if len(found) == others and len(names) == heads + others:
            return list(chosen), found
    return None


def _edges(relays: Sequence[RelayDescriptor]) -> _Edges:
    """One relay for each operator and network it is in; the order given decides which."""
    edges: _Edges = {}
    for relay in relays:
        edges.setdefault(relay.operator.lower(), {}).setdefault(network_of(relay.place.host), relay)
    return edges


def _matching(edges: _Edges, operators: set[str], networks: set[str], size: int) -> list[RelayDescriptor]:
    """Up to `size` relays that share nothing, none of these operators and networks."""
    holder: dict[str, str] = {}

    def place(operator: str, tried: set[str]) -> bool:
        for network in edges[operator]:
            if network in networks or network in tried:
                continue
            tried.add(network)
            # Whoever holds this network may be able to move to another one.
            if network not in holder or place(holder[network], tried):
                holder[network] = operator
                return True
        return False

    for operator in edges:
        if len(holder) == size:
            break
        if operator not in operators:
            place(operator, set())
    return [edges[operator][network] for network, operator in holder.items()]
