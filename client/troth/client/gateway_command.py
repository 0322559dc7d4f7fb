"""`troth client serve`: options, and what is printed once the gateway listens."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from troth.client.options import AskingOptions
from troth.transport.command_options import LogLevelOption, grouped

if TYPE_CHECKING:
    from troth.client.configuration import ClientConfiguration
    from troth.client.gateway.serving import GatewaySettings, RunningGateway
    from troth.client.home import Home

DEFAULT_PORT = 11711
Serving = Callable[[], Coroutine[Any, Any, None]]


class Wait(StrEnum):
    """Until when an answer's end is held back."""

    answer = "answer"
    verdict = "verdict"


PortOption = Annotated[
    int, typer.Option("--port", envvar="TROTH_GATEWAY_PORT", min=0, max=65535, help="Port; 0 takes a free one.")
]
HostOption = Annotated[str, typer.Option("--host", envvar="TROTH_GATEWAY_HOST", help="Loopback address to listen on.")]
AllowRemoteOption = Annotated[
    bool,
    typer.Option(
        "--allow-remote",
        envvar="TROTH_ALLOW_REMOTE",
        help="Listen on other addresses too: they can then pay from the wallet.",
    ),
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        envvar="TROTH_ALLOW_HOST",
        help="Name by which containers here reach it, such as host.docker.internal; repeatable.",
    ),
]
NoKeyOption = Annotated[
    bool,
    typer.Option(
        "--no-key", envvar="TROTH_NO_KEY", help="Ask for no API key: every program of this machine can then pay."
    ),
]
MostOption = Annotated[
    str, typer.Option("--max-cost", envvar="TROTH_MAX_COST", help="Most that one request may cost, e.g. 0.01ether.")
]
BudgetOption = Annotated[
    str, typer.Option("--budget", envvar="TROTH_BUDGET", help="Most to spend per day (UTC), e.g. 0.1ether.")
]
WaitOption = Annotated[
    Wait, typer.Option("--wait", envvar="TROTH_WAIT", help="End an answer when it is whole, or when it is checked.")
]
LengthOption = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        envvar="TROTH_MAX_TOKENS",
        min=1,
        max=65_536,
        help="Longest answer in tokens, where a request does not say.",
    ),
]
ConcurrentOption = Annotated[
    int, typer.Option("--concurrent", envvar="TROTH_CONCURRENT", min=1, max=64, help="Orders answered at a time.")
]
KeepAliveOption = Annotated[
    float,
    typer.Option(
        "--keep-alive",
        envvar="TROTH_KEEP_ALIVE",
        min=0.1,
        max=60.0,
        help="Seconds between signs of life in a stream that waits.",
    ),
]
RelayOption = Annotated[
    bool, typer.Option("--relay/--no-relay", envvar="TROTH_RELAY", help="Carry others too: run a relay beside it.")
]
RelayPortOption = Annotated[
    int, typer.Option("--relay-port", envvar="TROTH_RELAY_PORT", min=1, max=65535, help="Port of that relay.")
]
RelayAddressOption = Annotated[
    str, typer.Option("--relay-address", envvar="TROTH_RELAY_ADDRESS", help="address:port as others reach that relay.")
]


@grouped
def serve(
    *,
    port: PortOption = DEFAULT_PORT,
    host: HostOption = "127.0.0.1",
    allow_remote: AllowRemoteOption = False,
    allow_host: AllowHostOption = None,
    no_key: NoKeyOption = False,
    max_cost: MostOption = "",
    budget: BudgetOption = "",
    wait: WaitOption = Wait.answer,
    max_tokens: LengthOption = 256,
    concurrent: ConcurrentOption = 16,
    keep_alive: KeepAliveOption = 5.0,
    log_level: LogLevelOption = "info",
    relay: RelayOption = True,
    relay_port: RelayPortOption = 9001,
    relay_address: RelayAddressOption = "",
    asking: AskingOptions,
) -> None:
    """Serve OpenAI's and Anthropic's interfaces on this machine; a tab pays for every answer."""
    from troth.client.gateway.request import Defaults
    from troth.client.gateway.serving import GatewaySettings
    from troth.transport import event_loop
    from troth.transport.listener import require_free
    from troth.transport.logs import configure

    place = asking.place()
    configuration = asking.configuration()
    settings = GatewaySettings(
        host=host,
        port=port,
        allow_remote=allow_remote,
        names=tuple(allow_host or ()),
        with_key=not no_key,
        concurrent=concurrent,
        defaults=Defaults(max_tokens, wait is Wait.verdict),
        keep_alive=keep_alive,
    ).checked()
    amounts = (max_cost, budget, asking.max_price)
    work = partial(_serving, place, configuration, asking.password_file, settings, asking.check, amounts)
    require_free(host, port, "--port")
    configure(log_level)
    _warn(allow_remote=allow_remote, no_key=no_key)
    own = (relay_port, relay_address) if relay and configuration.anonymous else None
    event_loop.run(_beside_relay(place, configuration, own, work))


def _serving(  # noqa: PLR0917
    home: Home,
    configuration: ClientConfiguration,
    password_file: Path | None,
    settings: GatewaySettings,
    check: str,
    amounts: tuple[str, str, str],
) -> Coroutine[Any, Any, None]:
    from troth.client.gateway.serving import Amounts, serve
    from troth.client.orders.own_check import MODE, no_model
    from troth.client.orders.running import running
    from troth.client.orders.wishes import CheckWish

    chosen = CheckWish.read(check)
    if chosen.mode == MODE and not configuration.market.model:
        raise no_model()
    factory = partial(running, home, configuration, password_file, lambda _entry, line: _say(line))
    return serve(home, factory, settings, chosen, Amounts(*amounts), _announce)


def _warn(*, allow_remote: bool, no_key: bool) -> None:
    if allow_remote:
        _say("warning: whoever reaches this address and has the key pays from your wallet, and nothing is encrypted")
    if no_key:
        _say("warning: without a key, every program and every user of this machine can pay from your wallet")


async def _beside_relay(
    home: Home, configuration: ClientConfiguration, own: tuple[int, str] | None, work: Serving
) -> None:
    """Serve, and carry others on ``own`` port and address meanwhile."""
    from troth.client.own_relay import ListenAddress, prepare_relay, running_relay

    async with AsyncExitStack() as stack:
        if own is not None:
            port, address = own
            at = prepare_relay(home, configuration, ListenAddress(port=port, address=address))
            _say(f"relaying for others at {at}, as far as that can be reached; --no-relay leaves it out")
            await stack.enter_async_context(running_relay(home))
        await work()


def _announce(running: RunningGateway) -> None:
    """The lines that a shell can take as they are."""
    key = running.access.key or "none"
    print(f"export OPENAI_BASE_URL={shlex.quote(running.base_url)}")
    print(f"export OPENAI_API_KEY={shlex.quote(key)}", flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
