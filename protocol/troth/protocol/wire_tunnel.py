"""What a node that cannot be reached and the scheduler that lends it an endpoint say to each other.

The node keeps one question open. Its answer names the visitors that came to its endpoint, and the node fetches each of
them over a connection of its own (docs/adr/0020-tunnels.md).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from troth.protocol.wire_fields import Bytes32, Message, Uint64

VISITORS_LIMIT = 64
"""Of one answer, and of one node at a time."""


class Attend(Message, frozen=True):
    """Who comes to this node's endpoint? Answer: Visited, when somebody has come or after some seconds.

    ``session`` rises with each start of the node, so that a process that was replaced is told so.
    """

    session: Uint64


class Visited(Message, frozen=True):
    """Each ticket stands for one visitor, and is good once, for seconds. Empty where nobody came."""

    tickets: Annotated[tuple[Bytes32, ...], msgspec.Meta(max_length=VISITORS_LIMIT)] = ()
