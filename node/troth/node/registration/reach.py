"""How others reach this node: at an address of its own, or at an endpoint that a scheduler lends it (a tunnel).

Which of the two works is measured: answers are fetched at the registered endpoint, as others would, with the key that
is registered.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import msgspec

from troth.chain.keystore import load_account, read_password
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.chain.sending import TransactionSender, carry_out
from troth.node.configuration import AskedRouter, NodeConfiguration, load
from troth.node.errors import ConfigError
from troth.node.inspection.outside import SchedulerWord
from troth.node.orders.running import connect
from troth.node.registration.configured_slice import write_endpoint
from troth.protocol.market.calls import build
from troth.protocol.market.parts import Part
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import Role
from troth.protocol.types import Address, Hash32, to_address
from troth.transport.errors import OverlayError, RouterRefused
from troth.transport.health import HealthFinding
from troth.transport.https import naming_errors, pinned_client
from troth.transport.identity import load_identity
from troth.transport.router_port import first_answer, routers

ANSWER_SECONDS = 8.0
LARGEST_ANSWER = 16 * 1024
ROUNDS = 5
ASKED = 16
ROUTER_SECONDS = 4.5

_Endpoint = Annotated[str, msgspec.Meta(max_length=300, pattern="^https://")]


class _Tunnels(msgspec.Struct, frozen=True):
    free: Annotated[list[_Endpoint], msgspec.Meta(max_length=64)]


async def free_endpoints(scheduler: Party) -> list[str]:
    """Endpoints that a scheduler would lend, on its own host; raises ConfigError or OverlayError if there is none."""
    remedy = "Name another scheduler, or none: then forward a port of the router."
    body, shown = bytearray(), f"{scheduler.operator} at {scheduler.endpoint}"
    try:
        with naming_errors(scheduler.endpoint):
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                pinned_client(scheduler.endpoint, scheduler.tls_key_hash, ANSWER_SECONDS) as client,
                client.stream("GET", "/v1/tunnels") as answer,
            ):
                if answer.status_code != httpx.codes.OK:
                    raise ConfigError("the scheduler lends no endpoints", shown, remedy)
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > LARGEST_ANSWER:
                        raise ConfigError("the scheduler's answer is too large", shown, remedy)
        found = msgspec.json.decode(bytes(body), type=_Tunnels).free
        own = urlsplit(scheduler.endpoint).hostname
        free = [endpoint for endpoint in found if urlsplit(endpoint).hostname == own]
    except (TimeoutError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError("the scheduler's answer is none", str(error) or shown, remedy) from error
    if not free:
        raise ConfigError("the scheduler has no endpoint left to lend", shown, remedy)
    return free


async def lent_endpoint(state: State, scheduler: Address) -> str:
    """An endpoint of a registered scheduler that a newcomer may register."""
    party = state.parties.get(scheduler)
    if party is None or party.role is not Role.SCHEDULER or party.exit_block:
        raise ConfigError("no such scheduler is registered", scheduler, "Name one that `troth node doctor` lists.")
    return (await free_endpoints(party))[0]


async def endpoint_to_register(place: tuple[str, str, str, int], scheduler: str) -> str:
    """The same, out of a deployment's RPC address, factory, Bank and start block."""
    rpc, factory, bank, start_block = place
    found = await find_place(rpc, to_address(factory), to_address(bank) if bank else None, start_block)
    async with await Market.connect(rpc, found) as market, MarketFollower(market) as follower:
        return await lent_endpoint(await follower.catch_up(), to_address(scheduler))


