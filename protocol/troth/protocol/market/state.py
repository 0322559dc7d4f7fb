"""What the events of a deployment say, folded: money, tabs, claims, parties, groups at any past block, cases, logs.

The folded state keeps a version per recent block. Its mappings are `immutables.Map`, hash tries whose changed copy
shares nearly everything with its original; with plain dictionaries each event would copy every entry.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from immutables import Map

from troth.protocol.identifiers import group_id
from troth.protocol.logs import LogMeta
from troth.protocol.market.court_money import OutcomePool
from troth.protocol.market.draws import GroupHistory
from troth.protocol.market.events import Deployed, FaultProven
from troth.protocol.market.messages import objection_id, summons_id
from troth.protocol.market.proceedings import CaseState, Fault, LogCounts, Outcome, SummonsKind, SummonsState
from troth.protocol.market.types import (
    LATEST,
    NO_ADDRESS,
    NO_HASH,
    Ask,
    ClaimState,
    ExecutionClass,
    GroupEntry,
    PotKind,
    Role,
    Tab,
    TabState,
)
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment, address_to_bytes

Key = TypeVar("Key")
Value = TypeVar("Value")

Pot = tuple[PotKind, Hash32]
"""Where money is: kind and id."""

NOTHING: tuple[Any, ...] = ()


def account_id(account: Address) -> Hash32:
    """The id of an account's pots: the lower 160 bits."""
    return Hash32(bytes(12) + address_to_bytes(account))


@dataclass(frozen=True, slots=True)
class Objection:
    """Somebody asked to see a leaf of a claim."""

    objector: Address
    deposit: int
    deadline: int


