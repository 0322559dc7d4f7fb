"""`troth demo market`: a tab, instant answers, checks that the client draws, a cheat that a draw hits, an audit."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.chain import keystore
from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.client.money import format_amount
from troth.demo import cli
from troth.demo.anvil import fund
from troth.demo.display import Display
from troth.demo.errors import ActFailed, demand
from troth.demo.gateway import LocalGateway, Streamed
from troth.demo.market_network import CHECK_PERCENT, FAVOURED_SEATS, MarketNetwork
from troth.demo.parties import PASSWORD
from troth.demo.plan import ETHER
from troth.demo.processes import wait_until
from troth.demo.weights import int8_name, prepare_models
from troth.protocol.market.state import State
from troth.protocol.market.types import Outcome, PotKind
from troth.protocol.types import to_address

DEPOSIT = "0.05ether"
MAX_TOKENS = 32
CHEAT_TOKENS = 8
MOST_QUESTIONS = 60
"""The cheat is drawn for every second question or so, and half of the answers are checked: twenty miss it once in a
thousand demos."""
CHECK_SECONDS = 120.0
CASE_SECONDS = 300.0
"""A case has windows of twenty blocks of a second each, and closes them early where all have spoken."""
ENDED = {"checked", "undrawn", "rejected", "unclear", "refused_check", "contradicted", "failed"}
POLICY = {"seats": "10", "outside": "1000", "reviewers": "5"}
"""What a client asks of a class at least, smaller than usual: this network has ten nodes."""
CHEATED_QUESTIONS = (
    "Name a colour.",
    "Name a fruit.",
    "Name a city in Italy.",
    "Name an animal that swims.",
    "Name a metal.",
)


@dataclass(slots=True)
class MarketStage:
    """A running network, a client's home on it, its gateway, and where to print."""

    network: MarketNetwork
    display: Display
    key: keystore.Key = field(default_factory=keystore.Key.generate)
    gateway: LocalGateway | None = None

    @property
    def home(self) -> Path:
        """The client's files."""
        return self.network.home / "client"

    def troth(self, *arguments: object) -> Any:
        """A sub-command of the client's machine, as JSON."""
        return cli.run(self.network.password_file, *arguments)


def play(folder: Path, models: Path, display: Display, question: str, expected: str) -> None:
    """Run everything below ``folder``; processes end and files go whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    network = MarketNetwork(folder / "market", models, report=display.step)
    prepare_models(models, network.plan, display)
    with network:
        display.console.rule("[bold]A network on tabs", align="left")
        network.start()
        stage = MarketStage(network, display)
        display.act(1, "A client opens a tab: the one thing that its wallet signs")
        open_tab(stage)
        display.act(2, "Questions are answered at once; the client draws which answers are checked")
        ask_checked(stage, question, expected)
        display.act(3, f"The node {network.favoured} serves int8 weights until a draw hits it")
        cheat_until_caught(stage, models / "models" / int8_name(network.plan))
        display.act(4, "A rejecting verifier goes to court by itself; nodes judge, the chain decides")
        asyncio.run(court(stage))
        display.act(5, "Who is paid")
        redeem(stage)
        display.act(6, "Anyone re-checks: a receipt that proves itself, and the whole chain")
        audit(stage)
    shutil.rmtree(folder / "market", ignore_errors=True)
    display.good(f"done in {display.seconds:.0f} s; everything is stopped, nothing is left behind")


def open_tab(stage: MarketStage) -> None:
    """Wallet, configuration, tab, gateway: through the commands that a user has."""
    network, keyfile = stage.network, stage.network.home / "keys" / "client.json"
    keystore.create_account(keyfile, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N, key=stage.key)
    fund(network.rpc, stage.key.address, ETHER)
    options = ("--home", stage.home, "--factory", network.factory, "--rpc", network.rpc)
    stage.troth("client", "init", *options, "--execution-class", network.execution_class, "--import-key", keyfile)
    configuration = stage.home / "client" / "client.toml"
    text = configuration.read_text()
    for name, value in POLICY.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
    configuration.write_text(text)
    opened = stage.troth("client", "open", DEPOSIT, "--home", stage.home, "--broadcast")
    stage.display.step(f"tab {opened['tab'][:12]}… of {DEPOSIT} with the scheduler ({opened['gas']:,} gas)")
    stage.gateway = LocalGateway.start(network.processes, stage.home, network.password_file)
    stage.display.step(f"`troth client serve` is ready at {stage.gateway.address}/v1")


def ask_checked(stage: MarketStage, question: str, expected: str) -> None:
    """Answers without a block's wait, and checks that agree within seconds."""
    answer = ""
    for number in range(1, 5):
        asked = _ask(stage, question, MAX_TOKENS)
        answer = asked.text
        outcome, seconds = _outcome(stage, asked.streamed)
        stage.display.step(
            f"first word after {asked.first:.2f} s, whole after {asked.whole:.2f} s; {outcome['cost']} coins; "
            f"{outcome['outcome']} {seconds:.1f} s after the answer"
        )
        demand(outcome["outcome"] in {"checked", "undrawn"}, "an honest answer is checked or undrawn", outcome)
        if outcome["outcome"] == "checked":
            stage.display.good(f"a draw hit answer {number}: three verifiers computed it again and agree")
            break
    demand(expected.lower() in answer.lower(), f"the answer names {expected}", answer)


