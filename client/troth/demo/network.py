"""The local network: sets every party up through the commands a real one would use, and runs it."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from troth.chain import keystore
from troth.chain.deployment import deploy
from troth.demo import cli
from troth.demo.anvil import fund, start_anvil
from troth.demo.errors import DemoError
from troth.demo.overlay import LocalOverlay
from troth.demo.party import Party
from troth.demo.plan import ETHER, Plan
from troth.demo.ports import free_port
from troth.demo.processes import ProcessGroup, wait_until
from troth.protocol.contract_types import Parameters

Report = Callable[[str], None]
PASSWORD = "local test network\n"  # noqa: S105 - keys of a throw-away chain
PARALLEL_COMMANDS = 6
READY_SECONDS = 180.0
PROBE_SECONDS = 10.0


@dataclass(slots=True)
class LocalNetwork:
    """One chain, one contract, one scheduler and `plan.node_names` nodes below `home`.

    Use it as a context manager: whatever happens, no process is left behind.
    """

    home: Path
    models: Path
    plan: Plan = field(default_factory=Plan)
    report: Report = print
    rpc: str = ""
    contract: str = ""
    execution_class: str = ""
    model_id: str = ""
    overlay: LocalOverlay | None = None
    ready_seconds: float = READY_SECONDS
    nodes: dict[str, Party] = field(default_factory=dict)
    scheduler: Party = field(init=False)
    processes: ProcessGroup = field(init=False)

    def __post_init__(self) -> None:
        """Lay out the folders; nothing runs yet."""
        self.processes = ProcessGroup(self.home / "logs")
        self.scheduler = Party("scheduler", self.home / "scheduler")
        self.nodes = {name: Party(name, self.home / f"node-{name}") for name in self.plan.node_names}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def password_file(self) -> Path:
        """The one password of all keyfiles of this network."""
        return self.home / "password"

    @property
    def owner_keystore(self) -> Path:
        """Keyfile of the account that owns every party here and pays their gas and stakes."""
        return self.home / "owner.json"

    @property
    def vrf_keystore(self) -> Path:
        """The scheduler's VRF key, with which a draw can be looked up before it is announced."""
        return self.home / "keys" / "vrf.json"

    def start(self) -> None:
        """Chain, contract, model, parties, processes; returns when all of them are ready to serve."""
        self.start_chain()
        self.register_model()
        if self.plan.relays:
            self.set_up_overlay()
        self.set_up_parties()
        self.wait_for_parties()
        if self.overlay is not None:
            self.report("waiting for the committee to sign a directory of all of them")
            self.overlay.wait_until_listed(1)

    def start_chain(self) -> None:
        """A fresh chain with the contract on it."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.home / "keys").mkdir(mode=0o700)
        self.password_file.write_text(PASSWORD)
        self.password_file.chmod(0o600)
        self.report("starting a local chain (anvil)")
        _, self.rpc = start_anvil(self.processes, self.plan.block_seconds)
        owner = keystore.create_account(self.owner_keystore, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        fund(self.rpc, owner.address, 10_000 * ETHER)
        parameters = Parameters(*self.plan.windows, ETHER, owner.address)

        async def create() -> tuple[str, int]:
            chain, receipt = await deploy(self.rpc, parameters, owner)
            await chain.close()
            return chain.contract, receipt.gas_used

        self.contract, gas = asyncio.run(create())
        self.report(f"deployed Troth at {self.contract} ({gas:,} gas)")

    def register_model(self) -> None:
        """Compute the model's id from its weights and register it with its execution class."""
        self.report(f"hashing the weights of {self.plan.model} and registering model and class")
        added = self._troth(
            *("model", "add", self.plan.model, "--home", self.models, "--dtype", self.plan.dtype),
            *("--unit", self.plan.unit, "--candidates", self.plan.candidates, "--verifiers", self.plan.verifiers),
            *("--reviewers", self.plan.reviewers),
            *(("--exact", "--engine", self.plan.engine) if self.plan.exact else ()),
            *("--rpc", self.rpc, "--contract", self.contract, "--keystore", self.owner_keystore, "--broadcast"),
        )
        self.model_id, self.execution_class = added["model_id"], added["class_id"]

    def set_up_overlay(self) -> None:
        """A committee with its contract, and relays."""
        plan = self.plan
        self.report(f"setting up {plan.members} committee members, their contract, and {plan.relays} relays")
        self.overlay = LocalOverlay(
            self.home, plan, self.processes, self.password_file, self.rpc, self.contract, self.owner_keystore
        )
        self.overlay.set_up()
        self.overlay.start()

    def set_up_parties(self) -> None:
        """Every party: keys, configuration, TLS identity, registration with its stake, and then its process."""
        self.report(f"registering a scheduler and {len(self.nodes)} staked nodes, each a process of its own")
        with ThreadPoolExecutor(PARALLEL_COMMANDS) as pool:
            waiting: dict[Future[None], Callable[[], None]] = {
                pool.submit(self._set_up_scheduler): self._launch_scheduler
            }
            for node in self.nodes.values():
                waiting[pool.submit(self._set_up_node, node)] = partial(self.start_node, node.name, wait=False)
            # Processes start in this thread, not in the pool's: they die with the thread that started them.
            for done in as_completed(waiting):
                done.result()
                waiting[done]()

    def wait_for_parties(self) -> None:
        """Wait until every process says it is ready."""
        self.report("waiting for the nodes to load their slices")
        for party in [*self.nodes.values(), self.scheduler]:
            self._wait_ready(party)

    def start_node(self, name: str, *, model: Path | None = None, wait: bool = True) -> None:
        """Start one node; with `model` it serves that folder without checking it, as a cheat would; else the plan's."""
        node = self.nodes[name]
        self._serve(node, model or self.models / "models" / self.plan.model)
        options = ["--no-verify-weights"] if model is not None else []
        node.child = self.processes.start(
            name, cli.command("node", "start", "--home", node.home, *options), cli.environment(self.password_file)
        )
        if wait:
            self._wait_ready(node)

    def start_scheduler(self, *, wait: bool = True) -> None:
        """Start the scheduler's process."""
        self.scheduler.child = self.processes.start(
            "scheduler",
            cli.command("scheduler", "start", "--home", self.scheduler.home),
            cli.environment(self.password_file),
        )
        if wait:
            self._wait_ready(self.scheduler)

    def stop(self) -> None:
        """End every process."""
        self.processes.stop_all()

    def discard(self) -> None:
        """Remove the home folder."""
        shutil.rmtree(self.home, ignore_errors=True)

    def node_of(self, operator: str) -> Party:
        """The party with this operator address."""
        for party in self.nodes.values():
            if party.operator.lower() == operator.lower():
                return party
        raise DemoError("No node of this network has that operator", operator, "Look at the addresses in its events.")

    def wait_ready(self, name: str) -> None:
        """Wait until the node of this name is ready to serve."""
        self._wait_ready(self.nodes[name])

    def _set_up_node(self, node: Party) -> None:
        first, end = self.plan.slice_of(node.name)
        made = self._troth(
            *("node", "init", "--home", node.home, "--rpc", self.rpc, "--contract", self.contract),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--slice", f"{first}:{end}", "--port", free_port(), "--threads", 1, "--engine", self.plan.engine),
            *("--import-key", self._operator_key(node.home)),
        )
        node.operator, node.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, node.operator, ETHER)
        self._troth("node", "register", "--home", node.home, *self._owner(), "--broadcast")

    def _set_up_scheduler(self) -> None:
        operator = self._operator_key(self.scheduler.home)
        keystore.create_vrf_secret(self.vrf_keystore, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        made = self._troth(
            *("scheduler", "init", "--home", self.scheduler.home, "--rpc", self.rpc, "--contract", self.contract),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--ends", self._ends(), "--port", free_port()),
            *("--operator-keystore", operator, "--vrf-keystore", self.vrf_keystore),
            *(self._entry() if self.overlay else ()),
        )
        self.scheduler.operator, self.scheduler.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, self.scheduler.operator, 10 * ETHER)
        # Twice the minimum: below it, after one slash, a scheduler can open nothing.
        stake = ("--stake", 2 * ETHER)
        self._troth("scheduler", "register", "--home", self.scheduler.home, *self._owner(), *stake, "--broadcast")

    def _entry(self) -> tuple[object, ...]:
        assert self.overlay is not None
        return ("--committee", self.overlay.committee, "--overlay-port", free_port())

    def _ends(self) -> str:
        return ",".join(str(end) for _, end in self.plan.slices)

    def _launch_scheduler(self) -> None:
        self.start_scheduler(wait=False)

    def _owner(self) -> tuple[object, ...]:
        return ("--owner-keystore", self.owner_keystore, "--owner-password-file", self.password_file)

    def _operator_key(self, home: Path) -> Path:
        path = self.home / "keys" / f"{home.name}.json"
        # A cheap work factor: these keys live as long as the chain they are for.
        keystore.create_account(path, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        return path

    def _serve(self, node: Party, model: Path) -> None:
        path = node.home / "node.toml"
        lines = path.read_text().splitlines()
        changed = [f"model = {json.dumps(str(model))}" if line.startswith("model = ") else line for line in lines]
        path.write_text("\n".join(changed) + "\n")

    def _troth(self, *arguments: object) -> Any:
        return cli.run(self.password_file, *arguments)

    def _wait_ready(self, party: Party) -> None:
        if party.child is None:
            raise DemoError("This party was not started", party.name, "Call start_parties first.")
        wait_until(lambda: is_ready(party.endpoint), f"{party.name} becoming ready", self.ready_seconds, [party.child])


@cache
def _unpinned() -> ssl.SSLContext:
    """Only asks whether a process is up; all protocol traffic pins the key that is registered on chain.

    Not the default context: reading all roots of the system costs more than the question, and it is asked all the time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_ready(endpoint: str) -> bool:
    """Whether the party behind an endpoint of this machine says that it can serve."""
    try:
        fetched(endpoint, "/readyz")
    except (urllib.error.URLError, OSError):
        return False
    return True


def fetched(endpoint: str, path: str) -> str:
    """What a party of this machine shows at a path; raises URLError (HTTPError for a status of refusal)."""
    with urllib.request.urlopen(f"{endpoint}{path}", timeout=PROBE_SECONDS, context=_unpinned()) as answer:  # noqa: S310
        text: str = answer.read().decode()
        return text
