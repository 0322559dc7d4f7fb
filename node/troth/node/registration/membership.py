"""Joining, asking, topping up and leaving, for a node with [market]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from troth.chain.keystore import Key, load_account, read_password
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.sending import TransactionSender, carry_out, carry_out_all, carry_out_paying
from troth.chain.tokens import asset_of, described
from troth.chain.withdrawing import withdrawable
from troth.node.configuration import NodeConfiguration, load, segment_of
from troth.node.errors import ConfigError
from troth.node.inspection.process import operator_of
from troth.node.models.folder import find_model
from troth.node.orders.moving import change_slice
from troth.node.orders.running import connect
from troth.node.pool.agreement import MOST_GROUPS
from troth.node.registration import asking
from troth.node.registration.asking import asks_for
from troth.node.registration.configured_slice import text_of, write_slice
from troth.node.registration.keyfiles import open_keystore
from troth.node.registration.setup import OWNER_KEY
from troth.protocol.amounts import Asset
from troth.protocol.market.calls import PartCall, build, view
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.messages import sign
from troth.protocol.market.parts import Part
from troth.protocol.market.state import State
from troth.protocol.market.types import NO_ADDRESS, Ask, Consent, ExecutionClass, NodeRegistration, Role, Rules
from troth.protocol.market.views import class_of, parameters_of
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment, to_address
from troth.transport.identity import load_identity

SEATS = 2
"""Default stake in seats: a node with one seat leaves all draws with its first fine."""
SERVE_ON = [
    "serve on until the stake is free, since it can be taken until then",
    "troth node withdraw --broadcast, after that block",
]
"""What is left to do for one that leaves."""


@dataclass(frozen=True, slots=True)
class Joining:
    """Who joins: the operator whose key signs messages, the owner who pays, what it asks for each segment.

    ``stake`` is an amount as text; empty means two seats.
    """

    configuration: NodeConfiguration
    operator: Key
    owner: Key
    payout: str
    stake: str
    asks: Callable[[Asset], Mapping[Segment, Ask]]


def asks_of(texts: list[str], segments: tuple[Segment, ...], asset: Asset) -> dict[Segment, Ask]:
    """What is asked for each segment, from FIRST:END=PROMPT,CACHED,WRITTEN, or without a segment for all of them."""
    asks: dict[Segment, Ask] = {}
    for text in texts:
        named, separator, prices = text.rpartition("=")
        chosen = (segment_of(named),) if separator else segments
        asks |= dict.fromkeys(chosen, Ask(*asset.prices(prices)))
    missing = [segment for segment in segments if segment not in asks]
    if missing or len(asks) != len(segments):
        what = "no ask is given for these layers" if missing else "an ask is for a segment that is not configured"
        shown = ", ".join(text_of(one) for one in missing or [one for one in asks if one not in segments])
        remedy = "Say what a million positions cost, such as --ask 0.0007ether,0.00007ether,0.0014ether, or FIRST:END=…"
        raise ConfigError(what, shown, f"{remedy} for each segment.")
    return asks


def register(
    home: Path,
    owner_keystore: Path | None,
    owner_password_file: Path | None,
    password_file: Path | None,
    *,
    payout: str,
    stake: str,
    asks: list[str],
    broadcast: bool,
) -> dict[str, Any]:
    """Register the configured node with its stake and asks; the operator's consent is signed here."""
    configuration = load(home)
    operator = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))
    if owner_keystore is None and (home / OWNER_KEY).exists():
        owner_keystore = home / OWNER_KEY
    owner = open_keystore(owner_keystore, owner_password_file or password_file, "the owner", "--owner-keystore")

    async def send() -> dict[str, Any]:
        async with await connect(configuration) as market:
            wanted: Callable[[Asset], Mapping[Segment, Ask]] = partial(asks_of, asks, configuration.segments)
            if not asks and configuration.auto.ask is not None:
                wanted = partial(_configured_asks, configuration, await _layers(market, configuration))
            joining = Joining(configuration, operator, owner, payout, stake, wanted)
            return await join(market, joining, broadcast=broadcast)

    result: dict[str, Any] = asyncio.run(send())
    return result


