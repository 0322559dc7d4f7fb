"""Two gateways of one network, one of them over the overlay, and whether each really goes the way that it says.

Nobody's word is taken for it. The kernel knows whom a gateway is connected to, and relays count what they hand on.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psutil

from troth.demo.stage import DemoClient, DemoStage, open_client, start_gateway
from troth.testnet.gateway import LocalGateway

HIDDEN, OPEN = "with overlay", "without overlay"
NO_OWN_RELAY = "--no-relay"
"""What strangers have carried here would be counted as this benchmark's."""


class WrongWay(RuntimeError):
    """A question went another way than the row that it is counted in says."""


@dataclass(slots=True)
class Way:
    """One client with its gateway. ``messages``: what relays handed on in each question, all of them together.

    ``seen``: whether its gateway was connected to the scheduler while the last answer came, and to how many relays.
    """

    name: str
    stage: DemoStage
    client: DemoClient
    messages: list[int] = field(default_factory=list)
    seen: tuple[bool, int] = (False, 0)

    @classmethod
    def over_relays(cls, stage: DemoStage) -> Way:
        """The client of the demo, whose tab is open."""
        start_gateway(stage, stage.client, NO_OWN_RELAY)
        return cls(HIDDEN, stage, stage.client)

    @classmethod
    def openly(cls, stage: DemoStage) -> Way:
        """A client of its own, with a tab of its own, that connects to the scheduler."""
        client = DemoClient(stage.network.home / "open-client")
        open_client(stage, client, stage.network.scheduler)
        start_gateway(stage, client, "--overlay", "off", NO_OWN_RELAY)
        return cls(OPEN, stage, client)

    @property
    def gateway(self) -> LocalGateway:
        """Of its client."""
        assert self.client.gateway is not None
        return self.client.gateway

    def relayed(self) -> int:
        """Messages that all relays have handed to destinations until now."""
        assert self.stage.network.overlay is not None
        return self.stage.network.overlay.messages()

    def went(self, before: int) -> None:
        """Of the question just answered, before which relays had handed on ``before``; raises WrongWay."""
        passed, (scheduler, relays) = self.relayed() - before, self.seen
        self.messages.append(passed)
        hidden = self.name == HIDDEN
        if hidden != (passed > 0) or hidden != bool(relays) or hidden == scheduler:
            ends = f"{relays} connections to relays, {'one' if scheduler else 'none'} to the scheduler"
            raise WrongWay(f"a question {self.name}: relays handed on {passed} messages; its gateway has {ends}")

    def said(self) -> str:
        """For the row's note."""
        if self.name == OPEN:
            return "relays handed on nothing"
        return f"relays handed on {statistics.median(self.messages):.0f} messages a question"

    def look(self) -> None:
        """Whom its gateway is connected to now; connections of an answer that is over are soon closed."""
        network = self.stage.network
        assert network.overlay is not None
        scheduler = urlsplit(network.scheduler.endpoint)
        relays = {relay.endpoint for relay in network.overlay.relays}
        connections = psutil.Process(self.gateway.child.process.pid).net_connections("tcp")
        found = {f"{one.raddr.ip}:{one.raddr.port}" for one in connections if one.raddr}
        self.seen = f"{scheduler.hostname}:{scheduler.port}" in found, len(found & relays)
