"""The table of measurements: what expires, and what a replayed, reordered, nonsensical or endless report does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from troth.routing.pipelines.graph import PipelineHost
from troth.routing.pipelines.live_map import LiveMap, MachineReport

HOST = PipelineHost("a", 0, 2, 0.5, 100)
OTHER = PipelineHost("b", 2, 4, 0.5, 100)


def two() -> LiveMap:
    table = LiveMap(expiry_seconds=5)
    assert table.report(MachineReport(1, HOST), 0)
    assert table.report(MachineReport(1, OTHER), 0)
    return table


def test_reports_expire_and_come_back() -> None:
    table = two()
    assert table.report(MachineReport(2, HOST), 4)
    assert [host.name for host in table.graph(4, 5).hosts] == ["a", "b"]
    assert [host.name for host in table.graph(4, 6).hosts] == ["a"]
    assert table.report(MachineReport(2, OTHER), 7)
    assert [host.name for host in table.graph(4, 7).hosts] == ["a", "b"]


def test_links_expire_by_themselves() -> None:
    table = two()
    assert table.link("a", "b", 0.1, 0)
    assert table.links(5)["a", "b"] == 0.1
    assert table.report(MachineReport(2, HOST), 5)
    assert table.report(MachineReport(2, OTHER), 5)
    assert not table.links(6)


@pytest.mark.parametrize("sequence", [0, 1])
def test_replayed_and_overtaken_reports_are_refused(sequence: int) -> None:
    table = two()
    assert not table.report(MachineReport(sequence, replace(HOST, layer_seconds=0.01)), 1)
    assert table.graph(4, 1).hosts[0].layer_seconds == 0.5


def test_an_old_report_does_not_bring_back_a_machine_that_left() -> None:
    table = two()
    table.link("a", "b", 0.1, 0)
    table.forget("a")
    assert not table.report(MachineReport(1, HOST), 1)
    assert [host.name for host in table.graph(4, 1).hosts] == ["b"]
    assert table.report(MachineReport(2, HOST), 1)
    assert not table.links(1)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0])
def test_times_that_are_none_are_refused(nonsense: float) -> None:
    table = two()
    assert not table.report(MachineReport(9, replace(HOST, layer_seconds=nonsense)), 1)
    assert not table.report(MachineReport(9, replace(HOST, entry_seconds=nonsense)), 1)
    assert not table.link("a", "b", nonsense, 1)
    assert not table.report(MachineReport(9, replace(HOST, layer_seconds=0.0)), 1)


def test_strangers_and_oneself_have_no_links() -> None:
    table = two()
    assert not table.link("a", "stranger", 0.1, 0)
    assert not table.link("a", "a", 0.1, 0)


def test_a_full_table_takes_expired_places_only() -> None:
    table = LiveMap(expiry_seconds=5, most_nodes=2)
    assert table.report(MachineReport(1, HOST), 0)
    assert table.report(MachineReport(1, OTHER), 3)
    assert not table.report(MachineReport(1, replace(HOST, name="c")), 4)
    assert table.report(MachineReport(1, replace(HOST, name="c")), 6)
    assert [host.name for host in table.graph(4, 6).hosts] == ["b", "c"]
    for number in range(100):
        table.report(MachineReport(1, replace(HOST, name=str(number))), 10.0 * number)
    assert table.size <= 2


def test_by_the_scheduler_a_hop_is_out_of_one_and_into_the_next() -> None:
    table = LiveMap()
    table.report(MachineReport(1, replace(HOST, exit_seconds=0.1)), 0)
    table.report(MachineReport(1, replace(OTHER, entry_seconds=0.02)), 0)
    assert math.isclose(table.graph(4, 0).links[0, 1], 0.12)


def test_an_empty_table_is_a_graph_of_nobody() -> None:
    assert LiveMap().graph(4, 0).uncovered == 0
