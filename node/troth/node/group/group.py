"""This node among the nodes of its model, as its entry sees it: who serves a prompt, and on which channel.

How much one member may tell: bytes that fill up again, so that nobody keeps this node busy reading.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from troth.node.errors import NodeBusy, NotAMember
from troth.node.group.loads import Loads, load_part
from troth.node.group.membership import GroupMembership
from troth.node.group.sharing import Follow, Sharing
from troth.overlay.relay.limits import TokenBucket
from troth.protocol.reputation import Reputation, everybody_trusted
from troth.protocol.types import Address
from troth.protocol.wire_group import LoadPart, Tell, Told
from troth.routing.forwarding.decision import Policy
from troth.routing.forwarding.forwarder import Forwarder
from troth.routing.forwarding.gated import Gated
from troth.routing.prefixes.naming import packed
from troth.routing.prefixes.update import LARGEST_UPDATE, NodeLoad
from troth.transport.channel import Channel
from troth.transport.identity import Operator

EACH = 2_048
"""Bytes that any message counts beside its payload: it is checked, answered and signed."""
MOST = 2 * LARGEST_UPDATE
"""Bytes at once: a snapshot, and another one after a restart."""
PER_SECOND = 32_768
"""Bytes; to take a byte in costs about a microsecond."""


class Allowance:
    """A bucket for each member. `now` in seconds, never falling."""

    def __init__(self) -> None:
        self._buckets: dict[Address, TokenBucket] = {}

    def take(self, name: Address, payload: int, now: float) -> None:
        """A message with so many bytes of payload came; raises NodeBusy where it is too much."""
        bucket = self._buckets.setdefault(name, TokenBucket(PER_SECOND, MOST, now))
        if not bucket.take(now, EACH + payload):
            remedy = "Tell ten times a second at most, and all once in five seconds."
            raise NodeBusy("this member tells more than can be read", payload, remedy)

    def keep(self, names: Collection[Address]) -> None:
        """Forget all others."""
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if name in names}


class Group:
    """Members are named by their checksummed operator addresses; time is `time.monotonic`.

    Args:
        follow: makes the follower of this node's cache.
        reputation: the committee's word about a member, 0 to 1.
        policy: chooses who serves what enters here; ours, unless another one is measured.
    """

    def __init__(
        self,
        operator: Operator,
        membership: GroupMembership,
        loads: Loads,
        follow: Follow,
        *,
        reputation: Reputation = everybody_trusted,
        policy: Policy | None = None,
    ) -> None:
        self.own: Address = operator.address
        self._membership, self._loads = membership, loads
        self._allowance = Allowance()
        self._took = 0
        self.sharing = Sharing(operator, membership, follow, self.load, reputation=reputation, policy=policy or Gated())

    @property
    def forwarder(self) -> Forwarder:
        """Who serves what, and what this node saw of it."""
        return self.sharing.forwarder

    def path(self, tokens: Sequence[int]) -> Sequence[tuple[int, int]]:
        """(name, tokens up to its end) of each chunk of a prompt that entered here, which is noted as such."""
        content = packed(tokens)
        self.sharing.proposal.note(content)
        self._loads.prompted(len(tokens))
        self.sharing.refresh()
        return tuple(self.sharing.view.naming.path(content))

    def ranking(self, path: Sequence[tuple[int, int]]) -> tuple[Address, ...]:
        """Members that may serve a prompt, this node among them, the best first; nothing is counted as sent."""
        names = [name for name, _ in self.sharing.view.members.rows()]
        return tuple(Address(name) for name in self.forwarder.ranked(path, names, time.monotonic()))

    def load(self) -> NodeLoad:
        """This node's own load, now."""
        return self._loads.now(self._took)

    def load_part(self) -> LoadPart:
        """The same as it travels."""
        return load_part(self.load())

    def took(self) -> None:
        """A task begins here, whoever sent it."""
        self._took = (self._took + 1) % 2**32
        self.sharing.telling.took()

    def served(self, seconds: float) -> None:
        """A request was served here in so many seconds."""
        self._loads.served(seconds)

    def channel(self, node: Address) -> Channel:
        """The channel to a member; raises ChannelUnavailable, an OverlayError, for who is none."""
        return self.sharing.telling.channel(node)

    def is_member(self, sender: Address) -> bool:
        """Whether this node and the sender are in one group now, by the chain."""
        return sender in self._membership.peers

    async def tell(self, sender: Address, message: Tell, payload: memoryview) -> tuple[Told, bytes]:
        """A member's word, which the channel authenticated.

        Raises:
            NotAMember: the sender is a stranger.
            NodeBusy: it tells more than it may.
            UpdateMalformed: the payload is nothing that a member says; nothing was changed.
        """
        peers = self._membership.peers
        if sender not in peers:
            raise NotAMember("the sender is in no group with this node", sender, "Check its registration.")
        self._allowance.keep(peers)
        self._allowance.take(sender, len(payload), time.monotonic())
        asks = self.sharing.receive(sender, message, bytes(payload))
        return Told(self.load_part(), whole=asks), b""

    async def run(self) -> None:
        """Tell, and keep what is known, until cancelled."""
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(self.sharing.cache.run())
            jobs.create_task(self.sharing.run())

    async def close(self) -> None:
        """End the channels."""
        await self.sharing.telling.close()
