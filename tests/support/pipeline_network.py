"""A network on tabs whose nodes each hold two thirds of a model, or its ends: three segments, nine owners in each."""

from __future__ import annotations

from dataclasses import dataclass

from troth.testnet.anvil import fund
from troth.testnet.network import FAVOURED_SEATS, NODE_SHARE, PRICES, SEATS, LocalNetwork
from troth.testnet.parties import ETHER, NetworkPlan, PartyProcess
from troth.testnet.ports import free_port

SEGMENTS = ((0, 10), (10, 20), (20, 30))
KINDS = ((0, 1),) * 5 + ((1, 2),) * 5 + ((0, 2),) * 4
"""The segments of each node."""


def pipeline_plan() -> NetworkPlan:
    return NetworkPlan(slices=((0, 30),), nodes_per_slice=len(KINDS))


@dataclass(slots=True)
class PipelineNetwork(LocalNetwork):
    """``favoured`` is drawn more often than the others."""

    favoured: str = "a6"

    def segments_of(self, name: str) -> tuple[tuple[int, int], ...]:
        return tuple(SEGMENTS[one] for one in KINDS[int(name[1:]) - 1])

    def _ends(self) -> str:
        return ",".join(str(end) for _, end in SEGMENTS)

    def _set_up_node(self, node: PartyProcess) -> None:
        segments = self.segments_of(node.name)
        spans = [f"{first}:{end}" for first, end in segments]
        made = self._troth(
            *("node", "init", "--home", node.home, "--rpc", self.rpc, "--factory", self.factory),
            *("--class", self.execution_class, "--model", self.models / "models" / self.plan.model),
            *("--slice", f"{segments[0][0]}:{segments[-1][1]}", "--segments", ",".join(spans)),
            *("--port", free_port(), "--threads", 1, "--import-key", self._operator_key(node.home)),
        )
        node.operator, node.endpoint = made["operator"], made["endpoint"]
        fund(self.rpc, node.operator, ETHER)
        self.account(self.owner_of(node))
        seats = FAVOURED_SEATS if node.name == self.favoured else SEATS
        ask = ",".join(str(price * NODE_SHARE // 10 // len(SEGMENTS)) for price in PRICES)
        self._troth(
            *("node", "register", "--home", node.home, *self._owned(node)),
            *("--stake", f"{int(self.execution['class']['seat_units']) * seats}units", "--ask", ask, "--broadcast"),
        )
