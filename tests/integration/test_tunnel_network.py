"""A network whose nodes nobody can connect to: all of them are reached through endpoints that a scheduler lends.

Each node listens on a port of loopback that is told to nobody. What the chain says, and what schedulers and verifiers
use, is an endpoint of the scheduler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tunnelled_network import FIRST_PORT, PORTS, TunnelledNetwork

from troth.client.orders.updates import OrderOutcome
from troth.testnet import cli
from troth.testnet.asking import Answered, Asker
from troth.testnet.display import Display
from troth.testnet.network import LAYERS, NODES
from troth.testnet.parties import NetworkPlan, fetched
from troth.testnet.weights import prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
QUESTION = "Count from one to twenty in words."


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Ten nodes behind one scheduler, a second scheduler beside it, and a client with a tab."""
    plan = NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=NODES, refuser=True)
    prepare_models(MODELS, plan, Display())
    folder = tmp_path_factory.mktemp("tunnels") / "network"
    with TunnelledNetwork(folder, MODELS, plan, report=lambda line: None, ready_seconds=900.0) as network:
        network.start()
        made = Asker(network)
        made.open_tab()
        yield made


def network_of(asker: Asker) -> TunnelledNetwork:
    assert isinstance(asker.network, TunnelledNetwork)
    return asker.network


async def asked(asker: Asker) -> Answered:
    """An answer that is always checked."""
    return await asker.asked([{"role": "user", "content": QUESTION}], 24, lambda _answered, _piece: None)


async def test_an_answer_comes_and_is_checked_through_tunnels(asker: Asker) -> None:
    network = network_of(asker)
    ports = {int(node.endpoint.rpartition(":")[2]) for node in network.nodes.values()}
    assert len(ports) == NODES
    assert ports <= set(range(FIRST_PORT, FIRST_PORT + PORTS))
    answered = await asked(asker)
    assert (answered.outcome, answered.anew) == (OrderOutcome.CHECKED, 0)
    assert len(answered.verifiers[0]) == 3
    metrics = fetched(network.scheduler.endpoint, "/metrics")
    assert f"troth_scheduler_tunnels {float(NODES)}" in metrics
    assert float(re.findall(r"^troth_scheduler_tunnel_bytes (.*)$", metrics, re.MULTILINE)[0]) > 10_000


async def test_doctor_measures_the_way_and_both_schedulers_use_it(asker: Asker) -> None:
    network = network_of(asker)
    found = network.doctor(network.nodes["a1"])
    assert found["way"]["ok"], found
    assert re.search(r"the tunnel of 0x\w{6}: connected in [\d.]+ ms, an answer takes [\d.]+ ms", found["way"]["seen"])
    assert "2 of 2 schedulers are connected" in found["outside"]["seen"]


async def test_a_node_that_is_killed_comes_back_through_its_tunnel(asker: Asker) -> None:
    network = network_of(asker)
    node = network.nodes["a2"]
    assert node.child is not None
    node.child.process.kill()
    node.child.process.wait(60)
    found = network.doctor(node)
    assert not found["way"]["ok"]
    assert "does not work" in found["way"]["seen"]
    network.start_node("a2")
    assert network.doctor(node)["way"]["ok"]


async def test_a_scheduler_that_comes_back_finds_its_nodes(asker: Asker) -> None:
    network = network_of(asker)
    assert network.scheduler.child is not None
    network.scheduler.child.process.kill()
    network.scheduler.child.process.wait(60)
    network.start_scheduler()
    for name in network.nodes:
        network.wait_ready(name)
    answered = await asked(asker)
    assert answered.outcome is OrderOutcome.CHECKED


async def test_a_node_takes_another_endpoint(asker: Asker) -> None:
    network = network_of(asker)
    node, words = network.nodes["a3"], ("node", "reach", "--home")
    dry = cli.run(network.password_file, *words, node.home, "--endpoint", "https://node.example:9443")
    assert (dry["sent"], dry["before"]) == (False, node.endpoint)
    told = cli.run(network.password_file, *words, node.home, "--tunnel", network.scheduler.operator, "--broadcast")
    assert told["sent"]
    assert told["endpoint"] != node.endpoint
    assert node.child is not None
    node.child.stop()
    node.endpoint = told["endpoint"]
    network.start_node("a3")
    assert network.doctor(node)["way"]["ok"]
