"""What Prometheus is told of a local network: every process by name, so that dashboards and alerts can be looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import urlsplit

from troth.testnet.network import LocalNetwork
from troth.testnet.parties import PartyProcess

SECONDS = 5
"""From scrape to scrape; a real network's processes are asked every fifteen."""
GATEWAY = "127.0.0.1:11711"
"""Where `troth client serve` listens unless it is told otherwise."""


def prometheus_file(network: LocalNetwork) -> str:
    """A configuration of Prometheus that scrapes all processes, and a gateway of the reader's own."""
    overlay = network.overlay
    jobs = {
        "troth-node": network.nodes.values(),
        "troth-scheduler": network.schedulers,
        "troth-committee": () if overlay is None else overlay.members,
        "troth-relay": () if overlay is None else overlay.relays,
    }
    listed = [_job(name, parties) for name, parties in jobs.items() if parties]
    listed.append({"job_name": "troth-gateway", "static_configs": [_target(GATEWAY, "yours")]})
    content = {
        "global": {"scrape_interval": f"{SECONDS}s", "evaluation_interval": f"{SECONDS}s"},
        "scrape_configs": listed,
    }
    # JSON is YAML.
    return json.dumps(content, indent=1) + "\n"


def _job(name: str, parties: Iterable[PartyProcess]) -> dict[str, object]:
    places = [(one.name, urlsplit(one.metrics or one.endpoint)) for one in parties]
    job: dict[str, object] = {
        "job_name": name,
        "scheme": places[0][1].scheme,
        "static_configs": [_target(place.netloc, called) for called, place in places],
    }
    if job["scheme"] == "https":
        # Self-signed: the key that is on chain is what peers pin.
        job["tls_config"] = {"insecure_skip_verify": True}
    return job


def _target(place: str, name: str) -> dict[str, object]:
    return {"targets": [place], "labels": {"instance": name}}
