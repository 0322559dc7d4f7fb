"""A node and contribution credits: which foreign models it takes, and how what it served is credited each epoch.

The owner's consent is [organisations] in node.toml. A node takes a deployment when it registers (`start --auto`), since
a node serves one class for life; from then on everything that is due is on chain, so that a kill loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from troth.chain.organisations import OrganisationsReading, read_organisations
from troth.node.configuration import HostingConsent, NodeConfiguration
from troth.node.models.folder import stored_models
from troth.protocol.calls import Call
from troth.protocol.market.state import State
from troth.protocol.market.types import Contracts
from troth.protocol.market.views import rules_in
from troth.protocol.organisation_calls import host, post
from troth.protocol.organisation_events import HostedDeployment, OrganisationsState
from troth.protocol.organisations import groups_within
from troth.protocol.types import Address, Segment

log = logging.getLogger(__name__)

Submit = Callable[[Call], Awaitable[object]]
"""Send a call to Organisations from the operator, and wait; raises ChainError."""


def model_name(source: str) -> str:
    """The folder under models/ where a deployment's model belongs: the last part of what its owner wrote."""
    return source.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ModelDemand:
    """A deployment that machines may take.

    Attributes:
        number: by which it is known; lower ones are older.
        wanted: layers that it pays, over all replicas.
        hosted: of them, how many machines hold already.
        epochs: for which it still pays.
    """

    number: int
    wanted: int
    hosted: int
    epochs: int

    @property
    def open(self) -> bool:
        """Whether there is something left to take, for at least one whole epoch."""
        return self.hosted < self.wanted and self.epochs > 0


def by_demand(demands: Iterable[ModelDemand]) -> list[ModelDemand]:
    """The open ones: first whoever lacks the largest part of its machines, then the longest paid, then the oldest.

    All pay the same for a byte, so that a machine gains nothing by preferring one; a deployment without any machine
    serves nobody, and comes before one that has some.
    """
    found = [one for one in demands if one.open]
    return sorted(found, key=lambda one: (one.hosted / one.wanted, -one.epochs, one.number))


def taken_by(consent: HostingConsent, reading: OrganisationsReading, own: Address | None) -> list[HostedDeployment]:
    """The deployments that this node may take, the most wanted first.

    Args:
        own: the owner's account; its own deployments need no consent.
    """
    state, market = reading.state, reading.record.market
    allowed = {
        number: one
        for number, one in state.deployments.items()
        if one.owner == own or consent.allows(one.owner)
        if one.execution_class in market.classes
    }
    demands = []
    for number, one in allowed.items():
        wanted = one.replicas * rules_in(market, one.execution_class).layers
        epochs = one.end - max(one.first, reading.epoch + 1)
        demands.append(ModelDemand(number, wanted, one.hosted, epochs))
    return [allowed[demand.number] for demand in by_demand(demands)]


async def with_deployment(
    configuration: NodeConfiguration, contracts: Contracts, market: State, operator: Address, owner: Address | None
) -> NodeConfiguration:
    """The configuration with the class and model of a deployment that this node takes; unchanged where there is none.

    A registered node keeps the class that it has. Of a newcomer's choices the first counts whose model lies under
    models/: nothing is fetched on a stranger's word, and the folder is compared with the registered weights on loading.

    Raises:
        ChainError: the contracts cannot be read.
    """
    consent = configuration.organisations
    if consent is None:
        return configuration
    reading = await read_organisations(configuration.rpc, consent.place, market, contracts.registry)
    stored = set(stored_models(configuration.folder))
    own = _of_registered(consent, reading, operator) if operator in market.parties else None
    for one in taken_by(consent, reading, owner) if own is None else own:
        if one.execution_class == configuration.execution_class:
            return configuration
        name = model_name(one.source)
        if name in stored:
            log.info("deployment %d of %s is hosted here: model %s", one.number, one.owner, name)
            return replace(configuration, execution_class=one.execution_class, model=name)
        log.warning("deployment %d is not taken: put %s into models/%s first", one.number, one.source, name)
    return configuration


