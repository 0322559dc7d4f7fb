"""Direct mode's channel among the nodes of a model, and the group of a running node."""

from __future__ import annotations

from collections.abc import Callable

from troth.node.direct.listening import AnswerListening
from troth.node.engine.interface import WholeEngine
from troth.node.errors import BadInput, NotAMember
from troth.node.group.cache import Cache
from troth.node.group.group import Group
from troth.node.group.loads import Loads
from troth.node.group.membership import GroupMembership
from troth.node.group.telling import PATH
from troth.node.orders.context import NodeContext
from troth.overlay.directory.vouched import VouchedMachines
from troth.protocol.market.state import State
from troth.protocol.reputation import Reputation, everybody_trusted
from troth.protocol.types import Address, Segment
from troth.protocol.wire import GroupRequest
from troth.protocol.wire_fields import HEADER_LIMIT
from troth.protocol.wire_group import Heard, Listen, Recalled, Tell, Told
from troth.routing.prefixes.update import LARGEST_UPDATE
from troth.transport.channel_server import ChannelLimits

WHO = "nodes that host the same model"
GroupAnswer = tuple[Told | Heard | Recalled, bytes]
__all__ = ["LIMITS", "PATH", "WHO", "GroupSide"]

LIMITS = ChannelLimits(
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
BATCH = 64
"""Requests that vLLM computes at once as this node starts it (`engine.vllm.settings`)."""
TURNS = 4
"""Sessions that an engine without batches computes in turn before it counts as busy."""


class GroupSide:
    """Answers the messages of members: of the group, of answers, of checks."""

    def __init__(self, group: Group, listening: AnswerListening) -> None:
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


def group_of(
    context: NodeContext,
    *,
    state: Callable[[], State],
    sessions: Callable[[], int],
    capacity: int | None = None,
    reputation: Reputation = everybody_trusted,
    machines: VouchedMachines | None = None,
) -> Group | None:
    """The group of the node with this context, to be run; None for a node that has none.

    Args:
        state: the folded chain.
        sessions: requests that are computed here now, for engines that do not count them.
        capacity: requests that are computed at once; None as the engine is started here.
        machines: for a confidential node, the only machines that are of its group.
    """
    engine = context.engine
    tells = isinstance(engine, WholeEngine)
    if engine.slice != Segment(0, engine.layers):
        return None
    loads = Loads(engine, sessions, context.meter, capacity or (BATCH if tells else TURNS))
    membership = GroupMembership(context.operator.address, context.execution_class, state, machines)
    source = engine if isinstance(engine, WholeEngine) else None
    return Group(
        context.operator, membership, loads, lambda naming, note: Cache(source, naming, note), reputation=reputation
    )
