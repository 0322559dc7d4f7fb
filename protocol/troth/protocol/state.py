"""What the contract's events say, folded: the registry, the money, the tasks."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from troth.protocol.contract_types import Account, Role, Settled
from troth.protocol.events import EquivocationProven, LogMeta, MoneyEvent, ReviewEvent, TaskEvent, TaskSettled
from troth.protocol.mapping import PersistentMap
from troth.protocol.review import settled_by
from troth.protocol.settlement import Outcome
from troth.protocol.task import Task
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor, Segment

NO_ACCOUNT = Account()


@dataclass(frozen=True, slots=True)
class Node:
    """A registered node; its stake is in ``State.accounts``.

    ``slice`` are the layers that it hosts now; ``kept_until`` is the first block in which it may change them, 0 before
    the first change. What it was a member of earlier is in ``State.groups``.
    """

    operator: Address
    owner: Address
    payout: Address
    execution_class: Hash32
    slice: Segment
    endpoint: str
    tls_key_hash: Hash32
    registered: LogMeta
    kept_until: int = 0


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A registered scheduler with its P-256 VRF key; its stake is in ``State.accounts``."""

    operator: Address
    owner: Address
    payout: Address
    vrf_key: tuple[int, int]
    endpoint: str
    tls_key_hash: Hash32
    registered: LogMeta


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``operator`` holds a slot in blocks [from_block, to_block); ``to_block`` 0 while it does."""

    operator: Address
    from_block: int
    to_block: int = 0

    def covers(self, block: int) -> bool:
        """True if the operator is a member at ``block``."""
        return self.from_block <= block and (self.to_block == 0 or block < self.to_block)


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes eligible for a segment, by slot, each slot with its history in order of time."""

    execution_class: Hash32
    segment: Segment
    slots: tuple[tuple[Occupancy, ...], ...] = ()

    def member_at(self, slot: int, block: int) -> Address | None:
        """Member in ``slot`` at ``block``; None if the slot is empty or does not exist then."""
        if not 0 <= slot < len(self.slots):
            return None
        history = self.slots[slot]
        latest = bisect_right(history, block, key=lambda occupancy: occupancy.from_block) - 1
        found = latest >= 0 and history[latest].covers(block)
        return history[latest].operator if found else None

    def size_at(self, block: int) -> int:
        """Slots, filled or empty, at ``block``: new slots are appended, so their first occupancies are in order."""
        return bisect_right(self.slots, block, key=lambda history: history[0].from_block)

    def members_at(self, block: int) -> list[Address | None]:
        """Members by slot at ``block``, None where a slot is empty: what an assignment is drawn from."""
        return [self.member_at(slot, block) for slot in range(self.size_at(block))]


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task: the state that the contract's next call takes, the outcome, and all its events in order."""

    task: Task
    request_hash: Hash32
    outcome: Outcome | None
    events: tuple[TaskEvent | MoneyEvent | ReviewEvent, ...]

    @property
    def live(self) -> bool:
        """True until the task has an outcome."""
        return self.outcome is None

    @property
    def settled(self) -> Settled | None:
        """How the first verification ended, which a dispute must name; None if it did not."""
        return next((settled_by(event) for event in self.events if isinstance(event, TaskSettled)), None)


@dataclass(frozen=True, slots=True)
class ReviewRecord:
    """One segment's second verification: like a task's record. ``review.terms.fee`` is the bond while it is live."""

    task_id: Hash32
    segment: int
    review: Task
    outcome: Outcome | None
    events: tuple[TaskEvent | MoneyEvent | ReviewEvent, ...]

    @property
    def task(self) -> Task:
        """The review, as calls that take tasks take it."""
        return self.review

    @property
    def live(self) -> bool:
        """True until the review has an outcome."""
        return self.outcome is None


@dataclass(frozen=True, slots=True)
class State:
    """Everything; made from events by ``fold.apply`` alone. Escrow in wei."""

    models: PersistentMap[Hash32, ModelDescriptor] = field(default_factory=PersistentMap)
    classes: PersistentMap[Hash32, ExecutionClass] = field(default_factory=PersistentMap)
    nodes: PersistentMap[Address, Node] = field(default_factory=PersistentMap)
    schedulers: PersistentMap[Address, Scheduler] = field(default_factory=PersistentMap)
    groups: PersistentMap[Hash32, Group] = field(default_factory=PersistentMap)
    accounts: PersistentMap[Address, Account] = field(default_factory=PersistentMap)
    escrow: PersistentMap[Address, int] = field(default_factory=PersistentMap)
    tasks: PersistentMap[Hash32, TaskRecord] = field(default_factory=PersistentMap)
    reviews: PersistentMap[Hash32, ReviewRecord] = field(default_factory=PersistentMap)
    equivocations: tuple[EquivocationProven, ...] = ()

    def account(self, operator: Address) -> Account:
        """Stake and credit; all zero for an address that the contract does not know."""
        return self.accounts.get(operator, NO_ACCOUNT)

    def segments_of(self, operator: Address, since: int) -> frozenset[Segment]:
        """The segments in whose groups the operator is, or was at ``since`` or later: what it can be drawn for by an
        order with such a reference block."""
        return frozenset(
            group.segment
            for group in self.groups.values()
            for history in group.slots
            for stay in history
            if stay.operator == operator and (stay.to_block == 0 or stay.to_block > max(since, stay.from_block))
        )

    def escrow_of(self, client: Address) -> int:
        """Free escrow of a client."""
        return self.escrow.get(client, 0)

    def locked_fees(self) -> int:
        """Wei of live fees and bonds: with all stake, credit and free escrow it makes the contract's balance."""
        fees = sum(record.task.terms.fee for record in self.tasks.values() if record.live)
        return fees + sum(record.review.terms.fee for record in self.reviews.values() if record.live)

    def held(self) -> int:
        """Wei that the contract must hold."""
        accounts = sum(account.stake + account.credit for account in self.accounts.values())
        return accounts + sum(self.escrow.values()) + self.locked_fees()


def bonded(state: State, operator: Address, rules: ExecutionClass) -> bool:
    """Whether a node of the class may join groups: it stays, and its stake was not slashed below the minimum."""
    account = state.account(operator)
    return account.role is Role.NODE and account.exit_block == 0 and account.stake >= rules.minimum_stake


def bonded_schedulers(state: State) -> list[Scheduler]:
    """The schedulers with a stake, in the order of their registration; whoever has withdrawn has no account."""
    standing = [(one, state.account(one.operator)) for one in state.schedulers.values()]
    return [
        one
        for one, account in standing
        if account.role is Role.SCHEDULER and account.exit_block == 0 and account.stake > 0
    ]
