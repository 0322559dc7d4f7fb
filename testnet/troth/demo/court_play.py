"""`troth demo court`: a ring holds all drawn verifiers and the inferencer; one node that was not drawn convicts it.

The ring writes one word for another, and each of its verifiers accepts. Its traces are true, so that the client's check
believes them. What the ring cannot do is to sign a state from which its token follows.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from troth.client.orders.updates import OrderOutcome
from troth.demo.stage import following
from troth.protocol.amounts import COIN
from troth.protocol.market.draws import SPARE_OWNERS
from troth.protocol.market.events import FaultProven
from troth.protocol.market.types import NO_HASH, Fault, PotKind
from troth.protocol.types import to_address
from troth.testnet import cli
from troth.testnet.anvil import gas_used, rpc
from troth.testnet.asking import Answered, Asker
from troth.testnet.display import Display
from troth.testnet.errors import ActFailed, demand
from troth.testnet.network import FAVOURED_SEATS, LAYERS, LOADING_SECONDS, LocalNetwork
from troth.testnet.parties import NetworkPlan, PartyProcess
from troth.testnet.weights import prepare_model

VERIFIERS = 3
NODES = SPARE_OWNERS + VERIFIERS
"""As many as a class needs owners for its checks: all but one are the ring's."""
QUESTION = "What is the capital of France? Answer in one sentence."
TRUE, FALSE = "Paris", "London"
MAX_TOKENS = 16
MOST_QUESTIONS = 12
"""The honest node has one seat of sixty-five: it is drawn for one question in sixteen, and then the next is asked."""
REWARD_SHARE = 10


@dataclass(slots=True)
class RingNetwork(LocalNetwork):
    """A network of which one node is honest: the last one."""

    favoured: str = ""

    @property
    def honest(self) -> PartyProcess:
        """The node that is nobody's but its owner's."""
        return list(self.nodes.values())[-1]

    def start_node(self, name: str, *, model: Path | None = None, wait: bool = True) -> None:
        """The honest one as any other network does, those of the ring with two parts replaced."""
        if name == self.honest.name:
            LocalNetwork.start_node(self, name, model=model, wait=wait)
            return
        node = self.nodes[name]
        command = cli.colluding(TRUE, FALSE, "node", "start", "--home", node.home)
        node.child = self.processes.start(name, command, cli.environment(self.password_file))
        if wait:
            self.wait_ready(name)

    def _seats_of(self, name: str) -> int:
        return 1 if name == self.honest.name else FAVOURED_SEATS


@dataclass(frozen=True, slots=True)
class Purses:
    """Money of those who win and lose, in wei: of the convict its stake, of the accuser its credit and its account.

    ``proven``: the convict's conviction by a proof, once it is.
    """

    stake: int
    credit: int
    burnt: int
    account: int
    proven: FaultProven | None


