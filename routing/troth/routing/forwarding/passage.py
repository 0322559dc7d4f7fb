"""One request at its entry node: forwarded at most once, never in a circle, refused with a time to come back.

A node takes a request from a user (it is the entry) or from a node (marked as forwarded). Only an entry forwards. A
node that answers "busy" has not taken the request: the entry chooses once more, without it, and then refuses. A node
that takes the mark off can play the user towards a third; each honest node still forwards a request once, and one that
comes back to a node that had it is refused.

A running entry sends no request on, since the scheduler's draw decides who serves: it calls `admitted` and `ended`.
`enter`, `busy` and `take` are research figures (`scripts/bench forwarding real`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from troth.routing.forwarding.forwarder import Forwarder
from troth.routing.prefixes.update import NodeLoad

MOST_PRESSURE: Final = 8.0
"""Requests over capacity at which a node is full, by its own exact count."""
CHOICES: Final = 2
"""Nodes asked for one request."""
MOST_REMEMBERED: Final = 65_536
MEMORY: Final = 600.0
"""Seconds that a request is remembered: longer than one may take."""
LONGEST_RETRY: Final = 60.0


class PassageAction(Enum):
    """What happens next with a request."""

    SERVE = "serve"
    FORWARD = "forward"
    OVERLOADED = "overloaded"
    """Refused: come back after `retry_after`."""
    CIRCLE = "circle"
    """Refused: this node had it already."""


@dataclass(frozen=True, slots=True)
class PassageStep:
    """`to`: where to forward; `tokens` of the prompt believed to be there; `retry_after` in seconds where refused."""

    way: PassageAction
    to: str = ""
    tokens: int = 0
    retry_after: float = 0.0


@dataclass(slots=True)
class _OpenRequest:
    path: tuple[tuple[int, int], ...]
    tokens: int
    candidates: tuple[str, ...]
    asked: tuple[str, ...]


class Passage:
    """Keeps who was asked for which request; bounded.

    Args:
        own: this node's name among the candidates.
        forwarder: chooses.
    """

    def __init__(self, own: str, forwarder: Forwarder) -> None:
        self._own, self._forwarder = own, forwarder
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._open: OrderedDict[bytes, _OpenRequest] = OrderedDict()
        self.taken = 0
        """Requests that this node took to serve, from users and from nodes, modulo 2³²: what its load says."""

    def enter(
        self, request: bytes, path: Iterable[tuple[int, int]], tokens: int, candidates: Iterable[str], now: float
    ) -> PassageStep:
        """A user's request enters here. `request` names it; `candidates` are those that its draw allows."""
        if not self._first(request, now):
            return PassageStep(PassageAction.CIRCLE)
        self._remember(request, _OpenRequest(tuple(path), tokens, tuple(dict.fromkeys(candidates)), ()), now)
        return self._next(request, now)

    def admitted(
        self, request: bytes, path: Iterable[tuple[int, int]], tokens: int, node: str, now: float
    ) -> PassageStep:
        """A user's request entered here and a draw gave it to this node, which is counted also where it is full.

        One that is counted already, since its user asks again while it is served, is a circle.
        """
        if request in self._open:
            return PassageStep(PassageAction.CIRCLE)
        path = tuple(path)
        held = self._forwarder.admitted(path, tokens, node, now)
        if held is None:
            return PassageStep(PassageAction.OVERLOADED, retry_after=LONGEST_RETRY)
        self._remember(request, _OpenRequest(path, tokens, (node,), (node,)), now)
        return self._serve(node, held) if node == self._own else PassageStep(PassageAction.FORWARD, node, held)

    def take(self, request: bytes, load: NodeLoad, now: float) -> PassageStep:
        """A node forwarded this request to us. `load` is our own, exact; the request is not in it."""
        if not self._first(request, now):
            return PassageStep(PassageAction.CIRCLE)
        if load.queued + load.running >= MOST_PRESSURE * load.capacity:
            self._seen.pop(request)  # Not taken: the user may find the way here later.
            return PassageStep(PassageAction.OVERLOADED, retry_after=retry_after(load))
        return self._serve()

    def busy(self, request: bytes, name: str, load: NodeLoad | None, now: float) -> PassageStep:
        """The node that we forwarded to did not take it: it is full (`load` its word), or did not answer (None)."""
        self._forwarder.ended(name, now)
        if load is not None:
            self._forwarder.reported(name, load, now)
        if request not in self._open or self._open[request].asked[-1:] != (name,):
            return PassageStep(PassageAction.CIRCLE)
        return self._next(request, now)

    def ended(self, request: bytes, now: float, seconds: float | None = None) -> None:
        """A request that entered here is over, answered after `seconds` or not."""
        opened = self._open.pop(request, None)
        if opened is not None and opened.asked:
            self._forwarder.ended(opened.asked[-1], now, seconds)

    def _remember(self, request: bytes, opened: _OpenRequest, now: float) -> None:
        self._open[request] = opened
        if len(self._open) > MOST_REMEMBERED:
            _, oldest = self._open.popitem(last=False)
            if oldest.asked:
                self._forwarder.ended(oldest.asked[-1], now)  # else it would be there for ever

    def _next(self, request: bytes, now: float) -> PassageStep:
        opened = self._open[request]
        left = [name for name in opened.candidates if name not in opened.asked]
        choice = None
        if len(opened.asked) < CHOICES:
            choice = self._forwarder.choose(opened.path, opened.tokens, left, now)
        if choice is None:
            self._open.pop(request)
            self._seen.pop(request, None)
            loads = [standing.load for standing in self._forwarder.standings(opened.candidates, now)]
            return PassageStep(
                PassageAction.OVERLOADED, retry_after=min(map(retry_after, loads), default=LONGEST_RETRY)
            )
        opened.asked = (*opened.asked, choice.name)
        if choice.name == self._own:
            return self._serve(self._own, choice.tokens)
        return PassageStep(PassageAction.FORWARD, choice.name, choice.tokens)

    def _serve(self, to: str = "", tokens: int = 0) -> PassageStep:
        self.taken = (self.taken + 1) % 2**32
        return PassageStep(PassageAction.SERVE, to, tokens)

    def _first(self, request: bytes, now: float) -> bool:
        """Whether this request was not here within `MEMORY`."""
        while self._seen and (len(self._seen) >= MOST_REMEMBERED or next(iter(self._seen.values())) < now - MEMORY):
            self._seen.popitem(last=False)
        if request in self._seen:
            return False
        self._seen[request] = now
        return True


def retry_after(load: NodeLoad) -> float:
    """Seconds until a node with this load is likely to take one more: between 1 and `LONGEST_RETRY`."""
    return min(LONGEST_RETRY, max(1.0, load.factor))
