"""A network of real processes: anvil with a market on it, nodes, a scheduler, and clients in this process.

Everything that any party runs is the shipped code over TLS; `nodes` and `scheduler` say which parts are replaced.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support.tabs_stage import TabsStage, execution_class_of

from adversaries.notes import Notes
from adversaries.plan import CONTEXT, VRF_SECRET, Plan, key_of
from troth.chain.deployment import deploy_market
from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.chain.market_follower import MarketFollower
from troth.client.configuration import ClientConfiguration
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.orders.running import Running, running
from troth.client.orders.session import PayerSession
from troth.client.tabs.managing import Purse, open_tab
from troth.client.wallet import create_wallet
from troth.protocol.market import shipped
from troth.protocol.market.messages import tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.types import Ask, ExecutionClass
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment, segments_from_ends
from troth.scheduler.log.entries import ENTRY_SECONDS
from troth.testnet.anvil import start_anvil
from troth.testnet.ports import free_port
from troth.testnet.processes import Child, ProcessGroup
from troth.transport.identity import create_identity

ROOT = Path(__file__).resolve().parents[2]
NODES = 12
BLOCK_SECONDS = 1.0
FUNDS = 10_000 * 10**18
SEATS = 60
"""Seats' worth of stake of each node: more than the class counts, so that a convict stays and plays on."""
# A busy machine takes longer than a demo gives a client to summon a check, a scheduler to answer (else it is convicted)
# and reviewers to speak (else they are fined). A window ends as soon as everybody has spoken.
PARAMETERS = replace(
    shipped.DEMO,
    lag=120,
    summons_window=45,
    commit_window=180,
    reveal_window=180,
    claim_delay=5_000,
    close_delay=6_000,
    unbonding=12_000,
)
# Claims that settle, stake that leaves and tabs that close within a row; gas so cheap that the fee of a toy's answer is
# worth claiming. No court has to hear anything here.
COLLECTING = replace(
    PARAMETERS,
    lag=100,
    summons_window=30,
    commit_window=20,
    reveal_window=20,
    claim_delay=900,
    close_delay=970,
    unbonding=1_900,
    gas_price=1_000 * PER,
)
KINDS = {"weights": PARAMETERS, "toy": PARAMETERS, "claims": COLLECTING}
"""Kinds of networks: real weights, a toy in two segments, and the same toy where everybody collects what is due."""
ASK = Ask(prompt=3 * 10**17, cached=3 * 10**16, written=6 * 10**17)
"""Wei for 10^9 positions of one segment: within the eight tenths of the scheduler's prices that orders give to nodes,
which two segments share."""
LOG_SECONDS = 2.0
"""For which an entry of the log takes orders, where everybody collects what is due."""
ALWAYS = 1_000_000
"""q: every answer is drawn, so that a row needs no luck. What a conviction takes is that of a demo's q, a quarter."""
PASSWORD = "password"
START_SECONDS = 400.0
RPC_SECONDS, MINED_TOGETHER = 60.0, 100


class LocalChain:
    """An anvil process as `TabsStage` takes it; its blocks come by themselves once ``begin`` was called."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys = (key_of("deployer"), key_of("client"))
        self._stopped = threading.Event()
        self._miner = threading.Thread(target=self._mine_on, daemon=True)

    def rpc(self, method: str, *parameters: object) -> Any:
        """One JSON-RPC call."""
        return self.rpc_many(method, [parameters])[0]

    def rpc_many(self, method: str, calls: Sequence[Sequence[object]]) -> list[Any]:
        """One method with several lists of parameters, in one request; the results in their order."""
        named = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": list(one)} for number, one in enumerate(calls)
        ]
        request = urllib.request.Request(self.url, json.dumps(named).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=RPC_SECONDS) as response:
            answers = sorted(json.load(response), key=lambda one: int(one["id"]))
        wrong = next((one["error"] for one in answers if "error" in one), None)
        if wrong is not None:
            raise RuntimeError(f"{method}: {wrong}")
        return [one["result"] for one in answers]

    def mine(self, blocks: int = 1) -> None:
        """Blocks at once."""
        self.rpc("anvil_mine", hex(blocks))

    def mine_until(self, block: int) -> None:
        """Blocks until there is this one: others come by themselves meanwhile, on a busy machine many."""
        while (left := block - int(self.rpc("eth_blockNumber"), 16)) > 0:
            self.mine(min(left, MINED_TOGETHER))

    def fund(self, key: Key) -> None:
        """At setup alone: it would spoil every count of money."""
        if int(self.rpc("eth_getBalance", key.address, "latest"), 16) < FUNDS // 10:
            self.rpc("anvil_setBalance", key.address, hex(FUNDS))

    def begin(self) -> None:
        """From now on a block comes every BLOCK_SECONDS, with whatever was sent by then."""
        self.rpc("evm_setAutomine", False)
        self._miner.start()

    def end(self) -> None:
        """No more blocks."""
        self._stopped.set()
        if self._miner.is_alive():
            self._miner.join()

    def _mine_on(self) -> None:
        while not self._stopped.wait(BLOCK_SECONDS):
            try:
                self.rpc("evm_mine")
            except OSError:
                return


@dataclass
class Client:
    """A client's home, and what runs over it."""

    name: str
    key: Key
    running: Running
    home: Home
    tab: Hash32

    @property
    def session(self) -> PayerSession:
        """The shipped session."""
        return self.running.session