def change_reach(
    home: Path, endpoint: str, tunnel: str, password_file: Path | None, *, broadcast: bool
) -> dict[str, Any]:
    """Be reached elsewhere from now on, by the operator: on chain, then in node.toml, which the next start reads.

    Args:
        endpoint: an address of the node's own; or ``tunnel``: the scheduler that is to lend one.
    """
    if bool(endpoint) == bool(tunnel):
        raise ConfigError("a node is reached in one way", endpoint or "none", "Give either --endpoint or --tunnel.")
    configuration = load(home)
    lender = to_address(tunnel) if tunnel else None
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))
    pin = Hash32(load_identity(configuration.tls_folder).spki_sha256)

    async def send() -> dict[str, Any]:
        async with await connect(configuration) as market, MarketFollower(market) as follower:
            state = await follower.catch_up()
            found = endpoint if lender is None else await lent_endpoint(state, lender)
            call = build(market.contracts, Part.REGISTRY, "setEndpoint", key.address, found, pin)
            return {"endpoint": found, **await carry_out(market, call, TransactionSender.of(key), broadcast=broadcast)}

    told: dict[str, Any] = asyncio.run(send())
    if broadcast:
        write_endpoint(home, told["endpoint"], lender)
        told["next"] = "restart the node: it reads node.toml when it starts"
    return {**told, "before": configuration.endpoint}


# ------------------------------------------------------------------------------------------------------------- measured


async def way_finding(
    configuration: NodeConfiguration, state: State, operator: Address, words: Sequence[SchedulerWord]
) -> HealthFinding | None:
    """Which way to this node works, and how fast it is; None before it is registered."""
    party = state.parties.get(operator)
    if party is None or party.role is not Role.NODE:
        return None
    way = "its own address" if configuration.router is None else "a port of the router"
    if configuration.tunnel is not None:
        way = f"the tunnel of {configuration.tunnel[:8]}"
    try:
        connecting, answering = await measure(party.endpoint, load_identity(configuration.tls_folder).spki_sha256)
    except (OverlayError, httpx.HTTPError) as error:
        if configuration.tunnel is None and any(word.seen is not None and word.seen.connected for word in words):
            # Many routers do not let their own side in by the outer address.
            return HealthFinding("way", True, f"{way}: schedulers are connected; from here it cannot be tried", "")
        return HealthFinding("way", False, f"{way} does not work: {error}", await _other_way(configuration, state))
    seen = f"{way}: connected in {connecting * 1e3:.1f} ms, an answer takes {answering * 1e3:.1f} ms"
    return HealthFinding("way", True, seen, "")


async def measure(endpoint: str, tls_key_hash: bytes) -> tuple[float, float]:
    """Seconds until the first answer of a new connection, and of a later one (the median of five)."""
    async with pinned_client(endpoint, tls_key_hash, ANSWER_SECONDS) as client:
        taken = []
        for _ in range(1 + ROUNDS):
            before = time.perf_counter()
            with naming_errors(endpoint):
                await client.get("/livez")
            taken.append(time.perf_counter() - before)
    return taken[0], statistics.median(taken[1:])


async def _router_word(configuration: NodeConfiguration) -> str:
    """What is to be done where the router would open the port by itself; it is asked for its outer address only."""
    asked = configuration.router or AskedRouter()
    try:
        async with asyncio.timeout(ROUTER_SECONDS):
            way, address = await first_answer(routers(secrets.token_bytes(32), asked.by, asked.gateway))
    except (RouterRefused, TimeoutError):
        return ""
    said = f"it answers {way}" + ("" if address is None else f" and says that it is {address}")
    if configuration.router is not None:
        return f" ({said}: the node's log tells what it refuses)"
    return f" ({said}: a table [router] in node.toml has the node ask for it)"


async def _other_way(configuration: NodeConfiguration, state: State) -> str:
    found = [one for one in state.parties.values() if one.role is Role.SCHEDULER and not one.exit_block][:ASKED]
    answers = await asyncio.gather(*(free_endpoints(one) for one in found), return_exceptions=True)
    lend = [one.operator for one, answer in zip(found, answers, strict=True) if isinstance(answer, list)]
    others = [name for name in lend if name != configuration.tunnel]
    start = "Start the node; if it runs, "
    if configuration.tunnel is None:
        start += f"forward port {configuration.port} of the router{await _router_word(configuration)}, or "
    if not others:
        return f"{start}find a scheduler that lends endpoints: no other does now."
    return f"{start}run: troth node reach --tunnel {others[0]} --broadcast ({len(others)} schedulers lend endpoints)"