@dataclass(slots=True)
class CourtPlay:
    """A running network, and a client with a tab."""

    network: RingNetwork
    asker: Asker
    display: Display

    def deceive(self) -> Answered:
        """Ask until the honest node has no part in the answer: then nobody who checks it is honest."""
        display, honest = self.display, self.network.honest
        for _ in range(MOST_QUESTIONS):
            display.step(f"question: {QUESTION}")
            messages = [{"role": "user", "content": QUESTION}]
            answered = self.asker.ask(messages, MAX_TOKENS, lambda _, piece: display.piece(piece))
            display.line()
            parties = {*answered.nodes[-1], *(one for drawn in answered.verifiers for one in drawn)}
            if to_address(honest.operator) in parties:
                display.step(f"{honest.name} was drawn: the next question, please")
                continue
            demand(answered.outcome is OrderOutcome.CHECKED, "the client's check believes the ring", answered.outcome)
            demand(FALSE in answered.text and TRUE not in answered.text, f"the answer says {FALSE}", answered.text)
            names = [self.network.node_of(one).name for one in answered.verifiers[0]]
            display.good(f"checked: {', '.join(names)} were drawn to verify, and all {len(names)} of them accept")
            return answered
        raise ActFailed("The honest node was drawn each time", MOST_QUESTIONS, "Run it again: this is rare.")

    def evidence(self) -> Path:
        """What the client hands to whoever wants to look: one file."""
        network, home, file = self.network, self.asker.home, self.network.home / "answer.evidence"
        order = cli.run(network.password_file, "client", "receipts", "--home", home)[0]["order"]
        cli.run(network.password_file, "client", "case", order, "--rows", "--write", file, "--home", home)
        self.display.step(f"troth client case {order[:12]}… --rows --write {file.name} ({file.stat().st_size:,} bytes)")
        return file

    def accuse(self, file: Path, liar: PartyProcess) -> None:
        """The honest node multiplies one state by two rows of the head, and shows that to the contract."""
        network, display = self.network, self.display
        honest, command = network.honest, ("node", "accuse", file, "--home", network.honest.home)
        tried = cli.run(network.password_file, *command)
        demand(tried["would_fail"] is None and not tried["sent"], "the proof holds in a simulation", tried)
        display.step(f"{honest.name}: troth node accuse {file.name}, which sends nothing yet")
        display.step(f"  {tried['why']}")
        before = asyncio.run(self._purses(liar))
        sent = cli.run(network.password_file, *command, "--broadcast")
        demand(sent["sent"] and sent["convicts"].lower() == liar.operator.lower(), "the liar is convicted", sent)
        after = asyncio.run(self._purses(liar))
        demand(after.proven is not None, "the chain convicts by a proof", sent)
        self._told(liar, before, after)

    def _told(self, liar: PartyProcess, before: Purses, after: Purses) -> None:
        event = after.proven
        assert event is not None
        display, honest = self.display, self.network.honest
        taken, credited, burnt = (
            before.stake - after.stake, after.credit - before.credit, after.burnt - before.burnt,
        )  # fmt: skip
        spent = before.account - after.account
        gas = gas_used(self.network.rpc, "0x" + event.meta.transaction.hex())
        demand(taken == event.taken == credited + burnt, "what is taken is paid or burnt", (taken, credited, burnt))
        demand(taken >= int(self.network.execution["class"]["penalty"]), "the penalty is taken", taken)
        back = credited - taken // REWARD_SHARE
        demand(0 < back <= spent, "no more than its gas is paid back", (back, spent))
        display.good(
            f"block {event.meta.block}: {liar.name} is convicted by a proof ({gas:,} gas), against {VERIFIERS}"
        )
        display.step(f"  taken of {liar.name}'s stake of {before.stake:,} wei: {taken:,} wei")
        display.step(f"  to {honest.name}: {credited:,} wei: a tenth, and {back:,} wei for its gas of {spent:,} wei")
        display.step(f"  burnt: {burnt:,} wei ({COIN.show(burnt)})")

    def settle(self, liar: PartyProcess) -> None:
        """What the client's receipt says, and the audit of the whole chain, which names the convict."""
        network, display = self.network, self.display
        receipt = cli.run(network.password_file, "client", "receipts", "--home", self.asker.home)[0]
        demand(receipt["refund_units"] is not None, "the client is refunded", receipt)
        display.good(f"the fee of {COIN.show(int(receipt['refund_units']))} is not owed any more")
        command = cli.command("audit", "market", "--rpc", network.rpc, "--factory", network.factory)
        done = cli.output_of(command, network.password_file)
        display.console.print(done.stdout.rstrip(), markup=False, soft_wrap=True)
        demand(liar.operator.lower() in done.stdout.lower(), "the audit names the convict", done.stderr or done.stdout)
        display.good("troth audit market weighed the proof again, and names the convict")

    async def _purses(self, liar: PartyProcess) -> Purses:
        honest = to_address(self.network.honest.operator)
        async with following(self.network) as (_, follower):
            state, convict = follower.state, to_address(liar.operator)
        stake = state.pot(PotKind.STAKE, convict) + state.pot(PotKind.LOCKED, convict)
        account = int(str(rpc(self.network.rpc, "eth_getBalance", honest, "latest")), 16)
        proven = (one for one in state.proven.values() if one.convict == convict and one.fault is Fault.BY_PROOF)
        credit, burnt = state.pot(PotKind.CREDIT, honest), state.pot(PotKind.BURNT, NO_HASH)
        return Purses(stake, credit, burnt, account, next(proven, None))


def plan() -> NetworkPlan:
    """As few whole nodes as a class of three verifiers needs."""
    return NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=NODES, candidates=1, verifiers=VERIFIERS)


def play(folder: Path, models: Path, display: Display) -> None:
    """Run everything below ``folder``; processes end and files go whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    prepare_model(models, plan(), display)
    network = RingNetwork(folder / "network", models, plan(), report=display.step, ready_seconds=LOADING_SECONDS)
    with network:
        display.heading(f"{NODES} nodes: {NODES - 1} are one hand, and {network.honest.name} is honest")
        network.start()
        asker = Asker(network)
        opened = asker.open_tab()
        display.step(f"a tab with the scheduler ({opened['gas']:,} gas)")
        court = CourtPlay(network, asker, display)
        display.act(1, f"The ring writes {FALSE} for {TRUE}, and checks its own answer")
        answered = court.deceive()
        liar = network.node_of(answered.nodes[-1][0])
        display.act(2, f"{network.honest.name}, which was not drawn, convicts {liar.name} alone")
        court.accuse(court.evidence(), liar)
        display.act(3, "The client owes nothing, and anyone weighs the proof again")
        court.settle(liar)
    shutil.rmtree(folder / "network", ignore_errors=True)
    display.good(f"done in {display.seconds:.0f} s; everything is stopped, nothing is left behind")
