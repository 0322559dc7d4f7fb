"""The content-private tier: an order is placed only where every machine that could read it is attested.

Who could: the scheduler's entry, and each node that may be drawn for the class, since draws decide who serves, who
verifies and who reviews. One that is not attested with a measurement that the user trusts, and the order is refused
before its prompt leaves. The committee's list says what was found; the chain says who may be drawn, and by which TLS
key each is reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.client.errors import NotAttested
from troth.overlay.directory.vouched import VouchedMachines
from troth.protocol.identifiers import group_id
from troth.protocol.market.state import State
from troth.protocol.market.types import LATEST
from troth.protocol.types import Address, Hash32, Segment

SHOWN = 4
"""Parties that an error names."""
_REMEDY = "Use a class whose nodes are all attested, add their measurement to trusted in client.toml, or ask without."


@dataclass(frozen=True, slots=True)
class ConfidentialTier:
    """What a client that asks confidentially requires of a class and its scheduler."""

    machines: VouchedMachines

    def require(self, state: State, execution_class: Hash32, scheduler: Address, block: int) -> None:
        """Raise NotAttested unless every machine that could read an order at this block is vouched for."""
        parties = [(scheduler, "scheduler"), *((node, "node") for node in readers(state, execution_class, block))]
        missing = [(operator, kind) for operator, kind in parties if not self._holds(state, operator, kind)]
        if len(parties) == 1:
            raise NotAttested("No node hosts the whole model of this class", "0x" + execution_class.hex(), _REMEDY)
        if missing:
            what = f"{len(missing)} of {len(parties)} machines that could read the prompt are not attested as you trust"
            names = ", ".join(f"{kind} {operator}" for operator, kind in missing[:SHOWN])
            raise NotAttested(f"{what}; nothing was sent", names, _REMEDY)

    def _holds(self, state: State, operator: Address, kind: str) -> bool:
        party = state.parties.get(operator)
        return party is not None and self.machines.entry(operator, kind, party.tls_key_hash) is not None


def readers(state: State, execution_class: Hash32, block: int) -> list[Address]:
    """Nodes that may be drawn for the whole model, by the chain's past block and by its newest one."""
    known = state.classes.get(execution_class)
    model = None if known is None else state.models.get(known.model)
    if model is None:
        return []
    group = group_id(execution_class, Segment(0, model.layers))
    entries = (*state.members_at(group, block), *state.members_at(group, LATEST))
    return sorted({entry.operator for entry in entries if entry.seats})
