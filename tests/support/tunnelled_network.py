"""A network whose nodes nobody can connect to: each, entries of the overlay too, has a scheduler's endpoint."""

from __future__ import annotations

import json
import random
from typing import Any

from troth.testnet import cli, forked
from troth.testnet.network import ENTRIES, LocalNetwork
from troth.testnet.parties import PartyProcess, fetched
from troth.testnet.processes import wait_until

PORTS = 32
FIRST_PORT = random.randrange(6_000, 9_900, PORTS)
"""Below what other tests take."""


class TunnelledNetwork(LocalNetwork):
    """Its scheduler runs before its nodes are set up, since each of them asks it for an endpoint."""

    def set_up_parties(self) -> None:
        for party in (*self.schedulers, *self.nodes.values()):
            if party.name in self.nodes:
                self._set_up_node(party)
            else:
                self._set_up_scheduler(party)
            self._launch(party)

    def _set_up_scheduler(self, party: PartyProcess) -> None:
        LocalNetwork._set_up_scheduler(self, party)
        if party is self.scheduler:
            with (party.home / "scheduler.toml").open("a") as file:
                file.write(f"\n[tunnels]\nfirst_port = {FIRST_PORT}\nports = {PORTS}\n")

    def _reached(self, node: PartyProcess) -> tuple[object, ...]:
        assert self.scheduler.child is not None
        endpoint = self.scheduler.endpoint
        wait_until(lambda: is_live(endpoint), "the scheduler answering", self.ready_seconds, [self.scheduler.child])
        return "--tunnel", self.scheduler.operator, *(self._entry() if node.name in ENTRIES else ())

    def doctor(self, node: PartyProcess) -> dict[str, Any]:
        """What `doctor` finds of a node, by check."""
        command = cli.command("node", "doctor", "--home", node.home, "--json")
        done = forked.run(command, cli.environment(self.password_file), 120.0)
        return {finding["check"]: finding for finding in json.loads(done.stdout)}


def is_live(endpoint: str) -> bool:
    try:
        return bool(fetched(endpoint, "/livez"))
    except OSError:
        return False
