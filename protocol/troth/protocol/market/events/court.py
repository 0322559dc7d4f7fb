"""Cases, summons, convictions by signatures, posted logs (`Court.sol`, `Summons.sol`, `Evidence.sol`, `Log.sol`)."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.logs import LogMeta
from troth.protocol.market.proceedings import CaseState, Fault, LogCounts, Outcome, SummonsState
from troth.protocol.market.signed import Promise
from troth.protocol.types import Address, Hash32


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
