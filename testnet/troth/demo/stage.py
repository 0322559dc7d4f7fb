"""What the acts of the demo play on: a running network, a client with a tab and a gateway, and what it asks."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.chain import keystore
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.client.orders.journal import RUNNING, Phase
from troth.protocol.types import to_address
from troth.testnet import cli
from troth.testnet.anvil import fund
from troth.testnet.display import Display
from troth.testnet.gateway import LocalGateway, Streamed
from troth.testnet.network import LocalNetwork
from troth.testnet.parties import ETHER, PASSWORD, PartyProcess
from troth.testnet.processes import wait_until

DEPOSIT = "0.05ether"
CHECK_SECONDS = 120.0
ENDED = {str(phase) for phase in Phase} - {str(phase) for phase in RUNNING}
POLICY = ("--seats", 10, "--outside", 1000)
"""What a client asks of a group at least, smaller than usual: this network has ten nodes."""


@asynccontextmanager
async def following(network: LocalNetwork) -> AsyncIterator[tuple[Market, MarketFollower]]:
    """A network's deployment, and its folded state up to now."""
    place = await find_place(network.rpc, to_address(network.factory))
    async with await Market.connect(network.rpc, place) as market, MarketFollower(market) as follower:
        await follower.catch_up()
        yield market, follower


@dataclass(slots=True)
class DemoClient:
    """One client: its home, its wallet, its tab, and its gateway once that runs."""

    home: Path
    key: keystore.Key = field(default_factory=keystore.Key.generate)
    tab: str = ""
    gateway: LocalGateway | None = None


@dataclass(slots=True)
class DemoStage:
    """The network, its client, and where to print. ``orders`` are those whose answers were seen, with who served."""

    network: LocalNetwork
    display: Display
    client: DemoClient = field(init=False)
    orders: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The client's files are beside those of the network."""
        self.client = DemoClient(self.network.home / "client")

    def troth(self, *arguments: object) -> Any:
        """A sub-command, as JSON."""
        return cli.run(self.network.password_file, *arguments)

    def name_of(self, operator: str) -> str:
        """A readable name of an address of this network."""
        network = self.network
        parties = (*network.nodes.values(), network.scheduler, network.refuser)
        return next((one.name for one in parties if one.operator.lower() == operator.lower()), operator)

    def following(self) -> AbstractAsyncContextManager[tuple[Market, MarketFollower]]:
        """The deployment, and its folded state up to now."""
        return following(self.network)


def open_client(stage: DemoStage, client: DemoClient, scheduler: PartyProcess, **automatic: str) -> dict[str, Any]:
    """Wallet, configuration and tab, through the commands that a user has; ``automatic``: see [market]."""
    network, keyfile = stage.network, stage.network.home / "keys" / f"{client.home.name}.json"
    assert network.overlay is not None
    keystore.create_account(keyfile, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N, key=client.key)
    fund(network.rpc, client.key.address, ETHER)
    options = ("--home", client.home, "--factory", network.factory, "--rpc", network.rpc)
    overlay = ("--committee", network.overlay.committee)
    wanted = ("--execution-class", network.execution_class, "--import-key", keyfile)
    stage.troth("client", "init", *options, *overlay, *wanted, *POLICY)
    path = client.home / "client" / "client.toml"
    text = path.read_text()
    for name, amount in automatic.items():
        text = re.sub(rf"^{name} = .*$", f'{name} = "{amount}"', text, flags=re.MULTILINE)
    path.write_text(text)
    opened: dict[str, Any] = stage.troth(
        *("client", "open", DEPOSIT, "--scheduler", scheduler.operator, "--home", client.home, "--broadcast")
    )
    client.tab = str(opened["tab"])
    return opened


def start_gateway(stage: DemoStage, client: DemoClient, *options: object) -> LocalGateway:
    """`troth client serve` of a client."""
    processes, password = stage.network.processes, stage.network.password_file
    name = f"gateway of {client.home.name}"
    client.gateway = LocalGateway.start(processes, client.home, password, *options, name=name)
    return client.gateway


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """An answer as it came: seconds until the first word, and until it was whole."""

    streamed: Streamed
    text: str
    first: float
    whole: float
    pieces: int


def ask(stage: DemoStage, client: DemoClient, question: str, most: int, *, quiet: bool = False) -> TimedAnswer:
    """Ask through the gateway; the answer is printed as it streams unless ``quiet``."""
    assert client.gateway is not None
    begun, first, pieces = time.monotonic(), 0.0, 0

    def shown(piece: str) -> None:
        nonlocal first, pieces
        first, pieces = first or time.monotonic() - begun, pieces + 1
        if not quiet:
            stage.display.piece(piece)

    if not quiet:
        stage.display.step(f"question: {question}")
    streamed = client.gateway.ask(question, most, shown)
    if not quiet:
        stage.display.line()
    return TimedAnswer(streamed, streamed.text, first, time.monotonic() - begun, pieces)


def outcome_of(stage: DemoStage, client: DemoClient, streamed: Streamed) -> tuple[dict[str, Any], float]:
    """The receipt once the draw, and the check where there is one, are through; and how long that took."""
    assert client.gateway is not None
    gateway, begun, found = client.gateway, time.monotonic(), {}

    def ended() -> bool:
        found.update(gateway.receipt_now(streamed))
        return found["outcome"] in ENDED

    wait_until(ended, "The draw", CHECK_SECONDS, [gateway.child])
    stage.orders += [order["order"] for order in found["tasks"]]
    return found, time.monotonic() - begun
