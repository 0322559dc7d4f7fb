"""The local network: a deployment of the market and every party, set up through the commands a real one uses.

Nodes have owners of their own, since draws pass over the owner of whoever serves; each hosts the whole model, in as
many segments as the plan has slices. Beside the scheduler there is a second one that refuses checks.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from troth.chain import keystore
from troth.network.description import CommitteePlace, read_description, write_description
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32, to_address
from troth.testnet import cli
from troth.testnet.anvil import fund, rpc, start_anvil
from troth.testnet.overlay import LocalOverlay
from troth.testnet.parties import ETHER, PARALLEL_COMMANDS, PASSWORD, NetworkPlan, Parties, PartyProcess
from troth.testnet.ports import free_port

LAYERS = 30
NODES = 10
"""One more than the k + 6 owners below which a class offers no checks."""
RELAYS, MEMBERS = 14, 4
"""Four paths of three, and two in reserve; as few members as still agree when one of them is away."""
ENTRIES = ("a2", "a3")
"""Nodes that are entries of the overlay themselves."""
CHECK_PERCENT = 50
PRICES = (800_000_000_000_000_000, 80_000_000_000_000_000, 1_600_000_000_000_000_000)
"""Wei per 10^9 positions: 0.8 and 1.6 gwei a token, so that a short answer costs less than 10^-6 of the coin."""
NODE_SHARE = 8
"""Tenths of these prices that nodes ask, which is what the scheduler's orders allow them."""
DEPOSIT = ETHER // 100
SEATS = 2
FAVOURED_SEATS = 8
"""Of the node that will cheat: it is drawn more often, so that the demo ends sooner."""
LOADING_SECONDS = 900.0
"""A small machine that does other work too takes minutes to load ten nodes; one that ended is noticed at once."""
LOG_SECONDS = 45.0
"""After which an entry of the log is posted; an hour on a real network."""


def market_plan() -> NetworkPlan:
    """Whole nodes, and a class of which half of the answers are checked."""
    return NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=NODES, relays=RELAYS, members=MEMBERS, refuser=True)


