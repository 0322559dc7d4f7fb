"""A whole network on this machine over a toy model: anvil, one scheduler, nodes, clients' tabs.

Everything but the model is as it is shipped: contracts, `troth scheduler start`, the nodes' services with their disks,
TLS between all of them. What is smaller than in earnest is said where the figures are printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support import tabs_stage as staging
from support.tabs_stage import TabsStage, following, tabs_stage

from troth.chain import keystore
from troth.chain.keystore import Key
from troth.protocol.architecture import architecture_name
from troth.protocol.hashing import keccak256
from troth.protocol.market import shipped
from troth.protocol.market.messages import tab_id
from troth.protocol.market.types import Ask, Parameters
from troth.protocol.types import Address, Hash32, ModelDescriptor
from troth.scheduler.orders.offers import PriceList
from troth.testnet import cli
from troth.testnet.anvil import fund, rpc, start_anvil
from troth.testnet.parties import is_ready
from troth.testnet.ports import free_port
from troth.testnet.processes import Child, ProcessGroup, wait_until
from troth.transport.identity import create_identity

PASSWORD = "toy network"  # noqa: S105 - keys of a throw-away chain
CONTEXT = 256
CHECK_RATE = 50_000
LISTED = PriceList(prompt=4 * 10**18, cached=4 * 10**17, written=8 * 10**18)
"""Wei per 10^9 positions. The dearest that fit, so that a tab of some hundred short tasks is worth
redeeming where that may cost nine tenths of it: in earnest it is done more rarely."""
ASK = Ask(LISTED.prompt * 8 // 10, LISTED.cached * 8 // 10, LISTED.written * 8 // 10)
NODES = 10
NODE_PROCESSES = 2
"""Nodes share processes, since each imports all of Troth; more than one, since one uses one core only."""
TAB = 10**17
QUICK_BLOCK, SLOW_BLOCK = 1, 12
"""Seconds: while parties set up, and where time matters; else as on Ethereum."""
LAG_BLOCKS = 20
POLL_SECONDS = 2
"""Between a node's questions to the chain: ten of them share two cores here with everybody else."""
ETHER = 10**18
HERE = Path(__file__).resolve()
SCRIPTS, TESTS = HERE.parents[3], HERE.parents[4] / "tests"


BASE_FEE, FEE_SECONDS = 10**9, 0.3
"""Gas at 1 gwei, whatever the last blocks held: empty ones would make it nearly free within minutes."""


@dataclass
class LocalChain:
    """What ``tabs_stage`` needs of an anvil, as the tests' has it."""

    url: str
    keys: tuple[Key, ...]
    standing: Any = None
    stages: int = 0

    def rpc(self, method: str, *parameters: object) -> Any:
        return rpc(self.url, method, *parameters)

    def fund(self, key: Key) -> None:
        fund(self.url, key.address, 10_000 * ETHER)

    def mine(self, blocks: int = 1) -> None:
        rpc(self.url, "anvil_mine", hex(blocks))


@dataclass
class Client:
    """One client of the load: the wallet that opened a tab, and the tab's key."""

    wallet: Key
    key: Key


@dataclass
class ToyNetwork:
    """Everything runs."""

    home: Path
    stage: TabsStage
    processes: ProcessGroup
    chain: Child
    scheduler: Child
    nodes: tuple[Child, ...]
    clients: list[Client]
    endpoint: str
    started_at: int
    """Block after which the network runs: everybody is registered, and no tab is open yet."""

    @property
    def rpc(self) -> str:
        return str(self.stage.anvil.url)

    def mine_every(self, seconds: int) -> None:
        """The chain's pace from now on."""
        rpc(self.rpc, "evm_setIntervalMining", seconds)


def parameters() -> Parameters:
    """Of a demo, with a lag of twenty seconds."""
    return replace(shipped.DEMO, lag=LAG_BLOCKS, summons_window=6)


