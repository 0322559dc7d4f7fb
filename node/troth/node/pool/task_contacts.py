"""Contacts on the contract of per-task settlement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from troth.node.pool.contacts import Contact
from troth.protocol.state import Node, Scheduler, State, bonded_schedulers
from troth.protocol.types import Address


class TaskContacts:
    """See ``contacts.Contacts``; ``state`` gives the folded events."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state

    def schedulers(self) -> Sequence[Contact]:
        """The bonded ones."""
        return [_contact(one) for one in bonded_schedulers(self._state())]

    def nodes(self, names: Iterable[str]) -> Sequence[Contact]:
        """The registered nodes among these operators."""
        nodes = self._state().nodes
        found = (nodes.get(Address(name)) for name in sorted(set(names)))
        return [_contact(node) for node in found if node is not None]


def _contact(party: Node | Scheduler) -> Contact:
    return Contact(party.operator, party.endpoint, party.tls_key_hash)