@dataclass(slots=True)
class LocalNetwork(Parties):
    """One chain, one deployment, an overlay, two schedulers and ``plan.node_names`` nodes below ``home``."""

    plan: NetworkPlan = field(default_factory=market_plan)
    favoured: str = "a1"
    deployment: dict[str, Any] = field(default_factory=dict)
    execution: dict[str, Any] = field(default_factory=dict)
    refuser: PartyProcess = field(init=False)
    overlay: LocalOverlay | None = None

    def __post_init__(self) -> None:
        """Lay out the folders; nothing runs yet."""
        Parties.__post_init__(self)
        self.refuser = PartyProcess("refuser", self.home / "refuser")

    @property
    def factory(self) -> str:
        """Factory of the deployment, from which everything else is found."""
        return str(self.deployment["factory"])

    @property
    def file(self) -> Path:
        """The network's file, which every command takes as --network."""
        return self.home / "network.json"

    @property
    def schedulers(self) -> tuple[PartyProcess, ...]:
        """The honest one, and the one that refuses checks where the plan has it."""
        return (self.scheduler, self.refuser) if self.plan.refuser else (self.scheduler,)

    @property
    def vrf_keystore(self) -> Path:
        """The scheduler's VRF key."""
        return self._vrf_of(self.scheduler)

    def owner_of(self, party: PartyProcess) -> Path:
        """Keyfile of the account that owns one party and pays its stake."""
        return self.home / "keys" / f"owner-{party.name}.json"

    def start(self) -> None:
        """Everything; returns when all are ready to serve, and listed."""
        self.start_chain()
        self.register_model()
        if self.plan.relays:
            self.set_up_overlay()
        self.set_up_parties()
        if self.overlay is not None:
            # Not earlier: relays that wait for a first list ask for it every second.
            self.overlay.start()
        self.wait_for_parties()
        if self.overlay is not None:
            self.report("waiting for the committee to sign a directory of all of them")
            entries = [self.nodes[name] for name in ENTRIES]
            self.overlay.wait_until_listed([party.operator for party in (*self.schedulers, *entries)])

    def start_chain(self) -> None:
        """A fresh chain with the market's contracts on it, under the small parameters of a demo."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.home / "keys").mkdir(mode=0o700)
        self.password_file.write_text(PASSWORD)
        self.password_file.chmod(0o600)
        self.report("starting a local chain (anvil)")
        _, self.rpc = start_anvil(self.processes, self.plan.block_seconds)
        self.account(self.owner_keystore)
        rpc(self.rpc, "anvil_mine", "0x3")
        self.deployment = self._troth(
            *("network", "create", "--parameters", "demo", "--name", "testnet", "--rpc", self.rpc),
            *("--keystore", self.owner_keystore, "--output", self.file, "--broadcast"),
            *(("--disputes",) if self.plan.disputes else ()),
        )
        self.report(f"deployed the market from {self.factory} ({self.deployment['gas']:,} gas)")
        self.report(str(self.deployment["warning"]))

    def register_model(self) -> None:
        """Compute the model's id from its weights and register it with its class; an exact one is measured here."""
        engine = self.plan.engine
        if self.plan.exact:
            self.report(f"measuring what engine {engine} computes here, and registering that class")
        else:
            self.report(f"hashing the weights of {self.plan.model} and registering model and class")
        self.execution = self._troth(
            *("model", "register", self.plan.model, "--home", self.models, "--dtype", self.plan.dtype),
            *("--factory", self.factory, "--check", CHECK_PERCENT, "--candidates", self.plan.candidates),
            *("--verifiers", self.plan.verifiers, *(("--exact", "--engine", engine) if self.plan.exact else ())),
            *("--rpc", self.rpc, "--keystore", self.owner_keystore, "--broadcast"),
        )
        self.model_id, self.execution_class = self.execution["model_id"], self.execution["class_id"]

    def set_up_overlay(self) -> None:
        """A committee that reads the market, with its contract, and relays."""
        plan = self.plan
        self.report(f"setting up {plan.members} committee members, their contract, and {plan.relays} relays")
        place = (self.rpc, self.owner_keystore, self.factory)
        self.overlay = LocalOverlay(self.home, plan, self.processes, self.password_file, *place)
        self.overlay.set_up()
        committee = to_address(self.overlay.committee)
        code = bytes.fromhex(str(rpc(self.rpc, "eth_getCode", committee, "latest")).removeprefix("0x"))
        listed = CommitteePlace(committee, Hash32(keccak256(code)))
        write_description(self.file, replace(read_description(self.file), committee=listed))

    def set_up_parties(self) -> None:
        """Every party: keys, configuration, TLS identity, registration with its stake, and then its process."""
        schedulers = "a scheduler" if len(self.schedulers) == 1 else f"{len(self.schedulers)} schedulers"
        self.report(f"registering {schedulers} and {len(self.nodes)} staked nodes, a process each")
        with ThreadPoolExecutor(PARALLEL_COMMANDS) as pool:
            waiting: dict[Future[None], PartyProcess] = {}
            for party in (*self.nodes.values(), *self.schedulers):
                set_up = self._set_up_node if party.name in self.nodes else self._set_up_scheduler
                waiting[pool.submit(partial(set_up, party))] = party
            # Processes start in this thread, not in the pool's: they die with the thread that started them.
            for done in as_completed(waiting):
                done.result()
                self._launch(waiting[done])

    def wait_for_parties(self) -> None:
        """Wait until every process says it is ready."""
        Parties.wait_for_parties(self)
        for scheduler in self.schedulers[1:]:
            self._wait_ready(scheduler)

    def start_cheating(self, name: str, weights: Path) -> None:
        """Start a node again that infers with these weights."""
        node = self.nodes[name]
        if node.child is not None:
            node.child.stop()
        command = cli.cheating(weights, "node", "start", "--home", node.home)
        node.child = self.processes.start(name, command, cli.environment(self.password_file))
        self.wait_ready(name)

    def account(self, path: Path) -> str:
        """Address of a new account with money, whose keyfile is written to ``path``."""
        account = keystore.create_account(path, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        fund(self.rpc, account.address, 10_000 * ETHER)
        return account.address

    def _launch(self, party: PartyProcess) -> None:
        if party.name in self.nodes:
            self.start_node(party.name, wait=False)
            return
        refuses = party is self.refuser
        command = cli.refusing if refuses else cli.command
        arguments = command("scheduler", "start", "--home", party.home)
        party.child = self.processes.start(party.name, arguments, cli.environment(self.password_file))

    def _set_up_node(self, node: PartyProcess) -> None:
        made = self._troth(
            *("node", "init", "--home", node.home, "--rpc", self.rpc, "--factory", self.factory),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--slice", f"0:{self.plan.slices[-1][1]}", "--segments", self._segments(), "--port", free_port()),
            *("--threads", 1, "--engine", self.plan.engine),
            *("--import-key", self._operator_key(node.home)),
            *self._reached(node),
        )
        node.operator, node.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, node.operator, ETHER)
        self.account(self.owner_of(node))
        seats = self._seats_of(node.name)
        ask = ",".join(str(price * NODE_SHARE // 10 // len(self.plan.slices)) for price in PRICES)
        self._troth(
            *("node", "register", "--home", node.home, *self._owned(node)),
            *("--stake", f"{int(self.execution['class']['seat_units']) * seats}units", "--ask", ask, "--broadcast"),
        )

    def _seats_of(self, name: str) -> int:
        return FAVOURED_SEATS if name == self.favoured else SEATS

    def _set_up_scheduler(self, party: PartyProcess) -> None:
        operator, vrf = self._operator_key(party.home), self._vrf_of(party)
        keystore.create_vrf_secret(vrf, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        made = self._troth(
            *("scheduler", "init", "--home", party.home, "--rpc", self.rpc, "--factory", self.factory),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--ends", self._ends(), "--port", free_port(), "--prices", ",".join(str(price) for price in PRICES)),
            *("--deposit", f"{DEPOSIT}units", "--operator-keystore", operator, "--vrf-keystore", vrf, *self._entry()),
        )
        with (party.home / "scheduler.toml").open("a") as file:
            # No block of such a chain is taken back.
            file.write(f"\n[log]\nseconds = {LOG_SECONDS}\n\n[limits]\nsettled_blocks = 0\n")
        party.operator, party.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, party.operator, 10 * ETHER)
        self.account(self.owner_of(party))
        self._troth("scheduler", "register", "--home", party.home, *self._owned(party), "--broadcast")

    def _segments(self) -> str:
        return ",".join(f"{first}:{end}" for first, end in self.plan.slices)

    def _entry(self) -> tuple[object, ...]:
        """Options of `init` for an entry of the overlay, on the party's own port."""
        return () if self.overlay is None else ("--committee", self.overlay.committee)

    def _reached(self, node: PartyProcess) -> tuple[object, ...]:
        """Options of `init` that say how others reach a node; without any, at its port on this machine."""
        return self._entry() if node.name in ENTRIES else ()

    def _vrf_of(self, party: PartyProcess) -> Path:
        return self.home / "keys" / f"vrf-{party.name}.json"

    def _owned(self, party: PartyProcess) -> tuple[object, ...]:
        return ("--owner-keystore", self.owner_of(party), "--owner-password-file", self.password_file)