def model_files(folder: Path) -> ModelDescriptor:
    """A model folder as far as a scheduler reads one; its descriptor."""
    folder.mkdir(parents=True)
    config = {"model_type": "toy", "max_position_embeddings": CONTEXT, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return replace(staging.MODEL, architecture=architecture_name(config, b"{}", ""))


@asynccontextmanager
async def toy_network(home: Path, *, clients: int, nodes: int = NODES) -> AsyncIterator[ToyNetwork]:
    """Set up, start, wait until all are ready; ends every process."""
    processes = ProcessGroup(home / "logs")
    try:
        chain, url = start_anvil(processes, block_seconds=0)
        ports: dict[Address, tuple[int, Path]] = {}

        def endpoint(operator: Address) -> tuple[str, Hash32]:
            folder = home / operator
            identity = create_identity(folder / "tls")
            ports[operator] = (free_port(), folder)
            return f"https://127.0.0.1:{ports[operator][0]}", Hash32(identity.spki_sha256)

        keys = tuple(Key.from_secret(keccak256(b"toy network %d" % number)) for number in range(2))
        local = LocalChain(url, keys)
        for key in keys:
            local.fund(key)
        async with _staged(local, model_files(home / "model"), nodes, endpoint) as stage:
            started_at = int(str(rpc(url, "eth_blockNumber")), 16)
            opened = [await _open(stage, number) for number in range(clients)]
            rpc(url, "evm_setIntervalMining", QUICK_BLOCK)
            password = home / "password"
            password.write_text(PASSWORD)
            password.chmod(0o600)
            environment = cli.environment(password) | {"PYTHONPATH": _path()}
            node_folders = [_write_node(stage, ports, node) for node in stage.nodes]
            program = [sys.executable, "-m", "benchmarks.market.running.toy_nodes"]
            running = tuple(
                processes.start(
                    f"nodes-{number}", [*program, *map(str, node_folders[number::NODE_PROCESSES])], environment
                )
                for number in range(NODE_PROCESSES)
            )
            folder = _write_scheduler(stage, ports, home / "model")
            local.fund(stage.scheduler)
            serving = processes.start("scheduler", cli.command("scheduler", "start", "--home", folder), environment)
            endpoints = [f"https://127.0.0.1:{port}" for port, _ in ports.values()]
            for one in endpoints:
                wait_until(lambda one=one: is_ready(one), f"{one} becoming ready", 120, [*running, serving])
            await _tabs_are_open(stage)
            fee = asyncio.create_task(_hold_fee(url))
            yield ToyNetwork(
                home,
                stage,
                processes,
                chain,
                serving,
                running,
                opened,
                f"https://127.0.0.1:{ports[stage.scheduler.address][0]}",
                started_at,
            )
            fee.cancel()
    finally:
        processes.stop_all()


def _staged(
    local: LocalChain, model: ModelDescriptor, nodes: int, endpoint: Callable[[Address], tuple[str, Hash32]]
) -> AbstractAsyncContextManager[TabsStage]:
    """The deployment with its class and its parties, without tabs."""
    money = shipped.money(
        parameters(),
        fee_cap=10**13,
        positions=shipped.DEMO_POSITIONS,
        check_price=10**13 * 10**9 // (7 * shipped.DEMO_POSITIONS),
        check_rate=CHECK_RATE,
        reviewers=shipped.DEMO_REVIEWERS,
    )
    return tabs_stage(
        local,
        parameters=parameters(),
        model=model,
        execution_class=money.put_into(staging.execution_class_of(model)),
        nodes=nodes,
        endpoint=endpoint,
        ask=ASK,
        tabs=False,
    )


async def _hold_fee(url: str) -> None:
    while True:
        await asyncio.to_thread(rpc, url, "anvil_setNextBlockBaseFeePerGas", hex(BASE_FEE))
        await asyncio.sleep(FEE_SECONDS)


async def _tabs_are_open(stage: TabsStage) -> None:
    """Wait for the scheduler's tab with every node: until then it refuses orders that draw the others."""
    wanted = {tab_id(stage.node_tab(node)) for node in stage.nodes}
    async with following(stage) as follower:
        await follower.wait_until(lambda state: all(state.tab_state(one).known for one in wanted), 120)


async def _open(stage: TabsStage, number: int) -> Client:
    """A client with a tab."""
    wallet, key = (Key.from_secret(keccak256(f"toy client {number} {name}".encode())) for name in ("wallet", "tab"))
    await stage.open_tab(wallet, stage.scheduler.address, key, TAB)
    return Client(wallet, key)


def _path() -> str:
    return os.pathsep.join((str(SCRIPTS), str(TESTS), os.environ.get("PYTHONPATH", "")))


def _keyfile(folder: Path, key: Key) -> None:
    (folder / "keys").mkdir(mode=0o700)
    keystore.create_account(folder / "keys" / "operator.json", PASSWORD, scrypt_n=keystore.DEMO_SCRYPT_N, key=key)


def _write_node(stage: TabsStage, ports: dict[Address, tuple[int, Path]], node: Key) -> Path:
    """The folder of one node, as `troth node init` writes it."""
    port, folder = ports[node.address]
    _keyfile(folder, node)
    fund(str(stage.anvil.url), node.address, ETHER)
    layers = stage.model.layers
    (folder / "node.toml").write_text(
        f"""version = 1
[chain]
rpc = "{stage.anvil.url}"
poll_seconds = {POLL_SECONDS}
[market]
factory = "{stage.market.place.factory}"
[earning]
unpaid = {ETHER}
gas_share = 0.9
[node]
class = "0x{stage.class_id.hex()}"
model = "toy"
slice = "0:{layers}"
segments = ["0:{layers}"]
[listen]
host = "127.0.0.1"
port = {port}
endpoint = "https://127.0.0.1:{port}"
"""
    )
    return folder


def _write_scheduler(stage: TabsStage, ports: dict[Address, tuple[int, Path]], model: Path) -> Path:
    """The folder of the scheduler, as `troth scheduler init` writes it."""
    port, folder = ports[stage.scheduler.address]
    _keyfile(folder, stage.scheduler)
    vrf_file = folder / "keys" / "vrf.json"
    keystore.create_vrf_secret(vrf_file, PASSWORD, scrypt_n=keystore.DEMO_SCRYPT_N, secret=stage.vrf_secret)
    (folder / "scheduler.toml").write_text(
        f"""version = 1
[chain]
rpc = "{stage.anvil.url}"
[market]
factory = "{stage.market.place.factory}"
[listen]
host = "127.0.0.1"
port = {port}
endpoint = "https://127.0.0.1:{port}"
[prices]
prompt = "{LISTED.prompt}"
cached = "{LISTED.cached}"
written = "{LISTED.written}"
[tabs]
deposit = "{TAB}"
least = "{TAB // 4}"
redeem_times = 1
[limits]
settled_blocks = 0
[[serve]]
class = "0x{stage.class_id.hex()}"
ends = [{stage.model.layers}]
model = "{model}"
"""
    )
    return folder
