"""Events of contracts/reputation/Reputation.sol, and the state that follows from them, every score computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, get_args

from troth.protocol.bindings import REPUTATION, named
from troth.protocol.errors import InvalidField
from troth.protocol.logs import EventDecoder, EventLog, LogMeta, decoder
from troth.protocol.reputation import (
    FOR_EVER,
    LEAST_REPUTATION,
    ONE,
    UNRATED,
    Rater,
    ReputationRules,
    Standing,
    newcomer,
    rated,
    shared_scores,
)
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Address, Hash32

REMEDY = "A log is missing or another contract's; read the chain anew."


@dataclass(frozen=True, slots=True)
class ReputationDeployed:
    """The contract stands; epoch 0 began with this block."""

    committee: Address
    registry: Address
    rules: ReputationRules
    start_block: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class RaterEnrolled:
    """A member is bonded, and counts from an epoch on."""

    operator: Address
    owner: Address
    vrf_x: int
    vrf_y: int
    first: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class RaterLeft:
    """A member counts until before an epoch, and gets its bond after a block."""

    operator: Address
    end: int
    exit_block: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class RaterExpelled:
    """A member signed two updates for one epoch, and lost its bond."""

    operator: Address
    epoch: int
    bond: int
    reward: int
    reporter: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class BondReturned:
    """A member that left has its bond."""

    operator: Address
    owner: Address
    bond: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EpochSettled:
    """An epoch is over; ``drawn`` by the last leader's VRF, else its leader was drawn by the seed."""

    epoch: int
    leader: Address
    digest: Hash32
    next_list: Hash32
    signers: int
    drawn: bool
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class NodeRated:
    """A node's credit in an epoch, and its score and abnormal bits after it."""

    node: Address
    owner: Address
    epoch: int
    credit: int
    silent: bool
    score: int
    abnormal: int
    meta: LogMeta


ReputationEvent = (
    ReputationDeployed | RaterEnrolled | RaterLeft | RaterExpelled | BondReturned | EpochSettled | NodeRated
)


@lru_cache(maxsize=1)
def _decoders() -> Mapping[bytes, EventDecoder[Any]]:
    events = named("event", REPUTATION)
    return {events[kind.__name__].topic: decoder(kind, events[kind.__name__]) for kind in get_args(ReputationEvent)}


def parse_reputation_log(log: EventLog) -> ReputationEvent | None:
    """The event that a log of the contract is; None for one of its base contracts (EIP-5267)."""
    found = _decoders().get(log.topics[0]) if log.topics else None
    event: ReputationEvent | None = None if found is None else found.event(log)
    return event


@dataclass(frozen=True, slots=True)
class ReputationState:
    """What the events say so far; ``deployed`` is None before the first.

    Attributes:
        through: one more than the last settled epoch, 0 before.
        leader: of that epoch; its VRF draws the next one's leader.
        ratings: each node's last one.
        settled: the last epoch that was settled.
    """

    deployed: ReputationDeployed | None = None
    through: int = 0
    leader: Address = ZERO_ADDRESS
    next_list: Hash32 = ZERO_HASH
    raters: Mapping[Address, Rater] = field(default_factory=dict)
    expelled: frozenset[Address] = frozenset()
    standings: Mapping[Address, Standing] = field(default_factory=dict)
    ratings: Mapping[Address, NodeRated] = field(default_factory=dict)
    settled: EpochSettled | None = None

    def after(self, event: ReputationEvent) -> ReputationState:
        """The state after an event; raises InvalidField for one that cannot follow, a score that is wrong included."""
        match event:
            case ReputationDeployed():
                return replace(self, deployed=event)
            case NodeRated():
                return self._rated(event)
            case EpochSettled():
                if event.epoch < self.through:
                    raise InvalidField("An epoch is settled once, in order", event.epoch, REMEDY)
                return replace(
                    self, through=event.epoch + 1, leader=event.leader, next_list=event.next_list, settled=event
                )
            case RaterEnrolled():
                rater = Rater(event.owner, event.first, FOR_EVER, 0, event.vrf_x, event.vrf_y)
                return replace(self, raters={**self.raters, event.operator: rater})
            case RaterLeft():
                left = replace(self._rater(event.operator), end=event.end, exit_block=event.exit_block)
                return replace(self, raters={**self.raters, event.operator: left})
            case RaterExpelled():
                return replace(self._without(event.operator), expelled=self.expelled | {event.operator})
            case BondReturned():
                return self._without(event.operator)

    def _rated(self, event: NodeRated) -> ReputationState:
        if self.deployed is None:
            raise InvalidField("A node is rated before the contract stands", event.node, REMEDY)
        rules = self.deployed.rules
        before = self.standings.get(event.node) or newcomer(rules, event.owner)
        standing = rated(before, event.credit, event.epoch, rules)
        if (standing.score, standing.abnormal, standing.owner) != (event.score, event.abnormal, event.owner):
            raise InvalidField("A score does not follow from its credits", (event.node, event.score), REMEDY)
        standings = {**self.standings, event.node: standing}
        return replace(self, standings=standings, ratings={**self.ratings, event.node: event})

    def _rater(self, operator: Address) -> Rater:
        found = self.raters.get(operator)
        if found is None:
            raise InvalidField("This operator is not enrolled", operator, REMEDY)
        return found

    def _without(self, operator: Address) -> ReputationState:
        self._rater(operator)
        return replace(self, raters={one: rater for one, rater in self.raters.items() if one != operator})


class SharedReputation:
    """The committee's word about a node, for whoever gives work: 0 below the bar, else 0.4 to 1.

    Args:
        state: the folded contract, now.
    """

    def __init__(self, state: Callable[[], ReputationState]) -> None:
        self._state = state
        self._seen: ReputationState | None = None
        self._shared: Mapping[Address, int] = {}

    def __call__(self, node: Address) -> float:
        """Of one node; of one that nobody rated what newcomers begin with."""
        state = self._state()
        if state is not self._seen:
            # Only when an event came: a group asks for every member each second.
            self._seen, self._shared = state, shared_scores(state.standings)
        if state.deployed is None:
            return UNRATED
        rules = state.deployed.rules
        score = self._shared.get(node, rules.initial)
        # Who gives work compares with the paper's bar; a deployment may have another.
        return max(score / ONE, LEAST_REPUTATION) if score >= rules.bar else 0.0
