"""What the members of a group know of each other: kept from what each tells, under names that all come to.

The node proposes the common prompt lengths that its Sentry found, in rounds, so that they seldom change. It says to its
group, as bytes, updates and snapshots of its cache, and heartbeats with its load.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from troth.chain.duty import Duty
from troth.node.group.agreement import NamingAgreement
from troth.node.group.cache import Cache
from troth.node.group.loads import load_of
from troth.node.group.membership import GroupMembership
from troth.node.group.telling import GroupTelling
from troth.protocol.reputation import Reputation
from troth.protocol.types import Address
from troth.protocol.wire_group import Tell, Told
from troth.routing.forwarding.decision import Policy
from troth.routing.forwarding.forwarder import Forwarder
from troth.routing.prefixes.announcing import HEARTBEAT, INTERVAL, Announcer
from troth.routing.prefixes.following import UpdateFate
from troth.routing.prefixes.local_blocks import Changes
from troth.routing.prefixes.naming import Naming
from troth.routing.prefixes.sentry import ROUND, SAMPLE, Sentry
from troth.routing.prefixes.update import NodeLoad, encode_heartbeat, encode_update
from troth.routing.prefixes.view import GroupView
from troth.transport.identity import Operator

MOST_NAMES = 16_384
"""Chunks that this node tells: 2 million tokens in chunks of 128, in 150 kB at most."""
log = logging.getLogger(__name__)
Follow = Callable[[Naming, Callable[[Changes], None]], Cache]
"""Makes the follower of this node's cache, given the names and who gets its changes."""


class LengthProposer:
    """Looks at the sample once it is full, and then after each round of requests."""

    def __init__(self, chance: random.Random) -> None:
        self._sentry = Sentry(chance)
        self._first = True
        self.lengths: tuple[int, ...] = ()
        """In tokens, ascending."""

    def note(self, tokens: bytes) -> None:
        """A prompt that entered here, packed."""
        self._sentry.observe(tokens)
        if self._sentry.seen >= (SAMPLE if self._first else ROUND):
            self.lengths = tuple(common.tokens for common in self._sentry.common())
            self._first = False
            self._sentry.start_round()


class Saying:
    """Counts epochs: each new naming begins one, later than those of any earlier start of this node."""

    def __init__(self, naming: Naming) -> None:
        self._epoch = 0
        self.rename(naming)

    def rename(self, naming: Naming) -> None:
        """Names are other ones from now on; what is held must be noted again."""
        self._epoch = max(self._epoch + 1, time.time_ns() // 1_000_000)
        self._announcer = Announcer(naming.identity, self._epoch, MOST_NAMES)
        self._whole = b""

    def note(self, changes: Changes) -> None:
        """Changes of this node's own cache."""
        self._announcer.note(changes)

    def update(self, load: NodeLoad) -> bytes:
        """What is new since the last one; after `rename` all."""
        self._whole = b""
        return encode_update(self._announcer.next_update(load))

    def whole(self, load: NodeLoad) -> bytes:
        """All that was said, for who missed something; made once between two updates, whoever asks."""
        self._whole = self._whole or encode_update(self._announcer.snapshot(load))
        return self._whole

    def heartbeat(self, load: NodeLoad) -> bytes:
        """The load alone."""
        return encode_heartbeat(self._announcer.heartbeat(load))


class Sharing:
    """One node's side. `now` is `time.monotonic`.

    Args:
        load: this node's own load, now.
        reputation: the committee's word about a member, 0 to 1.
        policy: chooses who serves what enters here.
    """

    def __init__(
        self,
        operator: Operator,
        membership: GroupMembership,
        follow: Follow,
        load: Callable[[], NodeLoad],
        *,
        reputation: Reputation,
        policy: Policy,
    ) -> None:
        self._own, self._membership, self._load, self._reputation = operator.address, membership, load, reputation
        self._agreement = NamingAgreement(self._own)
        chance = random.SystemRandom()
        self.proposal = LengthProposer(chance)
        self.view = GroupView(self._agreement.naming)
        self.forwarder = Forwarder(self.view, policy, chance, self._own)
        self.telling = GroupTelling(operator, self)
        self._saying = Saying(self._agreement.naming)
        self._announced = float("-inf")
        self._list(time.monotonic())
        self.cache = follow(self._agreement.naming, self._note)

    async def run(self) -> None:
        """Tell, and keep what is known, until cancelled. Where it fails the others do not know what this node holds."""
        await Duty("telling the group what is held here", self._turn, every=HEARTBEAT, longest=HEARTBEAT).run()

    async def _turn(self) -> None:
        now = time.monotonic()
        self._list(now)
        self.telling.follow(self._membership.peers)
        self.refresh()
        self.view.expire(now)
        await self._agree(now)
        if now - self._announced >= INTERVAL:
            self._announce(now)

    def refresh(self) -> None:
        """This node's own row is of now."""
        self.forwarder.reported(self._own, self._load(), time.monotonic())

    def receive(self, sender: Address, message: Tell, content: bytes) -> bool:
        """Take a member's word in; whether it should say all at once. Raises UpdateMalformed, with nothing changed."""
        now = time.monotonic()
        if sender not in self.view.members:
            self._list(now)
        verdict = self.view.receive(sender, content, now)
        if verdict is not UpdateFate.REPEATED:
            foreign = verdict is UpdateFate.OTHER_CHUNKING
            self._agreement.hear(sender, message.share, message.lengths, now, foreign=foreign)
            self.forwarder.reported(sender, self.view.members[sender].load, now)
            self.telling.wake(sender)
        return verdict is UpdateFate.GAP and self.view.may_ask(sender, now)

    def _list(self, now: float) -> None:
        """Members as the chain has them now."""
        peers = self._membership.peers
        for name in [name for name, _ in self.view.members.rows() if name != self._own and name not in peers]:
            self.forwarder.dealings.forget(name)
        self.view.list_members({name: self._reputation(name) for name in (self._own, *peers)}, now)
        self._agreement.keep(peers)

    async def _agree(self, now: float) -> None:
        rows = self.view.members.rows()
        alive = [Address(name) for name, row in rows if row.alive and name != self._own]
        naming = self._agreement.look(self.proposal.lengths, alive, len(self._membership.peers) + 1, now)
        if naming is not None:
            await self.cache.rename(naming, lambda: self._rename(naming))
            self._announce(now)

    def _rename(self, naming: Naming) -> None:
        self.view.rename(naming)
        self._saying.rename(naming)

    def _announce(self, now: float) -> None:
        self._announced = now
        self.telling.announce(self._saying.update(self._load()))

    def _note(self, changes: Changes) -> None:
        self._saying.note(changes)
        self.view.own(self._own, changes)

    def header(self) -> Tell:
        """Share and proposed lengths."""
        return Tell(self._agreement.share, self.proposal.lengths)

    def heartbeat(self) -> bytes:
        """The load."""
        return self._saying.heartbeat(self._load())

    def whole(self) -> bytes:
        """All that was said so far."""
        return self._saying.whole(self._load())

    def heard(self, name: Address, told: Told, seconds: float | None) -> None:
        """A member's answer, and how long the way there and back took, if that was measured."""
        load, now = load_of(told.load), time.monotonic()
        if seconds is None:
            self.forwarder.reported(name, load, now)
        else:
            self.forwarder.acknowledged(name, load, seconds, now)
