"""What an organisation does with its credits: look, deploy a model of its own on others' machines, end that again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.deployment import organisations_creation
from troth.chain.keystore import Key, address_in, load_account, read_password
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.chain.organisations import OrganisationsReading, read_organisations
from troth.chain.sending import TransactionSender, send_or_show
from troth.node.errors import ConfigError
from troth.protocol import organisation_calls as calls
from troth.protocol.calls import Call
from troth.protocol.market.types import Role
from troth.protocol.market.views import rules_in
from troth.protocol.organisation_events import HostedDeployment
from troth.protocol.organisations import (
    LONGEST_SOURCE,
    OrganisationsPlace,
    ServedEpoch,
    cost_of,
    gibibyte_days,
    served_in,
)
from troth.protocol.reputation import ONE
from troth.protocol.types import Address, Hash32, Segment, to_address

TIMED_BLOCKS = 1_000
"""Blocks whose mean is the chain's time of a block."""
DAY = 86_400


@dataclass(frozen=True, slots=True)
class OrganisationsAt:
    """Where a command finds market and contract; texts as they were given."""

    rpc: str
    factory: str
    bank: str
    contract: str
    start_block: int

    async def read(self) -> tuple[OrganisationsReading, float]:
        """Everything up to now, and the seconds of a block; raises ChainError, ConfigError."""
        if not self.factory:
            raise ConfigError(
                "No deployment is named", "no --network, no --factory", "Add --network FILE|NAME, or --factory 0x…."
            )
        if not self.contract:
            raise ConfigError(
                "No contract is named",
                "no --organisations",
                "Add --organisations 0x…, or --network with a file that names it.",
            )
        bank = to_address(self.bank) if self.bank else None
        place = OrganisationsPlace(to_address(self.contract), self.start_block)
        found = await find_place(self.rpc, to_address(self.factory), bank, self.start_block)
        async with await Market.connect(self.rpc, found) as market, MarketFollower(market) as follower:
            state = await follower.catch_up()
            seconds = await _block_seconds(market.chain, follower.block)
            registry = market.contracts.registry
            reading = await read_organisations(self.rpc, place, state, registry, block=follower.block)
        return reading, seconds


async def _block_seconds(chain: Chain, last: int) -> float:
    """The mean time between blocks lately."""
    first = max(1, last - TIMED_BLOCKS)
    newest, oldest = await chain.block(last), await chain.block(first)
    if newest is None or oldest is None or newest.timestamp <= oldest.timestamp:
        return 1.0
    return (newest.timestamp - oldest.timestamp) / (last - first)


@dataclass(frozen=True, slots=True)
class OwnerSender:
    """Who sends and pays; without ``broadcast`` nothing is sent."""

    keystore: Path
    password_file: Path | None
    broadcast: bool

    @property
    def address(self) -> Address:
        """The keyfile's account; raises ConfigError for a file without one."""
        found = address_in(self.keystore)
        if found is None:
            raise ConfigError("the keyfile names no address", str(self.keystore), "Name another file.")
        return found


async def send(
    rpc: str, call: Call, to: Address | None, sender: OwnerSender, told: Mapping[str, Any]
) -> dict[str, Any]:
    """Carry a call out, or say what it would do; raises ChainRejected where the contract refuses it."""

    def open_key() -> Key:
        return load_account(sender.keystore, read_password(sender.password_file, purpose="the keyfile that pays"))

    who = TransactionSender(sender.address, open_key)
    return await send_or_show(rpc, call, to, who, told, broadcast=sender.broadcast, creates="organisations")


async def create(rpc: str, reputation: str, sender: OwnerSender) -> dict[str, Any]:
    """Deploy the contract over a market's Reputation."""
    return await send(rpc, organisations_creation(to_address(reputation)), None, sender, {"reputation": reputation})


# ---- looking


