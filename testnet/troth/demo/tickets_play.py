"""`troth demo tickets`: a wallet buys tickets, members sign them blind, an order is paid by them, and nothing joins the
two: not the chain, not the scheduler's files, not the members'.

The overlay is left out, so that there is less to start: who asks over the open network shows its address all the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain import keystore
from troth.client.home import Home
from troth.demo.linking import holders_of, require_public
from troth.protocol.amounts import COIN
from troth.protocol.market.draws import SPARE_OWNERS
from troth.testnet import cli
from troth.testnet.anvil import fund, rpc
from troth.testnet.asking import POLICY
from troth.testnet.display import Display
from troth.testnet.errors import demand
from troth.testnet.network import LAYERS, LocalNetwork
from troth.testnet.parties import ETHER, PASSWORD, NetworkPlan, PartyProcess
from troth.testnet.processes import wait_until
from troth.testnet.weights import prepare_model

PRICES = ("0.0001ether", "0.001ether")
FEE = 10**13
"""What of each ticket pays the scheduler's transaction, in wei."""
EPOCH_BLOCKS = 900
COUNT, PRICE, AMOUNT = 10, PRICES[1], "0.0045ether"
SIGNING = "confirmations = 1\npoll = 1.0\npatience = 10.0\n"
KEYS_SECONDS = 240.0
VERIFIERS = 3
QUESTION = "What is the capital of France? Answer in one sentence."
EXPECTED = "Paris"
MAX_TOKENS = 16


def plan() -> NetworkPlan:
    """As few nodes as a class needs owners for its checks, and four members."""
    nodes = SPARE_OWNERS + VERIFIERS
    return NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=nodes, verifiers=VERIFIERS, members=4, relays=0)


@dataclass(slots=True)
class TicketsNetwork(LocalNetwork):
    """A market, a committee that signs tickets, and a scheduler that takes them; its file names all three."""

    favoured: str = ""
    tickets: str = ""
    epoch_blocks: int = EPOCH_BLOCKS

    @property
    def members(self) -> list[PartyProcess]:
        """Those who sign."""
        assert self.overlay is not None  # start() makes it
        return self.overlay.members

    def start(self) -> None:
        """Everything; returns when all are ready, and the epoch has keys."""
        self.start_chain()
        self.register_model()
        self.set_up_overlay()
        self._found()
        self.set_up_parties()
        for member in self.members:
            self.start_member(member)
        self.wait_for_parties()
        self.wait_for_keys()

    def start_member(self, member: PartyProcess, command: list[str] | None = None) -> None:
        """Start a member's process."""
        own = cli.command("committee", "start", "--home", member.home)
        member.child = self.processes.start(member.name, command or own, cli.environment(self.password_file))

    def wait_for_keys(self) -> None:
        """Wait until members have dealt and registered the epoch's keys."""
        watched = [one.child for one in self.members if one.child is not None]
        wait_until(self._has_keys, "Keys of this epoch of tickets", KEYS_SECONDS, watched)

    def shown(self) -> dict[str, Any]:
        """`troth committee tickets show`."""
        told: dict[str, Any] = cli.run(self.password_file, "committee", "tickets", "show", "--network", self.file)
        return told

    def _has_keys(self) -> bool:
        told = self.shown()
        return bool(told["keys"][str(told["epoch"])] != "none yet")

    def _found(self) -> None:
        """The contract, in the network's file and in every member's configuration."""
        assert self.overlay is not None  # set_up_overlay() makes it
        paid = ("--rpc", self.rpc, "--keystore", self.owner_keystore, "--broadcast")
        prices = [text for price in PRICES for text in ("--price", COIN.parse(price))]
        where = ("--committee", self.overlay.committee, "--bank", self.deployment["bank"])
        made = self._troth(
            "committee", "tickets", "deploy", *where, *prices, "--epoch-blocks", self.epoch_blocks, *paid
        )
        self.tickets = made["tickets"]
        self.file.unlink()
        self._troth(
            *("network", "describe", "--factory", self.factory, "--committee", self.overlay.committee),
            *("--tickets", self.tickets, "--name", "testnet", "--rpc", self.rpc, "--output", self.file),
        )
        for member in self.overlay.members:
            with (member.home / "committee.toml").open("a") as file:
                file.write(f"\n[tickets]\ncontract = '{self.tickets}'\n{SIGNING}")

    def _entry(self) -> tuple[object, ...]:
        return ("--tickets", self.tickets, "--ticket-fee", FEE)

    def _reached(self, node: PartyProcess) -> tuple[object, ...]:
        del node
        return ()


@dataclass(slots=True)
class TicketBuyer:
    """A wallet of a network that takes tickets; it opens no tab of its own."""

    network: TicketsNetwork
    key: keystore.Key
    home: Path

    @classmethod
    def of(cls, network: TicketsNetwork, name: str = "client") -> TicketBuyer:
        """A new wallet with money, and a configuration that follows from the network's file."""
        buyer = cls(network, keystore.Key.generate(), network.home / name)
        keyfile = network.home / "keys" / f"{name}.json"
        keystore.create_account(keyfile, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N, key=buyer.key)
        fund(network.rpc, buyer.key.address, ETHER)
        named = ("--execution-class", network.execution_class, "--import-key", keyfile)
        open_ = ("--scheduler", network.scheduler.operator, "--home", buyer.home)
        # The committee is named by the file; its list has no relays here.
        cli.run(network.password_file, "client", "init", "--network", network.file, *named, *open_)
        path = Home(buyer.home).configuration
        lines = [line for line in path.read_text().splitlines() if not line.startswith("committee = ")]
        changed = [_replaced(line, POLICY) for line in lines]
        path.write_text("\n".join(changed) + "\n")
        return buyer

    def run(self, *arguments: object) -> Any:
        """A command of `troth client`."""
        return cli.run(self.network.password_file, "client", *arguments, "--home", self.home)

    def buy(self, price: str, count: int) -> dict[str, Any]:
        """Buy tickets; members sign all of them."""
        told: dict[str, Any] = self.run("tickets", "buy", price, count, "--broadcast")
        demand(told["signed"] == count, "members sign all of them", told)
        return told


