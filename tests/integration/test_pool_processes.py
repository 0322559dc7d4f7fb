"""Nodes as operators start them: `troth node start --auto` finds a slice, registers, moves, serves, and leaves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from troth.client.asking import Assigned, Text, Verdict, ask_afresh
from troth.client.choices import Choices
from troth.client.ordering import SignedOrder
from troth.client.session import session
from troth.demo import acts
from troth.demo.display import Display
from troth.demo.plan import Plan
from troth.demo.pool import Hardware, PoolNetwork
from troth.demo.weights import prepare_models
from troth.protocol.assignment import Assignment
from troth.protocol.types import Address

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(900)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
LAYER_BYTES = 14_200_000
HALF = Hardware("half", 15 * LAYER_BYTES + 115_000_000)
QUESTION = "Count from one to twenty in words."


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[acts.Stage]:
    """Six machines with room for half of the model each, in a class of two candidates and one verifier."""
    plan = Plan(slices=((0, 30),), nodes_per_slice=6, verifiers=1, block_seconds=0.5, windows=(120, 120, 30, 60, 1_000))
    display = Display()
    prepare_models(MODELS, plan, display)
    folder = tmp_path_factory.mktemp("pool") / "network"
    hardware = dict.fromkeys(plan.node_names, HALF)
    with PoolNetwork(folder, MODELS, plan, report=lambda line: None, hardware=hardware) as network:
        network.start()
        network.wait_placed()
        made = acts.Stage(network, display, MODELS)
        acts.deposit(made)
        yield made


async def asked(stage: acts.Stage, during: Any = None, max_tokens: int = 24) -> tuple[str, str, Assignment]:
    """Outcome, answer and draw of one question; `during` is called once with the draw after the third piece."""
    pieces: list[str] = []
    drawn: Assignment | None = None
    async with session(stage.home, stage.configuration) as ready:
        messages = [{"role": "user", "content": QUESTION}]
        choices = Choices(max_tokens)
        signed = await ready.prepare(messages, choices, stage.key)
        afresh = ask_afresh(ready, signed, lambda newer: newer.prepare(messages, choices, stage.key))
        async for update in afresh:
            match update:
                case SignedOrder():
                    continue
                case Assigned(assignment):
                    drawn = assignment
                case Text(text):
                    pieces.append(text)
                    if len(pieces) == 3 and during is not None:
                        await asyncio.to_thread(during, drawn)
                case Verdict(outcome, _):
                    assert drawn is not None
                    return outcome, "".join(pieces), drawn
                case _:
                    continue
    raise AssertionError("no verdict")


def network(stage: acts.Stage) -> PoolNetwork:
    assert isinstance(stage.network, PoolNetwork)
    return stage.network


async def test_nodes_that_know_only_their_memory_form_pipelines_and_serve(stage: acts.Stage) -> None:
    shown = network(stage).placement()
    # All asked at once and were all sent to the first half; three of them have moved.
    assert sorted(lane["slice"] for lane in shown["nodes"]) == [[0, 15]] * 3 + [[15, 30]] * 3
    assert shown["ends"] == [15, 30]
    assert all(lane["layer_milliseconds"] > 0 for lane in shown["nodes"])
    outcome, _, _ = await asked(stage)
    assert outcome == "accepted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_node_that_leaves_in_the_middle_of_a_request_loses_nothing(
    stage: acts.Stage, number: signal.Signals
) -> None:
    whole = await asked(stage)
    left: list[str] = []

    def leave(drawn: Assignment) -> None:
        running = {lane["operator"]: lane["running"] for lane in network(stage).placement()["nodes"]}
        serving = next(node for node in drawn.candidates(1) if running.get(Address(node)))
        party = network(stage).node_of(serving)
        assert party.child is not None
        party.child.process.send_signal(number)
        left.append(party.name)

    outcome, answer, _ = await asked(stage, leave)
    assert (outcome, answer) == ("accepted", whole[1])
    party = network(stage).nodes[left[0]]
    assert party.child is not None
    party.child.process.wait(60)
    network(stage).start_node(left[0])
    network(stage).wait_placed()