async def credits_of(place: OrganisationsAt, owner: Address | None) -> dict[str, Any]:
    """What every owner has, or one; with each node's last epoch and why it earned nothing."""
    reading, seconds = await place.read()
    state = reading.state
    parties = reading.record.market.parties.values()
    owners = {party.owner for party in parties if party.role is Role.NODE} | set(state.balances)
    last = reading.epoch - 1
    hosting = {node: layers for node, (_, layers) in state.hosts_in(last).items()} if last >= 0 else {}
    served = served_in(last, reading.record, hosting) if last >= 0 else []
    return {
        "contract": reading.place.contract,
        "block": reading.block,
        "epoch": reading.epoch,
        "epoch_hours": round(reading.record.epoch_blocks * seconds / 3600, 2),
        "made_gibibyte_days": round(gibibyte_days(state.total, seconds), 3),
        "organisations": [
            _owner(reading, one, seconds, [node for node in served if node.owner == one])
            for one in sorted(owners)
            if owner in {None, one}
        ],
    }


def _owner(reading: OrganisationsReading, owner: Address, seconds: float, served: list[ServedEpoch]) -> dict[str, Any]:
    state = reading.state
    balance = state.balances.get(owner, 0)
    reserved = sum(one.reserve for one in state.deployments.values() if one.owner == owner)
    return {
        "owner": owner,
        "credits": str(balance),
        "gibibyte_days": round(gibibyte_days(balance, seconds), 3),
        "set_aside_gibibyte_days": round(gibibyte_days(reserved, seconds), 3),
        "dismissed_hosts": len(state.dismissals.get(owner, ())),
        "last_epoch": [node_words(reading, one) for one in served],
    }


def node_words(reading: OrganisationsReading, served: ServedEpoch) -> str:
    """What an epoch brought a node, in words."""
    node = served.presence.node
    name = f"{node} layers {served.presence.first}:{served.presence.end}"
    hosted = reading.state.hosts_in(served.epoch).get(node)
    if reading.state.posted.get(node, 0) > served.epoch:
        return f"{name}: credited"
    if hosted is not None:
        return f"{name}: deployment {hosted[0].number} pays it, to be posted in this epoch"
    return f"{name}: nothing, {served.refusal}" if served.refusal else f"{name}: to be posted in this epoch"


async def status(place: OrganisationsAt, number: int) -> dict[str, Any]:
    """Every deployment, or one."""
    reading, seconds = await place.read()
    known = reading.state.deployments
    if number and number not in known:
        raise ConfigError("there is no such deployment", number, f"There are {len(known)}; leave the number out.")
    chosen = [one for one in known.values() if number in {0, one.number}]
    return {"epoch": reading.epoch, "deployments": [_deployment(reading, one, seconds) for one in chosen]}


def _deployment(reading: OrganisationsReading, one: HostedDeployment, seconds: float) -> dict[str, Any]:
    market, now = reading.record.market, reading.epoch
    layers = rules_in(market, one.execution_class).layers
    hosts = reading.state.hosts_in(max(now, one.first))
    phase = "begins" if now < one.first else "runs" if now < one.end else "is over"
    return {
        "deployment": one.number,
        "owner": one.owner,
        "class": "0x" + one.execution_class.hex(),
        "name": market.classes[one.execution_class].name,
        "source": one.source,
        "epochs": f"{one.first} to {one.end - 1}; it is {now}: it {phase}",
        "hosted": f"{one.hosted} of {one.replicas * layers} layers, {one.replicas} replicas",
        "hosts": [f"{node} {part.first}:{part.end}" for node, (of, part) in sorted(hosts.items()) if of == one],
        "set_aside_gibibyte_days": round(gibibyte_days(one.reserve, seconds), 3),
    }


# ---- spending


@dataclass(frozen=True, slots=True)
class DeployWish:
    """What an organisation wants: a class by id or name, on so many machines, for so long."""

    model: str
    replicas: int
    days: float
    source: str
    node: str = ""


