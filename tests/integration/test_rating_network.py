"""`troth committee start` with a [reputation] table on a whole network: real orders, a real model."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from troth.chain import keystore
from troth.client.home import Home
from troth.testnet import cli
from troth.testnet.anvil import fund, rpc
from troth.testnet.asking import POLICY
from troth.testnet.display import Display
from troth.testnet.network import LAYERS, LocalNetwork
from troth.testnet.overlay import LocalOverlay
from troth.testnet.parties import ETHER, PASSWORD, NetworkPlan, PartyProcess
from troth.testnet.weights import prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(3600)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
MEMBERS, NODES, EPOCH, BOND = 4, 9, 500, "0.1ether"
RATING = "client = 'asking'\nprompts = 1\nleast = 1\ntokens = 16\nattempts = 1\nagreeing = 260\ncharacters = 100\n"
SECONDS, MINED_AT_ONCE = 1500.0, 20


@dataclass
class RatingNetwork:
    """A network, and members that rate its nodes, each with a client and a tab of its own."""

    network: LocalNetwork
    overlay: LocalOverlay
    contract: str = ""
    start: int = 0

    @property
    def members(self) -> list[PartyProcess]:
        return self.overlay.members

    def owner(self, member: PartyProcess) -> Path:
        return self.network.home / "keys" / f"owner-{member.name}.json"

    def enroll(self) -> None:
        """The contract, and for each member its bond, its client and its tab."""
        network = self.network
        paid = ("--rpc", network.rpc, "--keystore", network.owner_keystore, "--broadcast")
        where = ("--committee", self.overlay.committee, "--factory", network.factory)
        terms = ("--epoch-blocks", EPOCH, "--bond", BOND)
        made = cli.run(network.password_file, "committee", "reputation", "deploy", *where, *terms, *paid)
        self.contract, self.start = made["reputation"], made["block"]
        for member in self.members:
            self._enroll(member)

    def _enroll(self, member: PartyProcess) -> None:
        network, owner = self.network, self.owner(member)
        network.account(owner)
        keystore.create_vrf_secret(member.home / "keys" / "vrf.json", PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        paid = ("--rpc", network.rpc, "--reputation", self.contract, "--keystore", owner, "--broadcast")
        cli.run(network.password_file, "committee", "reputation", "enroll", *paid, "--home", member.home)
        self._client(member)
        with (member.home / "committee.toml").open("a") as file:
            file.write(f"\n[reputation]\ncontract = '{self.contract}'\nstart_block = {self.start}\n{RATING}")

    def _client(self, member: PartyProcess) -> None:
        network, home, keyfile = self.network, member.home / "asking", member.home / "wallet.json"
        key = keystore.Key.generate()
        keystore.create_account(keyfile, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N, key=key)
        fund(network.rpc, key.address, ETHER)
        named = ("--execution-class", network.execution_class, "--import-key", keyfile)
        place = ("--home", home, "--factory", network.factory, "--rpc", network.rpc)
        cli.run(network.password_file, "client", "init", *place, *named)
        path, model = Home(home).configuration, MODELS / "models" / network.plan.model
        text = path.read_text()
        for name, value in {**POLICY, "model": json.dumps(str(model))}.items():
            text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
            text = text if count else f"{text}{name} = {value}\n"
        path.write_text(text)
        whom = ("--scheduler", network.scheduler.operator, "--home", home)
        cli.run(network.password_file, "client", "open", "0.05ether", *whom, "--broadcast")

    def start_member(self, member: PartyProcess) -> None:
        command = cli.command("committee", "start", "--home", member.home)
        environment = cli.environment(self.network.password_file)
        member.child = self.network.processes.start(member.name, command, environment)

    # ---- looking

    def shown(self) -> dict[str, Any]:
        place = ("--rpc", self.network.rpc, "--reputation", self.contract, "--start-block", self.start)
        told: dict[str, Any] = cli.run(self.network.password_file, "committee", "reputation", "show", *place)
        return told

    def block(self) -> int:
        return int(str(rpc(self.network.rpc, "eth_blockNumber")), 16)

    def skip_to(self, epoch: int) -> None:
        """Nobody waits for blocks in which nothing happens."""
        while (left := self.start + epoch * EPOCH - self.block()) > 0:
            rpc(self.network.rpc, "anvil_mine", hex(min(left, MINED_AT_ONCE)))

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        give_up = time.monotonic() + SECONDS
        while not condition(shown := self.shown()):
            assert time.monotonic() < give_up, f"{shown}\n{self.logs()}"
            time.sleep(3)
        return shown

    def logs(self) -> str:
        folder = self.network.home / "logs"
        lines = [line for one in sorted(folder.glob("member*")) for line in one.read_text().splitlines()]
        return "\n".join(line for line in lines if "committee.leading" not in line and "committee.member" not in line)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RatingNetwork]:
    """Nine whole nodes, a scheduler, and four members that are enrolled; nobody rates yet."""
    plan = NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=NODES)
    prepare_models(MODELS, plan, Display())
    folder = tmp_path_factory.mktemp("rating") / "network"
    with LocalNetwork(folder, MODELS, plan, report=lambda line: None, ready_seconds=1200.0) as network:
        network.start()
        place = (network.rpc, network.owner_keystore, network.factory)
        overlay = LocalOverlay(folder, replace(plan, members=MEMBERS), network.processes, network.password_file, *place)
        overlay.set_up()
        made = RatingNetwork(network, overlay)
        made.enroll()
        for member in made.members:
            made.start_member(member)
        yield made


def test_members_ask_score_sign_and_settle_by_themselves(stage: RatingNetwork) -> None:
    # The first epoch in which they count fixes a list.
    stage.skip_to(1)
    first = stage.until(lambda shown: shown["settled_through"] is not None)["settled_through"]
    # The next one asks, scores and settles.
    stage.skip_to(first + 1)
    shown = stage.until(lambda shown: bool(shown["nodes"]))
    rated = [node for node in shown["nodes"] if node["credit"] != "silent"]
    assert rated, stage.logs()
    operators = {node.operator for node in stage.network.nodes.values()}
    assert {node["node"] for node in rated} <= operators
    # Honest nodes that sample as they were asked to; a text of sixteen tokens says little.
    assert sum(node["credit"] for node in rated) > 0.6 * len(rated), rated
