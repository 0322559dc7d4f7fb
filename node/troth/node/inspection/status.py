"""`troth node status` and `doctor` of a node with [market]: what chain, machine and process say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from troth.chain.errors import ChainError, KeystoreError, without_credentials
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.organisations import OrganisationsReading, read_organisations
from troth.chain.reputation import followed_reputation
from troth.chain.tokens import asset_of, described
from troth.chain.withdrawing import Withdrawable
from troth.node.configuration import NodeConfiguration, load
from troth.node.court.dispute_chain import own_disputes
from troth.node.errors import NodeError
from troth.node.inspection.machine_checks import Say, machine_findings, quiet, slice_finding
from troth.node.inspection.outside import (
    DAY,
    TRIED_AGAIN_SECONDS,
    SchedulerWord,
    ask_once_tried,
    clock_finding,
    gas_finding,
    outside_findings,
)
from troth.node.inspection.process import NO_PROCESS, operator_of, process_state
from troth.node.orders.running import connect
from troth.node.organisations.deployments import node_words
from troth.node.registration.configured_slice import text_of
from troth.node.registration.reach import way_finding
from troth.overlay.attestation.errors import MachineUnable
from troth.overlay.attestation.machine import LinuxMachine
from troth.protocol.amounts import COIN, Asset
from troth.protocol.market.calls import view
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.parts import Part
from troth.protocol.market.state import State, account_id
from troth.protocol.market.types import GroupEntry, PotKind, Role, Rules
from troth.protocol.market.views import class_of
from troth.protocol.organisations import served_in
from troth.protocol.reputation import ONE, shared_scores
from troth.protocol.reputation_events import ReputationState
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment
from troth.transport.health import HealthFinding


class GroupStanding(NamedTuple):
    """A group that the node is in: its layers, the node's seats and since which block, and how many members it has."""

    layers: Segment
    seats: int
    since: int
    members: int

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "layers": text_of(self.layers),
            "seats": self.seats,
            "since_block": self.since,
            "members": self.members,
        }


