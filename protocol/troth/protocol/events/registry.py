"""Events of models, classes, operators and groups (ITrothModels.sol, ITrothRegistry.sol)."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.events.log import LogMeta
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor


@dataclass(frozen=True, slots=True)
class ModelRegistered:
    """A model is known from here on; its id is the hash of the descriptor."""

    model: Hash32
    descriptor: ModelDescriptor
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ClassRegistered:
    """An execution class is known from here on; its id is the hash of the ``definition`` (``class`` in Solidity)."""

    execution_class: Hash32
    model: Hash32
    definition: ExecutionClass
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """An operator serves the slice [first, end); ``stake`` in wei."""

    operator: Address
    owner: Address
    execution_class: Hash32
    payout: Address
    first: int
    end: int
    endpoint: str
    tls_key_hash: Hash32
    stake: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SchedulerRegistered:
    """An operator schedules, with the VRF key (vrf_x, vrf_y) on P-256; ``stake`` in wei."""

    operator: Address
    owner: Address
    payout: Address
    vrf_x: int
    vrf_y: int
    endpoint: str
    tls_key_hash: Hash32
    stake: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SlotFilled:
    """``operator`` is a member of the group from ``from_block`` on."""

    group: Hash32
    operator: Address
    execution_class: Hash32
    first: int
    end: int
    slot: int
    from_block: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SlotVacated:
    """``operator`` is no member from ``to_block`` on."""

    group: Hash32
    operator: Address
    slot: int
    to_block: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SliceChanged:
    """``operator`` hosts the layers [first, end) now. SlotVacated events come before, SlotFilled events after."""

    operator: Address
    first: int
    end: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EndpointChanged:
    """Where the party is reached now."""

    operator: Address
    endpoint: str
    tls_key_hash: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class PayoutChanged:
    """Where the party is paid now."""

    operator: Address
    old_payout: Address
    new_payout: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Evicted:
    """A node with too little stake lost its slots; SlotVacated events come with it."""

    operator: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Deregistered:
    """The operator left all groups; its stake can be slashed up to and including ``exit_block``."""

    operator: Address
    exit_block: int
    meta: LogMeta


RegistryEvent = (
    ModelRegistered
    | ClassRegistered
    | NodeRegistered
    | SchedulerRegistered
    | SlotFilled
    | SlotVacated
    | SliceChanged
    | EndpointChanged
    | PayoutChanged
    | Evicted
    | Deregistered
)
