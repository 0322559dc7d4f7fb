"""`troth demo exact`: nodes of a whole model compute the same bits, so verifiers compare roots and nothing else."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from troth.client.orders.updates import OrderOutcome
from troth.protocol.market.draws import SPARE_OWNERS
from troth.testnet import cli
from troth.testnet.asking import Asker
from troth.testnet.display import Display
from troth.testnet.errors import demand
from troth.testnet.network import LAYERS, LocalNetwork
from troth.testnet.parties import NetworkPlan, PartyProcess
from troth.testnet.weights import prepare_model

VERIFIERS = {"torch": 3, "vllm": 1}
"""Each vLLM node takes half a minute, two gigabytes and several processes to start."""
CACHE_MEGABYTES = 256
"""Of keys and values for each node: one request of the longest length. vLLM takes the whole of it as it starts."""
READY_SECONDS = 1200.0
MAX_TOKENS = 48
QUESTIONS = (
    "What is the capital of France? Answer in one sentence.",
    "And what is it known for? Answer in one sentence.",
)
EXPECTED = "Paris"


def installed_engine() -> str:
    """vllm where it is installed, else torch."""
    return "torch" if importlib.util.find_spec("vllm") is None else "vllm"


def plan_of(engine: str) -> NetworkPlan:
    """As many nodes as a class needs owners for its checks."""
    verifiers = VERIFIERS.get(engine, 1)
    return NetworkPlan(
        slices=((0, LAYERS),), nodes_per_slice=SPARE_OWNERS + verifiers, candidates=1, verifiers=verifiers,
        dtype="bfloat16", engine=engine, exact=True,
    )  # fmt: skip


@dataclass(slots=True)
class ExactNetwork(LocalNetwork):
    """A market's network of one exact class, in which no node is favoured by the draws."""

    favoured: str = ""

    def _set_up_node(self, node: PartyProcess) -> None:
        LocalNetwork._set_up_node(self, node)
        path = node.home / "node.toml"
        smaller = f"cache_megabytes = {CACHE_MEGABYTES}"
        path.write_text(re.sub(r"^cache_megabytes = \d+$", smaller, path.read_text(), flags=re.MULTILINE))


def play(folder: Path, models: Path, display: Display, engine: str) -> None:
    """Run everything below `folder`; processes end whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    if not engine:
        engine = installed_engine()
        if engine == "torch":
            display.step(
                "vLLM is not installed here (`troth node engine install vllm`): the torch engine plays its part"
            )
    plan = plan_of(engine)
    prepare_model(models, plan, display)
    network = ExactNetwork(folder / "network", models, plan, report=display.step, ready_seconds=READY_SECONDS)
    with network:
        display.console.rule(f"[bold]{len(network.nodes)} nodes of one exact class, engine {engine}", align="left")
        network.start()
        asker = Asker(network)
        opened = asker.open_tab(verifiers=str(plan.verifiers))
        display.step(f"a tab with the scheduler ({opened['gas']:,} gas)")
        converse(asker, display)
        display.act(len(QUESTIONS) + 1, "Anyone re-checks all of it from the chain")
        audit_clean(network, display)
        display.good(f"done in {display.seconds:.0f} s after set-up")


def converse(asker: Asker, display: Display) -> None:
    """Two messages of a conversation, each of which is checked."""
    messages: list[dict[str, str]] = []
    for number, question in enumerate(QUESTIONS, 1):
        display.act(number, f"Message {number} of a conversation; the inferencer decodes alone")
        messages.append({"role": "user", "content": question})
        display.step(f"question: {question}")
        answered = asker.ask(messages, MAX_TOKENS, lambda _, piece: display.piece(piece))
        display.line()
        demand(answered.outcome is OrderOutcome.CHECKED, "the answer is checked", answered.outcome)
        demand(number > 1 or EXPECTED in answered.text, f"the answer names {EXPECTED}", answered.text)
        messages.append({"role": "assistant", "content": answered.text})
        read = f"; {answered.cached} tokens of the prompt were read from its cache" if answered.cached else ""
        display.good(f"all roots are equal, and the question needed no transaction{read}")


def audit_clean(network: LocalNetwork, display: Display) -> None:
    """Re-check everything on the chain, and demand that nothing is found."""
    command = cli.command("audit", "market", "--rpc", network.rpc, "--factory", network.factory)
    done = cli.output_of(command, network.password_file)
    display.console.print(done.stdout, markup=False, soft_wrap=True)
    demand(done.returncode == 0, "`troth audit market` exits 0", done.stderr or done.stdout)
