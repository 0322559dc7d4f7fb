"""Events of the market's contracts as frozen dataclasses, and ``parse_log`` from a log of one of them to its event.

Fields are those of the Solidity event in its order; how they are read is derived from the ABI. What each means stands
at the event in contracts/market/interfaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from troth.protocol.bindings import named
from troth.protocol.errors import InvalidField
from troth.protocol.logs import EventDecoder, Log, LogMeta, decoder
from troth.protocol.market.parts import FACTORY, Part, parts_by_address
from troth.protocol.market.proceedings import CaseState, Fault, LogCounts, Outcome, SummonsState
from troth.protocol.market.signed import Promise
from troth.protocol.market.types import Ask, ClaimState, Contracts, Entry, ExecutionClass, Parameters, PotKind
from troth.protocol.types import Address, Hash32, ModelDescriptor

# ---------------------------------------------------------------------------------------------------- deployment


@dataclass(frozen=True, slots=True)
class Begun:
    """The factory took these parameters; parts are created one by one."""

    deployment: Hash32
    parameters: Parameters
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class PartCreated:
    """One part stands."""

    deployment: Hash32
    index: int
    part: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Deployed:
    """All parts stand; the factory says so, not one of them."""

    deployment: Hash32
    contracts: Contracts
    parameters: Parameters
    meta: LogMeta


FactoryEvent = Begun | PartCreated | Deployed


# ---------------------------------------------------------------------------------------------------------- money


@dataclass(frozen=True, slots=True)
class Moved:
    """Money went from one pot to another; balances are those after it."""

    subject: Hash32
    from_kind: PotKind
    from_id: Hash32
    to_kind: PotKind
    to_id: Hash32
    amount: int
    from_balance: int
    to_balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class MovedMany:
    """Movements of one case in their order, packed (``court_money.unpack_movements``)."""

    subject: Hash32
    movements: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Collected:
    """Money came in from outside; ``amount`` is what arrived."""

    subject: Hash32
    sender: Address
    kind: PotKind
    id: Hash32
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Credit left the Bank."""

    account: Address
    payout: Address
    amount: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabOpened:
    """A tab is open, anew or for the first time; what was redeemed of it earlier stands."""

    tab: Hash32
    payer: Address
    payee: Address
    key: Address
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabToppedUp:
    """An open tab got more."""

    tab: Hash32
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabRedeemed:
    """A voucher or a settled claim was paid to the payee's credit."""

    tab: Hash32
    paid: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabClosing:
    """The payer closes; the rest is free from ``closes_at`` on."""

    tab: Hash32
    closes_at: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabClosed:
    """The rest was sent to the payer; 0 after it was moved to the payer's credit instead."""

    tab: Hash32
    returned: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TabForgiven:
    """The payer's stake paid the payee beside the tab, where it counts as redeemed."""

    tab: Hash32
    amount: int
    redeemed: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Claimed:
    """The payee claims leaves that nobody acknowledged."""

    tab: Hash32
    claim_id: Hash32
    state: ClaimState
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Objected:
    """Payer or key asks to see one leaf until ``deadline``."""

    tab: Hash32
    claim_id: Hash32
    sequence: int
    objector: Address
    deposit: int
    deadline: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ObjectionAnswered:
    """The leaf was shown."""

    tab: Hash32
    claim_id: Hash32
    sequence: int
    amount: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ClaimStruck:
    """The leaf was not shown in time: the whole claim is gone."""

    tab: Hash32
    claim_id: Hash32
    sequence: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ClaimSettled:
    """A claim that stood was paid; ``short`` is what the tab did not cover."""

    tab: Hash32
    claim_id: Hash32
    owed: int
    paid: int
    short: int
    meta: LogMeta


BankEvent = (
    Moved
    | MovedMany
    | Collected
    | Withdrawn
    | TabOpened
    | TabToppedUp
    | TabRedeemed
    | TabClosing
    | TabClosed
    | TabForgiven
    | Claimed
    | Objected
    | ObjectionAnswered
    | ClaimStruck
    | ClaimSettled
)


# -------------------------------------------------------------------------------------------- parties and classes


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
    entry: Entry
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


# ---------------------------------------------------------------------------------------------------------- court


