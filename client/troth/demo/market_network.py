"""The local network on tabs: a deployment of the market and every party, set up through the commands a real one uses.

Nodes have owners of their own, since draws pass over the owner of whoever serves; each hosts the whole model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.chain import keystore
from troth.demo.anvil import fund, rpc, start_anvil
from troth.demo.parties import PASSWORD, Parties
from troth.demo.party import Party
from troth.demo.plan import ETHER, Plan
from troth.demo.ports import free_port

LAYERS = 30
NODES = 10
"""One more than the k + 6 owners below which a class offers no checks."""
CHECK_PERCENT = 50
PRICES = (800_000_000_000_000_000, 80_000_000_000_000_000, 1_600_000_000_000_000_000)
"""Wei per 10^9 positions: 0.8 and 1.6 gwei a token, so that a short answer costs less than 10^-6 of the coin."""
NODE_SHARE = 8
"""Tenths of these prices that nodes ask, which is what the scheduler's orders allow them."""
DEPOSIT = ETHER // 100
SEATS = 2
FAVOURED_SEATS = 8
"""Of the node that will cheat: it is drawn more often, so that the demo ends sooner."""


def market_plan() -> Plan:
    """Whole nodes, and a class of which half of the answers are checked."""
    return Plan(slices=((0, LAYERS),), nodes_per_slice=NODES)


@dataclass(slots=True)
class MarketNetwork(Parties):
    """One chain, one deployment, one scheduler and ``plan.node_names`` nodes below ``home``."""

    plan: Plan = field(default_factory=market_plan)
    favoured: str = "a1"
    deployment: dict[str, Any] = field(default_factory=dict)
    execution: dict[str, Any] = field(default_factory=dict)

    @property
    def factory(self) -> str:
        """Factory of the deployment, from which everything else is found."""
        return str(self.deployment["factory"])

    def owner_of(self, party: Party) -> Path:
        """Keyfile of the account that owns one party and pays its stake."""
        return self.home / "keys" / f"owner-{party.name}.json"

    def start_chain(self) -> None:
        """A fresh chain with the market's contracts on it, under the small parameters of a demo."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.home / "keys").mkdir(mode=0o700)
        self.password_file.write_text(PASSWORD)
        self.password_file.chmod(0o600)
        self.report("starting a local chain (anvil)")
        _, self.rpc = start_anvil(self.processes, self.plan.block_seconds)
        self._account(self.owner_keystore)
        rpc(self.rpc, "anvil_mine", "0x3")
        self.deployment = self._troth(
            *("market", "deploy", "--parameters", "demo", "--rpc", self.rpc),
            *("--keystore", self.owner_keystore, "--broadcast"),
        )
        self.report(f"deployed the market from {self.factory} ({self.deployment['gas']:,} gas)")
        self.report(str(self.deployment["warning"]))

    def register_model(self) -> None:
        """Compute the model's id from its weights and register it with its execution class."""
        self.report(f"hashing the weights of {self.plan.model} and registering model and class")
        self.execution = self._troth(
            *("model", "register", self.plan.model, "--home", self.models, "--dtype", self.plan.dtype),
            *("--factory", self.factory, "--check", CHECK_PERCENT, "--candidates", self.plan.candidates),
            *("--rpc", self.rpc, "--keystore", self.owner_keystore, "--broadcast"),
        )
        self.model_id, self.execution_class = self.execution["model_id"], self.execution["class_id"]

    def _account(self, path: Path) -> str:
        account = keystore.create_account(path, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        fund(self.rpc, account.address, 10_000 * ETHER)
        return account.address

    def _set_up_node(self, node: Party) -> None:
        made = self._troth(
            *("node", "init", "--home", node.home, "--rpc", self.rpc, "--factory", self.factory),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--slice", f"0:{LAYERS}", "--port", free_port(), "--threads", 1, "--engine", self.plan.engine),
            *("--import-key", self._operator_key(node.home)),
        )
        node.operator, node.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, node.operator, ETHER)
        self._account(self.owner_of(node))
        seats = FAVOURED_SEATS if node.name == self.favoured else SEATS
        ask = ",".join(str(price * NODE_SHARE // 10) for price in PRICES)
        self._troth(
            *("node", "register", "--home", node.home, *self._owned(node)),
            *("--stake", int(self.execution["class"]["seat"]) * seats, "--ask", ask, "--broadcast"),
        )

    def _set_up_scheduler(self) -> None:
        operator = self._operator_key(self.scheduler.home)
        keystore.create_vrf_secret(self.vrf_keystore, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        made = self._troth(
            *("scheduler", "init", "--home", self.scheduler.home, "--rpc", self.rpc, "--factory", self.factory),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--ends", self._ends(), "--port", free_port(), "--prices", ",".join(str(price) for price in PRICES)),
            *("--deposit", DEPOSIT, "--operator-keystore", operator, "--vrf-keystore", self.vrf_keystore),
        )
        self.scheduler.operator, self.scheduler.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, self.scheduler.operator, 10 * ETHER)
        self._account(self.owner_of(self.scheduler))
        self._troth("scheduler", "register", "--home", self.scheduler.home, *self._owned(self.scheduler), "--broadcast")

    def _owned(self, party: Party) -> tuple[object, ...]:
        return ("--owner-keystore", self.owner_of(party), "--owner-password-file", self.password_file)
