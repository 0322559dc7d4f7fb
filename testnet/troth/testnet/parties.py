"""What a local network consists of: its plan, and each party with folder, keys and processes."""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from troth.chain import keystore
from troth.testnet import cli
from troth.testnet.errors import DemoError
from troth.testnet.processes import Child, ProcessGroup, wait_until

GWEI = 10**9
ETHER = 10**18
Report = Callable[[str], None]
PASSWORD = "local test network\n"  # noqa: S105 - keys of a throw-away chain
PARALLEL_COMMANDS = 6
READY_SECONDS = 180.0
PROBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """Sizes of the local network.

    Attributes:
        slices: layers of each slice, [first, end); each is a segment of every request
        nodes_per_slice: at least candidates + verifiers
        block_seconds: seconds between blocks of the local chain
        members: of the committee that signs the overlay's directory
        relays: of the overlay; 0 for a network without one
        engine: of every node, torch or vllm
        refuser: beside the scheduler there is a second one that refuses checks
        exact: traces are compared bit by bit instead of by calibrated thresholds
        disputes: wrong rows convict by arithmetic, too
    """

    model: str = "smollm2-135m"
    slices: tuple[tuple[int, int], ...] = ((0, 15), (15, 30))
    nodes_per_slice: int = 5
    candidates: int = 2
    verifiers: int = 3
    block_seconds: float = 1.0
    dtype: str = "float32"
    members: int = 4
    relays: int = 0
    engine: str = "torch"
    exact: bool = False
    refuser: bool = False
    disputes: bool = False

    @property
    def node_names(self) -> tuple[str, ...]:
        """`a1` … `a5` host the first slice, `b1` … the second, and so on."""
        return tuple(
            f"{chr(ord('a') + index)}{number}"
            for index in range(len(self.slices))
            for number in range(1, self.nodes_per_slice + 1)
        )

    def slice_of(self, name: str) -> tuple[int, int]:
        """The layers that the node of this name hosts."""
        return self.slices[ord(name[0]) - ord("a")]


@dataclass(slots=True)
class PartyProcess:
    """A process with a home folder, an operator address where it has one, and an endpoint.

    ``metrics`` is where it shows them if not at its endpoint.
    """

    name: str
    home: Path
    operator: str = ""
    endpoint: str = ""
    metrics: str = ""
    child: Child | None = None


@dataclass(slots=True)
class Parties(ABC):
    """One chain, one deployment, one scheduler and `plan.node_names` nodes below `home`.

    Use it as a context manager: whatever happens, no process is left behind.
    """

    home: Path
    models: Path
    plan: NetworkPlan = field(default_factory=NetworkPlan)
    report: Report = print
    rpc: str = ""
    execution_class: str = ""
    model_id: str = ""
    ready_seconds: float = READY_SECONDS
    nodes: dict[str, PartyProcess] = field(default_factory=dict)
    scheduler: PartyProcess = field(init=False)
    processes: ProcessGroup = field(init=False)

    def __post_init__(self) -> None:
        """Lay out the folders; nothing runs yet."""
        self.processes = ProcessGroup(self.home / "logs")
        self.scheduler = PartyProcess("scheduler", self.home / "scheduler")
        self.nodes = {name: PartyProcess(name, self.home / f"node-{name}") for name in self.plan.node_names}

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
        """Chain, deployment, model, parties, processes; returns when all of them are ready to serve."""
        self.start_chain()
        self.register_model()
        self.set_up_parties()
        self.wait_for_parties()

    @abstractmethod
    def start_chain(self) -> None:
        """A fresh chain with the contracts on it."""

    @abstractmethod
    def register_model(self) -> None:
        """Compute the model's id from its weights and register it with its execution class."""

    @abstractmethod
    def _set_up_node(self, node: PartyProcess) -> None:
        """Keys, configuration, TLS identity and registration of one node."""

    @abstractmethod
    def _set_up_scheduler(self, party: PartyProcess) -> None:
        """The same of a scheduler."""

    @abstractmethod
    def set_up_parties(self) -> None:
        """Every party: keys, configuration, TLS identity, registration with its stake, and then its process."""

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

    def node_of(self, operator: str) -> PartyProcess:
        """The party with this operator address."""
        for party in self.nodes.values():
            if party.operator.lower() == operator.lower():
                return party
        raise DemoError("No node of this network has that operator", operator, "Look at the addresses in its events.")

    def wait_ready(self, name: str) -> None:
        """Wait until the node of this name is ready to serve."""
        self._wait_ready(self.nodes[name])

    def _ends(self) -> str:
        return ",".join(str(end) for _, end in self.plan.slices)

    def _operator_key(self, home: Path) -> Path:
        path = self.home / "keys" / f"{home.name}.json"
        # A cheap work factor: these keys live as long as the chain they are for.
        keystore.create_account(path, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        return path

    def _serve(self, node: PartyProcess, model: Path) -> None:
        path = node.home / "node.toml"
        lines = path.read_text().splitlines()
        changed = [f"model = {json.dumps(str(model))}" if line.startswith("model = ") else line for line in lines]
        path.write_text("\n".join(changed) + "\n")

    def _troth(self, *arguments: object) -> Any:
        return cli.run(self.password_file, *arguments)

    def _wait_ready(self, party: PartyProcess) -> None:
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
