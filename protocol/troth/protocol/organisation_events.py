"""Events of contracts/organisations/Organisations.sol, and the state that follows from them, every balance added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, get_args

from troth.protocol.bindings import ORGANISATIONS, named
from troth.protocol.errors import InvalidField
from troth.protocol.logs import EventDecoder, EventLog, LogMeta, decoder
from troth.protocol.organisations import Hosting
from troth.protocol.types import Address, Hash32, Segment

REMEDY = "A log is missing or another contract's; read the chain anew."


@dataclass(frozen=True, slots=True)
class OrganisationsDeployed:
    """The contract stands."""

    reputation: Address
    registry: Address
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Contributed:
    """Credits were made: a node served an epoch."""

    node: Address
    owner: Address
    epoch: int
    first: int
    end: int
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ModelDeployed:
    """An owner set credits aside for a model."""

    deployment: int
    owner: Address
    execution_class: Hash32
    replicas: int
    first: int
    end: int
    reserve: int
    balance: int
    source: str
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class HostingBegun:
    """A node took layers of a deployment."""

    deployment: int
    node: Address
    first_layer: int
    end_layer: int
    first: int
    end: int
    hosted: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class HostingEnded:
    """A node left a deployment, or was sent away."""

    deployment: int
    node: Address
    end: int
    dismissed: bool
    hosted: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class HostingCredited:
    """An epoch's credits moved from a deployment's reserve to a host's owner."""

    deployment: int
    node: Address
    owner: Address
    epoch: int
    amount: int
    reserve: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class DeploymentStopped:
    """A deployment ends before its time."""

    deployment: int
    end: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ReserveReturned:
    """What a deployment did not spend went back."""

    deployment: int
    owner: Address
    amount: int
    balance: int
    meta: LogMeta


CreditMovement = Contributed | HostingCredited
OrganisationEvent = (
    OrganisationsDeployed
    | Contributed
    | ModelDeployed
    | HostingBegun
    | HostingEnded
    | HostingCredited
    | DeploymentStopped
    | ReserveReturned
)


@lru_cache(maxsize=1)
def _decoders() -> Mapping[bytes, EventDecoder[Any]]:
    events = named("event", ORGANISATIONS)
    return {events[kind.__name__].topic: decoder(kind, events[kind.__name__]) for kind in get_args(OrganisationEvent)}


def parse_organisation_log(log: EventLog) -> OrganisationEvent:
    """The event that a log of the contract is; raises InvalidField for one that it cannot have emitted."""
    found = _decoders().get(log.topics[0]) if log.topics else None
    if found is None:
        raise InvalidField("The log is none of Organisations", log.address, REMEDY)
    event: OrganisationEvent = found.event(log)
    return event


@dataclass(frozen=True, slots=True)
class HostedDeployment:
    """A deployment as events tell it; ``end`` is the first epoch that is not paid."""

    number: int
    owner: Address
    execution_class: Hash32
    replicas: int
    first: int
    end: int
    reserve: int
    source: str
    hosted: int = 0


