"""Who is in this node's group, by the market's fold alone: nodes that may be drawn for the whole of the same model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from troth.overlay.directory.vouched import VouchedMachines
from troth.protocol.market.state import Party, State
from troth.protocol.market.views import hosts_of
from troth.protocol.types import Address, Hash32
from troth.routing.prefixes.members import split

REGION = ""
"""The chain names no regions: all nodes are in one."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another member, and where it listens."""

    operator: Address
    endpoint: str
    tls_key_hash: Hash32


class GroupMembership:
    """Follows the folded chain. A node that is suspended, leaves, or hosts a part only, is alone.

    Args:
        own: this node's operator.
        execution_class: whose nodes compute alike.
        state: the folded chain.
        machines: for a confidential node, the only machines that are of its group.
    """

    def __init__(
        self,
        own: Address,
        execution_class: Hash32,
        state: Callable[[], State],
        machines: VouchedMachines | None = None,
    ) -> None:
        self._own = own
        self._machines = machines
        self._execution_class = execution_class
        self._state = state
        self._seen: State | None = None
        self._peers: dict[Address, Peer] = {}

    @property
    def peers(self) -> Mapping[Address, Peer]:
        """The other members, at most `groups.LARGEST_GROUP` with this node."""
        state = self._state()
        if state is not self._seen:
            self._seen, self._peers = state, self._listed(state)
        return self._peers

    def _listed(self, state: State) -> dict[Address, Peer]:
        hosts = self._hosts(state)
        if self._own not in hosts:
            return {}
        # Nobody could choose its address after the class's identity was known, but for whoever registers later; a
        # seed that changes would move everybody to other groups.
        groups = split(dict.fromkeys(hosts, REGION), self._execution_class)
        names = next(group for group in groups if self._own in group)
        return {Address(name): hosts[Address(name)] for name in names if name != self._own}

    def _hosts(self, state: State) -> dict[Address, Peer]:
        return {
            party.operator: Peer(party.operator, party.endpoint, party.tls_key_hash)
            for party in hosts_of(state, self._execution_class).values()
            if party.operator == self._own or self._is_vouched(party)
        }

    def _is_vouched(self, party: Party) -> bool:
        machines = self._machines
        return machines is None or machines.entry(party.operator, "node", party.tls_key_hash) is not None
