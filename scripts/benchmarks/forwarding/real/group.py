"""The group that the nodes of a benchmark are in: a chain's state with all of them bonded, and nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.forwarding.real.messages import Ready
from troth.node.group.cache import Cache
from troth.node.group.group import Group
from troth.node.group.loads import Loads
from troth.node.group.membership import Membership
from troth.overlay.operator import Operator
from troth.protocol.contract_types import Account, Role
from troth.protocol.logs import LogMeta
from troth.protocol.identifiers import class_id, model_id
from troth.protocol.state import Node, State
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, ExecutionClass, Hash32, ModelDescriptor, Segment

if TYPE_CHECKING:
    from troth.node.engine.interface import WholeEngine
    from troth.node.pool.meter import Meter
    from troth.overlay.forwarding.decision import Policy

DOMAIN = Domain(31337, Address("0x" + "11" * 20))
STAKE = 100


def operator_of(number: int) -> Operator:
    """The key of a node, of no value anywhere."""
    return Operator(bytes([number + 1]) * 32, DOMAIN)


def group_among(
    members: Sequence[Ready], operator: Operator, engine: WholeEngine, meter: Meter, *, places: int, policy: Policy
) -> Group:
    """A node's group as it starts. `places`: requests that its engine computes at once."""
    model = ModelDescriptor("benchmark", engine.layers, engine.hidden_size, engine.vocabulary, engine.dtype, ZERO_HASH)
    rules = ExecutionClass(
        model_id(model), "benchmark", engine.dtype, True, 10, 8, 9000, 1, 2, 3, 5, 1, STAKE, 1000, 20000, ZERO_HASH
    )
    state = _state(members, model, rules)
    membership = Membership(operator.address, class_id(rules), lambda: state)
    loads = Loads(engine, lambda: 0, meter, places)
    return Group(operator, membership, loads, lambda naming, note: Cache(engine, naming, note), policy=policy)


def _state(members: Sequence[Ready], model: ModelDescriptor, rules: ExecutionClass) -> State:
    empty, whole, at = State(), Segment(0, model.layers), LogMeta(1, 0, ZERO_HASH, ZERO_HASH)
    nodes, accounts = empty.nodes, empty.accounts
    for member in members:
        name = Address(member.address)
        node = Node(name, name, name, class_id(rules), whole, member.endpoint, Hash32(member.tls_key_hash), at)
        nodes = nodes.with_item(name, node)
        accounts = accounts.with_item(name, Account(STAKE, role=Role.NODE))
    return State(
        models=empty.models.with_item(rules.model, model),
        classes=empty.classes.with_item(class_id(rules), rules),
        nodes=nodes,
        accounts=accounts,
    )
