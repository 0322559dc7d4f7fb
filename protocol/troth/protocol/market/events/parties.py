"""Models, classes, nodes and schedulers: what is registered, changed, taken away (`Classes.sol`, `Registry.sol`)."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.logs import LogMeta
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.types import Ask, ExecutionClass, GroupEntry
from troth.protocol.types import Address, Hash32, ModelDescriptor


@dataclass(frozen=True, slots=True)
class ModelRegistered:
    """A model is known; its id is the hash of its descriptor."""

    model: Hash32
    descriptor: ModelDescriptor
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ClassRegistered:
    """An execution class is known; its id is the hash of its ``definition`` (``class`` in Solidity)."""

    execution_class: Hash32
    model: Hash32
    definition: ExecutionClass
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """A node hosts the layers [first, end)."""

    operator: Address
    owner: Address
    execution_class: Hash32
    payout: Address
    first: int
    end: int
    endpoint: str
    tls_key_hash: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SchedulerRegistered:
    """A scheduler with its VRF key, which never changes."""

    operator: Address
    owner: Address
    payout: Address
    vrf_x: int
    vrf_y: int
    endpoint: str
    tls_key_hash: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EndpointChanged:
    """Where a party is reached now."""

    operator: Address
    endpoint: str
    tls_key_hash: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class PayoutChanged:
    """Where a party is paid now."""

    operator: Address
    old_payout: Address
    payout: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class AskChanged:
    """What a node asks for a segment from this block on."""

    operator: Address
    first: int
    end: int
    ask: Ask
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SliceChanged:
    """Which layers a node hosts now."""

    operator: Address
    first: int
    end: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EntryChanged:
    """What stands at one place of a group from this block on, and how long the group is."""

    group: Hash32
    place: int
    entry: GroupEntry
    size: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Suspended:
    """A case takes a node out of all draws until it is restored."""

    operator: Address
    case_id: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Restored:
    """The case is over: the node's seats are back."""

    operator: Address
    case_id: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Evicted:
    """A node below one seat left its groups."""

    operator: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Convicted:
    """Leaves of this party with a reference block in [void_from, void_until] are void."""

    operator: Address
    fault: Fault
    subject: Hash32
    void_from: int
    void_until: int
    index: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Deregistered:
    """A party leaves; slashable until ``exit_block``, inclusive."""

    operator: Address
    exit_block: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class StakeWithdrawn:
    """A party's stake became credit."""

    operator: Address
    amount: int
    meta: LogMeta


ClassesEvent = ModelRegistered | ClassRegistered
RegistryEvent = (
    NodeRegistered
    | SchedulerRegistered
    | EndpointChanged
    | PayoutChanged
    | AskChanged
    | SliceChanged
    | EntryChanged
    | Suspended
    | Restored
    | Evicted
    | Convicted
    | Deregistered
    | StakeWithdrawn
)
