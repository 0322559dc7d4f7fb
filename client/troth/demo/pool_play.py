"""`troth demo pool`: three kinds of machines in two regions are placed; one of them dies in the middle of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.client.asking import Assigned, Posted, Text, Verdict, ask_afresh
from troth.client.choices import Choices
from troth.client.ordering import SignedOrder
from troth.client.session import session
from troth.demo import acts
from troth.demo.display import Display
from troth.demo.errors import ActFailed
from troth.demo.lanes import lanes
from troth.demo.plan import Plan
from troth.demo.pool import Hardware, PoolNetwork
from troth.demo.processes import wait_until
from troth.demo.weights import prepare_models
from troth.protocol.assignment import Assignment

LAYER_BYTES, EMBEDDING_BYTES = 14_200_000, 115_000_000
KILL_AFTER_PIECES = 3
MAX_TOKENS = 32
GONE_SECONDS = 60.0


def room(layers: int) -> int:
    """Bytes for so many layers of SmolLM2-135M in float32, with the embedding or the head."""
    return layers * LAYER_BYTES + EMBEDDING_BYTES


KINDS = (
    (4, Hardware("large, near", room(30))),
    (2, Hardware("half, near, 2x slower", room(15), slowdown=2.0)),
    (2, Hardware("half, 3x slower, 40 ms away", room(15), slowdown=3.0, way_seconds=0.04)),
)
"""How many of each: every layer has six hosts, and a request needs five: two candidates and three verifiers."""


@dataclass(slots=True)
class Answered:
    """What became of the question."""

    text: str = ""
    outcome: str = ""
    killed: str = ""
    pieces: int = 0
    drawn: Assignment | None = field(default=None)


def play(folder: Path, models: Path, display: Display, question: str, expected: str) -> None:
    """Run everything below `folder`; processes end whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    plan = Plan(slices=((0, 30),), nodes_per_slice=sum(count for count, _ in KINDS))
    prepare_models(models, plan, display)
    kinds = [kind for count, kind in KINDS for _ in range(count)]
    hardware = dict(zip(plan.node_names, kinds, strict=True))
    with PoolNetwork(folder / "network", models, plan, report=display.step, hardware=hardware) as network:
        display.console.rule("[bold]Machines that know their memory and their scheduler", align="left")
        network.start()
        show(network, display, network.wait_placed())
        stage = acts.Stage(network, display, models)
        display.act(1, "A node dies in the middle of an answer")
        acts.deposit(stage)
        answered = asyncio.run(_ask(stage, network, question))
        _demand(answered, expected)
        display.good(f"node {answered.killed} was killed, the answer is whole, verified and settled")
        display.act(2, "Its layers are free, and the others close the gap")
        wait_until(
            lambda: len(network.placement()["nodes"]) == len(kinds) - 1, "the node's report expiring", GONE_SECONDS
        )
        show(network, display, network.placement())
        display.good(f"done in {display.seconds:.0f} s")


def show(network: PoolNetwork, display: Display, shown: Mapping[str, Any]) -> None:
    """The placement as lanes, with what the scheduler says of it."""
    names = {node.operator: node.name for node in network.nodes.values()}
    kinds = {node.operator: network.hardware[node.name].name for node in network.nodes.values()}
    display.console.print(lanes(shown, names, kinds))
    ends = ", ".join(str(end) for end in shown["ends"])
    display.step(f"segments end at {ends}; each needs {shown['parties']} nodes. {shown['lacking']}".strip())


async def _ask(stage: acts.Stage, network: PoolNetwork, question: str) -> Answered:
    display, answered = stage.display, Answered()
    messages, choices = [{"role": "user", "content": question}], Choices(MAX_TOKENS)
    async with session(stage.home, stage.configuration) as ready:
        signed = await ready.prepare(messages, choices, stage.key)
        display.step(f"question: {question}")
        async for update in ask_afresh(ready, signed, lambda newer: newer.prepare(messages, choices, stage.key)):
            match update:
                case SignedOrder():
                    display.step("the nodes have moved: ordered anew at the new terms")
                case Assigned(assignment):
                    answered.drawn = assignment
                case Text(text):
                    display.piece(text)
                    answered.text += text
                    answered.pieces += 1
                    if answered.pieces == KILL_AFTER_PIECES:
                        answered.killed = await asyncio.to_thread(_kill, network, display, answered.drawn)
                case Posted(step, transaction, _):
                    display.line()
                    display.step(f"{step} on chain: {transaction[:18]}…")
                case Verdict(outcome, _):
                    answered.outcome = outcome
                case _:
                    continue
    return answered


def _kill(network: PoolNetwork, display: Display, drawn: Assignment | None) -> str:
    """kill -9 for who serves the last segment."""
    assert drawn is not None  # the library yields no token before the draw was checked
    running = {lane["operator"]: lane["running"] for lane in network.placement()["nodes"]}
    last = len(drawn.segments) - 1
    serving = next((node for node in drawn.candidates(last) if running.get(node)), drawn.candidates(last)[0])
    party = network.node_of(serving)
    if party.child is not None:
        party.child.process.kill()
    display.line()
    display.step(f"kill -9 node {party.name}, which serves segment {last}")
    return party.name


def _demand(answered: Answered, expected: str) -> None:
    if answered.outcome != "accepted" or not answered.killed or expected.lower() not in answered.text.lower():
        found = f"{answered.outcome}, killed {answered.killed or 'nobody'}: {answered.text}"
        raise ActFailed("The demo expected an accepted answer over a killed node", found, "Look into the logs.")
