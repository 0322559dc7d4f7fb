"""Whole networks that serve SmolLM2 in GPTQ's four bits on torch: one in an exact class, one in a calibrated class.

Everything as an operator does it: the folder is imported, calibrated where the class is tolerant, model and class are
registered, and nodes are set up, register and serve by their commands.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402
from support.quantised_checkpoints import WEIGHTS  # noqa: E402
from support.quantised_models import quantised_model  # noqa: E402

from troth.client.orders.updates import OrderOutcome  # noqa: E402
from troth.protocol.market.draws import SPARE_OWNERS  # noqa: E402
from troth.testnet import cli, forked  # noqa: E402
from troth.testnet.asking import Answered, Asker  # noqa: E402
from troth.testnet.network import LocalNetwork  # noqa: E402
from troth.testnet.parties import NetworkPlan  # noqa: E402

pytestmark = [
    pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.torch,
    pytest.mark.timeout(3600),
]  # fmt: skip

NAME, LAYERS = "smollm2-135m-gptq", 4
"""The first layers of the model: what is looked at is whose bits a text has, and not what it says."""
TOKENS, HONEST, MOST_QUESTIONS = 12, 3, 24
CALIBRATED_WITHIN = 1800.0
FEW = ("--class", "bfloat16", "--prompts", 4, "--tokens", 16, "--segments", 1)


class Calibrated(LocalNetwork):
    """A network whose class has the thresholds that `troth calibrate` finds for the model."""

    def register_model(self) -> None:
        report = self.home / "calibration"
        command = cli.command("calibrate", self.plan.model, *FEW, "--out", report, "--home", self.models)
        assert forked.run(command, cli.environment(self.password_file), CALIBRATED_WITHIN).returncode == 0
        self.calibration = report / "report.json"
        super().register_model()

    def _troth(self, *arguments: object) -> dict[str, Any]:
        if arguments[:2] == ("model", "register"):
            arguments = (*arguments, "--calibration", self.calibration)
        return super()._troth(*arguments)


@dataclass(slots=True)
class Served:
    """A network, who asks it, and the weights of the node that is to cheat."""

    asker: Asker
    cheaper: Path
    asked: list[Answered] = field(default_factory=list)

    def ask(self) -> Answered:
        """The answer to a question that nobody asked before."""
        question = [{"role": "user", "content": f"What is {len(self.asked)} + 2?"}]
        self.asked.append(self.asker.ask(question, TOKENS, lambda *_: None))
        return self.asked[-1]


def first_layers(form: str, path: Path) -> Path:
    """A folder with the first layers of the quantised model."""
    shutil.copytree(quantised_model(form).path, path)
    beyond = tuple(f"model.layers.{number}." for number in range(LAYERS, 30))
    tensors = {name: one for name, one in load_file(path / WEIGHTS).items() if not name.startswith(beyond)}
    save_file(tensors, path / WEIGHTS)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": LAYERS}))
    return path


def one_bit_changed(path: Path) -> Path:
    """The model with one bit of a packed word changed: one weight of millions is another one of its sixteen levels."""
    changed = first_layers("gptq", path)
    tensors = load_file(changed / WEIGHTS)
    tensors["model.layers.1.mlp.down_proj.qweight"].view(torch.uint8).flatten()[0] ^= 1
    save_file(tensors, changed / WEIGHTS)
    return changed


def rounded_otherwise(path: Path) -> Path:
    """The same model in AWQ's four bits."""
    return first_layers("awq", path)


@pytest.fixture(scope="module", params=[(LocalNetwork, True, one_bit_changed), (Calibrated, False, rounded_otherwise)],
                ids=["exact", "calibrated"])  # fmt: skip
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    kind, exact, cheaper = request.param
    folder = tmp_path_factory.mktemp("gptq")
    home = folder / "home"
    source = first_layers("gptq", folder / "source")
    command = cli.command("model", "import", source, "--name", NAME, "--home", home)
    assert cli.output_of(command, Path("/dev/null")).returncode == 0
    plan = NetworkPlan(
        model=NAME, slices=((0, LAYERS),), nodes_per_slice=SPARE_OWNERS + 1, candidates=1, verifiers=1,
        dtype="bfloat16", exact=exact,
    )  # fmt: skip
    with kind(folder / "network", home, plan, report=lambda line: None, ready_seconds=900.0) as network:
        network.start()
        asker = Asker(network)
        asker.open_tab(verifiers="1")
        yield Served(asker, cheaper(folder / "cheaper"))


def test_honest_answers_are_checked_and_accepted(served: Served) -> None:
    for _ in range(HONEST):
        answered = served.ask()
        assert answered.outcome is OrderOutcome.CHECKED, (answered.outcome, answered.advice)
        assert answered.text


def test_the_class_says_what_it_compares_by(served: Served, request: pytest.FixtureRequest) -> None:
    network = served.asker.network
    told = network.execution["class"]
    assert int(told["calibration"], 16) != 0 if isinstance(network, Calibrated) else told["exact"], told


def test_who_computes_with_other_words_is_rejected(served: Served) -> None:
    network = served.asker.network
    network.start_cheating(network.favoured, served.cheaper)
    cheat = network.nodes[network.favoured].operator.lower()
    for _ in range(MOST_QUESTIONS):
        answered = served.ask()
        ((writer,), *_) = answered.nodes[-1:]
        if writer.lower() == cheat:
            break
        assert answered.outcome is OrderOutcome.CHECKED, (answered.outcome, answered.advice)
    assert (writer.lower(), answered.outcome) == (cheat, OrderOutcome.REJECTED), answered


def test_an_auditor_finds_nothing_that_is_out_of_order(served: Served) -> None:
    network = served.asker.network
    command = cli.command("audit", "market", "--rpc", network.rpc, "--factory", network.factory, "--json")
    done = cli.output_of(command, network.password_file)
    findings = json.loads(done.stdout)["findings"]
    assert {one["kind"] for one in findings} <= {"observation"}, findings