async def deploy(place: OrganisationsAt, wish: DeployWish, sender: OwnerSender) -> dict[str, Any]:
    """Set credits aside for a model; raises ConfigError where something is missing, with what to do."""
    reading, seconds = await place.read()
    owner, market = sender.address, reading.record.market
    class_id = _class(reading, wish.model)
    epochs = max(1, math.ceil(wish.days * DAY / (reading.record.epoch_blocks * seconds)))
    source = wish.source or market.classes[class_id].name
    if len(source.encode()) > LONGEST_SOURCE:
        raise ConfigError(f"a source has {LONGEST_SOURCE} bytes at most", source, "Shorten --source.")
    node = to_address(wish.node) if wish.node else _trusted(reading, owner)
    cost = cost_of(rules_in(market, class_id), wish.replicas, epochs, reading.record.epoch_blocks)
    balance = reading.state.balances.get(owner, 0)
    told = {
        "class": "0x" + class_id.hex(),
        "replicas": wish.replicas,
        "epochs": epochs,
        "from_epoch": reading.epoch + 1,
        "source": source,
        "standing_for_it": node,
        "cost_credits": cost,
        "cost_gibibyte_days": round(gibibyte_days(cost, seconds), 3),
        "balance_gibibyte_days": round(gibibyte_days(balance, seconds), 3),
    }
    if cost > balance:
        lacking = gibibyte_days(cost - balance, seconds)
        most = wish.replicas * epochs * balance // cost
        remedy = (
            f"{lacking:.3f} GiB days are missing; it has enough for {most} machine epochs. Serve more, or ask less."
        )
        raise ConfigError("there are not enough credits for this deployment", f"{owner}: {balance} of {cost}", remedy)
    call = calls.deploy(class_id, wish.replicas, epochs, node, source)
    return await send(place.rpc, call, reading.place.contract, sender, told)


def _class(reading: OrganisationsReading, model: str) -> Hash32:
    """The class that is meant, by its id or its name; raises ConfigError where that is not exactly one."""
    classes = reading.record.market.classes
    if model.startswith("0x"):
        found = [one for one in classes if one.hex() == model[2:].lower()]
    else:
        found = [one for one, known in classes.items() if known.name == model]
    if len(found) == 1:
        return found[0]
    what = "no registered class is called so" if not found else f"{len(found)} classes are called so"
    remedy = "Register your model first (`troth model register`)." if not found else "Name its id, 0x…."
    raise ConfigError(what, model, remedy)


def _trusted(reading: OrganisationsReading, owner: Address) -> Address:
    """The owner's node with the best score; raises ConfigError where none is rated and above the bar."""
    record = reading.record
    mine = [party.operator for party in record.market.parties.values() if party.owner == owner]
    rated = {node: record.ratings[node][-1].score for node in mine if node in record.ratings}
    best = max(rated, key=lambda node: rated[node], default=None)
    if best is None:
        what = "no node of this owner was ever rated"
        raise ConfigError(
            what, owner, "Who has served nothing deploys nothing: run a node, or name another --keystore."
        )
    if not record.is_trusted(best):
        shown = f"{best}: {rated[best] / ONE:.3f}, the bar is {record.reputation.rules.bar / ONE:.3f}"
        raise ConfigError("every node of this owner is below the bar", shown, "Wait until one has climbed.")
    return best


async def change(place: OrganisationsAt, call: Call, sender: OwnerSender, told: Mapping[str, Any]) -> dict[str, Any]:
    """Stop or withdraw a deployment, send a node away, have one host or leave."""
    if not place.contract:
        raise ConfigError(
            "No contract is named",
            "no --organisations",
            "Add --organisations 0x…, or --network with a file that names it.",
        )
    return await send(place.rpc, call, to_address(place.contract), sender, told)


async def host(
    place: OrganisationsAt, number: int, node: Address, layers: Segment, sender: OwnerSender
) -> dict[str, Any]:
    """Have a node host layers of a deployment."""
    told = {"deployment": number, "node": node, "layers": f"{layers.first}:{layers.end}"}
    return await change(place, calls.host(number, node, layers), sender, told)


async def post(place: OrganisationsAt, sender: OwnerSender) -> dict[str, Any]:
    """Credit the last epoch of every node of this owner, in one transaction."""
    reading, seconds = await place.read()
    mine = [
        one.operator for one in reading.record.market.parties.values() if sender.address in {one.owner, one.operator}
    ]
    due = [one for one in map(reading.due, mine) if one is not None]
    if not due:
        raise ConfigError("nothing is due", sender.address, "`troth org credits` says why; nodes post by themselves.")
    amount = sum(one.amount for one in due)
    told = {
        "epoch": due[0].epoch,
        "nodes": [one.presence.node for one in due],
        "gibibyte_days": round(gibibyte_days(amount, seconds), 3),
    }
    call = calls.post(due[0].epoch, [one.presence for one in due])
    return await send(place.rpc, call, reading.place.contract, sender, told)
