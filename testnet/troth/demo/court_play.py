"""`troth demo court`: a ring holds all drawn verifiers and the inferencer; one node that was not drawn convicts it.

The ring writes one word for another, and each of its verifiers accepts. Its traces agree, so that the client's check
believes them. What the ring cannot do is to sign a state from which its token follows. Then it answers without a false
word, and with one weight of one layer changed: each token follows from the state beside it, and the states are wrong.
The same node disputes one of them, and both sides' processes play until one number is left, which a contract computes.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from troth.chain.adapter import Chain
from troth.client.orders.updates import OrderOutcome
from troth.demo.stage import following
from troth.protocol.amounts import COIN
from troth.protocol.arithmetic.operations import Operation
from troth.protocol.disputes.calls import DisputeWon, decode_event, windows
from troth.protocol.disputes.layout import OPERATIONS
from troth.protocol.disputes.life import Life, lives
from troth.protocol.market.draws import SPARE_OWNERS
from troth.protocol.market.events import FaultProven
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.types import NO_HASH, PotKind
from troth.protocol.types import to_address
from troth.testnet import cli
from troth.testnet.anvil import gas_used, rpc
from troth.testnet.asking import Answered, Asker
from troth.testnet.display import Display
from troth.testnet.errors import ActFailed, demand
from troth.testnet.network import FAVOURED_SEATS, LAYERS, LOADING_SECONDS, LocalNetwork
from troth.testnet.parties import NetworkPlan, PartyProcess
from troth.testnet.weights import prepare_model, write_tampered

VERIFIERS = 3
NODES = SPARE_OWNERS + VERIFIERS
"""As many as a class needs owners for its checks: all but one are the ring's."""
QUESTION = "What is the capital of France? Answer in one sentence."
TRUE, FALSE = "Paris", "London"
MAX_TOKENS = 16
SECOND = "Name one colour of the rainbow."
WRONG_TENSOR, WRONG_PLACE, WRONG_VALUE = "model.layers.17.mlp.down_proj.weight", (100, 200), 2.0
"""The one weight of the ring's models that is not the registered one: most are a hundredth of that."""
DISPUTE_BLOCKS = 3
"""Seconds of a block while both sides play: a turn has sixty, on a machine that does the work of nine."""
DISPUTE_SECONDS = 900.0
MOST_QUESTIONS = 12
"""The honest node has one seat of sixty-five: it is drawn for one question in sixteen, and then the next is asked."""
REWARD_SHARE = 10
NO_WRONG_TOKEN = 4
"""Exit code of `troth node accuse` where no token is wrong by itself."""


