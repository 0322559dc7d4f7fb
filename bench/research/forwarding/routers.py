"""Who serves a request, simulated: routers that see everything at once, and nodes that forward among themselves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from research.forwarding.clock import Clock
from research.forwarding.engine import Engine, Job
from research.forwarding.workloads import Request
from troth.routing.forwarding.decision import Candidate, ChoiceReason, Policy, ServingChoice
from troth.routing.forwarding.forwarder import Forwarder
from troth.routing.prefixes.announcing import BURST, INTERVAL, SOONEST, Announcer
from troth.routing.prefixes.following import UpdateFate
from troth.routing.prefixes.local_blocks import BlocksStored, KvEvent, LocalBlocks
from troth.routing.prefixes.members import LARGEST_GROUP, split
from troth.routing.prefixes.naming import Naming
from troth.routing.prefixes.tree import Matches
from troth.routing.prefixes.update import encode_heartbeat, encode_update
from troth.routing.prefixes.view import GroupView

LOAD_INTERVAL = 1.0
HOP = 0.040
"""Seconds for a request to travel from its entry node to another."""


class Router(Protocol):
    def start(self, engines: Sequence[Engine], clock: Clock) -> None: ...
    def route(self, request: Request, before: int | None) -> tuple[int, float]:
        """(node, seconds until the request is there). `before` served the session's last request."""
        ...

    def told(self, node: int, event: KvEvent) -> None: ...
    def finished(self, job: Job) -> None: ...


class Central:
    """One router that knows every node's load at this moment; no hop is charged. `choose` gets the engines."""

    def __init__(self, choose: Callable[[Sequence[Engine], random.Random, int, int | None], int], seed: int) -> None:
        self._choose, self._chance, self._count = choose, random.Random(seed), 0  # noqa: S311

    def start(self, engines: Sequence[Engine], clock: Clock) -> None:
        self._engines = engines

    def route(self, request: Request, before: int | None) -> tuple[int, float]:
        self._count += 1
        return self._choose(self._engines, self._chance, self._count, before), 0.0

    def told(self, node: int, event: KvEvent) -> None: ...

    def finished(self, job: Job) -> None: ...


def least_loaded(engines: Sequence[Engine], chance: random.Random, count: int, before: int | None) -> int:
    return min(range(len(engines)), key=lambda node: (engines[node].active, chance.random()))


def round_robin(engines: Sequence[Engine], chance: random.Random, count: int, before: int | None) -> int:
    return count % len(engines)


def at_random(engines: Sequence[Engine], chance: random.Random, count: int, before: int | None) -> int:
    return chance.randrange(len(engines))


def no_forwarding(engines: Sequence[Engine], chance: random.Random, count: int, before: int | None) -> int:
    """A user finds any node, and stays with it for a session."""
    return chance.randrange(len(engines)) if before is None else before


