"""`troth client serve`: options, and what is printed once the gateway listens."""

from __future__ import annotations

import shlex
import sys
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from troth.client.options import (
    DEFAULT_HOME,
    CheckOption,
    ClassOption,
    CommitteeOption,
    ContractOption,
    DirectOption,
    HomeOption,
    MaxPriceOption,
    OverlayOption,
    PasswordOption,
    RpcOption,
    SchedulerOption,
    read_configuration,
)

if TYPE_CHECKING:
    from troth.client.gateway.serving import Running

DEFAULT_PORT = 11711


class Wait(StrEnum):
    """Until when an answer's end is held back."""

    answer = "answer"
    verdict = "verdict"


def serve(  # noqa: PLR0917
    port: Annotated[
        int, typer.Option("--port", envvar="TROTH_GATEWAY_PORT", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option("--host", envvar="TROTH_GATEWAY_HOST", help="Loopback address to listen on.")
    ] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Listen on other addresses too: they can then pay from the wallet.")
    ] = False,
    no_key: Annotated[
        bool, typer.Option("--no-key", help="Ask for no API key: every program of this machine can then pay.")
    ] = False,
    max_cost: Annotated[
        str,
        typer.Option("--max-cost", envvar="TROTH_MAX_COST", help="Most that one request may cost, e.g. 0.01ether."),
    ] = "",
    budget: Annotated[
        str, typer.Option("--budget", envvar="TROTH_BUDGET", help="Most to spend per day (UTC), e.g. 0.1ether.")
    ] = "",
    wait: Annotated[
        Wait,
        typer.Option("--wait", envvar="TROTH_WAIT", help="End an answer when it is whole, or when the chain decided."),
    ] = Wait.answer,
    max_tokens: Annotated[
        int,
        typer.Option("--max-tokens", envvar="TROTH_MAX_TOKENS", min=1, max=65_536, help="Where a chat does not say."),
    ] = 256,
    concurrent: Annotated[
        int, typer.Option("--concurrent", envvar="TROTH_CONCURRENT", min=1, max=64, help="Orders answered at a time.")
    ] = 16,
    keep_alive: Annotated[
        float,
        typer.Option("--keep-alive", envvar="TROTH_KEEP_ALIVE", min=0.1, max=60.0, help="Seconds between comments."),
    ] = 5.0,
    log_level: Annotated[
        str, typer.Option("--log-level", envvar="TROTH_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
    max_price: MaxPriceOption = "",
    check: CheckOption = "",
    scheduler: SchedulerOption = "",
    execution_class: ClassOption = "",
    committee: CommitteeOption = "",
    overlay: OverlayOption = "",
    direct: DirectOption = None,
    relay: Annotated[
        bool,
        typer.Option("--relay/--no-relay", envvar="TROTH_RELAY", help="Carry others too: run a relay beside it."),
    ] = True,
    relay_port: Annotated[
        int, typer.Option("--relay-port", envvar="TROTH_RELAY_PORT", min=1, max=65535, help="Port of that relay.")
    ] = 9001,
    relay_address: Annotated[
        str,
        typer.Option("--relay-address", envvar="TROTH_RELAY_ADDRESS", help="address:port as others reach that relay."),
    ] = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    contract: ContractOption = "",
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Serve OpenAI's interface on this machine; the wallet pays for every answer."""
    import asyncio
    from functools import partial

    from troth.client.gateway.limits import Limits
    from troth.client.gateway.market.serving import Amounts
    from troth.client.gateway.market.serving import serve as serve_on_tabs
    from troth.client.gateway.request import Defaults
    from troth.client.gateway.serving import Settings
    from troth.client.gateway.task_serving import serve as serve_until_stopped
    from troth.client.home import Home
    from troth.client.money import parse_amount
    from troth.client.orders.running import running
    from troth.client.orders.wishes import Check
    from troth.client.own_relay import Listen, prepare_relay, running_relay
    from troth.client.session import session
    from troth.client.wallet import open_wallet
    from troth.overlay.logs import configure

    place = Home(home.expanduser())
    configuration = read_configuration(
        place, rpc, contract, scheduler, execution_class, committee=committee, overlay=overlay, direct=direct
    )
    on_tabs = configuration.market is not None
    limits = Limits()
    if not on_tabs:
        limits = Limits(parse_amount(max_cost) if max_cost else None, parse_amount(budget) if budget else None)
    settings = Settings(
        host=host,
        port=port,
        allow_remote=allow_remote,
        with_key=not no_key,
        concurrent=concurrent,
        limits=limits,
        defaults=Defaults(max_tokens, wait is Wait.verdict),
        keep_alive=keep_alive,
    ).checked()
    key = None if on_tabs else open_wallet(place, password_file)
    configure(log_level)
    if allow_remote:
        _say("warning: whoever reaches this address and has the key pays from your wallet, and nothing is encrypted")
    if no_key:
        _say("warning: without a key, every program and every user of this machine can pay from your wallet")

    async def run() -> None:
        async with AsyncExitStack() as stack:
            if relay and configuration.anonymous:
                at = prepare_relay(place, configuration, Listen(port=relay_port, address=relay_address))
                _say(f"relaying for others at {at}, as far as that can be reached; --no-relay leaves it out")
                await stack.enter_async_context(running_relay(place))
            if key is None:
                amounts = Amounts(max_cost, budget, max_price)
                factory = partial(running, place, configuration, password_file, lambda _entry, line: _say(line))
                await serve_on_tabs(place, factory, settings, Check.read(check), amounts, _announce)
            else:
                await serve_until_stopped(place, key, lambda: session(place, configuration), settings, _announce)

    asyncio.run(run())


def _announce(running: Running) -> None:
    """The lines that a shell can take as they are."""
    key = running.access.key or "none"
    print(f"export OPENAI_BASE_URL={shlex.quote(running.base_url)}")
    print(f"export OPENAI_API_KEY={shlex.quote(key)}", flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
