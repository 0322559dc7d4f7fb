"""`troth client ask --check self` on a whole network with real weights: what is true, and what a cheat writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from troth.client.home import Home
from troth.testnet import cli
from troth.testnet.asking import Asker
from troth.testnet.display import Display
from troth.testnet.network import LAYERS, NODES, LocalNetwork
from troth.testnet.parties import NetworkPlan
from troth.testnet.weights import int8_name, prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
TOKENS, MOST_QUESTIONS = "12", 30


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Ten nodes that host the whole model, one of which is drawn more often, and a client with a tab."""
    plan = NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=NODES)
    prepare_models(MODELS, plan, Display())
    folder = tmp_path_factory.mktemp("own check") / "network"
    with LocalNetwork(folder, MODELS, plan, report=lambda line: None, ready_seconds=900.0) as network:
        network.start()
        made = Asker(network)
        made.open_tab()
        yield made


@dataclass(frozen=True)
class Told:
    """What the command said and how it ended."""

    code: int
    out: dict[str, Any]
    error: str

    @property
    def own(self) -> dict[str, str]:
        return dict(self.out["own_check"])


def ask(asker: Asker, question: str, model: str | Path) -> Told:
    options = ("--check", "self", "--model", model, "--max-tokens", TOKENS, "--home", asker.home, "--json")
    done = cli.output_of(cli.command("client", "ask", question, *options), asker.network.password_file)
    return Told(done.returncode, json.loads(done.stdout or "{}"), done.stderr)


def test_a_true_answer_is_told_to_be_the_models(asker: Asker) -> None:
    own = MODELS / "models" / asker.network.plan.model
    outcomes = set()
    for number in range(MOST_QUESTIONS):
        told = ask(asker, f"Name a thing that is {number} metres long.", own)
        assert (told.code, told.own["opinion"]) == (0, "accept"), told
        outcomes.add(told.out["outcome"])
        if told.out["outcome"] == "checked":
            assert "opened of their traces" in told.own["words"]
        if {"checked", "undrawn"} <= outcomes:
            break
    assert {"checked", "undrawn"} <= outcomes
    listed = cli.run(asker.network.password_file, "client", "receipts", "--home", asker.home)
    assert {one["own_check"]["opinion"] for one in listed} == {"accept"}


def test_a_text_that_top_k_and_min_p_cut_is_true_for_verifiers_and_the_own_model(asker: Asker) -> None:
    """A whole order: client, scheduler, the node that writes, and verifiers that look whether the cuts were kept."""
    cuts = ("--temperature", 0.9, "--top-k", 20, "--min-p", 0.05)
    for check in ("always", "self"):
        options = (*cuts, "--check", check, "--max-tokens", TOKENS, "--home", asker.home, "--json")
        own = ("--model", asker.network.plan.model) if check == "self" else ()
        models = Home(asker.home).root / "models"
        if not models.exists():
            models.symlink_to(MODELS / "models")
        command = cli.command("client", "ask", "Name a fish, a bird and a stone.", *own, *options)
        done = cli.output_of(command, asker.network.password_file)
        told = json.loads(done.stdout or "{}")
        assert done.returncode == 0, (done.stdout, done.stderr)
        if check == "always":
            assert told["outcome"] == "checked", told
        else:
            assert told["own_check"]["opinion"] == "accept", told


def test_what_verifiers_noted_of_the_nodes_is_put_together_and_holds(asker: Asker, tmp_path: Path) -> None:
    network, files, tasks = asker.network, [], 0
    for name, node in network.nodes.items():
        files.append(tmp_path / f"{name}.jsonl")
        told = cli.run(network.password_file, "node", "notes", "--home", node.home, "--out", files[-1])
        tasks += sum(one["tasks"] for one in told["records"])
    assert tasks >= 2, "an answer was checked, by two verifiers at least"
    command = cli.command("audit", "notes", *files, "--network", network.file, "--json")
    done = cli.output_of(command, network.password_file)
    assert done.returncode == 0, (done.stdout, done.stderr)
    findings = json.loads(done.stdout)["findings"]
    assert {one["kind"] for one in findings} == {"observation"}, findings


def test_another_model_than_the_registered_one_is_refused_before_anything_is_ordered(asker: Asker) -> None:
    before = ordered(asker)
    told = ask(asker, "Count to three.", MODELS / "models" / int8_name(asker.network.plan))
    assert told.code == 1
    assert "own model cannot be used" in told.error
    assert ordered(asker) == before


def ordered(asker: Asker) -> list[str]:
    """All orders so far; what was undrawn is paid meanwhile."""
    listed = cli.run(asker.network.password_file, "client", "receipts", "--home", asker.home)
    return [one["order"] for one in listed]


def test_what_a_cheat_writes_is_rejected_by_the_own_model_where_its_trace_is_opened(asker: Asker) -> None:
    network = asker.network
    network.start_cheating(network.favoured, MODELS / "models" / int8_name(network.plan))
    cheat, own = network.nodes[network.favoured].operator.lower(), network.plan.model
    # By its name below the home folder, as `troth model import` leaves it.
    models = Home(asker.home).root / "models"
    if not models.exists():
        models.symlink_to(MODELS / "models")
    for number in range(MOST_QUESTIONS):
        told = ask(asker, f"What weighs {number} tonnes?", own)
        served = str(told.out.get("served_by", "")).lower() == cheat
        if served and told.out["outcome"] != "undrawn":
            break
        if not served:
            assert (told.code, told.own["opinion"]) == (0, "accept"), told
    assert (told.code, told.own["opinion"], told.out["outcome"]) == (3, "reject", "rejected"), told
    assert re.search(r"trace of segment 0 is not the model's|text is not the model's", told.own["words"])
