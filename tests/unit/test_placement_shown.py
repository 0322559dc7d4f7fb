"""The placement as `troth scheduler status` prints it: a line a node, whatever the number of ways between them."""

from __future__ import annotations

from troth.protocol.amounts import lines
from troth.scheduler.pool.showing import brief


def test_a_node_is_a_line_and_ways_are_counted() -> None:
    names = [f"0x{number:040x}" for number in range(11)]
    node = {
        "device": "cpu",
        "slice": [0, 30],
        "serving": [0, 15],
        "planned": [0, 30],
        "groups": [[0, 30]],
        "layer_milliseconds": 2.5,
        "round_trip_milliseconds": 1.2,
        "cache_tokens": 46603,
        "running": 2,
        "movable": False,
    }
    links = [{"from": one, "to": other, "milliseconds": 1.0} for one in names for other in names if one != other]
    nodes = [{"operator": name, **node} for name in names[:-1]] + [{"operator": names[-1], **node, "serving": None}]
    one = {"layers": 30, "ends": [15, 30], "planned_ends": [30], "nodes": nodes, "links": links}
    shown = list(lines(brief({"0xclass": one})))
    assert len(shown) == 1 + 3 + len(names) + 1
    assert shown[4].endswith(f"{names[0]}: layers 0:15 of 0:30, cpu, 2.5 ms a layer, 1.2 ms away, 2 running")
    assert "layers none of 0:30" in shown[-2]
    assert shown[-1].endswith("110 measured; --json lists them")
