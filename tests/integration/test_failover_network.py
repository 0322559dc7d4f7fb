"""Two schedulers as they are shipped, a gateway with a tab at each, and one of them stands still or dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from troth.testnet import cli
from troth.testnet.asking import DEPOSIT, Asker
from troth.testnet.display import Display
from troth.testnet.gateway import LocalGateway
from troth.testnet.network import LocalNetwork, market_plan
from troth.testnet.parties import NetworkPlan, PartyProcess
from troth.testnet.weights import prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
WITHIN = 5.0
"""Seconds that a dead scheduler may cost the next question."""


def plan() -> NetworkPlan:
    """The demo's network without its overlay: circuits are tried elsewhere."""
    made = market_plan()
    return NetworkPlan(slices=made.slices, nodes_per_slice=made.nodes_per_slice, refuser=True)


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[Asker]:
    prepare_models(MODELS, plan(), Display())
    folder = tmp_path / "network"
    with LocalNetwork(folder, MODELS, plan(), report=lambda line: None, ready_seconds=900.0) as network:
        network.start()
        made = Asker(network)
        made.open_tab()
        second = ("--scheduler", network.refuser.operator, "--home", made.home, "--broadcast")
        cli.run(network.password_file, "client", "open", DEPOSIT, *second)
        yield made


def gateway_of(asker: Asker, name: str) -> LocalGateway:
    network = asker.network
    return LocalGateway.start(network.processes, asker.home, network.password_file, name=name)


def first_word(gateway: LocalGateway) -> float:
    """Seconds until an answer begins."""
    begun, found = time.monotonic(), []
    streamed = gateway.ask("Name a colour.", 4, lambda _piece: found.append(time.monotonic() - begun))
    assert streamed.text
    return found[0]


def send(party: PartyProcess, number: signal.Signals) -> None:
    assert party.child is not None
    party.child.process.send_signal(number)


def test_the_next_question_goes_to_the_second_tab_within_seconds(asker: Asker) -> None:
    scheduler = asker.network.scheduler
    gateway = gateway_of(asker, "gateway")
    usual = max(first_word(gateway) for _ in range(3))
    # It stands still: connections to it are open, new ones are taken, and nobody answers.
    send(scheduler, signal.SIGSTOP)
    stalled = first_word(gateway)
    after = first_word(gateway)
    gateway.child.stop()
    # And a process that comes to it for the first time.
    fresh = gateway_of(asker, "fresh gateway")
    new = first_word(fresh)
    fresh.child.stop()
    send(scheduler, signal.SIGCONT)
    asker.network._wait_ready(scheduler)
    last = gateway_of(asker, "last gateway")
    first_word(last)
    send(scheduler, signal.SIGKILL)
    dead = first_word(last)
    print(
        f"\nfirst word: usually {usual:.2f} s; stalled {stalled:.2f}, then {after:.2f}, new {new:.2f}, dead {dead:.2f}"
    )
    assert all(seconds < usual + WITHIN for seconds in (stalled, after, new, dead))
    last.child.stop()
