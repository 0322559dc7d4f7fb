"""A network whose nodes are placed: each starts with --auto, knowing its memory and its scheduler and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.testnet import cli
from troth.testnet.anvil import fund
from troth.testnet.network import NODE_SHARE, PRICES, LocalNetwork
from troth.testnet.parties import ETHER, PARALLEL_COMMANDS, PartyProcess
from troth.testnet.ports import free_port
from troth.testnet.processes import wait_until
from troth.transport.https import pinned_sync_client
from troth.transport.identity import load_identity

PLACED_SECONDS = 600.0
"""For loading, checking and moving on a machine that all nodes share."""
ASK = ",".join(str(price * NODE_SHARE // 10) for price in PRICES)
"""For all layers; a part's is its share."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A kind of machine: room for weights in bytes, how many times slower than this one, how far away in seconds."""

    name: str
    weight_bytes: int
    slowdown: float = 1.0
    way_seconds: float = 0.0


@dataclass(slots=True)
class PoolNetwork(LocalNetwork):
    """As LocalNetwork, with a scheduler that places, and nodes that are told what to host. `hardware` is by name."""

    hardware: Mapping[str, Hardware] = field(default_factory=dict)
    ready_seconds: float = PLACED_SECONDS
    _ways: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def set_up_parties(self) -> None:
        """The scheduler first: newcomers ask it for a slice."""
        self.report(f"registering a scheduler that places, and starting {len(self.nodes)} nodes with --auto")
        self._set_up_scheduler(self.scheduler)
        self.start_scheduler(wait=False)
        with ThreadPoolExecutor(PARALLEL_COMMANDS) as pool:
            list(pool.map(self._set_up_node, self.nodes.values()))
        self._wait_ready(self.scheduler)
        for name, way in self._ways.items():
            self.processes.start(f"way-to-{name}", [sys.executable, *way])
        for node in self.nodes.values():
            self.start_node(node.name, wait=False)

    def start_node(self, name: str, *, model: Path | None = None, wait: bool = True) -> None:
        """Start one node with --auto; with `model` it serves that folder unchecked, as a cheat would."""
        node = self.nodes[name]
        self._serve(node, model or self.models / "models" / self.plan.model)
        options = ("--no-verify-weights",) if model is not None else ()
        node.child = self.processes.start(
            name,
            self._command(name, "node", "start", "--home", node.home, "--auto", *self._owned(node), "--broadcast",
                          *options),
            cli.environment(self.password_file),
        )  # fmt: skip
        if wait:
            self._wait_ready(node)

    def placement(self) -> dict[str, Any]:
        """The scheduler's live map of the one class that it serves."""
        identity = load_identity(self.scheduler.home / "tls")
        with pinned_sync_client(self.scheduler.endpoint, identity.spki_sha256) as client:
            found: dict[str, Any] = client.get("/v1/placement").json()[self.execution_class]
            return found

    def wait_placed(self) -> dict[str, Any]:
        """Wait until every node hosts and serves what is planned, and every layer has its parties."""
        parties = [self.scheduler, *self.nodes.values()]
        children = [party.child for party in parties if party.child is not None]
        placed = lambda: _settled(self.placement(), len(self.nodes))  # noqa: E731
        wait_until(placed, "every node hosting its slice", PLACED_SECONDS, children)
        return self.placement()

    def _command(self, name: str, *arguments: object) -> list[str]:
        kind = self.hardware[name]
        if kind.slowdown == 1.0:
            return cli.command(*arguments)
        return cli.throttled(kind.slowdown, *arguments)

    def _endpoint(self, name: str, port: int) -> str:
        """Where the node is reached: at the far end of its way, if it has one."""
        seconds = self.hardware[name].way_seconds
        if seconds:
            way = free_port()
            self._ways[name] = ("-m", "troth.testnet.distance", str(way), str(port), str(seconds))
            port = way
        return f"https://127.0.0.1:{port}"

    def _set_up_node(self, node: PartyProcess) -> None:
        port = free_port()
        made = self._troth(
            *("node", "init", "--home", node.home, "--rpc", self.rpc, "--factory", self.factory),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--slice", "0:1", "--port", port, "--endpoint", self._endpoint(node.name, port), "--threads", 1),
            *("--import-key", self._operator_key(node.home)),
        )
        node.operator, node.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, node.operator, ETHER)
        # An owner of its own: draws pass over the owner of whoever serves.
        self.account(self.owner_of(node))
        limit = self.hardware[node.name].weight_bytes / (1 << 30)
        with (node.home / "node.toml").open("a") as file:
            file.write(f"\n[auto]\nscheduler = {json.dumps(self.scheduler.operator)}\nask = {json.dumps(ASK)}\n")
            file.write(f"memory_gigabytes = {limit}\npause_minutes = 0\n")

    def _ends(self) -> str:
        return "auto"


def _settled(shown: Mapping[str, Any], nodes: int) -> bool:
    lanes = shown["nodes"]
    placed = all(lane["slice"] == lane["planned"] == lane["serving"] for lane in lanes)
    return len(lanes) == nodes and placed and bool(shown["ends"]) and shown["ends"] == shown["planned_ends"]