@dataclass
class Network:
    """Everything that stands. ``stage`` holds keys and the deployment."""

    plan: Plan
    chain: LocalChain
    stage: TabsStage
    follower: MarketFollower
    notes: Notes
    processes: ProcessGroup
    children: list[Child]
    clients: dict[str, Client] = field(default_factory=dict)

    @property
    def scheduler(self) -> Address:
        """The scheduler's operator."""
        return self.stage.scheduler.address

    async def wind(self, blocks: int) -> None:
        """Let blocks pass, those that come by themselves among them; only where nobody's window runs."""
        await self.follower.catch_up()
        await asyncio.to_thread(self.chain.mine_until, self.follower.block + blocks)
        for follower in (self.follower, *(one.running.follower for one in self.clients.values())):
            await follower.catch_up()

    def require_alive(self) -> None:
        """Raise ProcessDied where a process has ended."""
        for child in self.children:
            child.require_alive()


def model_of(kind: str) -> tuple[str, ModelDescriptor, tuple[int, ...]]:
    """Folder, descriptor and split of a kind of network."""
    if kind != "weights":
        from support.tab_scene import descriptor

        return "", descriptor(), (1, 2)
    from support.packaged_models import packaged_model

    from troth.node.models.descriptor import describe

    folder = packaged_model()
    made = describe(folder, 0)
    return str(folder.path), made, (made.layers,)


def class_of(kind: str, model: ModelDescriptor) -> ExecutionClass:
    """The class of a kind of network: a demo's money, the calibrated cuts for real weights."""
    if kind != "weights":
        return execution_class_of(model, least_check_rate=ALWAYS)
    from troth.node.models.thresholds import shipped_calibration
    from troth.protocol.market.messages import state_hash

    found = shipped_calibration(state_hash(model), "float32")
    assert found is not None, "no calibration ships for these weights"
    cuts, tile = found.thresholds, found.thresholds.tile
    return execution_class_of(
        model,
        name="torch cpu float32",
        least_check_rate=ALWAYS,
        state_cut=cuts.state_cut,
        margin_cut=cuts.margin_cut,
        mantissa_bits=tile.bits,
        steps=tile.steps,
        theta=tile.theta,
    )