@dataclass(frozen=True, slots=True)
class CaseOpened:
    """A case over one result began."""

    case_id: Hash32
    order: Hash32
    node: Address
    state: CaseState
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ReviewersDrawn:
    """The committee, by the RANDAO of a proven header; ``seats`` holds a byte for each reviewer."""

    case_id: Hash32
    drawer: Address
    round: int
    randao: Hash32
    reviewers: tuple[Address, ...]
    seats: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ReviewPosted:
    """A reviewer posted its own commitment."""

    case_id: Hash32
    reviewer: Address
    round: int
    commitment: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ReviewsCommitted:
    """The commitments are complete, or their time is over."""

    case_id: Hash32
    committer: Address
    commitments: tuple[Hash32, ...]
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class CaseSeeded:
    """Which tiles are opened is known."""

    case_id: Hash32
    seeder: Address
    seed: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Revealed:
    """A reviewer or the node showed its part by its own call."""

    case_id: Hash32
    party: Address
    round: int
    reveal_hash: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class CaseDecided:
    """How a case ended; bit i of ``cluster``: reviewer i is in the proper cluster."""

    case_id: Hash32
    order: Hash32
    outcome: Outcome
    cluster: int
    score: int
    spread: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class CaseRestarted:
    """No cluster in the first round: there is a second."""

    case_id: Hash32
    round: int
    bond: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class LeafVoided:
    """The leaf of an order's segment fell without a conviction."""

    order: Hash32
    segment: int
    case_id: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Pooled:
    """An outcome between the cuts was added to its owner's."""

    owner: Address
    execution_class: Hash32
    case_id: Hash32
    count: int
    meta: LogMeta


CourtEvent = (
    CaseOpened
    | ReviewersDrawn
    | ReviewPosted
    | ReviewsCommitted
    | CaseSeeded
    | Revealed
    | CaseDecided
    | CaseRestarted
    | LeafVoided
    | Pooled
)


# ------------------------------------------------------------------------------------------- summons, evidence, log


@dataclass(frozen=True, slots=True)
class Summoned:
    """A scheduler is asked for results or a check."""

    summons_id: Hash32
    order: Hash32
    scheduler: Address
    state: SummonsState
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class PassedOn:
    """The scheduler named a silent node, to which it had signed a promise: the node speaks or pays."""

    summons_id: Hash32
    node: Address
    state: SummonsState
    promised: Promise
    signature: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Responded:
    """A node to which the summons was passed on spoke; ``word`` is what it shows."""

    summons_id: Hash32
    node: Address
    state: SummonsState
    word: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """A node to which the summons was passed on said nothing, and paid."""

    summons_id: Hash32
    node: Address
    state: SummonsState
    taken: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SummonsAnswered:
    """What was asked for was shown."""

    summons_id: Hash32
    answerer: Address
    evidence: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SummonsUnanswered:
    """Nobody answered in time."""

    summons_id: Hash32
    convicted: Address
    taken: int
    meta: LogMeta


SummonsEvent = Summoned | PassedOn | Responded | NodeSilent | SummonsAnswered | SummonsUnanswered


@dataclass(frozen=True, slots=True)
class FaultProven:
    """Signatures convicted a party in one transaction."""

    subject: Hash32
    convict: Address
    reporter: Address
    fault: Fault
    taken: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EntryLogged:
    """A scheduler posted what it served; ``chain`` hashes all its entries."""

    scheduler: Address
    number: int
    root: Hash32
    counts: LogCounts
    data_hash: Hash32
    chain: Hash32
    meta: LogMeta


Event = FactoryEvent | BankEvent | ClassesEvent | RegistryEvent | CourtEvent | SummonsEvent | FaultProven | EntryLogged

EVENTS_OF: dict[str, tuple[type[Any], ...]] = {
    FACTORY: get_args(FactoryEvent),
    Part.BANK.binding: get_args(BankEvent),
    Part.REGISTRY.binding: get_args(RegistryEvent),
    Part.COURT.binding: get_args(CourtEvent),
    Part.SUMMONS.binding: get_args(SummonsEvent),
    Part.EVIDENCE.binding: (FaultProven,),
    Part.LOG.binding: (EntryLogged,),
    Part.LENS.binding: (),
    Part.DOCKET.binding: (),
    Part.JUDGEMENT.binding: (),
    Part.LEAVES.binding: (),
    Part.CLASSES.binding: get_args(ClassesEvent),
}
"""The dataclasses of each contract's events, by its binding."""


def parse_log(log: Log, contracts: Contracts, factory: Address | None = None) -> Event:
    """The event that a log of a deployment is; raises InvalidField for one that none of its contracts can emit."""
    part = parts_by_address(contracts).get(log.address)
    if part is None and log.address != factory:
        raise InvalidField("The log is of no contract of the deployment", log.address, "Ask for its addresses only.")
    found = _decoders(FACTORY if part is None else part.binding).get(log.topics[0]) if log.topics else None
    if found is None:
        name = "factory" if part is None else part.value
        topic = log.topics[0] if log.topics else b""
        raise InvalidField(f"The {name} has no event with this topic", topic, "Check the addresses and the version.")
    event: Event = found.event(log)
    return event


@lru_cache(maxsize=16)
def _decoders(binding: str) -> dict[bytes, EventDecoder[Any]]:
    entries = named("event", binding)
    return {entries[kind.__name__].topic: decoder(kind, entries[kind.__name__]) for kind in EVENTS_OF[binding]}
