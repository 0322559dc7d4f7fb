"""A placement as lanes: one line per node, one column per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

HOSTED, COMING = "█", "░"
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


def lanes(shown: Mapping[str, Any], names: Mapping[str, str], kinds: Mapping[str, str]) -> Table:
    """What GET /v1/placement says of a class; `names` and `kinds` of the nodes by operator.

    A block is a layer that a node hosts by the chain, a light one a layer that it has been told to host. Bars above the
    lanes are where segments end.
    """
    layers, ends = int(shown["layers"]), list(shown["ends"])
    table = Table(title="placement", title_justify="left", pad_edge=False)
    for column in ("node", "machine", _ruler(layers, ends), "ms a layer", "way ms", "running"):
        table.add_column(column, no_wrap=True)
    colours = {kind: COLOURS[place % len(COLOURS)] for place, kind in enumerate(sorted(set(kinds.values())))}
    for lane in shown["nodes"]:
        kind = kinds.get(lane["operator"], "")
        table.add_row(
            names.get(lane["operator"], lane["operator"][:10]),
            kind,
            Text(_lane(layers, lane), style=colours.get(kind, "")),
            f"{lane['layer_milliseconds']:.2f}",
            f"{lane['round_trip_milliseconds']:.0f}",
            str(lane["running"]),
        )
    return table


def _ruler(layers: int, ends: Sequence[int]) -> str:
    return "".join("|" if layer + 1 in ends else "·" for layer in range(layers))


def _lane(layers: int, lane: Mapping[str, Any]) -> str:
    first, end = lane["slice"]
    coming = lane["planned"] or lane["slice"]
    return "".join(
        HOSTED if first <= layer < end else COMING if coming[0] <= layer < coming[1] else " " for layer in range(layers)
    )