@asynccontextmanager
async def network(folder: Path, kind: str, clients: tuple[str, ...] = ("client", "suer")) -> AsyncIterator[Network]:
    """Deploy, start and connect. "suer" brings cases to the court by itself; every client summons by itself."""
    await asyncio.to_thread((folder / "logs").mkdir, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        processes = ProcessGroup(folder / "logs")
        stack.callback(processes.stop_all)
        anvil, url = start_anvil(processes, 0)
        chain = LocalChain(url)
        stack.callback(chain.end)
        plan, stage = await _deploy(stack, chain, folder, kind)
        path = plan.write()
        children = [anvil, *_start(processes, plan, path, kind)]
        follower = await stack.enter_async_context(MarketFollower(stage.market, poll_interval=0.1))
        await _until_ready(plan, children, kind)
        await _until_tabs(stage, follower, children)
        made = Network(plan, chain, stage, follower, Notes(plan.notes), processes, children)
        for name in clients:
            made.clients[name] = await stack.enter_async_context(joined(made, name))
        chain.begin()
        yield made


async def _deploy(stack: AsyncExitStack, chain: LocalChain, folder: Path, kind: str) -> tuple[Plan, TabsStage]:
    model_folder, model, ends = await asyncio.to_thread(model_of, kind)
    definition = class_of(kind, model)
    for key in chain.keys:
        chain.fund(key)
    chain.mine(3)
    market, _ = await deploy_market(chain.url, KINDS[kind], chain.keys[0])
    await stack.enter_async_context(market)
    keys = tuple(key_of(f"node {number}") for number in range(NODES))
    scheduler = key_of("scheduler")
    stage = TabsStage(chain, market, model, definition, keys, scheduler, VRF_SECRET, chain.keys[1], key_of("tab key"))
    ports = tuple(free_port() for _ in range(NODES + 1))
    contracts, place = market.contracts, market.place
    plan = Plan(
        str(folder),
        chain.url,
        place.factory,
        contracts.bank,
        stage.class_id.hex(),
        model_folder,
        ends,
        ports,
        collects=kind == "claims",
        log_seconds=LOG_SECONDS if kind == "claims" else ENTRY_SECONDS,
    )
    if kind != "weights":
        from support.tab_scene import texts

        texts(plan.home("toy"))
    await stage.send(chain.keys[0], Part.CLASSES, "registerModel", model)
    await stage.send(chain.keys[0], Part.CLASSES, "registerClass", definition)
    endpoint = _endpoint(plan, "scheduler", ports[-1])
    await stage.register_scheduler(endpoint, stake=10**20)
    spans: tuple[Segment, ...] = segments_from_ends(ends, model.layers)
    for number, key in enumerate(keys):
        await stage.register_node(key, spans, _endpoint(plan, f"node {number}", ports[number]), seats=SEATS, ask=ASK)
    for key in (*keys, scheduler):
        chain.fund(key)
    chain.mine(3)
    return plan, stage


def _endpoint(plan: Plan, name: str, port: int) -> tuple[str, Hash32]:
    identity = create_identity(plan.home(name) / "tls")
    return f"https://127.0.0.1:{port}", Hash32(identity.spki_sha256)


def _start(processes: ProcessGroup, plan: Plan, path: Path, kind: str) -> list[Child]:
    """Two processes of nodes where there are weights, so that both cores compute; one where there is a toy."""
    shares = [range(NODES)] if kind != "weights" else [range(NODES // 2), range(NODES // 2, NODES)]
    program = [sys.executable, "-m"]
    environment = {"PYTHONPATH": _python_path(), "OMP_NUM_THREADS": "1"}
    made = [
        processes.start(
            f"nodes-{number}",
            [*program, "adversaries.nodes", "--plan", str(path), "--name", f"nodes-{number}", *map(str, share)],
            environment,
        )
        for number, share in enumerate(shares)
    ]
    command = [*program, "adversaries.scheduler", "--plan", str(path)]
    return [*made, processes.start("scheduler", command, environment)]


def _python_path() -> str:
    return ":".join([str(ROOT / "tests"), *(one for one in sys.path if one)])


async def _until_ready(plan: Plan, children: list[Child], kind: str) -> None:
    names = ["scheduler", "nodes-0"] + (["nodes-1"] if kind == "weights" else [])
    async with asyncio.timeout(START_SECONDS):
        while not all(plan.ready(name).exists() for name in names):
            for child in children:
                child.require_alive()
            await asyncio.sleep(0.1)


async def _until_tabs(stage: TabsStage, follower: MarketFollower, children: list[Child]) -> None:
    """The scheduler opens its tabs with nodes by itself."""
    wanted = [tab_id(stage.node_tab(node)) for node in stage.nodes]
    async with asyncio.timeout(START_SECONDS):
        while not all(follower.state.tab_state(one).known for one in wanted):
            for child in children:
                child.require_alive()
            await asyncio.sleep(0.1)


@asynccontextmanager
async def joined(network: Network, name: str) -> AsyncIterator[Client]:
    """A client with a wallet and a tab, opened by what a user's commands do."""
    key, home = key_of(f"client {name}"), Home(network.plan.home(name))
    network.chain.fund(key)
    home.root.mkdir(parents=True, exist_ok=True)
    password = home.root / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    imported = home.root / "imported.json"
    create_account(imported, PASSWORD, scrypt_n=DEMO_SCRYPT_N, key=key)
    create_wallet(home, password, imported, DEMO_SCRYPT_N)
    configuration = _configuration(network, name)
    opened = await open_tab(Purse(home, password, DEMO_SCRYPT_N), configuration, "0.01ether", broadcast=True)
    tab = Hash32(bytes.fromhex(opened["tab"][2:]))
    async with going_on(network, name, home, tab) as client:
        yield client


@asynccontextmanager
async def going_on(network: Network, name: str, home: Home, tab: Hash32) -> AsyncIterator[Client]:
    """The programs of a client over a home that has a wallet and a tab."""
    async with running(home, _configuration(network, name), home.root / "password") as run:
        if not network.plan.model:
            from support.byte_language import LANGUAGE

            run.session.language = replace(LANGUAGE, end_tokens=(), context=CONTEXT)
        await run.session.ready()
        yield Client(name, key_of(f"client {name}"), run, home, tab)


def _configuration(network: Network, name: str) -> ClientConfiguration:
    """Every client summons by itself, "suer" goes to court by itself."""
    place = network.stage.market.place
    case = "5ether" if name == "suer" else ""
    table = MarketTable(
        place.factory, place.contracts.bank, place.block, "5ether", case, reviewers=5, seats=1, outside=0
    )
    class_id = "0x" + network.plan.class_id
    return ClientConfiguration(table, network.plan.rpc, execution_class=class_id)