def _of_registered(consent: HostingConsent, reading: OrganisationsReading, operator: Address) -> list[HostedDeployment]:
    """Deployments of a registered node's class: the one that it hosts or hosted first, then those of owners to whom its
    own agreed. Anybody may deploy the same class, and name another model's folder as its source."""
    party, hosting = reading.record.market.parties[operator], reading.state.hostings.get(operator)
    known = reading.state.deployments
    hosted = [] if hosting is None else [known[hosting.deployment]]
    agreed = [one for one in known.values() if one.owner == party.owner or consent.allows(one.owner)]
    return [one for one in (*hosted, *agreed) if one.execution_class == party.execution_class]


@dataclass(eq=False)
class Contributing:
    """Credits what a running node served, once an epoch, and takes layers of a deployment of its class.

    Args:
        market: the followed state of the deployment.
        submit: sends from the operator.
        auto: whether deployments are taken; without it only what was served is credited.
    """

    configuration: NodeConfiguration
    operator: Address
    market: Callable[[], State]
    contracts: Contracts
    block: Callable[[], int]
    submit: Submit
    auto: bool
    _next: int = -1

    async def step(self) -> None:
        """Look at the chain if an epoch began since, and do what is due; raises ChainError, and is called again."""
        consent = self.configuration.organisations
        if consent is None or self.block() < self._next:
            return
        reading = await read_organisations(
            self.configuration.rpc, consent.place, self.market(), self.contracts.registry, block=self.block()
        )
        due = reading.due(self.operator)
        if due is not None:
            await self.submit(post(due.epoch, [due.presence]))
            log.info("epoch %d is credited: %d", due.epoch, due.amount)
        if self.auto:
            await self._take(consent, reading)
        # Both ends of an epoch are past blocks from the second block of the next one on.
        first = reading.record.first_block(reading.epoch)
        self._next = first + 1 if reading.block <= first else reading.record.first_block(reading.epoch + 1) + 1

    async def _take(self, consent: HostingConsent, reading: OrganisationsReading) -> None:
        """Host a deployment of this node's class, where its owner agreed and the node hosts none."""
        party = reading.record.market.parties.get(self.operator)
        if party is None or party.hosted is None or _hosts(reading.state, self.operator, reading.epoch):
            return
        served = served_segment(reading.record.market, self.operator)
        for one in taken_by(consent, reading, party.owner):
            layers = rules_in(reading.record.market, one.execution_class).layers
            room = one.replicas * layers - one.hosted
            if self.operator in reading.state.dismissals.get(one.owner, ()):
                # It would serve, and be sent away before each epoch's end.
                log.info("deployment %d is not taken: its owner sent this node away before", one.number)
                continue
            if one.execution_class == party.execution_class and served is not None:
                if served.end - served.first > room:
                    log.info("deployment %d has room for %d layers, and %s are hosted here", one.number, room, served)
                    continue
                await self.submit(host(one.number, self.operator, served))
                log.info("hosts %s of deployment %d of %s", served, one.number, one.owner)
                return


def _hosts(state: OrganisationsState, node: Address, epoch: int) -> bool:
    """Whether a node hosts a deployment, or did until so lately that it may take no other."""
    hosting = state.hostings.get(node)
    if hosting is None:
        return False
    return epoch <= min(hosting.end, state.deployments[hosting.deployment].end)


def served_segment(market: State, node: Address) -> Segment | None:
    """The largest segment whose group a node is in; None where it is in none."""
    party = market.parties[node]
    if party.hosted is None:
        return None
    within = groups_within(party.execution_class, party.hosted)
    joined = [within[group] for group in market.groups_of(node) if group in within]
    return max(joined, key=lambda one: (one.end - one.first, -one.first), default=None)