class Overlay:
    """Every node decides for the requests that enter at it, by its own view: updates come each 5 s, loads with answers.

    Args:
        policy: the nodes' policy.
        naming: the group's names.
        seed: of ties, entries and the moments at which nodes send.
        tree: False: nobody announces anything and nothing is looked up.
        hop: seconds from node to node.
        load_interval: seconds between a node's words about its load.
        drawn: candidates that each request's draw allows; None: all of the entry's group.
        largest: members of a group.
    """

    def __init__(
        self,
        policy: Policy,
        naming: Naming,
        seed: int,
        *,
        tree: bool = True,
        drawn: int | None = None,
        largest: int = LARGEST_GROUP,
        hop: float = HOP,
        load_interval: float = LOAD_INTERVAL,
    ) -> None:
        self._policy, self._naming, self._seed, self._tree = policy, naming, seed, tree
        self._drawn, self._largest = drawn, largest
        self._hop, self._load_interval = hop, load_interval
        self._chance = random.Random(seed)  # noqa: S311
        self.stored_blocks = self.sent_bytes = self.updates = 0
        self._taken: dict[int, tuple[int, float]] = {}

    def start(self, engines: Sequence[Engine], clock: Clock) -> None:
        self._engines, self._clock = engines, clock
        self._said, self._told = [-SOONEST] * len(engines), [0] * len(engines)
        names = [str(node) for node in range(len(engines))]
        groups = split(dict.fromkeys(names, ""), b"round", self._largest)
        self._group = {int(name): [int(other) for other in group] for group in groups for name in group}
        self._views = [GroupView(self._naming, max(self._largest, 1)) for _ in names]
        self._forwarders = [
            Forwarder(view, self._policy, random.Random(self._seed * 1_000 + node), str(node))  # noqa: S311
            for node, view in enumerate(self._views)
        ]
        self._blocks = [LocalBlocks(self._naming) for _ in names]
        self._announcers = [Announcer(self._naming.identity, 1) for _ in names]
        for node, view in enumerate(self._views):
            view.list_members({str(other): 1.0 for other in self._group[node]}, 0.0)
            for other in self._group[node]:
                view.hear(str(other), engines[other].load, 0.0)
            clock.at(self._chance.random() * INTERVAL, lambda node=node: self._announce(node))
            clock.at(self._chance.random() * self._load_interval, lambda node=node: self._tell_load(node))

    def route(self, request: Request, before: int | None) -> tuple[int, float]:
        entry = self._chance.randrange(len(self._engines)) if before is None else before
        now, forwarder = self._clock.now, self._forwarders[entry]
        forwarder.reported(str(entry), self._engines[entry].load, now)
        allowed = self._group[entry]
        if self._drawn is not None:
            allowed = self._chance.sample(allowed, min(self._drawn, len(allowed)))
        path = request.path if self._tree else ()
        choice = forwarder.choose(path, request.prompt_tokens, [str(node) for node in allowed], now)
        if choice is None:
            raise RuntimeError("a node refused: the rate is above what the network can do")
        node = int(choice.name)
        self._taken[request.number] = entry, now
        if node != entry:
            self._clock.at(now + self._hop + 1e-6, lambda: self._acknowledge(entry, node))
        self._clock.at(now + (0.0 if node == entry else self._hop) + 1e-6, lambda: self._took(node))
        return node, 0.0 if node == entry else self._hop

    def _acknowledge(self, entry: int, node: int) -> None:
        """The node has the request: it says so, with its load, and the entry reads that a hop later."""
        load = self._engines[node].load
        entry_node = self._forwarders[entry]
        self._clock.at(
            self._clock.now + self._hop,
            lambda: entry_node.acknowledged(str(node), load, 2 * self._hop, self._clock.now),
        )

    def _took(self, node: int) -> None:
        """The node has one more request: it says so before its time, if it got many since its last word."""
        self._clock.at(self._said[node] + SOONEST, lambda: self._perhaps_say_load(node))

    def _perhaps_say_load(self, node: int) -> None:
        since = self._clock.now - self._said[node]
        if since + 1e-6 >= SOONEST and self._engines[node].taken - self._told[node] >= BURST:
            self._say_load(node)

    def _tell_load(self, node: int) -> None:
        self._say_load(node)
        self._clock.at(self._clock.now + self._load_interval, lambda: self._tell_load(node))

    def _say_load(self, node: int) -> None:
        self._said[node], self._told[node] = self._clock.now, self._engines[node].taken
        content = encode_heartbeat(self._announcers[node].heartbeat(self._engines[node].load))
        self.sent_bytes += len(content)
        for other in self._group[node]:
            if other != node:
                self._receive(other, node, content)

    def _receive(self, node: int, sender: int, content: bytes) -> None:
        """A node reads an update or a heartbeat; none is lost here, and all are of one array."""
        view, name, now = self._views[node], str(sender), self._clock.now
        if view.receive(name, content, now) is not UpdateFate.REPEATED:
            self._forwarders[node].reported(name, view.members[name].load, now)

    def told(self, node: int, event: KvEvent) -> None:
        if isinstance(event, BlocksStored):
            self.stored_blocks += len(event.hashes)
        if self._tree:
            changes = self._blocks[node].apply(event)
            self._announcers[node].note(changes)
            self._views[node].own(str(node), changes)

    def finished(self, job: Job) -> None:
        entry, sent = self._taken.pop(job.request.number)
        forwarder, now = self._forwarders[entry], self._clock.now
        forwarder.ended(str(job.node), now, now - sent)
        forwarder.reported(str(job.node), self._engines[job.node].load, now)

    def _announce(self, node: int) -> None:
        now = self._clock.now
        content = encode_update(self._announcers[node].next_update(self._engines[node].load))
        self.sent_bytes += len(content)
        self.updates += 1
        for other in self._group[node]:
            if other != node:
                self._receive(other, node, content)
        self._views[node].expire(now)
        self._clock.at(now + INTERVAL, lambda: self._announce(node))


class MatchOnly:
    """Load balancing off: the longest match, wherever it is; without one, anybody."""

    def choose(self, matches: Matches, candidates: Sequence[Candidate], chance: random.Random) -> ServingChoice | None:
        best = max(candidates, key=lambda standing: (matches.held_by(standing.slot), chance.random()))
        return ServingChoice(best.name, matches.held_by(best.slot), ChoiceReason.MATCH)
