"""`troth demo pool`: three kinds of machines in two regions are placed; one of them dies in the middle of an answer.

A placement is shown as lanes: one line per node, one column per layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from troth.client.orders.updates import OrderOutcome
from troth.testnet.asking import Answered, Asker
from troth.testnet.display import Display
from troth.testnet.errors import demand
from troth.testnet.parties import NetworkPlan
from troth.testnet.pool import Hardware, PoolNetwork
from troth.testnet.processes import wait_until
from troth.testnet.weights import prepare_models

HOSTED, COMING = "█", "░"
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
LAYER_BYTES, EMBEDDING_BYTES = 14_200_000, 115_000_000
KILL_AFTER_PIECES = 3
MAX_TOKENS = 32
GONE_SECONDS = 60.0


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


def room(layers: int) -> int:
    """Bytes for so many layers of SmolLM2-135M in float32, with the embedding or the head."""
    return layers * LAYER_BYTES + EMBEDDING_BYTES


KINDS = (
    (8, Hardware("large, near", room(30))),
    (2, Hardware("half, near, 2x slower", room(15), slowdown=2.0)),
    (2, Hardware("half, 3x slower, 40 ms away", room(15), slowdown=3.0, way_seconds=0.04)),
)
"""How many of each: every layer has ten hosts, one more than the k + 6 owners without whom a check says little."""


@dataclass(slots=True)
class Killer:
    """Kills the node that serves the last segment once the answer has begun."""

    network: PoolNetwork
    display: Display
    killed: str = ""

    def heard(self, answered: Answered, piece: str) -> None:
        """A piece of the answer has come."""
        self.display.piece(piece)
        if answered.pieces != KILL_AFTER_PIECES or self.killed:
            return
        party = self.network.node_of(answered.nodes[-1][-1])
        if party.child is not None:
            party.child.process.kill()
        self.killed = party.name
        self.display.line()
        self.display.step(f"kill -9 node {party.name}, which serves the last segment")


def play(folder: Path, models: Path, display: Display, question: str, expected: str) -> None:
    """Run everything below `folder`; processes end whatever happens.

    Raises:
        DemoError: something that must happen did not.
    """
    plan = NetworkPlan(slices=((0, 30),), nodes_per_slice=sum(count for count, _ in KINDS))
    prepare_models(models, plan, display)
    kinds = [kind for count, kind in KINDS for _ in range(count)]
    hardware = dict(zip(plan.node_names, kinds, strict=True))
    with PoolNetwork(folder / "network", models, plan, report=display.step, hardware=hardware) as network:
        display.console.rule("[bold]Machines that know their memory and their scheduler", align="left")
        network.start()
        show(network, display, network.wait_placed())
        display.act(1, "A node dies in the middle of an answer")
        asker = Asker(network)
        opened = asker.open_tab()
        display.step(f"a tab with the scheduler ({opened['gas']:,} gas); question: {question}")
        killer = Killer(network, display)
        answered = asker.ask([{"role": "user", "content": question}], MAX_TOKENS, killer.heard)
        display.line()
        _demand(answered, killer, expected)
        display.good(
            f"node {killer.killed} was killed; the question was ordered anew, the answer goes on where it broke off, "
            "and its rest is checked"
        )
        display.act(2, "Its layers are free, and the others close the gap")
        wait_until(
            lambda: len(network.placement()["nodes"]) == len(kinds) - 1, "the node's report expiring", GONE_SECONDS
        )
        show(network, display, network.placement())
        display.good(f"done in {display.seconds:.0f} s")


def show(network: PoolNetwork, display: Display, shown: Mapping[str, Any]) -> None:
    """The placement as lanes, with what the scheduler says of it."""
    names = {node.operator: node.name for node in network.nodes.values()}
    kinds = {node.operator: network.hardware[node.name].name for node in network.nodes.values()}
    display.console.print(lanes(shown, names, kinds))
    ends = ", ".join(str(end) for end in shown["ends"])
    display.step(f"segments end at {ends}; each needs {shown['parties']} nodes. {shown['lacking']}".strip())


def _demand(answered: Answered, killer: Killer, expected: str) -> None:
    demand(bool(killer.killed), "a node is killed in the middle of the answer", answered.pieces)
    demand(answered.anew == 1, "the question is ordered anew once", answered.anew)
    demand(answered.outcome is OrderOutcome.CHECKED, "the rest of the answer is checked", answered.outcome)
    demand(expected.lower() in answered.text.lower(), f"the answer names {expected}", answered.text)
