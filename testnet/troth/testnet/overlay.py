"""The overlay of the local network: a committee that signs the directory, and relays, each a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.committee.configuration import Bonding
from troth.committee.initialisation import MemberInitOptions
from troth.committee.initialisation import initialise as initialise_member
from troth.overlay.directory.fetching import DirectoryClient
from troth.overlay.directory.listing import Listing
from troth.overlay.directory.publishing import AGAIN_SECONDS
from troth.overlay.relay.configuration import Committee
from troth.overlay.relay.initialisation import RelayInitOptions, initialise
from troth.protocol.types import to_address
from troth.testnet import cli
from troth.testnet.anvil import fund
from troth.testnet.parties import ETHER, NetworkPlan, PartyProcess
from troth.testnet.ports import free_port
from troth.testnet.processes import ProcessGroup, wait_until

PERIOD, VALID = 5, 600
"""Seconds from list to list, and for which one holds; hours on a real network."""
LISTED_SECONDS = 300.0
BANDWIDTH = 10_000
RETRY_SECONDS = 1.0
READ_SECONDS = 10.0
PARALLEL_COMMANDS = 6


@dataclass(slots=True)
class LocalOverlay:
    """Committee members and relays below `home`; processes belong to `processes`.

    Parties are bonded on the market of `factory`.
    """

    home: Path
    plan: NetworkPlan
    processes: ProcessGroup
    password_file: Path
    rpc: str
    payer: Path
    factory: str
    committee: str = ""
    members: list[PartyProcess] = field(default_factory=list)
    relays: list[PartyProcess] = field(default_factory=list)

    def set_up(self) -> None:
        """Keys and configurations of all, and the Committee contract."""
        with ThreadPoolExecutor(PARALLEL_COMMANDS) as pool:
            initialised = list(pool.map(self._initialise_member, range(self.plan.members)))
            self.members = [party for party, _ in initialised]
            named = [option for _, member in initialised for option in ("--member", member)]
            deployed = self._troth(
                *("committee", "deploy", "--rpc", self.rpc, "--keystore", self.payer, *named, "--broadcast")
            )
            self.committee = str(deployed["committee"])
            for party in self.members:
                self._complete(party)
        self.relays = [self._initialise_relay(number) for number in range(self.plan.relays)]

    def start(self) -> None:
        """Start every process. Call it from the thread that will outlive them."""
        for member in self.members:
            self._start(member, "committee")
        for relay in self.relays:
            self._start(relay, "relay")

    def wait_until_listed(self, operators: Collection[str]) -> Listing:
        """Wait for a signed list of all relays and of these operators' entries, and have the relays fetch it."""
        awaited = {operator.lower() for operator in operators}
        found: list[Listing] = []

        def complete() -> bool:
            listing = asyncio.run(self._listing())
            if listing is None or len(listing.relays) < len(self.relays):
                return False
            if awaited - {listed.operator.lower() for listed in listing.destinations}:
                return False
            found.append(listing)
            return True

        watched = [party.child for party in (*self.members, *self.relays) if party.child is not None]
        wait_until(complete, "A signed list of all relays, schedulers and entries", LISTED_SECONDS, watched)
        for relay in self.relays:
            if relay.child is not None:
                relay.child.process.send_signal(signal.SIGHUP)
        return found[0]

    def relay_at(self, host: str, port: str | int) -> PartyProcess:
        """The relay that listens there."""
        return next(relay for relay in self.relays if relay.endpoint == f"{host}:{port}")

    def messages(self) -> int:
        """How many messages of clients all relays together have handed to their destinations, as they count them."""
        return sum(_delivered(relay.metrics) for relay in self.relays)

    async def _listing(self) -> Listing | None:
        client = DirectoryClient.over(self.rpc, to_address(self.committee), None, lambda _: None, 1.0)
        try:
            return await client.refresh()
        except Exception:  # noqa: BLE001 - not yet; whoever waits names the processes
            return None

    def _initialise_member(self, number: int) -> tuple[PartyProcess, str]:
        port = free_port()
        party = PartyProcess(
            f"member{number + 1}", self.home / f"member{number + 1}", endpoint=f"https://127.0.0.1:{port}"
        )
        # A cheap work factor: these keys live as long as the chain they are for.
        password, key = self.password_file.read_text().strip(), party.home / "keys" / "operator.json"
        create_account(key, password, scrypt_n=DEMO_SCRYPT_N)
        # What `troth committee init` does, and below `troth relay init`: starting Python takes longer than either.
        wishes = MemberInitOptions(self.rpc, "", Bonding(self.factory), "127.0.0.1", port, party.endpoint)
        made = initialise_member(party.home, wishes, self.password_file)
        party.operator = str(made["operator"])
        fund(self.rpc, party.operator, ETHER)
        return party, str(made["member"])

    def _complete(self, party: PartyProcess) -> None:
        path = party.home / "committee.toml"
        text = path.read_text().replace('committee = ""', f"committee = {json.dumps(self.committee)}")
        path.write_text(
            f"{text}\n[list]\nperiod = {PERIOD}\nvalid = {VALID}\nprivate_addresses = true\n"
            "\n[limits]\nposts_per_second_per_host = 50.0\n"
        )

    def _initialise_relay(self, number: int) -> PartyProcess:
        # Linux answers on all of 127.0.0.0/8: so each relay is in a network of its own, as on a real network.
        host, port, metrics = f"127.{10 + number}.0.1", free_port(), free_port()
        party = PartyProcess(f"relay{number + 1}", self.home / f"relay{number + 1}", endpoint=f"{host}:{port}")
        party.metrics = f"http://127.0.0.1:{metrics}/metrics"
        committee = Committee(to_address(self.committee), self.rpc, "", BANDWIDTH, AGAIN_SECONDS, RETRY_SECONDS)
        initialise(party.home, RelayInitOptions(host, port, party.endpoint, metrics, proxy=True, committee=committee))
        path = party.home / "relay.toml"
        path.write_text(f"{path.read_text()}\n[waits]\ndrain = 0.0\n")
        return party

    def _start(self, party: PartyProcess, kind: str) -> None:
        command = cli.command(kind, "start", "--home", party.home)
        party.child = self.processes.start(party.name, command, cli.environment(self.password_file))

    def _troth(self, *arguments: object) -> dict[str, str]:
        result: dict[str, str] = cli.run(self.password_file, *arguments)
        return result


def _delivered(metrics: str) -> int:
    with urllib.request.urlopen(metrics, timeout=READ_SECONDS) as answer:  # noqa: S310 - loopback only
        families = text_string_to_metric_families(answer.read().decode())
    told = (sample for family in families for sample in family.samples if sample.name == "troth_relay_messages_total")
    return sum(int(sample.value) for sample in told if sample.labels["outcome"] == "delivered")
