"""Poll: a verifier of a veiled class signs its verdict once more, as one of a ring.

The answer follows from what is on disk, so that a restarted node can give it. Whoever asked holds the signed verdict
already and learns nothing; what is asked for is a ballot that others may see. So the ring is the asker's to choose: an
auditor refuses one with a key that was not drawn.
"""

from __future__ import annotations

import asyncio

from troth.node.errors import BadInput, NotAssigned, OutOfOrder
from troth.node.orders.context import NodeContext
from troth.node.orders.words import VERDICT
from troth.protocol import rings
from troth.protocol.errors import InvalidField
from troth.protocol.market import ballots, canonical
from troth.protocol.market.ballots import Ballot
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Verdict
from troth.protocol.market.views import class_of
from troth.protocol.types import Address
from troth.protocol.wire_market import Poll, Polled


async def poll(context: NodeContext, sender: Address, header: Poll, payload: memoryview) -> tuple[Polled, bytes]:
    """Answer a Poll.

    Raises:
        OutOfOrder: this node has given no verdict over this segment.
        NotAssigned: it gave it to another scheduler, or the class is not veiled.
        BadInput: the payload is no ring, or none that holds this node's key.
    """
    words = context.stores.words
    begun, word = await context.write(
        lambda: (
            words.begun(header.order, header.segment, "check"),
            words.find(header.order, header.segment, VERDICT),
        )
    )
    if begun is None or word is None:
        raise OutOfOrder("this node has given no verdict over this segment", header.segment, "Send Judge first.")
    if begun.scheduler != sender:
        raise NotAssigned("this is another scheduler's order", sender, "Send your own orders.")
    definition, _ = class_of(context.ground.state, context.execution_class)
    if not ballots.is_veiled(definition.name):
        raise NotAssigned("logs of this class name who verified", definition.name, "Log the verdict.")
    said = canonical.decode(Signed[Verdict], word, len(word)).message
    ballot = Ballot(said.order, said.segment, said.result, said.opinion)
    try:
        ring = rings.ring_in(payload)
        operator = context.operator
        cast = await asyncio.to_thread(ballots.cast, operator.secret, ring, ballot, operator.domain)
    except InvalidField as error:
        raise BadInput(error.what, len(payload), error.remedy) from error
    return Polled(), cast.signature
