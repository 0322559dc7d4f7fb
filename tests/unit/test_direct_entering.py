"""A request's way from its entry: who is asked, and what happens when that node is full, gone or strange."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from troth.node.direct import entering as module
from troth.node.direct.counters import Counters
from troth.node.direct.entering import Entering
from troth.node.direct.order import EnteredOrder
from troth.node.direct.taking import Taking
from troth.overlay.errors import ChannelUnavailable
from troth.overlay.forwarding.decision import Choice, Reason
from troth.overlay.forwarding.passage import Passage
from troth.overlay.hash_radix.load import Load
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_group import LoadPart, Take, Taken, Told

ME, FIRST, SECOND, THIRD = (Address("0x" + digit * 40) for digit in "1234")
TASK, SALT = Hash32(b"t" * 32), Hash32(b"s" * 32)
ORDER = EnteredOrder(b"{}", Hash32(b"c" * 32), (1, 2, 3), 4, SALT, -1)
IDLE = LoadPart(0, 0, 0, 1, 0, 0)


class InOrder:
    """A forwarder that takes the first candidate, and counts what is under way."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def choose(self, path: object, tokens: int, candidates: Iterable[str], now: float) -> Choice | None:
        name = next(iter(candidates), None)
        if name is None:
            return None
        self.open.append(name)
        return Choice(name, 0, Reason.LOAD)

    def standings(self, candidates: object, now: float) -> list[Any]:
        return []

    def ended(self, name: str, now: float, seconds: float | None = None) -> None:
        self.open.remove(name)


class Network:
    """Nodes that answer Take as the test says: Taken's way, another message, an error, or nothing."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Take]] = []
        self.loads: list[str] = []
        self.scheduler = Address("0x" + "5" * 40)
        self.forwarder = InOrder()
        self.registry = CollectorRegistry()
        self.group: Any = SimpleNamespace(
            own=ME, passage=Passage(ME, cast(Any, self.forwarder)), path=lambda tokens: (), load=Load,
            load_part=lambda: IDLE, channel=self.channel, acknowledged=lambda node, *_: self.loads.append(node),
        )  # fmt: skip
        self.taking = Taking(self.group, lambda: False)
        self.entering = Entering(self.group, self.taking, Counters(self.registry))

    def channel(self, node: Address) -> Any:
        answer = self.answers[{FIRST: "first", SECOND: "second", THIRD: "third"}[node]]
        if answer == "unknown":
            raise ChannelUnavailable("no member", node)

        async def request(message: Take) -> Any:
            self.asked.append((node, message))
            if answer == "silent":
                await asyncio.sleep(60)
            if answer == "strange":
                return SimpleNamespace(header=Told(IDLE))
            return SimpleNamespace(header=Taken(answer, IDLE))

        return SimpleNamespace(request=request)

    async def choose(self, *candidates: Address) -> Address | None:
        return await self.entering.choose(ORDER, self.scheduler, TASK, candidates)


async def test_the_node_is_told_no_more_than_the_salt_s_hash() -> None:
    network = Network(first="serve")
    assert await network.choose(FIRST, SECOND) == FIRST
    assert network.asked == [(FIRST, Take(TASK, keccak256(SALT)))]
    assert network.loads == [FIRST]
    network.entering.ended(ORDER, TASK, 1.5)
    assert network.forwarder.open == []


@pytest.mark.parametrize("answer", ["overloaded", "circle", "unknown", "strange", "silent"])
async def test_who_does_not_take_it_is_passed_over_once(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASKING_SECONDS", 0.05)
    network = Network(first=answer, second="serve")
    assert await network.choose(FIRST, SECOND) == SECOND
    assert network.forwarder.open == [SECOND]
    reason = answer if answer in {"overloaded", "circle"} else "unreachable"
    assert network.registry.get_sample_value("troth_node_entry_busy_total", {"reason": reason}) == 1


async def test_two_are_asked_and_then_the_scheduler_chooses() -> None:
    network = Network(first="overloaded", second="overloaded", third="serve")
    assert await network.choose(FIRST, SECOND, THIRD) is None
    assert [node for node, _ in network.asked] == [FIRST, SECOND]
    network.entering.ended(ORDER, TASK, None)
    assert network.forwarder.open == []


async def test_this_node_asks_nobody_and_awaits_the_task_itself() -> None:
    network = Network()
    assert await network.choose(ME, FIRST) == ME
    assert network.taking.expects(TASK, SALT)
    assert network.asked == []


async def test_an_order_that_was_here_is_not_sent_round_again() -> None:
    network = Network(first="serve")
    assert await network.choose(FIRST) == FIRST
    assert await network.choose(FIRST) is None
    assert len(network.asked) == 1
    # Nor is it taken from another node: that would be a circle.
    assert network.taking.take(SECOND, Take(TASK, keccak256(SALT))).way == "circle"


async def test_who_contradicted_a_scheduler_is_not_chosen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(first="serve", second="serve")
    network.entering.contradicted(network.scheduler, FIRST)
    assert await network.choose(FIRST, SECOND) == SECOND
    # One scheduler's word does not take a node from the others.
    network.entering.ended(ORDER, TASK, None)
    network.scheduler, network.group.passage = THIRD, Passage(ME, cast(Any, network.forwarder))
    assert await network.choose(FIRST, SECOND) == FIRST
    monkeypatch.setattr(module, "MOST_AVOIDED", 1)
    network.entering.contradicted(THIRD, FIRST)
    network.entering.contradicted(THIRD, SECOND)
    network.group.passage = Passage(ME, cast(Any, network.forwarder))
    assert await network.choose(FIRST, SECOND) == FIRST