def cheat_until_caught(stage: MarketStage, weights: Path) -> None:
    """Nothing random is fixed: ask until the cheat is drawn to serve and its answer is drawn to be checked."""
    network, liar = stage.network, stage.network.favoured
    child = network.nodes[liar].child
    assert child is not None
    child.stop()
    network.start_node(liar, model=weights)
    operator = network.nodes[liar].operator.lower()
    served = 0
    for number in range(1, MOST_QUESTIONS + 1):
        asked = _ask(stage, CHEATED_QUESTIONS[number % len(CHEATED_QUESTIONS)], CHEAT_TOKENS, quiet=True)
        receipt, _ = _outcome(stage, asked.streamed)
        by = " ".join(receipt["tasks"][-1]["nodes"]).lower()
        served += operator in by
        if receipt["outcome"] == "rejected":
            demand(operator in by, "only the cheat is rejected", by)
            drawn = f"one answer in {100 // CHECK_PERCENT} is drawn"
            stage.display.good(f"rejected at question {number}; the cheat served {served}, {drawn}")
            return
        demand(receipt["outcome"] in {"checked", "undrawn"}, "nobody honest is rejected", receipt)
        demand(not (operator in by and receipt["outcome"] == "checked"), "no int8 answer passes a check", receipt)
    raise ActFailed("No draw hit the cheat", f"{MOST_QUESTIONS} questions", "Run it again: this is rare.")


async def court(stage: MarketStage) -> None:
    """Follow the case from its opening to its outcome, by the events of the chain."""
    network, display = stage.network, stage.display
    operator = to_address(network.nodes[network.favoured].operator)
    place = await find_place(network.rpc, to_address(network.factory))
    async with await Market.connect(network.rpc, place) as market, MarketFollower(market) as follower:
        told = 0

        def over(state: State) -> bool:
            nonlocal told
            record = next(iter(state.cases.values()), None)
            events = () if record is None else record.events
            for event in events[told:]:
                display.step(f"block {event.meta.block}: {type(event).__name__}")
            told = len(events)
            return record is not None and not record.live

        await follower.catch_up()
        state = await follower.wait_until(over, CASE_SECONDS)
    (record,) = state.cases.values()
    demand(record.outcome is Outcome.CONVICTED, "the court convicts the cheat", record.outcome)
    left = state.pot(PotKind.STAKE, operator) + state.pot(PotKind.LOCKED, operator)
    before = int(network.execution["class"]["seat"]) * FAVOURED_SEATS
    taken = before - left
    demand(taken >= int(network.execution["class"]["penalty"]), "the penalty is taken", taken)
    display.good(f"convicted: {format_amount(taken)} of {network.favoured}'s stake of {format_amount(before)} is taken")


def redeem(stage: MarketStage) -> None:
    """A node turns its vouchers into money."""
    network = stage.network
    for node in network.nodes.values():
        if (payable := _payable(stage, node.home)) == 0:
            continue
        done = stage.troth("node", "redeem", "--home", node.home, "--broadcast")
        demand(int(done["amount"]) == payable, "a voucher pays what the node's book says", done)
        stage.display.step(f"{node.name} redeems {done['amount']} wei for its work ({done['gas']:,} gas)")
        return
    raise ActFailed("No node was paid", "every tab is empty", "Look into the scheduler's log with --keep.")


def audit(stage: MarketStage) -> None:
    """A receipt as a file, then all events of the deployment."""
    network = stage.network
    listed = stage.troth("client", "receipts", "--home", stage.home)
    checked = next(one for one in listed if one["checked"])
    file = network.home / "receipt.json"
    stage.troth("client", "receipts", checked["order"], "--prove", file, "--home", stage.home)
    for arguments in (
        ("receipt", file, "--rpc", network.rpc, "--factory", network.factory),
        ("market", "--rpc", network.rpc, "--factory", network.factory),
    ):
        done = subprocess.run(
            cli.command("audit", *arguments),
            capture_output=True,
            text=True,
            env=cli.environment(network.password_file),
            timeout=cli.TIMEOUT_SECONDS,
            check=False,
        )
        stage.display.console.print(done.stdout, markup=False, soft_wrap=True)
        demand(done.returncode == 0, f"`troth audit {arguments[0]}` exits 0", done.stderr or done.stdout)
        stage.display.good(f"troth audit {arguments[0]} exits 0")


@dataclass(frozen=True, slots=True)
class _Asked:
    streamed: Streamed
    text: str
    first: float
    whole: float


def _ask(stage: MarketStage, question: str, most: int, *, quiet: bool = False) -> _Asked:
    assert stage.gateway is not None
    begun, first = time.monotonic(), 0.0

    def shown(piece: str) -> None:
        nonlocal first
        first = first or time.monotonic() - begun
        if not quiet:
            stage.display.piece(piece)

    if not quiet:
        stage.display.step(f"question: {question}")
    streamed = stage.gateway.ask(question, most, shown)
    if not quiet:
        stage.display.line()
    return _Asked(streamed, streamed.text, first, time.monotonic() - begun)


def _outcome(stage: MarketStage, streamed: Streamed) -> tuple[dict[str, Any], float]:
    """The receipt once the draw, and the check where there is one, are through; and how long that took."""
    assert stage.gateway is not None
    gateway, begun, found = stage.gateway, time.monotonic(), {}

    def ended() -> bool:
        found.update(gateway.receipt_now(streamed))
        return found["outcome"] in ENDED

    wait_until(ended, "The draw", CHECK_SECONDS, [gateway.child])
    return found, time.monotonic() - begun


def _payable(stage: MarketStage, home: Path) -> int:
    return sum(int(one.get("payable", 0)) for one in stage.troth("node", "tabs", "--home", home)["tabs"])
