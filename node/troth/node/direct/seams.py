"""What direct mode needs of the rest of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from troth.node.service.bench import Bench
from troth.node.service.work import Work
from troth.overlay.channel import Channel
from troth.overlay.forwarding.passage import Passage
from troth.overlay.hash_radix.load import Load
from troth.protocol.state import State
from troth.protocol.types import Address
from troth.protocol.wire_group import LoadPart, Tell, Told


class Group(Protocol):
    """The nodes that host the same model, as this one knows them: who they are, what they hold, how loaded they are."""

    @property
    def own(self) -> Address:
        """This node."""

    @property
    def passage(self) -> Passage:
        """What has entered here, and who was asked for it."""

    def path(self, tokens: Sequence[int]) -> Sequence[tuple[int, int]]:
        """The chunks of a prompt by the group's names."""

    def load(self) -> Load:
        """This node's own load."""

    def load_part(self) -> LoadPart:
        """The same, for a message."""

    def took(self) -> None:
        """A task of the whole model begins here."""

    def served(self, seconds: float) -> None:
        """This node has answered a request in so many seconds."""

    def is_member(self, sender: Address) -> bool:
        """Whether this is another node of the group."""

    def channel(self, node: Address) -> Channel:
        """The way to a member; raises OverlayError where it has none that can be used."""

    def acknowledged(self, node: Address, part: LoadPart, round_trip: float) -> None:
        """A member answered after `round_trip` seconds, and says how loaded it is."""

    async def tell(self, sender: Address, message: Tell, payload: memoryview) -> tuple[Told, bytes]:
        """Read what a member says of itself."""

    async def run(self) -> None:
        """Tell and listen until cancelled."""

    async def close(self) -> None:
        """Close the channels."""


class MakeGroup(Protocol):
    """Finds the group of a node."""

    def __call__(
        self, bench: Bench, *, state: Callable[[], State], sessions: Callable[[], int], wanted: bool
    ) -> Group | None:
        """None for a node that has no group; `wanted`: it has an entry, which is of no use without one."""


class Works(Protocol):
    """The sessions of a node; see `service.node_service.NodeService`."""

    begun: asyncio.Event

    @property
    def leaving(self) -> bool:
        """Whether no session is begun any more."""

    def answering(self, task_id: bytes) -> Work | None:
        """The newest session in which this node answers the task with the whole model."""

    def is_paid(self, work: Work) -> bool:
        """Whether the session's fee is locked."""
