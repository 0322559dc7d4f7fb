"""The names of a group: the key and the chunk lengths that its members come to without a vote.

The key is the share of the member with the lowest address. Members that hear the same words come to the same names.
Until they do, their names differ, which `Naming.identity` tells, so that they decide by load alone. What would change
the names must stand for a while, and the more often they changed lately, the longer the present ones stay.

The member with the lowest address could make all others change their names again and again, by other shares or by
coming and going, or tell each of them another share. So a member that changes too often is not followed for a while.
Nor is one under whose key most others keep telling other names: it did not tell all of them the same share.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from troth.protocol.types import Address
from troth.routing.prefixes.members import SILENCE
from troth.routing.prefixes.naming import BLOCK, KEY, Chunking, Naming, chunking_for
from troth.routing.prefixes.sentry import DEEPEST, agreed

REST = 600.0
"""Seconds for which a turn is remembered."""
MOST_TURNS = 2
"""Turns within `REST` of a member that is still followed: a node may be restarted, and that twice."""
SETTLED = 3.0
"""Seconds that a change is wanted before it is made: several members come and go at once."""
FREE_CHANGES = 3
"""Changes within `REST` after which each further one waits twice as long."""
PAUSE = 15.0
"""Seconds that the first of those waits."""
DOUBT = 30.0
"""Seconds for which most others have other names before the key's member is left out: six updates."""
LONGEST = DEEPEST * BLOCK
"""Tokens: no Sentry looks further, so that no longer length is a proposal."""
_Wish = tuple[bytes, tuple[int, ...]]


@dataclass(slots=True)
class _Voice:
    share: bytes
    heard: float
    turns: list[float] = field(default_factory=list)
    """When it came with another share, or back after a silence."""


class Shares:
    """What each member said is its share. `now` in seconds, never falling.

    Args:
        own: this node.
        share: its own share, 32 secret bytes.
    """

    def __init__(self, own: Address, share: bytes) -> None:
        self._own, self._share = own, share
        self._voices: dict[Address, _Voice] = {}

    def hear(self, name: Address, share: bytes, now: float) -> None:
        """A member told its share."""
        voice = self._voices.get(name)
        if voice is None:
            self._voices[name] = _Voice(share, now)
            return
        if share != voice.share or now - voice.heard > SILENCE:
            voice.turns = [*voice.turns[-MOST_TURNS:], now]
        voice.share, voice.heard = share, now

    def doubt(self, name: Address, now: float) -> None:
        """This member is not to be followed for `REST`."""
        if name in self._voices:
            self._voices[name].turns = [now] * (MOST_TURNS + 1)

    def keep(self, names: Collection[Address]) -> None:
        """Forget all others: they are not in the group any more."""
        for name in [name for name in self._voices if name not in names]:
            del self._voices[name]

    def leader(self, alive: Collection[Address], now: float) -> tuple[Address, bytes]:
        """Whose share it is, and the share: this node's own where nobody lower can be followed."""
        followed = [name for name, voice in self._voices.items() if name in alive and _steady(voice, now)]
        name = min([self._own, *followed], key=str.lower)
        return name, self._share if name == self._own else self._voices[name].share


def _steady(voice: _Voice, now: float) -> bool:
    return sum(now - turn < REST for turn in voice.turns) <= MOST_TURNS


class NamingAgreement:
    """What the names should be. `now` in seconds, never falling."""

    def __init__(self, own: Address) -> None:
        self._own = own
        self.share = secrets.token_bytes(KEY)
        self._shares = Shares(own, self.share)
        self._proposals: dict[Address, tuple[int, ...]] = {}
        self._wish: _Wish = (self.share, ())
        self._since = 0.0
        self._taken: _Wish = self._wish
        self._changes: list[float] = []
        self._foreign: dict[Address, bool] = {}
        self._alike = 0.0
        self.naming = Naming(self.share, Chunking())

    def hear(self, name: Address, share: bytes, lengths: Iterable[int], now: float, *, foreign: bool) -> None:
        """A member told its share and the lengths that it proposes; `foreign`: under other names than ours."""
        self._shares.hear(name, share, now)
        self._foreign[name] = foreign
        self._proposals[name] = tuple(length for length in lengths if length <= LONGEST)

    def look(self, lengths: tuple[int, ...], alive: Collection[Address], listed: int, now: float) -> Naming | None:
        """New names, if it is time for them.

        Args:
            lengths: this node's own proposal.
            alive: the other members that were heard lately.
            listed: members by the chain, this node included.
        """
        leader, key = self._shares.leader(alive, now)
        self._watch(leader, alive, now)
        proposals: dict[str, tuple[int, ...]] = {self._own: lengths}
        proposals |= {name: self._proposals[name] for name in alive if name in self._proposals}
        # Of two members one would be more than a third.
        wish = key, agreed(proposals, max(listed, 3) if listed > 1 else 1)
        if wish != self._wish:
            self._wish, self._since = wish, now
        if wish == self._taken or now - self._since < SETTLED or now < self._next_change(now):
            return None
        self._taken = wish
        self._changes.append(now)
        self.naming = Naming(key, chunking_for(wish[1]))
        return self.naming

    def keep(self, names: Collection[Address]) -> None:
        """Forget who is not in the group any more."""
        self._shares.keep(names)
        for name in [name for name in self._proposals if name not in names]:
            del self._proposals[name], self._foreign[name]

    def _watch(self, leader: Address, alive: Collection[Address], now: float) -> None:
        """Doubt a leader whose key most others do not have, though they had the time."""
        others = [self._foreign[name] for name in alive if name in self._foreign and name != leader]
        if leader == self._own or 2 * sum(others) <= len(others):
            self._alike = now
        elif now - max([self._alike, *self._changes[-1:]]) > DOUBT:
            self._shares.doubt(leader, now)
            self._alike = now

    def _next_change(self, now: float) -> float:
        self._changes = [change for change in self._changes if now - change < REST]
        more = len(self._changes) - FREE_CHANGES
        return self._changes[-1] + min(REST, PAUSE * 2**more) if more >= 0 else now
