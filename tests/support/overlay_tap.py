"""A hook at the cell layer: sees every cell of a stage before TLS, and may change what is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from support.overlay_stage import Stage

from troth.overlay.cells.format import Command
from troth.overlay.circuits.link import Link


@dataclass(frozen=True)
class Place:
    """A direction of a link: `link` 0 is between client and guard, 1 behind the guard, and so on."""

    link: int
    forward: bool


Alteration = Callable[[Place, bytes], list[bytes]]


class Tap:
    """Everything that was sent, by place; `alter` says what is really sent in place of a cell."""

    def __init__(self, stage: Stage, patch: pytest.MonkeyPatch) -> None:
        self._stage = stage
        self.seen: dict[Place, list[bytes]] = defaultdict(list)
        self.links: dict[Place, Link] = {}
        self.alter: Alteration = lambda _place, cell: [cell]
        really = Link.send

        def send(link: Link, cell: bytes) -> None:
            place = self._place(link)
            self.links[place] = link
            self.seen[place].append(cell)
            for altered in self.alter(place, cell):
                really(link, altered)

        patch.setattr(Link, "send", send)

    def _place(self, link: Link) -> Place:
        if link._owner is self._stage.client:
            return Place(0, True)
        switch = getattr(link._owner, "_switch", link._owner)
        number = next(index for index, relay in enumerate(self._stage.relays) if relay.switch is switch)
        return Place(number + 1, True) if link.dialed else Place(number, False)

    def onions(self, place: Place) -> list[bytes]:
        """The layered cells that were sent at a place."""
        return [cell for cell in self.seen[place] if is_onion(cell)]


def is_onion(cell: bytes) -> bool:
    """Whether it is a layered cell."""
    return cell[0] & 0x7F == Command.ONION


class Once:
    """Does something to the first layered cell at a place, from the moment it is armed."""

    def __init__(self, place: Place, action: Callable[[bytes], list[bytes]]) -> None:
        self.place = place
        self.action = action
        self.done = False

    def __call__(self, place: Place, cell: bytes) -> list[bytes]:
        if self.done or place != self.place or not is_onion(cell):
            return [cell]
        self.done = True
        return self.action(cell)