@dataclass(slots=True)
class RingNetwork(LocalNetwork):
    """A network of which one node is honest: the last one."""

    favoured: str = ""

    @property
    def tampered(self) -> Path:
        """The ring's copy of the model, with one weight changed."""
        path = self.home / "ring-model"
        if not path.is_dir():
            write_tampered(self.models / "models" / self.plan.model, path, WRONG_TENSOR, WRONG_PLACE, WRONG_VALUE)
        return path

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
        self._serve(node, self.tampered)
        command = cli.colluding(TRUE, FALSE, "node", "start", "--home", node.home, "--no-verify-weights")
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
    gas: int = 0
    """Of all turns of the dispute."""

    def deceive(self) -> Answered:
        """An answer that says one word for another."""
        answered = self.ask(QUESTION)
        demand(FALSE in answered.text and TRUE not in answered.text, f"the answer says {FALSE}", answered.text)
        return answered

    def ask(self, question: str) -> Answered:
        """Ask until the honest node has no part in the answer: then nobody who checks it is honest."""
        display, honest = self.display, self.network.honest
        for _ in range(MOST_QUESTIONS):
            display.step(f"question: {question}")
            messages = [{"role": "user", "content": question}]
            answered = self.asker.ask(messages, MAX_TOKENS, lambda _, piece: display.piece(piece))
            display.line()
            parties = {*answered.nodes[-1], *(one for drawn in answered.verifiers for one in drawn)}
            if to_address(honest.operator) in parties:
                display.step(f"{honest.name} was drawn: the next question, please")
                continue
            demand(answered.outcome is OrderOutcome.CHECKED, "the client's check believes the ring", answered.outcome)
            names = [self.network.node_of(one).name for one in answered.verifiers[0]]
            display.good(f"checked: {', '.join(names)} were drawn to verify, and all {len(names)} of them accept")
            return answered
        raise ActFailed("The honest node was drawn each time", MOST_QUESTIONS, "Run it again: this is rare.")

    def evidence(self, name: str = "answer") -> Path:
        """What the client hands to whoever wants to look: one file."""
        network, home, file = self.network, self.asker.home, self.network.home / f"{name}.evidence"
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

    def dispute(self, file: Path, liar: PartyProcess) -> None:
        """No token is wrong, but the states are: the honest node opens a dispute, and both processes play it."""
        network, display = self.network, self.display
        honest, home = network.honest, ("--home", network.honest.home)
        tried = cli.output_of(cli.command("node", "accuse", file, *home), network.password_file)
        demand(tried.returncode == NO_WRONG_TOKEN, "no token is wrong by itself", tried.stderr)
        display.step(f"{honest.name}: troth node accuse {file.name} finds no wrong token")
        rpc(network.rpc, "evm_setIntervalMining", DISPUTE_BLOCKS)
        planned = cli.run(network.password_file, "node", "dispute", file, *home)
        demand(planned["would_fail"] is None and not planned["sent"], "a dispute can be opened", planned)
        display.step(
            f"{honest.name}: troth node dispute {file.name}: row {planned['position']}, at most {planned['rounds']} "
            f"rounds, a bond of {int(planned['bond_units']):,} wei"
        )
        before = asyncio.run(self._purses(liar))
        opened = cli.run(network.password_file, "node", "dispute", file, *home, "--broadcast")
        demand(opened["sent"], "the dispute is opened", opened)
        life = asyncio.run(asyncio.wait_for(self._played(opened["dispute"]), DISPUTE_SECONDS))
        demand(isinstance(life.ending, DisputeWon), "the honest node wins", life.ending)
        demand(life.state.in_tensor, "both sides played to one number", life.state)
        after = asyncio.run(self._purses(liar))
        demand(after.stake < before.stake, "the liar's stake is taken", (before.stake, after.stake))
        layer, operation = divmod(life.state.tensor, OPERATIONS)
        taken = before.stake - after.stake
        display.good(
            f"{liar.name} is convicted by one number of layer {layer} ({Operation(operation).name.lower()}), after "
            f"{len(life.looks)} rounds and {self.gas:,} gas, against {VERIFIERS}; taken: {taken:,} wei"
        )

    async def _played(self, dispute: str) -> Life:
        """Wait for the end; each turn is told as it is mined."""
        told, network = 0, self.network
        prover = to_address(str(network.deployment["disputes"]))
        async with await Chain.connect(network.rpc, prover) as chain:
            turn, _ = await chain.read(windows())
            while True:
                logs = await chain.logs(0, await chain.block_number())
                found = lives((event for log in logs if (event := decode_event(log)) is not None), turn)
                life = next(one for identity, one in found.items() if identity.hex() == dispute.removeprefix("0x"))
                mined = list(dict.fromkeys(log.meta.transaction for log in logs if life.id in log.topics))
                for transaction in mined[told:]:
                    self.gas += (spent := gas_used(network.rpc, "0x" + transaction.hex()))
                    self.display.step(f"  turn {told + 1}: {spent:,} gas")
                    told += 1
                if life.ending is not None:
                    return life
                await asyncio.sleep(1.0)

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
        demand(taken >= int(self.network.execution["class"]["penalty_units"]), "the penalty is taken", taken)
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
        self.audit(liar)

    def audit(self, liar: PartyProcess) -> None:
        """The audit of the whole chain names the convict."""
        network, display = self.network, self.display
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
    return NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=NODES, candidates=1, verifiers=VERIFIERS, disputes=True)


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
        display.act(4, "The ring answers with one weight of one layer changed, and checks its own answer")
        answered = court.ask(SECOND)
        liar = network.node_of(answered.nodes[-1][0])
        display.act(5, f"{network.honest.name} disputes one row of {liar.name}'s, down to one number")
        court.dispute(court.evidence("states"), liar)
        court.audit(liar)
    shutil.rmtree(folder / "network", ignore_errors=True)
    display.good(f"done in {display.seconds:.0f} s; everything is stopped, nothing is left behind")
