"""A whole network behind one scheduler's tunnels, entries of the overlay among them, as a real Prometheus sees it.

Every panel of every dashboard is asked of a real Prometheus, and all of them show something but those of parts that
do not run here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.tunnelled_network import FIRST_PORT, PORTS, TunnelledNetwork

from troth.client.configuration import load, save
from troth.client.home import Home
from troth.testnet.asking import Asker
from troth.testnet.display import Display
from troth.testnet.gateway import LocalGateway
from troth.testnet.network import ENTRIES, market_plan
from troth.testnet.observed import GATEWAY, prometheus_file
from troth.testnet.ports import free_port
from troth.testnet.weights import prepare_models

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    *(pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)),
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus is installed (apt-get install prometheus)"),
]
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240.0
QUESTION = "Name a colour."
NOTHING_TO_SHOW = {
    "Requests in the vLLM engine",  # torch computes here
    "Failures an hour, by the hop that failed",  # nothing fails
}


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    plan = replace(market_plan(), refuser=False)
    prepare_models(ROOT / ".troth", plan, Display())
    folder = tmp_path_factory.mktemp("observed") / "network"
    with TunnelledNetwork(folder, ROOT / ".troth", plan, report=lambda line: None, ready_seconds=900.0) as network:
        network.start()
        made = Asker(network)
        made.open_tab()
        assert network.overlay is not None
        configuration = Home(made.home).configuration
        save(configuration, structs.replace(load(configuration), committee=network.overlay.committee))
        yield made


@pytest.fixture(scope="module")
def gateway(asker: Asker) -> LocalGateway:
    network = asker.network
    return LocalGateway.start(network.processes, asker.home, network.password_file, "--direct")


@pytest.fixture
def prometheus(asker: Asker, gateway: LocalGateway, tmp_path: Path) -> str:
    """Its address; it ends with the network."""
    told = prometheus_file(asker.network).replace(GATEWAY, gateway.address.removeprefix("http://"))
    (tmp_path / "prometheus.yml").write_text(told)
    place = f"127.0.0.1:{free_port()}"
    assert PROMETHEUS is not None
    command = [PROMETHEUS, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    asker.network.processes.start("prometheus", [*command, f"--web.listen-address={place}"])
    return f"http://{place}"


def test_an_order_enters_at_a_node_behind_a_tunnel(asker: Asker, gateway: LocalGateway) -> None:
    """Direct mode: the question goes over circuits to a node's entry, which is at an endpoint of the scheduler's."""
    network = asker.network
    assert isinstance(network, TunnelledNetwork)
    for name in ENTRIES:
        assert int(network.nodes[name].endpoint.rpartition(":")[2]) in range(FIRST_PORT, FIRST_PORT + PORTS)
        assert "[overlay]\ncommittee" in (network.nodes[name].home / "node.toml").read_text()
    streamed = gateway.ask(QUESTION, 8, lambda _piece: None)
    assert streamed.text
    assert sum(entered(network, name) for name in ENTRIES) >= 1


def entered(network: TunnelledNetwork, name: str) -> float:
    """Orders that a node took at its entry, as it counts them."""
    with urllib.request.urlopen(f"{network.nodes[name].endpoint}/metrics", context=unverified(), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("troth_node_entry_requests_total{"))


def unverified() -> Any:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def shown(prometheus: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "dashboards", prometheus, "--json"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return list(json.loads(done.stdout)) if done.returncode == 0 else []


def test_every_panel_of_every_dashboard_shows_something(asker: Asker, gateway: LocalGateway, prometheus: str) -> None:
    give_up, found, silent = time.monotonic() + SECONDS, [], set[str]()
    while time.monotonic() < give_up:
        gateway.ask(QUESTION, 8, lambda _piece: None)
        found = shown(prometheus)
        silent = {one["panel"] for one in found} - {one["panel"] for one in found if one["series"]}
        if found and silent <= NOTHING_TO_SHOW:
            break
        time.sleep(5)
    for one in found:
        print(f"{one['dashboard']:24} {one['panel']:48} {one['series']} {one['newest']}")
    assert found
    assert not silent - NOTHING_TO_SHOW
    targets = json.loads(urllib.request.urlopen(f"{prometheus}/api/v1/targets", timeout=30).read())
    assert {one["health"] for one in targets["data"]["activeTargets"]} == {"up"}
