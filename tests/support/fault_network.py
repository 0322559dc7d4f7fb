"""A network of ``fault_processes`` on a real chain: kill any of them, start them again, and look at the money."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from support.court_network import COURT, node_configuration, scheduler_configuration
from support.crash_points import Plan
from support.fault_processes import (
    PASSWORD,
    ClientSettings,
    NodeSettings,
    Process,
    SchedulerSettings,
    client_main,
    node_main,
    scheduler_main,
    too_late,
)
from support.tabs_stage import TabsStage, _key, execution_class_of, following, tabs_stage
from support.tiny_llama import model_folder, tiny_llama
from tokenizers import Tokenizer, models

from troth.chain.keystore import DEMO_SCRYPT_N
from troth.client.home import Home
from troth.client.orders.journal import RUNNING, OrderJournal, OrderRecord, Phase
from troth.client.tabs.books import TabBooks
from troth.client.tabs.keys import Keyring
from troth.client.tabs.store import TabStore, opened
from troth.node.models.descriptor import describe
from troth.node.models.folder import ModelFolder
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed, tab_id
from troth.protocol.market.prices import PER
from troth.protocol.market.types import PotKind, Tab, Voucher
from troth.protocol.types import Address, Hash32, segments_from_ends
from troth.scheduler.served import ModelTexts, ServedClass
from troth.scheduler.tabs.client_tabs import Kept
from troth.testnet.ports import free_port
from troth.transport.identity import create_identity

WORDS = 48
NODES = 10
"""One more than the owners below which a class offers no checks."""
LAG = 120
"""Blocks, of which one comes a second: half of it is the time in which a client must have been told of its draw."""
REFERENCE_AGE = 40
"""Blocks after which an order that its scheduler does not know is certain to come to nothing."""
DEADLINE = 240.0
GAS_PRICE = 1_000
"""Units that the deployment counts for a unit of gas: so little that the fees of tiny answers are worth claiming."""


def small_model(path: Path) -> ModelFolder:
    """A small Llama with random weights, and a tokenizer whose words are w0 to w47."""
    words = {f"w{number}": number for number in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0")).to_str()
    return model_folder(tiny_llama(vocab_size=WORDS), path, tokenizer)


@dataclass
class FaultNetwork:
    """Processes by name: "scheduler", "node 0" and so on; clients are started for their questions.

    ``forgotten`` was paid for orders that the client's file does not hold, since it is an old backup.
    """

    folder: Path
    stage: TabsStage
    follower: Any
    plan: Plan
    client: ClientSettings
    tab: Tab
    processes: dict[str, Process] = field(default_factory=dict)
    endpoints: dict[str, str] = field(default_factory=dict)
    staked: int = 0
    clients: int = 0
    forgotten: int = 0

    @property
    def bank(self) -> Address:
        return self.stage.market.contracts.bank

    @property
    def state(self) -> Any:
        return self.follower.state

    # ---- processes

    async def start(self, *names: str) -> None:
        """Start, and wait until they are ready."""
        for name in names:
            self.processes[name].start()
        for name in names:
            await self.until(lambda name=name: self.is_ready(name), f"{name} is ready")

    def is_ready(self, name: str) -> bool:
        process = self.processes[name]
        assert process.alive, f"{name} ended with {process.code}:\n{process.tail()}"
        try:
            with urllib.request.urlopen(f"{self.endpoints[name]}/readyz", context=_anybody(), timeout=10):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def metrics(self, name: str) -> str:
        with urllib.request.urlopen(f"{self.endpoints[name]}/metrics", context=_anybody(), timeout=30) as answer:
            return str(answer.read().decode())

    async def until(self, condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not await asyncio.to_thread(condition):
            late = asyncio.get_running_loop().time() > deadline
            assert not late, f"{what} did not come true\n{self.tails() if late else ''}"
            await asyncio.sleep(0.05)

    def tails(self) -> str:
        return "\n".join(f"--- {name}\n{one.tail()}" for name, one in self.processes.items() if "node" not in name)

    async def revive(self) -> list[str]:
        """Start whoever died by the plan; their names."""
        dead = [name for name, one in self.processes.items() if one.running is not None and not one.alive]
        assert all(self.processes[name].killed for name in dead), self.tails()
        await self.start(*dead)
        return dead

    # ---- clients

    def asking(self, *questions: tuple[int, ...], **changes: Any) -> Process:
        """A client's process that asks these questions, and ends when nothing of its orders is open."""
        self.clients += 1
        said = self.folder / f"said {self.clients}.jsonl"
        settings = replace(self.client, questions=questions, said=said, **changes)
        return Process("client", client_main, settings, self.plan, self.folder / "client.log").start()

    async def asked(self, *questions: tuple[int, ...], **changes: Any) -> None:
        """The same, from start to end."""
        await self.ended(self.asking(*questions, **changes))

    async def ended(self, client: Process, seconds: float = DEADLINE) -> None:
        """Wait for its end; once it waits for nothing but blocks, these come at once."""
        try:
            await self.until(lambda: not client.alive or self._waits_for_blocks(client), "the client's end", seconds)
            if client.alive:
                await self.mined(max(entry.due or 0 for entry in self.entries()) - self.block + 1)
                await self.until(lambda: not client.alive, "the client's end", seconds)
        except AssertionError as error:
            found = [(entry.phase, entry.fee, entry.paid, entry.due, entry.failure) for entry in self.entries()]
            raise AssertionError(f"{error}\n--- client, {found}\n{client.tail()}") from error
        assert client.code == 0, client.tail()

    def _waits_for_blocks(self, client: Process) -> bool:
        """All of its questions are answered, no order or summons goes on, and some are acknowledged once due."""
        if self._heard(client) < len(client.settings.questions):
            return False
        left, block = [entry for entry in self.entries() if entry.paid is None], self.block
        late = [entry for entry in left if entry.phase in {Phase.UNDRAWN, Phase.UNCLEAR} and (entry.due or 0) > block]
        return bool(late) and all(entry in late or too_late(entry) for entry in left)

    @staticmethod
    def _heard(client: Process) -> int:
        said = client.settings.said
        return said.read_text().count("\n") if said.exists() else 0

    @property
    def block(self) -> int:
        return int(self.stage.anvil.rpc("eth_blockNumber"), 16)

    async def paid(self, client: Process) -> None:
        """The same where answers may be undrawn: once all of its questions are answered, their lag is soon over."""
        count = len(client.settings.questions)

        def answered() -> bool:
            idle = self._heard(client) == count and all(one.phase not in RUNNING for one in self.entries())
            return idle or not client.alive

        await self.until(answered, "all questions are answered", count * DEADLINE)
        await self.mined(LAG)
        await self.ended(client)

    @contextmanager
    def store(self) -> Iterator[TabStore]:
        with opened(Home(self.client.home).tabs) as store:
            yield store

    def entries(self) -> list[OrderRecord]:
        with self.store() as store:
            return list(OrderJournal(store).all())

    def doubt(self) -> str:
        """Why the client uses its tab no more."""
        with self.store() as store:
            return TabBooks(store).record(tab_id(self.tab)).doubt

    def spent(self) -> int:
        with self.store() as store:
            return TabBooks(store).record(tab_id(self.tab)).book.spent

    def back_up(self) -> Path:
        """A copy of the client's file, as a backup program makes it."""
        saved = self.folder / "backup.sqlite3"
        with closing(sqlite3.connect(Home(self.client.home).tabs)) as source, closing(sqlite3.connect(saved)) as copy:
            source.backup(copy)
        return saved

    def restore(self, saved: Path) -> None:
        """The file as it was; its client does not run."""
        tabs = Home(self.client.home).tabs
        for file in tabs.parent.glob(f"{tabs.name}*"):
            file.unlink()
        shutil.copy(saved, tabs)

    # ---- money

    async def mined(self, blocks: int = 1) -> None:
        await asyncio.to_thread(self.stage.anvil.mine, blocks)
        await self.follower.catch_up()

    @asynccontextmanager
    async def blocks(self, seconds: float = 1.0, count: int = 1) -> AsyncIterator[None]:
        """A chain that goes on by itself, so many blocks at a time."""

        async def mine() -> None:
            while True:
                with suppress(Exception):
                    await self.mined(count)
                await asyncio.sleep(seconds)

        mining = asyncio.create_task(mine())
        try:
            yield
        finally:
            mining.cancel()
            await asyncio.gather(mining, return_exceptions=True)

    def read(self, name: str, file: str, query: str) -> list[Any]:
        """Rows of a party's own records."""
        path = self.folder / name / file
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as database:
            return database.execute(query).fetchall()

    async def settled(self) -> None:
        """Wait until nothing is owed any more: by the client, and to any node.

        What a failed order's nodes did is acknowledged after a lag, whose blocks come at once. Who was drawn to check
        and never committed is owed nothing, and told so when two lags are over.
        """
        waits = "everything is acknowledged, or waits for its block"
        await self.until(lambda: self._unpaid() <= self._silent() or self._awaited() > self.block, waits)
        await self.mined(max(self._awaited() - self.block, 0) + 1)
        await self.until(lambda: self._unpaid() <= self._silent(), "everything is acknowledged")
        if self._unpaid():
            await self.mined(2 * LAG + 1)
        await self.until(lambda: not self._unpaid(), "silent verifiers are told that nothing is owed")

    def _unpaid(self) -> set[tuple[bytes, int]]:
        """Numbers on tabs, of nodes and of the client, that nobody has decided on; not those that never will be."""
        client, nodes = tab_id(self.tab), self.read("scheduler", "market.sqlite", "SELECT tab, number FROM node_number")
        owing = self.read("scheduler", "market.sqlite", "SELECT tab, number FROM client_number")
        refused = {(client, entry.sequence) for entry in self.refused()}
        return {*nodes, *owing} - refused

    def _awaited(self) -> int:
        """The block from which on all that is left is acknowledged; 0 where it is not decided for some, or for none."""
        left = self._unpaid() - self._silent()
        rows = self.read("scheduler", "market.sqlite", "SELECT tab, number, due FROM node_number")
        dues = {(tab, number): due or 0 for tab, number, due in rows}
        return max(blocks) if all(blocks := [dues.get(one, 0) for one in left]) and blocks else 0

    def _silent(self) -> set[tuple[bytes, int]]:
        """Promises to verifiers that the scheduler has no commitment of, and of whom none is taken any more."""
        steps = self.read("scheduler", "market.sqlite", "SELECT order_id, kind, part FROM steps")
        closed = {order for order, kind, _ in steps if kind == "Frozen"}
        committed = {(order, part) for order, kind, part in steps if kind == "HiddenTrace"}
        payer = self.stage.scheduler.address
        names = {bytes(tab_id(Tab(payer, key.address, payer))): key.address for key in self.stage.nodes}
        query = "SELECT tab, number, order_id, segment FROM node_number WHERE work = 1 AND due IS NULL"
        rows = self.read("scheduler", "market.sqlite", query)
        return {
            (tab, number)
            for tab, number, order, segment in rows
            if order in closed and (order, f"{segment}/{names[tab]}") not in committed
        }

    def refused(self) -> list[OrderRecord]:
        """Answers whose draw came too late: nothing is acknowledged for them, and their scheduler may claim them."""
        return [entry for entry in self.entries() if entry.phase is Phase.REFUSED_CHECK and entry.due is None]

    def acknowledged_by_client(self) -> int:
        """What the scheduler's best word of the client is worth."""
        rows = self.read("scheduler", "market.sqlite", "SELECT data FROM client_tab")
        if not rows:
            return 0  # a client that died before it was heard of
        best = canonical.decode(Kept, rows[0][0], 1 << 14).best
        return 0 if best is None else best.message.spent

    def owed_to_nodes(self) -> dict[str, tuple[int, int]]:
        """By node: what its best voucher says, and what its finished work is worth by its own book."""
        found = {}
        for name in self.processes:
            if not name.startswith("node"):
                continue
            words = self.read(name, "market.sqlite", "SELECT voucher FROM tabs")
            best = sum(canonical.decode(Signed[Voucher], one[0], 1 << 14).message.spent for one in words)
            done = self.read(name, "market.sqlite", "SELECT worth FROM leaves WHERE stage = 1")
            found[name] = (best, sum(int(one[0]) for one in done))
        return found

    async def nothing_lost(self) -> None:
        """Nobody was slashed, no wei is missing, and all books say the same."""
        await self.settled()
        await self.until(lambda: all(best == done for best, done in self.owed_to_nodes().values()), "nodes are told")
        await self.follower.catch_up()
        state = self.state
        held = int(self.stage.anvil.rpc("eth_getBalance", self.bank, "latest"), 16)
        assert held == sum(amount for _, amount in state.pots.items()), "money is missing in the Bank"
        assert not list(state.convictions.items())
        assert not list(state.cases.items())
        assert not [one for _, one in state.summons.items() if one.answered is None]
        assert self.stakes() == self.staked
        spent, fees = self.spent(), sum(entry.paid or 0 for entry in self.entries())
        assert spent == fees + self.forgotten == self.acknowledged_by_client()
        refused = {entry.identifier for entry in self.refused()}
        for entry in self.entries():
            assert entry.paid in ({None} if entry.identifier in refused else {0, entry.fee}), entry
        assert not self.doubt(), "a client that was away doubts an honest scheduler"

    def stakes(self) -> int:
        return sum(amount for (kind, _), amount in self.state.pots.items() if kind is PotKind.STAKE)


