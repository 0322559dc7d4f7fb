"""Organisations as they are read through a node: their folded events, and the record from which credits follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from troth.chain.adapter import Chain
from troth.chain.errors import WrongChain
from troth.chain.follower import Folding, Follower
from troth.protocol.logs import EventLog
from troth.protocol.market.state import State
from troth.protocol.organisation_events import OrganisationEvent, OrganisationsState, parse_organisation_log
from troth.protocol.organisations import OrganisationsPlace, ServedEpoch, ServiceRecord, served_by
from troth.protocol.reputation_events import NodeRated, ReputationState, parse_reputation_log
from troth.protocol.types import Address

SPAN = 2_000
"""Blocks asked for at once; public nodes often refuse more."""


@dataclass(frozen=True, slots=True)
class OrganisationStep:
    """An event, and the state in which it happened."""

    event: OrganisationEvent
    before: OrganisationsState


@dataclass(frozen=True, slots=True)
class OrganisationsReading:
    """Everything up to a block: the contract's state, and the record from which its credits are computed again.

    Attributes:
        steps: every event in order, with the state before it.
    """

    place: OrganisationsPlace
    state: OrganisationsState
    record: ServiceRecord
    block: int
    steps: tuple[OrganisationStep, ...]

    @property
    def epoch(self) -> int:
        """The epoch of the block."""
        return (self.block - self.record.reputation.start_block) // self.record.epoch_blocks

    def due(self, node: Address) -> ServedEpoch | None:
        """What a node can be credited for the epoch that ended last; None if that was done, or nothing is due."""
        last = self.epoch - 1
        if last < 0 or self.state.posted.get(node, 0) > last or self.block <= self.record.first_block(self.epoch):
            return None
        hosted = self.state.hosts_in(last).get(node)
        served = served_by(last, self.record, node, None if hosted is None else hosted[1])
        if served is None:
            return None
        # A deployment pays for a node that nobody rated, too: whoever sends it requests can send it away.
        refused = bool(served.refusal) if hosted is None else not self.record.is_trusted(node)
        return None if refused else served


async def read_organisations(
    rpc: str,
    place: OrganisationsPlace,
    market: State,
    registry: Address,
    *,
    block: int | None = None,
) -> OrganisationsReading:
    """Read both contracts' logs up to a block, or to the newest.

    Args:
        market: folded at least up to that block.
        registry: of the market; an Organisations of another market is refused.

    Raises:
        WrongChain: the contract is no Organisations, or belongs to another market.
        ChainError: the node cannot be used.
        InvalidField: events that cannot follow each other.
    """
    async with await Chain.connect(rpc, place.contract) as chain:
        last = await chain.block_number() if block is None else block
        events: list[OrganisationEvent] = []
        await _each(chain, place.start_block, last, lambda log: events.append(parse_organisation_log(log)))
    state = OrganisationsState()
    steps: list[OrganisationStep] = []
    for event in events:
        steps.append(OrganisationStep(event, state))
        state = state.after(event)
    if state.deployed is None:
        what = f"The contract says nothing of organisations from block {place.start_block} on"
        raise WrongChain(what, place.contract, "Name the Organisations contract, and a block not after it.")
    if state.deployed.registry != registry:
        what = "The contract belongs to another market"
        raise WrongChain(what, place.contract, "Name the contract of this deployment, or its --factory.")
    record = await _record(rpc, state.deployed.reputation, market, last)
    return OrganisationsReading(place, state, record, last, tuple(steps))


async def _record(rpc: str, contract: Address, market: State, last: int) -> ServiceRecord:
    """What Reputation said; it stands since before Organisations, and each score is computed again."""
    ratings: dict[Address, list[NodeRated]] = {}
    states = [ReputationState()]

    def take(log: EventLog) -> None:
        event = parse_reputation_log(log)
        if event is None:
            return
        states.append(states.pop().after(event))
        if isinstance(event, NodeRated):
            ratings.setdefault(event.node, []).append(event)

    async with await Chain.connect(rpc, contract) as chain:
        await _each(chain, 0 if market.deployed is None else market.deployed.meta.block, last, take)
    deployed = states[0].deployed
    if deployed is None:
        raise WrongChain("The Reputation behind it says nothing", contract, "Use a node that keeps all logs.")
    return ServiceRecord(market, deployed, {node: tuple(said) for node, said in ratings.items()})


async def _each(chain: Chain, first: int, last: int, take: Callable[[EventLog], None]) -> None:
    for start in range(first, last + 1, SPAN):
        for log in await chain.logs(start, min(start + SPAN - 1, last)):
            take(log)


@asynccontextmanager
async def deployments_of(
    rpc: str, place: OrganisationsPlace | None, folder: Path, *, chain_id: int | None = None
) -> AsyncIterator[Callable[[], OrganisationsState]]:
    """What organisations have hosted, followed inside the block; without a place nobody has anything.

    Args:
        folder: keeps the events, for one process at a time.

    Raises:
        ChainError: the node or the contract cannot be used.
    """
    if place is None:
        yield OrganisationsState
        return
    path, start = folder / "organisation-events.sqlite", place.start_block
    folding = Folding(OrganisationsState(), lambda log, state: state.after(parse_organisation_log(log)))
    async with (
        await Chain.connect(rpc, place.contract, chain_id=chain_id) as chain,
        Follower(chain, folding, path, start_block=start) as follower,
    ):
        await follower.catch_up()
        yield lambda: follower.state