@dataclass(frozen=True, slots=True)
class OrganisationsState:
    """What the events say so far; ``deployed`` is None before the first.

    Attributes:
        total: credits that were ever made: the sum of all balances and reserves.
        posted: one more than the last epoch for which each node was credited.
        movements: every credit that was made or moved, in order.
        dismissals: the nodes that each owner sent away, in order.
    """

    deployed: OrganisationsDeployed | None = None
    total: int = 0
    balances: Mapping[Address, int] = field(default_factory=dict)
    deployments: Mapping[int, HostedDeployment] = field(default_factory=dict)
    hostings: Mapping[Address, Hosting] = field(default_factory=dict)
    posted: Mapping[Address, int] = field(default_factory=dict)
    movements: tuple[CreditMovement, ...] = ()
    dismissals: Mapping[Address, tuple[Address, ...]] = field(default_factory=dict)

    def after(self, event: OrganisationEvent) -> OrganisationsState:
        """The state after an event; raises InvalidField for one that cannot follow, a sum that is wrong included."""
        match event:
            case OrganisationsDeployed():
                return replace(self, deployed=event)
            case Contributed():
                state = self._posted(event)._paid(event.owner, event.amount, event.balance)
                return replace(state, total=state.total + event.amount)
            case ModelDeployed():
                return self._deployed(event)
            case HostingBegun():
                hosting = Hosting(event.deployment, event.first, event.end, event.first_layer, event.end_layer)
                state = replace(self, hostings={**self.hostings, event.node: hosting})
                more = event.end_layer - event.first_layer
                return state._with(event.deployment, hosted=self._known(event.deployment).hosted + more)
            case HostingEnded():
                return self._ended(event)
            case HostingCredited():
                left = self._known(event.deployment).reserve - event.amount
                if left < 0 or left != event.reserve:
                    raise InvalidField("A reserve is not what it was less what was paid", event.reserve, REMEDY)
                state = self._posted(event)._paid(event.owner, event.amount, event.balance)
                return state._with(event.deployment, reserve=left)
            case DeploymentStopped():
                return self._with(event.deployment, end=event.end)
            case ReserveReturned():
                if self._known(event.deployment).reserve != event.amount:
                    raise InvalidField("Another sum than the reserve was returned", event.amount, REMEDY)
                return self._with(event.deployment, reserve=0)._paid(event.owner, event.amount, event.balance)

    def hosts_in(self, epoch: int) -> dict[Address, tuple[HostedDeployment, Segment]]:
        """The nodes that a deployment pays for an epoch, each with its layers."""
        found = {}
        for node, hosting in self.hostings.items():
            deployment = self.deployments[hosting.deployment]
            if hosting.first <= epoch < min(hosting.end, deployment.end):
                found[node] = (deployment, Segment(hosting.first_layer, hosting.end_layer))
        return found

    def paying_for(self, execution_class: Hash32) -> tuple[HostedDeployment, ...]:
        """The deployments of a class that have credits left."""
        found = (one for one in self.deployments.values() if one.execution_class == execution_class and one.reserve)
        return tuple(found)

    def _deployed(self, event: ModelDeployed) -> OrganisationsState:
        if event.deployment != len(self.deployments) + 1:
            raise InvalidField("Deployments are numbered without a gap", event.deployment, REMEDY)
        state = self._paid(event.owner, -event.reserve, event.balance)
        made = HostedDeployment(
            event.deployment,
            event.owner,
            event.execution_class,
            event.replicas,
            event.first,
            event.end,
            event.reserve,
            event.source,
        )
        return replace(state, deployments={**state.deployments, event.deployment: made})

    def _ended(self, event: HostingEnded) -> OrganisationsState:
        before, deployment = self.hostings.get(event.node), self._known(event.deployment)
        if before is None or before.deployment != event.deployment:
            raise InvalidField("This node did not host the deployment", event.node, REMEDY)
        dismissals = dict(self.dismissals)
        if event.dismissed:
            dismissals[deployment.owner] = (*dismissals.get(deployment.owner, ()), event.node)
        ended = replace(before, end=event.end)
        state = replace(self, hostings={**self.hostings, event.node: ended}, dismissals=dismissals)
        return state._with(event.deployment, hosted=deployment.hosted - (before.end_layer - before.first_layer))

    def _posted(self, event: CreditMovement) -> OrganisationsState:
        if self.posted.get(event.node, 0) > event.epoch:
            raise InvalidField("An epoch is credited once", (event.node, event.epoch), REMEDY)
        posted = {**self.posted, event.node: event.epoch + 1}
        return replace(self, posted=posted, movements=(*self.movements, event))

    def _paid(self, owner: Address, amount: int, balance: int) -> OrganisationsState:
        after = self.balances.get(owner, 0) + amount
        if after < 0 or after != balance:
            raise InvalidField("A balance is not what it was and what moved", (owner, balance), REMEDY)
        return replace(self, balances={**self.balances, owner: after})

    def _known(self, number: int) -> HostedDeployment:
        found = self.deployments.get(number)
        if found is None:
            raise InvalidField("There is no such deployment", number, REMEDY)
        return found

    def _with(self, number: int, **changes: Any) -> OrganisationsState:
        changed = replace(self._known(number), **changes)
        return replace(self, deployments={**self.deployments, number: changed})
