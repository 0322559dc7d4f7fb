"""Ways from a scheduler to its toy nodes, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from support.toy_tab_node import ToyTabNode

from troth.protocol.types import Address
from troth.protocol.wire import Frame, decode_frame, encode_frame
from troth.scheduler.nodes.peers import NodeSeen
from troth.scheduler.nodes.texts import NodeTexts
from troth.transport.errors import ChannelTimeout, ChannelUnavailable, OverlayError


class ToyWay:
    """The channel to a toy node, without a network."""

    connected = True
    endpoint = "https://toy"

    def __init__(self, node: ToyTabNode) -> None:
        self._node = node

    async def open(self, wait: float = 0.0) -> None:
        """It stands."""

    async def round_trip(self, timeout: float) -> float:
        raise ChannelTimeout("The node gives no sign of life")

    async def request(self, header: Any, payload: bytes | memoryview = b"", timeout: float | None = None) -> Frame:
        asked = decode_frame(encode_frame(header, payload))
        try:
            async with asyncio.timeout(timeout):
                reply, data = await self._node.handle(asked.header, asked.payload)
        except TimeoutError as error:
            raise ChannelTimeout("The node did not answer") from error
        except (AssertionError, KeyError) as error:
            raise OverlayError("The node refuses", repr(error)[:200], "See the toy node.") from error
        return decode_frame(encode_frame(reply, data))


class ToyPeers:
    """Stands for ``peers.Peers``."""

    def __init__(self, nodes: dict[Address, ToyTabNode]) -> None:
        self._nodes = nodes
        self._texts: dict[Address, NodeTexts] = {}
        self.failed: set[Address] = set()
        self.draws: list[tuple[frozenset[Address], tuple[Address, ...]]] = []
        self.preferred: list[Address] = []

    def channel(self, node: Address) -> ToyWay:
        if node not in self._nodes:
            raise ChannelUnavailable(f"{node} has no registered endpoint")
        return ToyWay(self._nodes[node])

    def texts(self, node: Address) -> NodeTexts:
        way: Any = lambda: self.channel(node)  # noqa: E731
        return self._texts.setdefault(node, NodeTexts(way))

    def failed_lately(self, node: Address) -> bool:
        return node in self.failed

    def preference(self, node: Address) -> tuple[bool, int]:
        return (node not in self.preferred, 0)

    def note_answer(self, node: Address) -> None:
        self.failed.discard(node)

    def note_failure(self, node: Address) -> None:
        self.failed.add(node)

    def note_latency(self, node: Address, seconds: float) -> None:
        pass

    @contextmanager
    def at_work(self, nodes: Iterable[Address]) -> Iterator[None]:
        yield

    def note_draw(self, drawn: Iterable[Address], chosen: Iterable[Address]) -> None:
        self.draws.append((frozenset(drawn), tuple(chosen)))

    def seen(self, node: Address) -> NodeSeen:
        drawn = sum(node in found for found, _ in self.draws)
        chosen = sum(node in found for _, found in self.draws)
        return NodeSeen(node in self._nodes, "" if node in self._nodes else "connection refused", drawn, chosen)
