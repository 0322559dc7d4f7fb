"""A node's entry in one run: takes users' requests, chooses who serves, forwards once, and relays what is written."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from research.forwarding.real.answers import Answers
from research.forwarding.real.messages import Ask, Refused, Written
from research.forwarding.real.passage import Passage, PassageAction, PassageStep
from research.forwarding.real.policies import Compared
from troth.node.errors import NodeBusy
from troth.node.group.group import Group
from troth.protocol.errors import ProtocolError
from troth.protocol.request import Request, canonical_bytes, from_canonical_bytes
from troth.protocol.types import ZERO_HASH, Address
from troth.protocol.wire_group import Heard, Listen
from troth.transport.errors import OverlayError

ASKING = 20.0
"""Seconds that a node may take to take a request: here all share a few cores."""
LISTENING = 30.0

Say = Callable[[Written | Refused], Awaitable[None]]


class Entry:
    """One node's part in one run.

    Args:
        group: this node's.
        answers: the texts written here.
        compared: the policy and its candidates.
        members: all nodes, in the order of their addresses.
        say: tells the driver.
    """

    def __init__(
        self, group: Group, answers: Answers, compared: Compared, members: Sequence[Address], say: Say
    ) -> None:
        self._group, self._answers, self._compared = group, answers, compared
        self._members, self._say = members, say
        self._passage = Passage(group.own, group.forwarder)

    async def enter(self, ask: Ask) -> None:
        """Answer a user's request, or refuse it."""
        task, begun = ask.number.to_bytes(32, "big"), time.monotonic()
        request = Request(ZERO_HASH, ask.prompt, ask.tokens, 0, 1_000_000, ())
        group = self._group
        candidates = self._compared.candidates(ask.number, group.own, self._members)
        step = self._passage.enter(task, group.path(ask.prompt), len(ask.prompt), candidates, begun)
        while step.way is PassageAction.FORWARD and not await self._takes(Address(step.to), task, request):
            step = self._passage.busy(task, step.to, None, time.monotonic())
        if step.way not in (PassageAction.FORWARD, PassageAction.SERVE):
            await self._say(Refused(ask.number, step.retry_after))
            return
        if step.way is PassageAction.SERVE:
            self._answers.begin(task, request)
        await self._relay(ask, task, step)
        self._passage.ended(task, time.monotonic(), time.monotonic() - begun)

    def take(self, message: Listen, payload: memoryview) -> Heard:
        """Another entry forwards a request with its first question, as here no scheduler brings it; raises NodeBusy."""
        step = self._passage.take(message.order, self._group.load(), time.monotonic())
        if step.way is not PassageAction.SERVE:
            raise NodeBusy("this node takes no more", step.way.value, "Choose another node.")
        self._answers.begin(message.order, from_canonical_bytes(bytes(payload)))
        return Heard(message.start, 0)

    async def _takes(self, node: Address, task: bytes, request: Request) -> bool:
        try:
            channel = self._group.channel(node)
            frame = await channel.request(Listen(task, ZERO_HASH, 0), canonical_bytes(request), timeout=ASKING)
        except (OverlayError, ProtocolError):
            return False
        return isinstance(frame.header, Heard)

    async def _relay(self, ask: Ask, task: bytes, step: PassageStep) -> None:
        served, done = step.to or self._group.own, 0
        while done < ask.tokens:
            heard = await self._hear(Address(served), Listen(task, ZERO_HASH, done))
            done += heard.count
            if heard.count or heard.finished:
                await self._say(Written(ask.number, served, heard.count, heard.finished is not None))
            if heard.finished:
                return

    async def _hear(self, node: Address, message: Listen) -> Heard:
        if node == self._group.own:
            return (await self._answers.hear(message))[0]
        frame = await self._group.channel(node).request(message, timeout=LISTENING)
        if not isinstance(frame.header, Heard):
            raise ProtocolError("A member answered something else", type(frame.header).__name__, "Run it again.")
        return frame.header
