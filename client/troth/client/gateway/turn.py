"""One choice of a chat as far as affinity cares: which node gave which answer, and whether it failed."""

from __future__ import annotations

from collections.abc import Sequence

from troth.client.asking import Finished, Text, Verdict
from troth.client.direct.affinity import Affinity
from troth.client.gateway.errors import HopFailed
from troth.client.gateway.orders import Told
from troth.client.template import Message
from troth.protocol.types import Address

_NODES = {"node", "inferencer"}
"""Hops that are nodes of the model."""


class Turn:
    """Hears an order's updates, whether or not anybody still reads the answer.

    Args:
        near: the node at which the order was to enter, for the sake of its cache.
    """

    def __init__(
        self, affinity: Affinity, messages: Sequence[Message], stops: Sequence[str], near: Address | None
    ) -> None:
        self._affinity = affinity
        self._messages = messages
        self._stops = stops
        self._near = near
        self._pieces: list[str] = []

    def hear(self, told: Told) -> None:
        """An update of the order."""
        match told:
            case Text():
                self._pieces.append(told.text)
            case Finished(served_by=node) if node is not None:
                self._near = node
                self._affinity.remember(self._messages, self._shown(), node)
            case Verdict() if told.outcome == "rejected":
                self._forget()
            case HopFailed() if told.hop in _NODES:
                self._forget()

    def _shown(self) -> str:
        """The answer as its reader has it, and sends it back: cut at the first stop."""
        text = "".join(self._pieces)
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        return text[: min(found, default=len(text))]

    def _forget(self) -> None:
        if self._near is not None:
            self._affinity.forget(self._near)