async def _layers(market: Market, configuration: NodeConfiguration) -> int:
    async with MarketFollower(market) as follower:
        state = await follower.catch_up()
    return _class_in(state, configuration)[1].layers


def _configured_asks(configuration: NodeConfiguration, layers: int, _asset: Asset) -> Mapping[Segment, Ask]:
    """By node.toml's ask for all layers: a segment asks its share."""
    return asks_for(configuration.segments, {}, layers, configuration.auto.ask)


def _class_in(state: State, configuration: NodeConfiguration) -> tuple[ExecutionClass, ModelDescriptor]:
    try:
        return class_of(state, configuration.execution_class)
    except InvalidOrder as error:
        shown_class = "0x" + configuration.execution_class.hex()
        raise ConfigError("the execution class is not registered here", shown_class, error.remedy) from error


async def join(market: Market, joining: Joining, *, broadcast: bool) -> dict[str, Any]:
    """The registration, sent or simulated; ConfigError where class or stake are not enough, or cards are others."""
    await require_card(market, joining.configuration)
    rules = await rules_on_chain(market, joining.configuration.execution_class)
    asset = await asset_of(market)
    stake = asset.parse(joining.stake) if joining.stake else SEATS * rules.seat
    if stake < rules.seat:
        raise ConfigError("the stake is below one seat", asset.show(stake), f"Stake at least {asset.show(rules.seat)}.")
    call = registration_call(market, joining, stake, asset)
    told = await carry_out_paying(market, call, stake, TransactionSender.of(joining.owner), broadcast=broadcast)
    return {
        **told,
        "operator": joining.operator.address,
        "stake_units": str(stake),
        **seats_of(stake, rules, asset),
        "seat_units": str(rules.seat),
        **described(asset),
    }


