"""Nodes as operators start them: `troth node start --auto` finds a slice, registers, moves, serves, and leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from troth.client.orders.updates import OrderOutcome
from troth.testnet.asking import Answered, Asker
from troth.testnet.display import Display
from troth.testnet.parties import NetworkPlan
from troth.testnet.pool import Hardware, PoolNetwork
from troth.testnet.weights import prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
LAYER_BYTES, EMBEDDING_BYTES = 14_200_000, 115_000_000
WHOLE, HALF = (
    Hardware("whole", 30 * LAYER_BYTES + EMBEDDING_BYTES),
    Hardware("half", 15 * LAYER_BYTES + EMBEDDING_BYTES),
)
KINDS = (WHOLE,) * 8 + (HALF,) * 4
"""A segment needs nine owners, so that a whole node alone serves nobody: the halves make two segments of ten."""
QUESTION = "Count from one to twenty in words."


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Eight machines with room for the whole model and four for half of it; a client with a tab."""
    plan = NetworkPlan(slices=((0, 30),), nodes_per_slice=len(KINDS), block_seconds=0.5)
    prepare_models(MODELS, plan, Display())
    folder = tmp_path_factory.mktemp("pool") / "network"
    hardware = dict(zip(plan.node_names, KINDS, strict=True))
    with PoolNetwork(folder, MODELS, plan, report=lambda line: None, hardware=hardware, ready_seconds=900.0) as network:
        network.start()
        network.wait_placed()
        made = Asker(network)
        made.open_tab()
        yield made


def network(asker: Asker) -> PoolNetwork:
    assert isinstance(asker.network, PoolNetwork)
    return asker.network


async def asked(asker: Asker, number: signal.Signals | None = None, left: list[str] | None = None) -> Answered:
    """One answer that is checked; with ``number`` who serves the last segment gets that signal after three pieces."""

    def heard(answered: Answered, _piece: str) -> None:
        if number is None or left is None or answered.pieces != 3 or left:
            return
        party = asker.network.node_of(answered.nodes[-1][-1])
        assert party.child is not None
        party.child.process.send_signal(number)
        left.append(party.name)

    return await asker.asked([{"role": "user", "content": QUESTION}], 24, heard)


async def test_nodes_that_know_only_their_memory_form_pipelines_and_serve(asker: Asker) -> None:
    shown = network(asker).placement()
    lanes = {lane["operator"]: lane for lane in shown["nodes"]}
    slices = [lanes[node.operator]["slice"] for node in network(asker).nodes.values()]
    assert slices[:8] == [[0, 30]] * 8
    # All asked at once and were sent to the same half; two of them have moved.
    assert sorted(slices[8:]) == [[0, 15]] * 2 + [[15, 30]] * 2
    assert (shown["ends"], shown["parties"]) == ([15, 30], 9)
    assert all(len(lane["groups"]) <= 2 for lane in shown["nodes"])
    assert all(lane["layer_milliseconds"] > 0 for lane in shown["nodes"])
    answered = await asked(asker)
    assert (answered.outcome, answered.anew) == (OrderOutcome.CHECKED, 0)


@pytest.mark.parametrize(("number", "anew"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1)])
async def test_a_node_that_leaves_in_the_middle_of_a_request_loses_nothing(
    asker: Asker, number: signal.Signals, anew: int
) -> None:
    """Told to stop, it sees its answer through; killed, the rest is ordered anew of others."""
    whole, left = await asked(asker), list[str]()
    answered = await asked(asker, number, left)
    assert (answered.text, answered.anew) == (whole.text, anew)
    assert answered.outcome is OrderOutcome.CHECKED
    party = network(asker).nodes[left[0]]
    assert party.child is not None
    party.child.process.wait(60)
    network(asker).start_node(left[0])
    network(asker).wait_placed()
