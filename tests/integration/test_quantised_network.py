"""A whole network that serves a model of four bits: nodes of torch and of vLLM write, and check each other's answers.

Everything as an operator does it: the folder is imported, the model and its tolerant class are registered from it, and
nodes are set up, register and serve by their commands.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)

from support.packaged_models import packaged_model
from support.quantised_models import quantised_model

from troth.client.orders.updates import OrderOutcome
from troth.node.engine.vllm.machine import require_words
from troth.node.errors import ConfigError
from troth.protocol.market.draws import SPARE_OWNERS
from troth.testnet import cli
from troth.testnet.asking import Asker
from troth.testnet.network import LAYERS, LocalNetwork
from troth.testnet.parties import NetworkPlan, PartyProcess

pytestmark = [
    pytest.mark.network, pytest.mark.vllm, pytest.mark.slow, pytest.mark.model, pytest.mark.chain,
    pytest.mark.timeout(2400),
]  # fmt: skip

FORM, NAME = "awq", "smollm2-135m-awq"
OF_VLLM = ("a1", "a2")
SEATS_OF_VLLM = 6
"""Of five other nodes each has two: so both engines are drawn about as often."""
TOKENS, MOST_QUESTIONS = 12, 24


class MixedNetwork(LocalNetwork):
    """Two of its nodes start with vLLM, whatever their files say; no other node is favoured by the draws."""

    def start_node(self, name: str, *, model: Path | None = None, wait: bool = True) -> None:
        if name in OF_VLLM:
            path = self.nodes[name].home / "node.toml"
            path.write_text(path.read_text().replace('name = "torch"', 'name = "vllm"'))
        super().start_node(name, model=model, wait=wait)

    def _seats_of(self, name: str) -> int:
        return SEATS_OF_VLLM if name in OF_VLLM else 2


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    source, folder = quantised_model(FORM), tmp_path_factory.mktemp("quantised")
    try:
        require_words(source.quantisation)
    except ConfigError as error:
        pytest.skip(str(error))
    home = folder / "home"
    command = cli.command("model", "import", source.path, "--name", NAME, "--home", home)
    assert cli.output_of(command, Path("/dev/null")).returncode == 0
    plan = NetworkPlan(
        model=NAME, slices=((0, LAYERS),), nodes_per_slice=SPARE_OWNERS + 1, candidates=1, verifiers=1, dtype="bfloat16"
    )
    with MixedNetwork(folder / "network", home, plan, report=lambda line: None, ready_seconds=900.0) as network:
        network.start()
        made = Asker(network)
        made.open_tab(verifiers="1")
        yield made


def engine_of(party: PartyProcess) -> str:
    return "vllm" if party.name in OF_VLLM else "torch"


def test_nodes_of_both_engines_write_and_check_each_others_answers(asker: Asker) -> None:
    network, met = asker.network, set()
    for number in range(MOST_QUESTIONS):
        answered = asker.ask([{"role": "user", "content": f"What is {number} + 2?"}], TOKENS, lambda *_: None)
        assert answered.outcome is OrderOutcome.CHECKED, (answered.outcome, answered.advice)
        assert answered.text
        (node,), ((verifier, *_),) = answered.nodes[-1], answered.verifiers
        met.add((engine_of(network.node_of(node)), engine_of(network.node_of(verifier))))
        if {("vllm", "torch"), ("torch", "vllm")} <= met:
            break
    assert {("vllm", "torch"), ("torch", "vllm")} <= met, met


def test_nothing_is_left_to_find_for_an_auditor(asker: Asker) -> None:
    network = asker.network
    command = cli.command("audit", "market", "--rpc", network.rpc, "--factory", network.factory, "--json")
    done = cli.output_of(command, network.password_file)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["findings"] == []


def test_who_serves_the_whole_model_under_that_name_does_not_start(asker: Asker) -> None:
    """What was registered is the root of the packed words."""
    node = asker.network.nodes["a7"]
    assert node.child is not None
    node.child.stop()
    path = node.home / "node.toml"
    own = asker.network.models / "models" / NAME
    path.write_text(path.read_text().replace(str(own), str(packaged_model().path)))
    done = cli.output_of(cli.command("node", "start", "--home", node.home), asker.network.password_file)
    assert done.returncode == 1
    assert "is not the registered model" in done.stderr, done.stderr