@cache
def _anybody() -> ssl.SSLContext:
    """For questions to processes of this test, made once: a default context reads all root certificates, 18 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@asynccontextmanager
async def fault_network(
    anvil: Any, folder: Path, *, nodes: int = NODES, block_seconds: float = 1.0, **parameters: Any
) -> AsyncIterator[FaultNetwork]:
    """Everybody set up, registered and ready; the scheduler has opened its tabs with all nodes.

    A draw is fresh for three blocks: with ``block_seconds`` of a quick chain a loaded machine may take longer.
    """
    model = small_model(folder / "model")
    names = {_key(f"node {number}").address: f"node {number}" for number in range(nodes)}
    names[_key("scheduler").address] = "scheduler"
    identities = {one: create_identity(folder / name / "tls") for one, name in names.items()}
    ports = {one: free_port() for one in names}
    descriptor = describe(model, 0)
    async with AsyncExitStack() as stack:
        made = tabs_stage(
            anvil,
            parameters=replace(COURT, lag=LAG, gas_price=GAS_PRICE * PER, reference_age=REFERENCE_AGE, **parameters),
            model=descriptor,
            execution_class=execution_class_of(descriptor),
            nodes=nodes,
            segments=lambda _: segments_from_ends((2,), 2),
            endpoint=lambda one: (f"https://127.0.0.1:{ports[one]}", Hash32(identities[one].spki_sha256)),
            tabs=False,
        )
        stage = await stack.enter_async_context(made)
        follower = await stack.enter_async_context(following(stage))
        network = await _network(stage, follower, folder)
        for one, name in names.items():
            _add(network, name, one, ports[one])
        stack.callback(network.plan.clear)
        for process in network.processes.values():
            stack.callback(process.stop)
        async with network.blocks():
            await network.start(*network.processes)
            covered = [Tab(stage.scheduler.address, key.address, stage.scheduler.address) for key in stage.nodes]
            await network.until(
                lambda: all(network.state.tab_state(tab_id(tab)).known for tab in covered), "tabs with all nodes"
            )
        async with network.blocks(block_seconds):
            network.staked = network.stakes()
            yield network


async def _network(stage: TabsStage, follower: Any, folder: Path) -> FaultNetwork:
    home = Home(folder / "client")
    home.create()
    key = Keyring(home, PASSWORD).create(DEMO_SCRYPT_N)
    place = stage.market.place
    tab = Tab(stage.client.address, stage.scheduler.address, key.address)
    with opened(home.tabs) as store:
        TabBooks(store).add(tab, chain_id=31337, bank=stage.market.contracts.bank, factory=place.factory)
    await stage.open_tab(stage.client, stage.scheduler.address, key)
    settings = ClientSettings(home.root, stage.anvil.url, place.factory, stage.market.contracts.bank)
    return FaultNetwork(folder, stage, follower, Plan(folder / "plan"), settings, tab)


def _add(network: FaultNetwork, name: str, operator: Address, port: int) -> None:
    stage, folder, log = network.stage, network.folder / name, network.folder / f"{name}.log"
    network.endpoints[name] = f"https://127.0.0.1:{port}"
    if name == "scheduler":
        stage.anvil.fund(stage.scheduler)
        words = ModelTexts.load(network.folder / "model")
        configuration = scheduler_configuration(stage, folder, port, (2,), words)
        served = ServedClass(stage.class_id, (2,), words, 256)
        configured = replace(configuration, served=(served,))
        settings: Any = SchedulerSettings(configured, stage.scheduler.secret, stage.vrf_secret)
        network.processes[name] = Process(name, scheduler_main, settings, network.plan, log)
        return
    key = next(one for one in stage.nodes if one.address == operator)
    stage.anvil.fund(key)
    plain = node_configuration(stage, folder, port, segments_from_ends((2,), 2))
    hosting = replace(plain, model=str(network.folder / "model"), threads=1, positions=256)
    network.processes[name] = Process(name, node_main, NodeSettings(hosting, key.secret), network.plan, log)
