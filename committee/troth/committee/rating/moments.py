"""Where an epoch stands: what a member reads from the chain before it does anything.

Two members ask, each its part of the list: the one whom the last leader's VRF draws, and the one whom the seed draws.
They ask all through the epoch but for its last blocks, which are for agreeing. There the first proposes; if half of
these blocks passed without an update, the second does. So a leader that says nothing costs no epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from troth.chain.adapter import Chain
from troth.chain.errors import ChainUnavailable
from troth.chain.follower import Follower
from troth.committee.rating.epochs import EpochNow
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.reputation_events import ReputationState
from troth.protocol.types import ZERO_HASH

MOST_LATE = 0.75
"""Of members' own questions, how many come at most when no leader asks: later ones find nobody silent any more."""


@dataclass(frozen=True, slots=True)
class EpochMoment:
    """An epoch, and how many of its blocks have passed; ``agreeing``: how many are left for agreeing."""

    now: EpochNow
    block: int
    agreeing: int

    @property
    def first(self) -> int:
        """The epoch's first block."""
        assert self.now.state.deployed is not None
        return self.now.state.deployed.start_block + self.now.epoch * self.now.rules.epoch_blocks

    @property
    def length(self) -> int:
        """Blocks of an epoch."""
        return self.now.rules.epoch_blocks

    @property
    def progress(self) -> float:
        """How much of the epoch has passed, 0 to 1."""
        return (self.block - self.first) / self.length

    @property
    def asking(self) -> float:
        """The part of an epoch in which leaders ask."""
        return 1 - min(self.agreeing, self.length // 2) / self.length

    @property
    def asked(self) -> bool:
        """Whether the time to ask is over."""
        return self.progress >= self.asking

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do."""
        return self.now.state.through > self.now.epoch

    @property
    def has_last_leader(self) -> bool:
        """Whether somebody can prove who leads."""
        last = self.now.state.raters.get(self.now.state.leader)
        return last is not None and last.counts(self.now.epoch)

    @property
    def seed_leads(self) -> bool:
        """Whether members sign for the leader that the seed draws."""
        return self.progress >= (1 + self.asking) / 2 or not self.has_last_leader

    @property
    def anybody_settles(self) -> bool:
        """Whether what enough members signed is settled by whoever has it."""
        return self.progress >= (4 + self.asking) / 5

    def waited(self, epoch: int) -> float:
        """Blocks since anybody does what a leader left undone, of this epoch or of the one before; negative until
        then."""
        begin = 0.0 if epoch < self.now.epoch else self.length * (4 + self.asking) / 5
        return self.block - self.first - begin

    def due_of_challenge(self, moment: float) -> float:
        """At which progress a leader asks a challenge."""
        return moment * self.asking

    def due_of_attempt(self, late: float, moment: float) -> float:
        """At which progress a member asks by itself; ``late`` is `late_part`."""
        return due_of_attempt(moment, self.asking, late)


def late_part(asking: float, listed: int, own: int) -> float:
    """Which part of members' ``own`` questions comes when no leader asks, so that all times have equally many.

    Args:
        asking: the part of an epoch in which leaders ask ``listed`` questions.
    """
    return min(MOST_LATE, (1 - asking) * (listed + own) / own) if own else 0.0


def due_of_attempt(moment: float, asking: float, late: float) -> float:
    """When a member asks by itself: a ``late`` part when no leader does, so that no time of an epoch is free of
    members'."""
    return asking + moment / late * (1 - asking) if moment < late else (moment - late) / (1 - late) * asking


@dataclass(frozen=True, slots=True)
class EpochClock:
    """Reads moments from a followed contract."""

    chain: Chain
    follower: Follower[ReputationState]
    membership: Callable[[], CommitteeMembership]
    agreeing: int

    async def moment(self) -> EpochMoment:
        """The moment of the followed block; raises ChainUnavailable where the seed's block is not to be had."""
        state, block = self.follower.state, self.follower.block
        assert state.deployed is not None
        epoch = (block - state.deployed.start_block) // state.deployed.rules.epoch_blocks
        before = state.deployed.start_block + epoch * state.deployed.rules.epoch_blocks - 1
        header = await self.chain.block(before)
        if header is None or header.hash == ZERO_HASH:
            raise ChainUnavailable("The block before the epoch is not to be had", before, "Wait for the chain node.")
        members = self.membership().operators
        return EpochMoment(EpochNow(self.chain.domain, state, tuple(members), epoch, header.hash), block, self.agreeing)
