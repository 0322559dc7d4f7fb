"""What the members of a group know of each other: kept from what each tells, under names that all come to."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from troth.node.group.agreement import Agreement
from troth.node.group.cache import Cache
from troth.node.group.lengths import Proposal
from troth.node.group.loads import load_of
from troth.node.group.membership import Membership
from troth.node.group.saying import Saying
from troth.node.group.telling import Telling
from troth.overlay.errors import OverlayError
from troth.overlay.forwarding.decision import Policy
from troth.overlay.forwarding.forwarder import Forwarder
from troth.overlay.hash_radix.announcing import HEARTBEAT, INTERVAL
from troth.overlay.hash_radix.following import Verdict
from troth.overlay.hash_radix.load import Load
from troth.overlay.hash_radix.local_blocks import Changes
from troth.overlay.hash_radix.naming import Naming
from troth.overlay.hash_radix.view import GroupView
from troth.overlay.operator import Operator
from troth.protocol.types import Address
from troth.protocol.wire_group import Tell, Told

log = logging.getLogger(__name__)

UNRATED = 1.0
"""Reputation of a member that nobody rated: a newcomer is trusted until something is known."""

Follow = Callable[[Naming, Callable[[Changes], None]], Cache]
"""Makes the follower of this node's cache, given the names and who gets its changes."""
Reputation = Callable[[Address], float]


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
        membership: Membership,
        follow: Follow,
        load: Callable[[], Load],
        *,
        reputation: Reputation,
        policy: Policy,
    ) -> None:
        self._own, self._membership, self._load, self._reputation = operator.address, membership, load, reputation
        self._agreement = Agreement(self._own)
        chance = random.SystemRandom()
        self.proposal = Proposal(chance)
        self.view = GroupView(self._agreement.naming)
        self.forwarder = Forwarder(self.view, policy, chance, self._own)
        self.telling = Telling(operator, self)
        self._saying = Saying(self._agreement.naming)
        self._announced = float("-inf")
        self._list(time.monotonic())
        self.cache = follow(self._agreement.naming, self._note)

    async def run(self) -> None:
        """Tell, and keep what is known, until cancelled."""
        while True:
            now = time.monotonic()
            self._list(now)
            self.telling.follow(self._membership.peers)
            self.refresh()
            self.view.expire(now)
            try:
                await self._agree(now)
                if now - self._announced >= INTERVAL:
                    self._announce(now)
            except OverlayError as error:
                # What this node holds stays unknown to the others then; it serves on.
                log.warning("the group cannot be told what is held here: %s", error)
            await asyncio.sleep(HEARTBEAT)

    def refresh(self) -> None:
        """This node's own row is of now."""
        self.forwarder.reported(self._own, self._load(), time.monotonic())

    def receive(self, sender: Address, message: Tell, content: bytes) -> bool:
        """Take a member's word in; whether it should say all at once. Raises UpdateMalformed, with nothing changed."""
        now = time.monotonic()
        if sender not in self.view.members:
            self._list(now)
        verdict = self.view.receive(sender, content, now)
        if verdict is not Verdict.REPEATED:
            foreign = verdict is Verdict.OTHER_CHUNKING
            self._agreement.hear(sender, message.share, message.lengths, now, foreign=foreign)
            self.forwarder.reported(sender, self.view.members[sender].load, now)
            self.telling.wake(sender)
        return verdict is Verdict.GAP and self.view.may_ask(sender, now)

    def _list(self, now: float) -> None:
        """Members as the chain has them now."""
        peers = self._membership.peers
        for name in [name for name, _ in self.view.members.rows() if name != self._own and name not in peers]:
            self.forwarder.dealings.forget(name)
        rated: dict[str, float] = {self._own: UNRATED}
        self.view.list_members(rated | {name: self._reputation(name) for name in peers}, now)
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
