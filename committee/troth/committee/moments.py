"""Where an epoch stands: what a member reads from the chain before it does anything.

An epoch has times, in parts of its blocks. The leader whom the last leader's VRF draws asks first and proposes. If the
epoch is not half over without an update, it is the turn of the one whom the seed draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from troth.chain.adapter import Chain
from troth.chain.errors import ChainUnavailable
from troth.chain.follower import Follower
from troth.committee.epochs import EpochNow
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.reputation_events import ReputationState
from troth.protocol.types import ZERO_HASH

ASKING = ((0.0, 0.35), (0.5, 0.8))
"""From when to when the first and the second leader ask; at the end of it they propose what they have."""
SECOND_TURN, EVERYBODYS_TURN = 0.5, 0.9
"""From when on members sign for the leader that the seed draws; from when on anybody settles what enough signed."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An epoch, and how many of its blocks have passed."""

    now: EpochNow
    block: int

    @property
    def first(self) -> int:
        """The epoch's first block."""
        assert self.now.state.deployed is not None
        return self.now.state.deployed.start_block + self.now.epoch * self.now.rules.epoch_blocks

    @property
    def progress(self) -> float:
        """0 to 1."""
        return (self.block - self.first) / self.now.rules.epoch_blocks

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
        """Whether it is the turn of the leader that the seed draws."""
        return self.progress >= SECOND_TURN or not self.has_last_leader

    def part_done(self, part: int) -> float:
        """How much of a leader's time to ask has passed: below 0 before it, 1 and more after."""
        begin, end = ASKING[part]
        return (self.progress - begin) / (end - begin)


@dataclass(frozen=True, slots=True)
class EpochClock:
    """Reads moments from a followed contract."""

    chain: Chain
    follower: Follower[ReputationState]
    membership: Callable[[], CommitteeMembership]

    async def moment(self) -> Moment:
        """The moment of the followed block; raises ChainUnavailable where the seed's block is not to be had."""
        state, block = self.follower.state, self.follower.block
        assert state.deployed is not None
        epoch = (block - state.deployed.start_block) // state.deployed.rules.epoch_blocks
        before = state.deployed.start_block + epoch * state.deployed.rules.epoch_blocks - 1
        header = await self.chain.block(before)
        if header is None or header.hash == ZERO_HASH:
            raise ChainUnavailable("The block before the epoch is not to be had", before, "Wait for the chain node.")
        members = self.membership().operators
        return Moment(EpochNow(self.chain.domain, state, tuple(members), epoch, header.hash), block)
