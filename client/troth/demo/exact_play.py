"""`troth demo exact`: nodes of a whole model compute the same bits, so verifiers compare roots and nothing else."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

from troth.demo import acts
from troth.demo.display import Display
from troth.demo.network import LocalNetwork
from troth.demo.plan import Plan
from troth.demo.weights import prepare_model

LAYERS = 30
VERIFIERS = {"torch": 3, "vllm": 1}
"""Each vLLM node takes half a minute, two gigabytes and several processes to start."""
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


def plan_of(engine: str) -> Plan:
    """One inferencer, and all others verify."""
    verifiers = VERIFIERS.get(engine, 1)
    return Plan(
        slices=((0, LAYERS),), nodes_per_slice=1 + verifiers, candidates=1, verifiers=verifiers,
        reviewers=verifiers + 2, dtype="bfloat16", engine=engine, exact=True,
    )  # fmt: skip


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
    network = LocalNetwork(folder / "network", models, plan, report=display.step, ready_seconds=READY_SECONDS)
    with network:
        display.console.rule(f"[bold]{len(network.nodes)} nodes of one exact class, engine {engine}", align="left")
        network.start()
        stage = acts.Stage(network, display, models)
        acts.deposit(stage)
        messages: list[dict[str, str]] = []
        for number, question in enumerate(QUESTIONS, 1):
            display.act(number, f"Message {number} of a conversation; the inferencer decodes alone")
            messages.append({"role": "user", "content": question})
            display.step(f"question: {question}")
            played = asyncio.run(acts.plain_question(stage, messages, MAX_TOKENS))
            acts.require_accepted(played, EXPECTED if number == 1 else "")
            messages.append({"role": "assistant", "content": played.answer})
            display.good(f"all roots are equal; {sum(played.gas.values()):,} gas in {len(played.gas)} transactions")
        display.act(len(QUESTIONS) + 1, "Anyone re-checks all of it from the chain")
        acts.audit_clean(stage)
        display.good(f"done in {display.seconds:.0f} s after set-up")
