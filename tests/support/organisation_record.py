"""A market of three nodes as events alone, ratings of them, and an organisation's honest course: no chain."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, reduce
from typing import Any

from support.market_logs import META, address
from support.market_record import record
from support.market_scene import KEYS, MODEL, execution_class

from troth.chain.organisations import OrganisationsReading, OrganisationStep
from troth.protocol.logs import LogMeta
from troth.protocol.market.messages import state_hash
from troth.protocol.market.state import State
from troth.protocol.organisation_events import (
    Contributed,
    HostingBegun,
    HostingCredited,
    ModelDeployed,
    OrganisationEvent,
    OrganisationsDeployed,
    OrganisationsState,
)
from troth.protocol.organisations import OrganisationsPlace, ServiceRecord
from troth.protocol.reputation import ONE, paper_rules
from troth.protocol.reputation_events import NodeRated, ReputationDeployed
from troth.protocol.types import ZERO_HASH, Address

CLASS = state_hash(execution_class())
EPOCH, START = 100, 50
RULES = paper_rules(EPOCH, 0)
FIRST, SECOND, THIRD = sorted(list(KEYS)[:3])
ALICE, BOB = address(70), address(71)
CONTRACT, REPUTATION, REGISTRY = address(72), address(73), address(74)
SERVED = MODEL.layers * 12 * MODEL.hidden_size**2 * 4 * EPOCH


def rating(node: Address, epoch: int, /, **changes: Any) -> NodeRated:
    """A good word about a node, said before the epoch's end."""
    place = LogMeta(START + (epoch + 1) * EPOCH - 2, 0, ZERO_HASH, ZERO_HASH)
    said = NodeRated(node, market().owner_of(node), epoch, ONE, False, 9 * ONE // 10, 0, place)
    return replace(said, **changes)


@cache
def market(*later: Any) -> State:
    """Three nodes of the whole model that joined long ago, each with an owner of its own, then ``later``."""
    return record(*later, nodes=3).history.state


def served_record(*ratings: NodeRated, state: State | None = None) -> ServiceRecord:
    """What credits follow from."""
    said: dict[Address, list[NodeRated]] = {}
    for one in ratings:
        said.setdefault(one.node, []).append(one)
    deployed = ReputationDeployed(address(75), REGISTRY, RULES, START, META)
    return ServiceRecord(state or market(), deployed, {node: tuple(them) for node, them in said.items()})


def posted(node: Address = FIRST, epoch: int = 0, balance: int = SERVED, **changes: Any) -> Contributed:
    """The first node, or another, is credited in time for an epoch."""
    place = replace(META, block=START + (epoch + 1) * EPOCH + 2)
    made = Contributed(node, market().owner_of(node), epoch, 0, MODEL.layers, SERVED, balance, place)
    return replace(made, **changes)


def deployed(number: int = 1, owner: Address | None = None, balance: int = SERVED, **changes: Any) -> ModelDeployed:
    """The first node\'s owner has its class on one machine in epoch 4."""
    place = replace(META, block=START + 3 * EPOCH)
    who = owner or market().owner_of(FIRST)
    made = ModelDeployed(number, who, CLASS, 1, 4, 5, SERVED, balance, "own/model", place)
    return replace(made, **changes)


HONEST: tuple[OrganisationEvent, ...] = (
    OrganisationsDeployed(REPUTATION, REGISTRY, META),
    posted(epoch=0),
    posted(epoch=1, balance=2 * SERVED),
    deployed(),
    HostingBegun(1, SECOND, 0, MODEL.layers, 4, 5, MODEL.layers, replace(META, block=START + 3 * EPOCH)),
    HostingCredited(
        1, SECOND, market().owner_of(SECOND), 4, SERVED, 0, SERVED, replace(META, block=START + 5 * EPOCH + 2)
    ),
)


def folded(events: tuple[OrganisationEvent, ...] = HONEST) -> OrganisationsState:
    """The state after events."""
    return reduce(lambda state, event: state.after(event), events, OrganisationsState())


def reading(*events: OrganisationEvent, state: State | None = None, ratings: Any = None) -> OrganisationsReading:
    """Events as they would be read; without ``ratings`` the first node was rated well in every epoch."""
    steps, before = [], OrganisationsState()
    for event in events:
        steps.append(OrganisationStep(event, before))
        before = before.after(event)
    said = [rating(FIRST, epoch) for epoch in range(5)] if ratings is None else ratings
    served = served_record(*said, state=state)
    return OrganisationsReading(OrganisationsPlace(CONTRACT), before, served, START + 6 * EPOCH, tuple(steps))
