"""Files of deploy/: every metric that they name is exported, and the tools that read them accept them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, Gauge
from starlette.testclient import TestClient
from support.tab_scene import TabScene

from troth.client.gateway.metrics import GatewayMetrics
from troth.command.rendering import describe
from troth.committee.directory.member import MemberMetrics
from troth.node.direct.counters import Counters
from troth.node.orders.metrics import NodeMarketMetrics, NodeMetrics
from troth.overlay.relay.metrics import RelayMetrics
from troth.overlay.sessions.limits import SessionMetrics
from troth.scheduler.assembly import SchedulerMarketMetrics
from troth.transport import probe
from troth.transport.errors import ChannelUnavailable, KeyInUse
from troth.transport.health import health_routes
from troth.transport.router_port import RouterPort

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SAMPLES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
NAME = re.compile(r"\b(troth_[a-z_]+)\b")
PROMETHEUS = {"up"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The names of all samples that processes export, by asking the very collectors that they use."""
    scene = TabScene(tmp_path_factory.mktemp("scene"))
    orders = scene.start()
    scheduler, node = SchedulerMarketMetrics(lambda: 0.0), NodeMetrics()
    scheduler.show(orders)
    Counters(node.registry)
    scheduler.show_tunnels(SimpleNamespace(server=SimpleNamespace(nodes=1, visitors=2, passed=3)))  # type: ignore[arg-type]
    node.follow_tunnel(SimpleNamespace(trouble="", visits=0))  # type: ignore[arg-type]
    node.follow_router(RouterPort([], "https://node.example:9443"))
    market = NodeMarketMetrics(node.registry)
    ground = SimpleNamespace(state=scene.ledger.state)
    context: Any = SimpleNamespace(ground=ground, me=next(iter(scene.nodes)))
    market.follow(context, SimpleNamespace(sent={"claim": 1}), SimpleNamespace(responded=0))  # type: ignore[arg-type]
    registries = [
        *(scheduler.registry, node.registry, RelayMetrics().registry, SessionMetrics().registry),
        *(MemberMetrics().registry, GatewayMetrics().registry),
    ]
    names = {"troth_ready"}
    for registry in registries:
        for family in registry.collect():
            names |= {family.name + suffix for suffix in SAMPLES[family.type]}
    return frozenset(names)


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
    return list(group["rules"])


def dashboards() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for board in dashboards():
        for variable in board["templating"]["list"]:
            yield board["title"], variable["query"]
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{board['title']}: {panel['title']}", target["expr"]


@pytest.mark.parametrize(("where", "expression"), expressions(), ids=lambda value: value[:40])
def test_every_metric_that_is_named_is_exported(where: str, expression: str, exported: frozenset[str]) -> None:
    named = set(NAME.findall(expression))
    assert named or PROMETHEUS & set(re.findall(r"\w+", expression)), where
    assert named <= exported, where


def test_a_name_that_nobody_exports_is_noticed(exported: frozenset[str]) -> None:
    assert "troth_node_positions_total" in exported
    assert not {"troth_node_positions", "troth_node_happiness"} & exported


def dropped(given: Any, kept: Any, place: str = "") -> Iterator[str]:
    """What of a document is not in another one."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            yield from dropped(value, kept.get(name), f"{place}.{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from dropped(one, other, f"{place}[{number}]")
    elif given != kept:
        yield place


@pytest.mark.parametrize("board", dashboards(), ids=lambda board: board["uid"])
def test_grafanas_own_models_know_every_field_of_a_dashboard(board: dict[str, Any]) -> None:
    """Nobody rendered them; Grafana's models of its schema read them and lose nothing."""
    register_default_plugins()
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
    assert list(dropped(board, kept)) == []
    wrong = board | {"panels": [board["panels"][0] | {"titel": "x"}]}
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(wrong)))
    assert list(dropped(wrong, back)) == [".panels[0].titel"]


@pytest.mark.parametrize("board", dashboards(), ids=lambda board: board["uid"])
def test_panels_have_places_names_and_the_datasource_that_is_provisioned(board: dict[str, Any]) -> None:
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    panels, taken = board["panels"], set[tuple[int, int]]()
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + 8)}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["datasource"] == {"type": source["type"], "uid": source["uid"]}
        for target in panel["targets"]:
            told = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            by = re.search(r"by \(([^)]*)\)", target["expr"])
            if by is not None:
                assert told <= set(by[1].split(", ")), panel["title"]
    assert len({one["uid"] for one in dashboards()}) == len(dashboards()) == 4