def play(folder: Path, models: Path, display: Display) -> None:
    """Run everything below `folder`; processes end whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    prepare_model(models, plan(), display)
    with TicketsNetwork(folder / "network", models, plan(), report=display.step, ready_seconds=1200.0) as network:
        display.console.rule("[bold]A committee that signs tickets", align="left")
        network.start()
        buyer = TicketBuyer.of(network)
        display.act(1, "The wallet buys tickets, and members sign them without seeing them")
        bought = buyer.buy(PRICE, COUNT)
        display.good(f"{COUNT} tickets of {PRICE} for {bought['cost']}: the only thing that the wallet ever signs")
        display.act(2, "Five of them fill a tab of a new key; the scheduler brings them to the chain")
        opened = buyer.run("tickets", "open", AMOUNT)
        display.good(f"tab {opened['tab'][:18]}… filled by {opened['tickets']} tickets")
        display.act(3, "An order is paid by it")
        answered = buyer.run("ask", QUESTION, "--max-tokens", MAX_TOKENS, "--check", "always")
        demand(EXPECTED in answered["answer"], f"the answer names {EXPECTED}", answered["answer"])
        demand(answered["outcome"] == "checked", "the answer is checked", answered["outcome"])
        display.good(f"{answered['answer'].strip()} It was checked, and cost {answered['cost_units']} wei.")
        display.act(4, "Who could say that these two are one?")
        unlinkable(buyer, bought["purchase"], opened["tab"], display)
        display.act(5, "Anyone follows the money, not knowing whose it is")
        command = cli.command("audit", "tickets", "--network", network.file)
        done = cli.output_of(command, network.password_file)
        display.console.print(done.stdout, markup=False, soft_wrap=True)
        demand(done.returncode == 0, "`troth audit tickets` exits 0", done.stderr or done.stdout)
        display.good(f"done in {display.seconds:.0f} s after set-up")


def unlinkable(buyer: TicketBuyer, purchase: str, tab: str, display: Display) -> None:
    """Look for what joins a purchase to an order, wherever somebody else keeps anything; raises ActFailed."""
    network, wallet = buyer.network, buyer.key.address
    names = spent_names(buyer)
    kept = {"the scheduler": [network.scheduler.home, network.home / "logs" / "scheduler.log"]}
    kept |= {one.name: [one.home, network.home / "logs" / f"{one.name}.log"] for one in network.members}
    for who, places in kept.items():
        mine = (wallet, purchase) if who == "the scheduler" else (tab, *names)
        found = [(text, str(file)) for text in mine for file in holders_of(text, places)]
        demand(not found, f"{who} keeps nothing that joins them", found)
    display.good("the scheduler's files name neither wallet nor purchase, the members' neither tab nor ticket")
    copied = require_public([one.home for one in network.members], network.rpc)
    display.good(f"but for the market's events: every tab is in them, and all {copied:,} copied rows are on the chain")
    senders = _senders_of(network, names)
    demand(wallet.lower() not in senders, "the wallet sent nothing that spends", senders)
    display.good(
        f"on chain {len(names)} names were spent by the scheduler's transaction; the wallet sent {_sent(buyer)}"
    )


def spent_names(buyer: TicketBuyer) -> tuple[str, ...]:
    """The names of the tickets that the client spent, from its own file."""
    database = sqlite3.connect(f"file:{Home(buyer.home).tickets}?mode=ro", uri=True)
    try:
        return tuple(name for (name,) in database.execute("SELECT name FROM tickets WHERE ended = 'spent'"))
    finally:
        database.close()


def _senders_of(network: TicketsNetwork, names: Iterable[str]) -> set[str]:
    """Who sent the transactions in which these tickets were spent."""
    logs: Any = rpc(network.rpc, "eth_getLogs", {"address": network.tickets, "fromBlock": "0x0", "toBlock": "latest"})
    padded = {"0x" + name.lower().removeprefix("0x").rjust(64, "0") for name in names}
    hashes = {log["transactionHash"] for log in logs if padded.intersection(log["topics"])}
    sent: list[Any] = [rpc(network.rpc, "eth_getTransactionByHash", name) for name in hashes]
    return {str(one["from"]).lower() for one in sent}


def _sent(buyer: TicketBuyer) -> str:
    count = int(str(rpc(buyer.network.rpc, "eth_getTransactionCount", buyer.key.address, "latest")), 16)
    return "one transaction in all" if count == 1 else f"{count} transactions in all"


def _replaced(line: str, values: dict[str, str]) -> str:
    name = line.partition(" = ")[0]
    return f"{name} = {values[name]}" if name in values else line
