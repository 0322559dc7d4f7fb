"""The channel among nodes that host the same model, and which part of the node answers which message."""

from __future__ import annotations

from troth.node.direct.listening import Listening
from troth.node.errors import BadInput, NotAMember
from troth.node.group.group import Group
from troth.node.group.telling import PATH
from troth.overlay.channel_server import Limits
from troth.overlay.hash_radix.codec import LARGEST_UPDATE
from troth.protocol.types import Address
from troth.protocol.wire import GroupRequest
from troth.protocol.wire_fields import HEADER_LIMIT
from troth.protocol.wire_group import Heard, Listen, Recalled, Tell, Told

WHO = "nodes that host the same model"
GroupAnswer = tuple[Told | Heard | Recalled, bytes]
__all__ = ["LIMITS", "PATH", "WHO", "GroupSide"]

LIMITS = Limits(
    frame=4 + HEADER_LIMIT + LARGEST_UPDATE,
    in_flight=4096,
    in_flight_per_connection=80,
    in_flight_per_sender=80,
    in_flight_bytes=128 * 2**20,
    connections=256,
    connections_per_sender=2,
)
"""Updates are the largest messages; most requests in flight are listeners that wait. An entry has 64 orders under way
at most, and 50 members together do not use up all."""


class GroupSide:
    """Answers the messages of members: of the group, of answers, of checks."""

    def __init__(self, group: Group, listening: Listening) -> None:
        self._group, self._listening = group, listening

    async def handle(self, sender: Address, header: GroupRequest, payload: memoryview) -> GroupAnswer:
        """Answer one message; raises NotAMember for who has left since it connected, and what the parts raise."""
        if not self._group.is_member(sender):
            raise NotAMember("the sender is no member of this group", sender, "Register for the same model.")
        if isinstance(header, Tell):
            return await self._group.tell(sender, header, payload)
        if len(payload):
            # It would be held for as long as the listener waits.
            raise BadInput("only Tell has a payload", len(payload), "Send none.")
        if isinstance(header, Listen):
            return await self._listening.listen(header)
        return await self._listening.recall(header)