@dataclass(frozen=True, slots=True)
class AnsweredLeaf:
    """What a number of a claim was shown to be claimed for, and how often it was asked for and shown."""

    amount: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim under way with its open objections, and what was answered; ``state`` is what the next call takes."""

    claim_id: Hash32
    state: ClaimState
    objections: Map[int, Objection] = field(default_factory=Map)
    answered: Map[int, AnsweredLeaf] = field(default_factory=Map)


@dataclass(frozen=True, slots=True)
class TabRecord:
    """A tab; its balance is a pot. ``known``: it was opened, and is not closed for good yet.

    ``closes_at``: the block from which it may be, once its payer began to close it; 0 before.
    ``shown``: the largest sum of settled claims, where one was not covered; ``settled``: the last one, paid or not.
    ``forgiven``: of what counts as redeemed, what the tab never paid: the cost of struck claims, or a payer's stake.
    ``struck``: claims that fell by one objection, as long as the deposits of others to them are held.
    """

    tab: Tab
    redeemed: int = 0
    closes_at: int = 0
    known: bool = True
    claim: ClaimRecord | None = None
    shown: int = 0
    shown_block: int = 0
    struck: tuple[ClaimRecord, ...] = ()
    forgiven: int = 0
    settled: ClaimRecord | None = None

    @property
    def short(self) -> int:
        """What settled claims showed to be owed and nobody has paid since."""
        return max(0, self.shown - self.redeemed)


@dataclass(frozen=True, slots=True)
class Party:
    """A node or a scheduler. A node's groups are in ``State.entries``; ``hosted`` is None for a scheduler.

    ``slices``: every slice that a node has hosted, with the block from which on it did. ``exit_block``: the block
    after which its stake is free, once it has left (was deregistered); 0 before. Who left stays in ``State.parties``.
    """

    operator: Address
    owner: Address
    role: Role
    payout: Address
    endpoint: str
    tls_key_hash: Hash32
    registered: LogMeta
    execution_class: Hash32 = NO_HASH
    hosted: Segment | None = None
    vrf_key: tuple[int, int] = (0, 0)
    exit_block: int = 0
    slices: tuple[tuple[int, Segment], ...] = ()

    def hosted_at(self, block: int) -> Segment | None:
        """The slice at the end of a block; None before there was one."""
        latest = bisect_right(self.slices, block, key=lambda one: one[0]) - 1
        return self.slices[latest][1] if latest >= 0 else None

    def hosted_since(self, block: int) -> frozenset[Segment]:
        """The slices that were hosted at the end of a block or later."""
        before = self.hosted_at(block)
        later = frozenset(hosted for since, hosted in self.slices if since > block)
        return later if before is None else later | {before}

    def kept_until(self, reference_age: int) -> int:
        """The first block in which the slice can be changed again; 0 if it never was."""
        return self.slices[-1][0] + reference_age if len(self.slices) > 1 else 0


@dataclass(frozen=True, slots=True)
class Suspension:
    """The last suspension of a node."""

    case_id: Hash32
    block: int
    restored: bool = False


@dataclass(frozen=True, slots=True)
class ConvictionRecord:
    """Leaves with a reference block in [void_from, void_until] are void."""

    fault: Fault
    subject: Hash32
    void_from: int
    void_until: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """A case: what its next call takes, what reviewers posted and showed, how it ended, and its events in order."""

    case_id: Hash32
    state: CaseState
    outcome: Outcome | None
    events: tuple[Any, ...]
    posts: Map[tuple[int, Address], Hash32] = field(default_factory=Map)
    reveals: Map[tuple[int, Address], Hash32] = field(default_factory=Map)

    @property
    def live(self) -> bool:
        """Whether it goes on."""
        return self.outcome is None


@dataclass(frozen=True, slots=True)
class SummonsRecord:
    """A summons; ``answered`` is None while it is open. Nodes to which it was passed on are silent or responded."""

    state: SummonsState
    answered: bool | None
    events: tuple[Any, ...]
    silent: tuple[Address, ...] = ()
    responded: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """One entry of a scheduler's log, as posted."""

    number: int
    root: Hash32
    counts: LogCounts
    data_hash: Hash32
    chain: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class State:
    """Everything; made from events by ``fold.apply`` alone."""

    deployed: Deployed | None = None
    pots: Map[Pot, int] = field(default_factory=Map)
    came_in: int = 0
    went_out: int = 0
    tabs: Map[Hash32, TabRecord] = field(default_factory=Map)
    models: Map[Hash32, ModelDescriptor] = field(default_factory=Map)
    classes: Map[Hash32, ExecutionClass] = field(default_factory=Map)
    parties: Map[Address, Party] = field(default_factory=Map)
    entries: Map[tuple[Hash32, int], tuple[GroupEntry, ...]] = field(default_factory=Map)
    sizes: Map[Hash32, tuple[tuple[int, int], ...]] = field(default_factory=Map)
    """By `identifiers.group_id(class, segment)`, which does not tell the segment: it lies in what its members host."""
    asks: Map[tuple[Hash32, Address], tuple[tuple[int, Ask], ...]] = field(default_factory=Map)
    suspensions: Map[Address, Suspension] = field(default_factory=Map)
    convictions: Map[Address, tuple[ConvictionRecord, ...]] = field(default_factory=Map)
    cases: Map[Hash32, CaseRecord] = field(default_factory=Map)
    earlier_cases: tuple[CaseRecord, ...] = ()
    voided: Map[tuple[Hash32, int], Hash32] = field(default_factory=Map)
    pools: Map[tuple[Address, Hash32], OutcomePool] = field(default_factory=Map)
    summons: Map[Hash32, SummonsRecord] = field(default_factory=Map)
    proven: Map[Hash32, FaultProven] = field(default_factory=Map)
    logs: Map[Address, tuple[LoggedEntry, ...]] = field(default_factory=Map)

    # ---- money

    def pot(self, kind: PotKind, of: Hash32 | Address) -> int:
        """Balance of a pot, by its id or the account that it belongs to."""
        return self.pots.get((kind, of if isinstance(of, bytes) else account_id(of)), 0)

    def held_objections(self, claim: ClaimRecord) -> tuple[int, ...]:
        """Numbers of a claim that were asked for, and whose deposits are still held."""
        bonds = ((number, objection_id(claim.claim_id, number)) for number in claim.objections)
        return tuple(number for number, bond in bonds if self.pot(PotKind.BOND, bond))

    def tab_state(self, tab: Hash32) -> TabState:
        """As the Bank keeps it; all zero for a tab that was never opened."""
        record = self.tabs.get(tab)
        if record is None:
            return TabState()
        return TabState(self.pot(PotKind.TAB, tab), record.redeemed, record.closes_at, record.known)

    def held(self) -> int:
        """What is in all pots, and so what the Bank must hold of the asset."""
        return sum(self.pots.values())

    # ---- parties

    def owner_of(self, operator: Address) -> Address:
        """The owner; zero for an address that was never registered."""
        party = self.parties.get(operator)
        return NO_ADDRESS if party is None else party.owner

    def payout_of(self, account: Address) -> Address:
        """Where an account's credit is paid: a party's payout or owner, else the account itself."""
        party = self.parties.get(account)
        if party is None:
            return account
        return party.owner if party.payout == NO_ADDRESS else party.payout

    def is_void(self, operator: Address, reference_block: int) -> bool:
        """Whether convictions void this party's leaf of an order with such a reference block.

        All void ranges are one, from the earliest beginning to the latest end.
        """
        convictions = self.convictions.get(operator, NOTHING)
        if not convictions:
            return False
        first, last = min(one.void_from for one in convictions), max(one.void_until for one in convictions)
        return bool(first <= reference_block <= last)

    # ---- groups

    def size_at(self, group: Hash32, block: int) -> int:
        """Members of a group at a block."""
        history = self.sizes.get(group, NOTHING)
        latest = bisect_right(history, block, key=lambda one: one[0]) - 1
        return 0 if latest < 0 else int(history[latest][1])

    def entry_at(self, group: Hash32, place: int, block: int) -> GroupEntry:
        """What stands at a place at a block; an empty entry where nothing does."""
        history = self.entries.get((group, place), NOTHING)
        latest = bisect_right(history, block, key=lambda one: one.from_block) - 1
        found: GroupEntry = history[latest] if latest >= 0 else GroupEntry()
        return found

    def ask_at(self, group: Hash32, operator: Address, block: int) -> Ask:
        """What a member asks at a block."""
        history = self.asks.get((group, operator), NOTHING)
        latest = bisect_right(history, block, key=lambda one: one[0]) - 1
        found: Ask = history[latest][1] if latest >= 0 else Ask()
        return found

    def members_at(self, group: Hash32, block: int) -> tuple[GroupEntry, ...]:
        """All entries of a group at a block, in the order of their places."""
        return tuple(self.entry_at(group, place, block) for place in range(self.size_at(group, block)))

    def group(self, group: Hash32) -> GroupHistory:
        """A group with its whole history, as draws take it."""
        length = max((size for _, size in self.sizes.get(group, NOTHING)), default=0)
        places = tuple(self.entries.get((group, place), NOTHING) for place in range(length))
        operators = {entry.operator for history in places for entry in history}
        return GroupHistory(
            sizes=self.sizes.get(group, NOTHING),
            places=places,
            owners={operator: self.owner_of(operator) for operator in operators},
            asks={operator: self.asks.get((group, operator), NOTHING) for operator in operators},
        )

    def groups_of(self, operator: Address) -> tuple[Hash32, ...]:
        """The groups in which a node stands now."""
        return tuple(
            group
            for group in sorted(self.sizes)
            if any(entry.operator == operator for entry in self.members_at(group, LATEST))
        )

    def group_of(self, operator: Address, segment: Segment) -> Hash32:
        """The group of a node's class for a segment."""
        party = self.parties.get(operator)
        return group_id(NO_HASH if party is None else party.execution_class, segment)

    # ---- court and log

    def is_voided(self, order: Hash32, segment: int) -> bool:
        """Whether the leaf of a segment fell; 255: that of any."""
        if segment != 255:
            return (order, segment) in self.voided
        return any(one == order for one, _ in self.voided)

    def silent_in_check(self, order: Hash32, segment: int) -> tuple[Address, ...]:
        """Nodes that stayed silent when the check of a segment was summoned: others check and judge in their place."""
        record = self.summons.get(summons_id(order, SummonsKind.CHECK, segment))
        return () if record is None else record.silent

    def head_of(self, scheduler: Address) -> tuple[int, Hash32]:
        """Number of the last log entry and the chain hash after it."""
        entries = self.logs.get(scheduler, NOTHING)
        return (entries[-1].number, entries[-1].chain) if entries else (0, NO_HASH)


def without(mapping: Map[Key, Value], key: Key) -> Map[Key, Value]:
    """A copy that lacks ``key``."""
    return mapping.delete(key) if key in mapping else mapping


def with_pot(state: State, kind: PotKind, pot_id: Hash32, balance: int) -> State:
    """``state`` with another balance in one pot."""
    key = (kind, pot_id)
    pots = state.pots.set(key, balance) if balance else without(state.pots, key)
    return replace(state, pots=pots)
