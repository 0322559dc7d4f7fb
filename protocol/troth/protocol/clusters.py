"""Clusters of verifiers that agree with each other (VeriLLM, Appendix E).

The paper runs Kruskal's algorithm and stops at distance 2ρ. What is left are the connected components of the graph
whose edges are the pairs within that distance, so agreement as yes or no is all that is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from troth.protocol.errors import InvalidField


def clusters(members: Iterable[int], edges: Iterable[tuple[int, int]]) -> list[frozenset[int]]:
    """The connected components of ``members`` under ``edges``, in the order of their smallest member.

    Raises InvalidField if an edge names a party that is no member.
    """
    parents = {member: member for member in sorted(members)}
    for edge in edges:
        if not parents.keys() >= set(edge):
            raise InvalidField("An agreement names a party outside the members", edge, "List every party as a member.")
        first, second = sorted(_root(parents, end) for end in edge)
        parents[second] = first
    components: dict[int, set[int]] = {}
    for member in parents:
        components.setdefault(_root(parents, member), set()).add(member)
    return [frozenset(component) for component in components.values()]


def _root(parents: dict[int, int], member: int) -> int:
    while parents[member] != member:
        parents[member] = parents[parents[member]]
        member = parents[member]
    return member


def proper_cluster(members: Iterable[int], edges: Iterable[tuple[int, int]], quorum: int) -> frozenset[int]:
    """The first cluster with at least ``quorum`` members, or the empty set.

    With a quorum of more than half of all verifiers at most one cluster has it.
    """
    return next((cluster for cluster in clusters(members, edges) if len(cluster) >= quorum), frozenset())