def test_the_first_claim_of_a_node_is_an_increase() -> None:
    registry = CollectorRegistry()
    ground, sent = SimpleNamespace(state=SimpleNamespace(tabs={}, pot=lambda *_: 0), block=1), dict[str, int]()
    context: Any = SimpleNamespace(ground=ground, me="")
    keeper: Any = SimpleNamespace(sent=sent)
    duties: Any = SimpleNamespace(responded=0)
    NodeMarketMetrics(registry).follow(context, keeper, duties)
    claims = lambda: registry.get_sample_value("troth_node_own_calls_total", {"call": "claim"})  # noqa: E731
    assert claims() == 0
    sent["claim"] = 1
    assert claims() == 1


def test_readiness_is_a_metric() -> None:
    reasons: list[str] = []
    app = FastAPI()
    app.include_router(health_routes(lambda: reasons, CollectorRegistry()))
    client = TestClient(app)
    assert "\ntroth_ready 1.0\n" in client.get("/metrics").text
    reasons.append("no chain")
    assert "\ntroth_ready 0.0\n" in client.get("/metrics").text


def test_a_gauge_that_readiness_brings_up_to_now_is_read_at_that_scrape() -> None:
    """A relay's are: whoever reads metrics alone would be one scrape behind."""
    registry = CollectorRegistry()
    gauge, values = Gauge("looks", "How often somebody looked.", registry=registry), [1, 2]

    def reasons() -> list[str]:
        gauge.set(values.pop(0))
        return []

    app = FastAPI()
    app.include_router(health_routes(reasons, registry))
    client = TestClient(app)
    assert "\nlooks 1.0\n" in client.get("/metrics").text
    assert "\nlooks 2.0\n" in client.get("/metrics").text


def test_every_alert_says_what_to_do() -> None:
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "remedy"}, rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_promtool_accepts_rules_and_their_tests() -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    for words in (
        ("check", "rules", "rules.yml"),
        ("test", "rules", "rules_test.yml"),
        ("check", "config", "prometheus.yml"),
    ):
        done = subprocess.run(
            [tool, *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    units = sorted((DEPLOY / "systemd").glob("*.service"))
    assert len(units) == 5
    program = tmp_path / "opt" / "troth" / "bin" / "troth"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    there = tmp_path / "etc" / "systemd" / "system"
    there.mkdir(parents=True)
    for unit in units:
        shutil.copy(unit, there)
    words = ["verify", f"--root={tmp_path}", "--recursive-errors=no", *(str(there / unit.name) for unit in units)]
    done = subprocess.run([tool, *words], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("party", ["node", "scheduler"])
def test_systemd_does_not_start_a_second_process_of_one_key_again(party: str) -> None:
    """It would wait until the first one is away for a moment, and then serve beside it from an older folder."""
    unit = (DEPLOY / "systemd" / f"troth-{party}.service").read_text()
    (codes,) = re.findall("^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    (restart,) = re.findall("^Restart=(.*)$", unit, re.MULTILINE)
    ended = describe(KeyInUse("Another process serves with this key", "https://here", "Stop one.")).exit_code
    other = describe(ChannelUnavailable("No connection", "https://here", "Try again.")).exit_code
    assert (restart, str(ended) in codes.split(), str(other) in codes.split()) == ("on-failure", True, False)


def entry_point() -> list[str]:
    """What a container of our image starts."""
    (line,) = re.findall("^ENTRYPOINT (.*)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    return list(json.loads(line))


def test_compose_names_files_that_exist_and_commands_that_there_are() -> None:
    from troth.command.plugins import load, plugins

    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    assert {"node", "scheduler", "relay", "committee", "watcher", "prometheus", "grafana"} == set(services)
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".."):
                assert (DEPLOY / "compose" / source).resolve().exists(), (name, source)
        words = service.get("command", [])
        if words:
            # A command comes after the image's entry point and does not replace it.
            assert entry_point() == ["troth"]
            group: Any = load(plugins()[words[0]])
            assert words[1] in group.commands, words
    for name in ("node", "scheduler", "relay", "committee", "prometheus", "grafana"):
        assert "healthcheck" in services[name], name


def test_a_health_check_asks_this_machine_alone() -> None:
    assert "not on this machine" in probe.probe("https://example.org/livez")
    assert "not on this machine" in probe.probe("file:///etc/passwd")
    assert probe.probe("http://127.0.0.1:1/livez")
