"""The local network of the per-task contract."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from troth.chain import keystore
from troth.chain.deployment import deploy
from troth.demo.anvil import fund, start_anvil
from troth.demo.overlay import LocalOverlay
from troth.demo.parties import PASSWORD, Parties
from troth.demo.party import Party
from troth.demo.plan import ETHER
from troth.demo.ports import free_port
from troth.protocol.contract_types import Parameters


@dataclass(slots=True)
class LocalNetwork(Parties):
    """One chain, one contract, one scheduler and `plan.node_names` nodes below `home`."""

    contract: str = ""
    overlay: LocalOverlay | None = None

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

    def _owner(self) -> tuple[object, ...]:
        return ("--owner-keystore", self.owner_keystore, "--owner-password-file", self.password_file)