class OnMarket(NamedTuple):
    """What the chain says, asked once."""

    operator: Address
    block: int
    behind: float
    role: Role
    exit_block: int
    stake: int
    locked: int
    credit: int
    gas_money: int
    rules: Rules
    hosted: Segment | None
    asset: Asset
    groups: tuple[GroupStanding, ...] = ()

    @property
    def seats(self) -> int:
        """Seats that the stake covers in the configured class; none once the operator leaves."""
        if self.exit_block:
            return 0
        return min(self.stake // self.rules.seat, self.rules.seat_cap) if self.rules.seat else 0


async def ask(configuration: NodeConfiguration) -> OnMarket:
    """Read it all from the configured deployment."""
    operator = operator_of(configuration)
    async with await connect(configuration) as market:
        role, _, exit_block = await _read(market, Part.REGISTRY, "roleOf", operator, returns=(int, Address, int))
        stake, locked = await _read(market, Part.BANK, "stakeOf", operator, returns=(int, int))
        words = (PotKind.CREDIT, account_id(operator))
        first, end, *places = await _read(market, Part.REGISTRY, "sliceOf", operator, returns=(int, int, int, int))
        newest = await market.chain.block()
        return OnMarket(
            operator=operator,
            block=newest.number if newest else 0,
            behind=time.time() - (newest.timestamp if newest else 0),
            role=Role(role),
            exit_block=exit_block,
            stake=stake,
            locked=locked,
            credit=await _read(market, Part.BANK, "balanceOf", *words, returns=int),
            gas_money=await market.chain.balance(operator),
            rules=await _read(market, Part.REGISTRY, "rulesOf", configuration.execution_class, returns=Rules),
            hosted=Segment(first, end) if first < end else None,
            asset=await asset_of(market),
            groups=tuple([await _group(market, configuration, packed) for packed in places if packed]),
        )


async def _group(market: Market, configuration: NodeConfiguration, packed: int) -> GroupStanding:
    """A membership as Registry.sliceOf packs it: first << 40 | end << 32 | place."""
    layers, place = Segment(packed >> 40 & 0xFF, packed >> 32 & 0xFF), packed & 0xFFFFFFFF
    words = (configuration.execution_class, layers.first, layers.end)
    group = await _read(market, Part.REGISTRY, "groupId", *words, returns=Hash32)
    block = await market.chain.block_number()
    entry = await _read(market, Part.REGISTRY, "entryAt", group, place, block, returns=GroupEntry)
    members = await _read(market, Part.REGISTRY, "sizeAt", group, block, returns=int)
    return GroupStanding(layers, entry.seats, entry.since, members)


async def _read(market: Market, part: Part, function: str, *arguments: object, returns: Any) -> Any:
    return await market.read(view(market.contracts, part, function, *arguments, returns=returns))


def status(home: Path) -> dict[str, Any]:
    """On chain: role, slice, stake, seats, credit, gas money. Process: ready or the reasons why not."""
    configuration = load(home)
    seen: OnMarket = asyncio.run(ask(configuration))
    rated = {} if configuration.reputation is None else asyncio.run(own_reputation(configuration, seen.operator))
    served = {} if configuration.organisations is None else asyncio.run(own_contribution(configuration, seen.operator))
    return {
        "operator": seen.operator,
        "role": seen.role.name.lower(),
        "slice": None if seen.hosted is None else text_of(seen.hosted),
        "groups": [group.told() for group in seen.groups],
        "stake_units": str(seen.stake),
        "locked_units": str(seen.locked),
        "seats": seen.seats,
        "seat_units": str(seen.rules.seat),
        "credit_units": str(seen.credit),
        **described(seen.asset),
        "exit_block": seen.exit_block or None,
        "gas_money_wei": str(seen.gas_money),
        "block": seen.block,
        "accuses": _accuses(configuration),
        "disputes": asyncio.run(own_disputes(configuration, seen.operator)),
        "endpoint": configuration.endpoint,
        "tunnel": configuration.tunnel,
        **({"reputation": rated} if rated else {}),
        **({"contribution": served} if served else {}),
        "process": process_state(configuration),
    }


def _accuses(configuration: NodeConfiguration) -> str:
    """Whether this node proves a wrong token where its verdict lost, in words."""
    if not configuration.accuse_wei:
        return "never: [court] accuse_wei is 0"
    most = COIN.show(configuration.accuse_wei)
    return f"by itself where its verdict lost, for at most {most} of gas a proof, or of bond and gas a dispute"


class LookedAround(NamedTuple):
    """What `doctor` finds out beyond the machine: the chain asked and followed, and what schedulers say."""

    seen: OnMarket
    state: State
    words: list[SchedulerWord]
    gas: HealthFinding
    way: HealthFinding | None


async def look_around(configuration: NodeConfiguration, patience: float) -> LookedAround:
    """Ask chain and schedulers, these for ``patience`` seconds where none of them is connected yet."""
    seen = await ask(configuration)
    async with await connect(configuration) as market, MarketFollower(market) as follower:
        state = await follower.catch_up()
        party = state.parties.get(seen.operator)
        since = None if party is None else await market.chain.block(party.registered.block)
        days = 0.0 if since is None else max(time.time() - since.timestamp, 0.0) / DAY
        sent = await market.chain.transactions_sent(seen.operator)
        gas = gas_finding(seen.operator, seen.gas_money, (await market.fees()).maximum, sent, days)
    words = await ask_once_tried(state, seen.operator, patience)
    return LookedAround(seen, state, words, gas, await way_finding(configuration, state, seen.operator, words))


def examine(home: Path, *, machine: bool = True) -> list[HealthFinding]:
    """One line per thing that must be right; see `examining`."""
    return list(examining(home, machine=machine))


def examining(home: Path, *, machine: bool = True, say: Say = quiet) -> Iterator[HealthFinding]:
    """The same, one by one as they are found; those that need the chain are left out where it does not answer.

    Without ``machine`` engine, model and port are left out: to hash a model takes a while. ``say`` hears what is being
    done before what takes long.
    """
    configuration = load(home)
    yield HealthFinding("config", True, str(home / "node.toml"), "")
    state = process_state(configuration)
    patience = TRIED_AGAIN_SECONDS if machine and state.get("ready") else 0.0
    say(f"rpc: reading the chain at {without_credentials(configuration.rpc)}, and asking schedulers for their word")
    try:
        found: LookedAround = asyncio.run(look_around(configuration, patience))
    except (ChainError, KeystoreError, NodeError) as error:
        yield HealthFinding("rpc", False, error.what, error.remedy)
        yield from machine_findings(configuration, None, say) if machine else ()
    else:
        seen = found.seen
        yield HealthFinding("rpc", True, f"block {seen.block}", "")
        yield clock_finding(seen.behind, found.words)
        yield from (*_on_chain(seen), found.gas, slice_finding(configuration, seen.hosted))
        if machine:
            yield from machine_findings(configuration, lambda: _registered(configuration, found.state), say)
            yield from confidential_findings(configuration)
        if found.way is not None:
            yield found.way
        yield from outside_findings(configuration, found.state, seen.operator, found.words)
    reasons = "; ".join(state.get("reasons", []))
    fix = "Run `troth node start`." if reasons.startswith(NO_PROCESS) else "The node runs; its log says more of this."
    yield HealthFinding("process", bool(state.get("ready")), reasons or "ready", fix)


def confidential_findings(configuration: NodeConfiguration) -> list[HealthFinding]:
    """Whether this guest can speak for itself, where its entry is to be attested."""
    entry = None if configuration.overlay is None else configuration.overlay.confidential
    if entry is None or not isinstance(entry.attester, LinuxMachine):
        return []
    try:
        asyncio.run(entry.attester.require_quote())
    except MachineUnable as error:
        return [HealthFinding("confidential", False, error.what, error.remedy)]
    trusted = f"this guest makes quotes; it speaks to {len(entry.trusted)} measurements"
    return [HealthFinding("confidential", True, trusted, "")]


def _registered(configuration: NodeConfiguration, state: State) -> ModelDescriptor:
    try:
        return class_of(state, configuration.execution_class)[1]
    except InvalidOrder as error:
        shown = "0x" + configuration.execution_class.hex()
        raise NodeError("the execution class is not registered", shown, "Run: troth model register") from error


def _on_chain(seen: OnMarket) -> list[HealthFinding]:
    registered, known = seen.role is Role.NODE and not seen.exit_block, bool(seen.rules.seat)
    standing, fix = seen.role.name.lower(), "Run `troth node register --broadcast`."
    if seen.exit_block:
        pots = Withdrawable(seen.credit, seen.stake, seen.exit_block, seen.block, seen.locked)
        standing, fix = pots.departure("troth node")
    return [
        HealthFinding(
            "class", known, "registered" if known else "unknown here", "Check node.class and market.factory."
        ),
        HealthFinding("stake", registered, standing, fix),
        HealthFinding(
            *("seats", seen.seats > 0, f"{seen.seats}; a node has at most {seen.rules.seat_cap}"),
            "Run `troth node top-up AMOUNT --broadcast`." if registered else fix,
        ),
    ]


def reputation_told(state: ReputationState, node: Address) -> dict[str, Any]:
    """How a node stands, and what that means for its work, for `troth node status`."""
    assert state.deployed is not None
    rules, standing = state.deployed.rules, state.standings.get(node)
    if standing is None:
        able = rules.initial >= rules.bar
        why = f"nobody rated it yet: it begins with {rules.initial / ONE:g}, the bar is {rules.bar / ONE:g}"
        return {"score": rules.initial / ONE, "takes_work": able, "why": why}
    shared, rating = shared_scores(state.standings)[node], state.ratings[node]
    credit = "it was silent" if rating.silent else f"its credit was {rating.credit / ONE:g}"
    bad = f"{standing.abnormal.bit_count()} of the last {rules.window} were below {rules.abnormal / ONE:g}"
    why = f"in epoch {standing.last_epoch} {credit}; {bad}; the bar is {rules.bar / ONE:g}"
    if shared < standing.score:
        why += f"; its owner's other nodes pull it from {standing.score / ONE:g} to {shared / ONE:g}"
    return {
        "score": standing.score / ONE,
        "shared": shared / ONE,
        "takes_work": shared >= rules.bar,
        "why": why,
    }


async def own_reputation(configuration: NodeConfiguration, node: Address) -> dict[str, Any]:
    """The same, read from the chain now; raises ChainError."""
    place = configuration.reputation
    assert place is not None
    # Without a file: that belongs to the running process.
    async with followed_reputation(
        configuration.rpc, place.contract, start_block=place.start_block, chain_id=configuration.chain_id
    ) as follower:
        return reputation_told(follower.state, node)


def contribution_told(reading: OrganisationsReading, node: Address) -> dict[str, Any]:
    """What a node earned its owner last, or why nothing, what it hosts for others, and what the owner has."""
    state, market, last = reading.state, reading.record.market, reading.epoch - 1
    party, hosting = market.parties.get(node), state.hostings.get(node)
    owner = None if party is None else party.owner
    hosts = state.hosts_in(last)
    served = [] if last < 0 else served_in(last, reading.record, {one: layers for one, (_, layers) in hosts.items()})
    mine = [one for one in served if one.presence.node == node]
    runs = hosting is not None and reading.epoch < min(hosting.end, state.deployments[hosting.deployment].end)
    told: dict[str, Any] = {
        "epoch": reading.epoch,
        "owner": owner,
        "owner_credits": str(0 if owner is None else state.balances.get(owner, 0)),
        "last_epoch": node_words(reading, mine[0]) if mine else "nothing: it did not stand in one group through it",
        "owner_deployments": [one.number for one in state.deployments.values() if one.owner == owner and one.reserve],
        "hosts": None,
    }
    if hosting is not None and runs:
        deployment = state.deployments[hosting.deployment]
        layers, until = text_of(Segment(hosting.first_layer, hosting.end_layer)), min(hosting.end, deployment.end)
        of = f"deployment {deployment.number} of {deployment.owner}"
        told["hosts"] = f"{of}: layers {layers}, paid from epoch {hosting.first} until {until}"
    return told


async def own_contribution(configuration: NodeConfiguration, node: Address) -> dict[str, Any]:
    """The same, read from the chain now; raises ChainError."""
    consent = configuration.organisations
    assert consent is not None
    async with await connect(configuration) as market, MarketFollower(market) as follower:
        state = await follower.catch_up()
        registry = market.contracts.registry
        reading = await read_organisations(configuration.rpc, consent.place, state, registry, block=follower.block)
    return contribution_told(reading, node)
