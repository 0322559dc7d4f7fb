"""The group that the nodes of a benchmark are in: a chain's state with all of them drawn from, and nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from research.forwarding.real.messages import Ready
from troth.node.group.cache import Cache
from troth.node.group.group import Group
from troth.node.group.loads import Loads
from troth.node.group.membership import GroupMembership
from troth.protocol.identifiers import group_id
from troth.protocol.logs import LogMeta
from troth.protocol.market.messages import state_hash
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import ExecutionClass, GroupEntry, Role
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32, ModelDescriptor, Segment
from troth.transport.identity import Operator

if TYPE_CHECKING:
    from troth.node.engine.interface import WholeEngine
    from troth.node.pool.meter import Meter
    from troth.routing.forwarding.decision import Policy

DOMAIN = Domain(31337, Address("0x" + "11" * 20))


def operator_of(number: int) -> Operator:
    """The key of a node, of no value anywhere."""
    return Operator(bytes([number + 1]) * 32, DOMAIN)


def group_among(
    members: Sequence[Ready], operator: Operator, engine: WholeEngine, meter: Meter, *, places: int, policy: Policy
) -> Group:
    """A node's group as it starts. `places`: requests that its engine computes at once."""
    model = ModelDescriptor("benchmark", engine.layers, engine.hidden_size, engine.vocabulary, engine.dtype, ZERO_HASH)
    rules = _rules(model)
    state, identifier = _state(members, model, rules), Hash32(state_hash(rules))
    membership = GroupMembership(operator.address, identifier, lambda: state)
    loads = Loads(engine, lambda: 0, meter, places)
    return Group(operator, membership, loads, lambda naming, note: Cache(engine, naming, note), policy=policy)


def _rules(model: ModelDescriptor) -> ExecutionClass:
    """A class of the model; nothing but the model is looked at."""
    numbers = {field.name: 1 for field in fields(ExecutionClass)}
    named = {"model": Hash32(state_hash(model)), "name": "benchmark", "exact": True, "calibration": ZERO_HASH}
    return ExecutionClass(**(numbers | named))  # type: ignore[arg-type]


def _state(members: Sequence[Ready], model: ModelDescriptor, rules: ExecutionClass) -> State:
    empty, whole, at = State(), Segment(0, model.layers), LogMeta(1, 0, ZERO_HASH, ZERO_HASH)
    identifier = Hash32(state_hash(rules))
    group, parties, entries = group_id(identifier, whole), empty.parties, empty.entries
    for place, member in enumerate(members):
        name = Address(member.address)
        key_hash = Hash32(member.tls_key_hash)
        party = Party(name, name, Role.NODE, name, member.endpoint, key_hash, at, identifier, whole)
        parties = parties.set(name, party)
        entries = entries.set((group, place), (GroupEntry(name, 1, 1, 1),))
    return State(
        models=empty.models.set(rules.model, model),
        classes=empty.classes.set(identifier, rules),
        parties=parties,
        entries=entries,
        sizes=empty.sizes.set(group, ((1, len(members)),)),
    )
