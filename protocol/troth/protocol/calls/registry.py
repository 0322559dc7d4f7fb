"""Calls on models, classes, operators and groups. Who may call what is in ITrothRegistry.sol."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.calls.call import Call, build
from troth.protocol.contract_types import NodeRegistration, SchedulerRegistration
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor, Segment


def register_model(descriptor: ModelDescriptor) -> Call:
    """Anyone: makes a model known under the hash of its descriptor."""
    return build("registerModel", descriptor)


def register_class(definition: ExecutionClass) -> Call:
    """Anyone: makes an execution class of a known model known under its hash."""
    return build("registerClass", definition)


def register_node(registration: NodeRegistration, consent: bytes, stake: int) -> Call:
    """The sender becomes the owner; ``consent`` is the operator's signature over Consent, ``stake`` in wei."""
    return build("registerNode", registration, consent, value=stake)


def register_scheduler(registration: SchedulerRegistration, consent: bytes, stake: int) -> Call:
    """The sender becomes the owner; ``consent`` is the operator's signature over Consent, ``stake`` in wei."""
    return build("registerScheduler", registration, consent, value=stake)


def enroll(operator: Address, first: int, end: int) -> Call:
    """Owner: joins the group of one more segment inside the node's slice."""
    return build("enroll", operator, first, end)


def change_slice(operator: Address, hosted: Segment, segments: Sequence[Segment]) -> Call:
    """Owner or operator: the node hosts other layers, and is in the groups of ``segments`` (1 to 16) and no others."""
    return build("changeSlice", operator, hosted.first, hosted.end, tuple(segments))


def set_endpoint(operator: Address, endpoint: str, tls_key_hash: Hash32) -> Call:
    """Owner or operator: where the party is reached."""
    return build("setEndpoint", operator, endpoint, tls_key_hash)


def set_payout(operator: Address, payout: Address) -> Call:
    """Owner: where the party is paid."""
    return build("setPayout", operator, payout)


def top_up(operator: Address, amount: int) -> Call:
    """Anyone: adds ``amount`` wei to a stake."""
    return build("topUp", operator, value=amount)


def deregister(operator: Address) -> Call:
    """Owner or operator: leaves all groups now; the unbonding period starts."""
    return build("deregister", operator)


def withdraw(operator: Address) -> Call:
    """Pays stake and credit out after the exit block."""
    return build("withdraw", operator)


def claim(account: Address) -> Call:
    """Anyone: pays credit out."""
    return build("claim", account)


def evict(operator: Address) -> Call:
    """Anyone: takes a node with too little stake out of its groups."""
    return build("evict", operator)


def deposit(client: Address, amount: int) -> Call:
    """Anyone: ``amount`` wei into a client's escrow."""
    return build("deposit", client, value=amount)


def withdraw_escrow(amount: int) -> Call:
    """Client: ``amount`` wei of its free escrow back."""
    return build("withdrawEscrow", amount)
