"""The nodes as a scheduler reaches them: one channel each, and what is remembered of their speed and failures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from troth.protocol.types import Address
from troth.scheduler.nodes.texts import NodeTexts
from troth.transport.channel import Channel
from troth.transport.errors import ChannelUnavailable, OverlayError
from troth.transport.identity import Operator

log = logging.getLogger(__name__)

REMEMBERED_FAILURE = 30.0
"""Seconds for which a node that failed is only taken if there is no other: long enough for a restart to be over. Twice
as long after each failure that follows without an answer between."""
MOST_FAILURES = 6
"""In a row that are told apart: a node is avoided for 16 minutes at most."""
FORGOTTEN_SECONDS = 600.0
"""After which a node that is wanted no more is forgotten: a list of nodes that was short for a moment costs nothing."""
_LONGEST_FAILURE = 300
COUNTS_SECONDS = 600.0
"""How long the same counts of draws are told. Newer ones would tell everybody which node serves the order that a
watched connection has just sent."""
SMOOTHING = 0.2
"""Weight of the newest latency in the running mean."""
FAST = 0.01
"""Seconds for a token that nobody is quicker than, and that an untried node counts as: it has a share of what comes at
once, and not all."""


@dataclass(frozen=True, slots=True)
class NodeContact:
    """Where a node is reached, and the TLS key that it must show."""

    endpoint: str
    tls_key_hash: bytes


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """What came of trying to reach a node, and how often it was drawn and chosen since the start."""

    connected: bool = False
    failure: str = ""
    drawn: int = 0
    chosen: int = 0


@dataclass(slots=True)
class _KnownNode:
    contact: NodeContact
    channel: Channel
    latency: float | None = None
    running: int = 0
    avoided_until: float = float("-inf")
    failures: int = 0
    """In a row."""


class Peers:
    """Channels to nodes, opened on demand and kept.

    Args:
        contact_of: the registered endpoint of an operator, or None if it has none (any more).
    """

    def __init__(
        self,
        operator: Operator,
        contact_of: Callable[[Address], NodeContact | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._operator = operator
        self._contact_of = contact_of
        self._monotonic = monotonic
        self._known: dict[Address, _KnownNode] = {}
        self._texts: dict[Address, NodeTexts] = {}
        self._away: dict[Address, str] = {}
        self._wanted_at: dict[Address, float] = {}
        self._drawn: Counter[Address] = Counter()
        self._chosen: Counter[Address] = Counter()
        self._told: tuple[Counter[Address], Counter[Address]] = Counter(), Counter()
        self._told_until = float("-inf")
        self._closing: set[asyncio.Task[None]] = set()

    def channel(self, node: Address) -> Channel:
        """The channel to a node, a new one if its endpoint moved; raises ChannelUnavailable if it has none."""
        contact = self._contact_of(node)
        if contact is None:
            raise ChannelUnavailable(f"{node} has no registered endpoint")
        known = self._known.get(node)
        if known is None or known.contact != contact:
            if known is not None:
                self._close_later(known.channel)
            channel = Channel(contact.endpoint, contact.tls_key_hash, self._operator, node)
            known = self._known[node] = _KnownNode(contact, channel)
        return known.channel

    def texts(self, node: Address) -> NodeTexts:
        """The texts that a node writes alone."""
        if node not in self._texts:
            self._texts[node] = NodeTexts(lambda: self.channel(node))
        return self._texts[node]

    async def warm(self, nodes: Iterable[Address], seconds: float) -> None:
        """Try for at most `seconds` to be connected with all `nodes`; who is not is remembered as failed.

        Who is wanted no more is forgotten after a while.
        """
        wanted = set(nodes)
        self._forget_who_left(wanted)
        self._away = {node: why for node, why in self._away.items() if node in wanted}
        waiting = [asyncio.create_task(self._connect(node)) for node in wanted]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=seconds)
            for task in late:
                task.cancel()

    def _forget_who_left(self, wanted: Collection[Address]) -> None:
        """Let go of nodes that have served nothing here for a while, unless something of theirs is under way: who joins
        and leaves would be remembered for ever."""
        now = self._monotonic()
        remembered = {*self._known, *self._texts, *self._drawn, *self._chosen}
        self._wanted_at = {node: now if node in wanted else self._wanted_at.get(node, now) for node in remembered}
        for node, at in self._wanted_at.items():
            if now - at <= FORGOTTEN_SECONDS or not self._is_idle(node):
                continue
            for kept in (self._drawn, self._chosen, self._texts):
                kept.pop(node, None)
            if (known := self._known.pop(node, None)) is not None:
                self._close_later(known.channel)

    def _is_idle(self, node: Address) -> bool:
        known, texts = self._known.get(node), self._texts.get(node)
        return (known is None or known.channel.idle) and (texts is None or texts.idle)

    async def _connect(self, node: Address) -> None:
        try:
            await self.channel(node).open()
        except OverlayError as error:
            # Tried every few seconds: said once, or a node that stays away fills the log.
            if node not in self._away:
                log.warning("%s is not reachable, and is tried again quietly: %s", node, error)
            self._away[node] = str(error)[:_LONGEST_FAILURE]
            self._avoid(node, REMEMBERED_FAILURE)
        else:
            if node in self._away:
                log.info("%s is reachable again", node)
                del self._away[node]

    def note_latency(self, node: Address, seconds: float) -> None:
        """Remember how long a node took for one token."""
        known = self._known.get(node)
        if known is not None:
            old = known.latency
            known.latency = seconds if old is None else old + SMOOTHING * (seconds - old)

    def note_failure(self, node: Address) -> None:
        """Remember that an order failed at a node just now."""
        known = self._known.get(node)
        if known is not None:
            if not known.failures or not self.failed_lately(node):
                # What fails together is one failure: a restart ends all orders of a node at once.
                known.failures = min(known.failures + 1, MOST_FAILURES)
            self._avoid(node, REMEMBERED_FAILURE * 2 ** (known.failures - 1))

    def note_answer(self, node: Address) -> None:
        """An order of its was answered: its failures are over."""
        known = self._known.get(node)
        if known is not None:
            known.failures = 0

    def _avoid(self, node: Address, seconds: float) -> None:
        known = self._known.get(node)
        if known is not None:
            known.avoided_until = max(known.avoided_until, self._monotonic() + seconds)

    def failed_lately(self, node: Address) -> bool:
        """Whether a node failed a while ago, and has not made up for it."""
        known = self._known.get(node)
        return known is not None and self._monotonic() < known.avoided_until

    @contextmanager
    def at_work(self, nodes: Iterable[Address]) -> Iterator[None]:
        """While these nodes serve one more order."""
        serving = [known for node in nodes if (known := self._known.get(node)) is not None]
        for known in serving:
            known.running += 1
        try:
            yield
        finally:
            for known in serving:
                known.running -= 1

    def preference(self, node: Address) -> tuple[bool, bool, float, int]:
        """Sort key: who did not fail lately, then who is connected, then who was fast for as much as it does now, then
        who does less; the untried count as fast."""
        known = self._known.get(node)
        if known is None:
            return (False, True, FAST, 0)
        expected = max(known.latency or 0.0, FAST) * (1 + known.running)
        return (self.failed_lately(node), not known.channel.connected, expected, known.running)

    def note_draw(self, drawn: Iterable[Address], chosen: Iterable[Address]) -> None:
        """Count who was drawn to infer, and who of them was chosen."""
        self._drawn.update(drawn)
        self._chosen.update(chosen)

    def seen(self, node: Address) -> NodeSeen:
        """What may be told of a node, reached or not; its draws as they were up to ``COUNTS_SECONDS`` ago."""
        if self._monotonic() >= self._told_until:
            self._told = self._drawn.copy(), self._chosen.copy()
            self._told_until = self._monotonic() + COUNTS_SECONDS
        drawn, chosen = self._told
        known = self._known.get(node)
        connected = known is not None and known.channel.connected
        return NodeSeen(connected, self._away.get(node, ""), drawn[node], chosen[node])

    async def close(self) -> None:
        """Close every channel."""
        await asyncio.gather(*[texts.close() for texts in self._texts.values()])
        await asyncio.gather(*[known.channel.close() for known in self._known.values()], *self._closing)
        self._known.clear()

    def _close_later(self, channel: Channel) -> None:
        task = asyncio.create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
