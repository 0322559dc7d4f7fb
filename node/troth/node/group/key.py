"""Whose share is the group's naming key: of the member with the lowest address among those that are alive.

Whoever has that address could make all others change their names again and again, by other shares or by coming and
going, or tell each of them another share. So who turns too often is not followed for a while, nor who is doubted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from troth.overlay.hash_radix.members import SILENCE
from troth.protocol.types import Address

REST = 600.0
"""Seconds for which a turn is remembered."""
MOST_TURNS = 2
"""Turns within `REST` of a member that is still followed: a node may be restarted, and that twice."""


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