def seats_of(stake: int, rules: Rules, asset: Asset) -> dict[str, Any]:
    """What a stake of so many units is good for, with a warning about what brings no seat."""
    most = rules.seat_cap * rules.seat
    seats = {"seats": min(stake // rules.seat, rules.seat_cap)}
    if stake <= most:
        return seats
    warning = (
        f"{asset.show(stake - most)} of the stake bring no seat: a node has at most {rules.seat_cap}, which take "
        f"{asset.show(most)}. All of the stake is bound until the node has left"
    )
    return {**seats, "warning": warning}


async def require_card(market: Market, configuration: NodeConfiguration) -> None:
    """Raise ConfigError where this machine's cards are not the exact class', or have not passed its stress probe.

    Nothing is asked of the chain for other engines and devices.
    """
    if configuration.engine != "vllm" or not configuration.device.startswith("cuda"):
        return
    from troth.node.engine.loading import vllm_settings

    async with MarketFollower(market) as follower:
        execution_class, _ = _class_in(await follower.catch_up(), configuration)
    vllm_settings(configuration, execution_class, find_model(configuration.folder, configuration.model))


def registration_call(market: Market, joining: Joining, stake: int, asset: Asset) -> PartCall:
    """Registry.registerNode with the operator's consent."""
    configuration, asks = joining.configuration, joining.asks(asset)
    registration = NodeRegistration(
        operator=joining.operator.address,
        payout=to_address(joining.payout) if joining.payout else NO_ADDRESS,
        execution_class=configuration.execution_class,
        first=configuration.slice.first,
        end=configuration.slice.end,
        segments=configuration.segments,
        asks=tuple(asks[segment] for segment in configuration.segments),
        stake=stake,
        endpoint=configuration.endpoint,
        tls_key_hash=Hash32(load_identity(configuration.tls_folder).spki_sha256),
    )
    consent = sign(Consent(joining.owner.address, joining.operator.address), market.domain, joining.operator.secret)
    value = stake if asset.is_coin else 0
    return build(market.contracts, Part.REGISTRY, "registerNode", registration, consent.signature, value=value)


async def rules_on_chain(market: Market, execution_class: Hash32) -> Rules:
    """A class's rules; ConfigError where it is not registered."""
    rules: Rules = await market.read(view(market.contracts, Part.REGISTRY, "rulesOf", execution_class, returns=Rules))
    if not rules.seat:
        shown = "0x" + execution_class.hex()
        raise ConfigError("the execution class is not registered here", shown, "Register it: `troth model register`.")
    return rules


# ----------------------------------------------------------------------------------------------------------------- asks


def show_asks(home: Path) -> dict[str, Any]:
    """What this node asks on chain, for each configured segment."""
    configuration = load(home)
    operator = operator_of(configuration)

    async def read() -> dict[str, Any]:
        async with await connect(configuration) as market:
            block = await market.chain.block_number()
            asks = {
                f"{one.first}:{one.end}": shown(await ask_on_chain(market, configuration, operator, one, block))
                for one in configuration.segments
            }
            return {"operator": operator, "block": block, "asks": asks, **described(await asset_of(market))}

    result: dict[str, Any] = asyncio.run(read())
    return result


async def ask_on_chain(
    market: Market, configuration: NodeConfiguration, operator: Address, segment: Segment, block: int
) -> Ask:
    """A node's ask for a segment at a block."""
    words = (configuration.execution_class, segment.first, segment.end)
    group: Hash32 = await market.read(view(market.contracts, Part.REGISTRY, "groupId", *words, returns=Hash32))
    found: Ask = await market.read(view(market.contracts, Part.REGISTRY, "askAt", group, operator, block, returns=Ask))
    return found


def shown(ask: Ask) -> dict[str, str]:
    """An ask as JSON."""
    return {
        "prompt_units_per_billion": str(ask.prompt),
        "cached_units_per_billion": str(ask.cached),
        "written_units_per_billion": str(ask.written),
    }


def set_ask(home: Path, segment: str, prices: str, password_file: Path | None, *, broadcast: bool) -> dict[str, Any]:
    """Change what is asked for a segment, by the operator; it counts for orders of later blocks."""
    configuration = load(home)
    wanted = segment_of(segment)
    if wanted not in configuration.segments:
        raise ConfigError("this segment is not configured", segment, "Use one of node.toml's segments.")

    def calls(market: Market, operator: Address, asset: Asset) -> tuple[list[PartCall], dict[str, Any]]:
        ask = Ask(*asset.prices(prices))
        words = (operator, wanted.first, wanted.end, ask)
        return [build(market.contracts, Part.REGISTRY, "setAsk", *words)], {"ask": shown(ask)}

    return _by_operator(configuration, password_file, calls, broadcast=broadcast)


# ---------------------------------------------------------------------------------------------------------------- stake


def top_up(
    home: Path,
    amount: str,
    keystore: Path | None,
    password_file: Path | None,
    *,
    broadcast: bool,
) -> dict[str, Any]:
    """Add stake from the owner or, without a keyfile, from the operator; then seats follow it."""
    configuration = load(home)
    operator = operator_of(configuration)
    payer = load_account(
        keystore or configuration.operator_keystore, read_password(password_file, purpose="who pays the stake")
    )

    async def send() -> dict[str, Any]:
        async with await connect(configuration) as market:
            asset = await asset_of(market)
            added = asset.parse(amount)
            rules = await rules_on_chain(market, configuration.execution_class)
            before, _ = await market.read(view(market.contracts, Part.BANK, "stakeOf", operator, returns=(int, int)))
            value = added if asset.is_coin else 0
            call = build(market.contracts, Part.REGISTRY, "topUp", operator, added, value=value)
            told = await carry_out_paying(market, call, added, TransactionSender.of(payer), broadcast=broadcast)
            stake = before + added
            now = {"added_units": str(added), "stake_units": str(stake), **seats_of(stake, rules, asset)}
            return {**told, **now, **described(asset)}

    result: dict[str, Any] = asyncio.run(send())
    return result


def leave(home: Path, password_file: Path | None, *, broadcast: bool) -> dict[str, Any]:
    """Leave all groups and begin to unbind the stake."""
    configuration = load(home)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with await connect(configuration) as market, MarketFollower(market) as follower:
            await follower.catch_up()
            call = build(market.contracts, Part.REGISTRY, "deregister", key.address)
            told = await carry_out(market, call, TransactionSender.of(key), broadcast=broadcast)
            found = await withdrawable(market, key.address)
            told |= {"exit_block": found.exit_block or None, "next": SERVE_ON}
            return {
                **told,
                **found.unbinding(parameters_of(follower.state).unbonding),
                **described(await asset_of(market)),
            }

    result: dict[str, Any] = asyncio.run(send())
    return result


def take_out(home: Path, password_file: Path | None, *, broadcast: bool) -> dict[str, Any]:
    """Stake to credit once it is unbound, and credit to the payout address."""
    configuration = load(home)
    operator = operator_of(configuration)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with await connect(configuration) as market:
            asset = await asset_of(market)
            found = await withdrawable(market, operator)
            found.require_some(asset, "troth node")
            payout = view(market.contracts, Part.REGISTRY, "payoutOf", operator, returns=Address)
            calls = [build(market.contracts, Part.BANK, "withdraw", operator)]
            if found.is_stake_free:
                calls.insert(0, build(market.contracts, Part.REGISTRY, "withdrawStake", operator))
            total = {**found.told(), "payout": await market.read(payout)}
            told = await carry_out_all(market, calls, TransactionSender.of(key), broadcast=broadcast)
            return {**total, **described(asset), "calls": told}

    result: dict[str, Any] = asyncio.run(send())
    return result


def move(
    home: Path,
    hosted: Segment,
    segments: tuple[Segment, ...],
    asks: list[str],
    password_file: Path | None,
    *,
    broadcast: bool,
) -> dict[str, Any]:
    """Host other layers, by the operator: on chain, and once that is done in node.toml. A running node follows."""
    configuration = load(home)
    if not 1 <= len(segments) <= MOST_GROUPS or len(set(segments)) != len(segments):
        raise ConfigError("a node is in one or two groups", [text_of(one) for one in segments], "Name --segment twice.")
    if any(not hosted.first <= one.first < one.end <= hosted.end for one in segments):
        raise ConfigError("a segment lies outside of the slice", text_of(hosted), "Name segments inside it.")
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with await connect(configuration) as market, MarketFollower(market) as follower:
            await follower.catch_up()
            asset = await asset_of(market)
            wanted = _asks_after(configuration, follower.state, key.address, segments, asset, asks)
            call = change_slice(market.contracts, key.address, hosted, segments, [wanted[one] for one in segments])
            before = follower.state.parties.get(key.address)
            told = await carry_out(market, call, TransactionSender.of(key), broadcast=broadcast)
            former = None if before is None or before.hosted is None else text_of(before.hosted)
            asked = {text_of(one): shown(wanted[one]) for one in segments}
            return {**told, "before": former, "asks": asked, **described(asset)}

    told: dict[str, Any] = asyncio.run(send())
    told |= {"slice": text_of(hosted), "segments": [text_of(segment) for segment in segments]}
    if broadcast:
        write_slice(home, hosted, segments)
    return told


def _asks_after(  # noqa: PLR0917
    configuration: NodeConfiguration,
    state: State,
    operator: Address,
    segments: tuple[Segment, ...],
    asset: Asset,
    texts: list[str],
) -> dict[Segment, Ask]:
    """What is asked after a move: as told, else as now, by layers."""
    if texts:
        return asks_of(texts, segments, asset)
    _, model = _class_in(state, configuration)
    return asks_for(segments, asking.asks_of(state, operator, model.layers), model.layers, configuration.auto.ask)


def _by_operator(
    configuration: NodeConfiguration, password_file: Path | None, calls: Any, *, broadcast: bool
) -> dict[str, Any]:
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with await connect(configuration) as market:
            asset = await asset_of(market)
            wished, words = calls(market, key.address, asset)
            (told,) = await carry_out_all(market, wished, TransactionSender.of(key), broadcast=broadcast)
            wanted = view(market.contracts, Part.REGISTRY, "roleOf", key.address, returns=(int, Address, int))
            role, _, exit_block = await market.read(wanted)
            standing = {"role": Role(role).name.lower(), "exit_block": exit_block or None}
            return {**told, **standing, **words, **described(asset)}

    result: dict[str, Any] = asyncio.run(send())
    return result
