"""Verifiers of a segment that one of them rejects are told what all have signed, so that each can go to court alone.

They are told once all that speak have spoken, at the check's end; who was not reached asks at a channel for it. Those
that have not spoken yet are told nothing: they would say what the others say.
"""

from __future__ import annotations

import asyncio
import logging

from troth.protocol.errors import ProtocolError, WireError
from troth.protocol.market import canonical, checks
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.papers import CourtText, Spoken
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import Role
from troth.protocol.request import tokens_to_words
from troth.protocol.types import Address, Hash32
from troth.protocol.wire import CHECK_REQUESTS
from troth.protocol.wire_market import CHECKS_PATH, SPOKEN_LIMIT, Inform, Informed, Inquire, Noted
from troth.scheduler.checks.lottery import drawn_verifiers
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.history import OrderHistory
from troth.transport.channel_server import ChannelServer
from troth.transport.errors import OverlayError
from troth.transport.identity import Operator

log = logging.getLogger(__name__)

SECONDS = 5.0
"""For one verifier to note what it is told; its client waits for the check's end."""
_REMEDY = "Ask about a check that you have given a verdict in."


def spoken_of(history: OrderHistory, segment: int, drawn: DrawnSeats) -> Spoken:
    """What the drawn verifiers of a segment signed; with the text where it goes to court."""
    commitments = [history.commitments.get((segment, one)) for one in drawn.seats]
    verdicts = {one: history.verdicts[segment, one] for one in drawn.seats if (segment, one) in history.verdicts}
    text, said = None, {one: Opinion(signed.message.opinion) for one, signed in verdicts.items()}
    if checks.majority(drawn, said) is Opinion.REJECT and history.request and history.salt and history.tokens:
        text = CourtText(history.request, history.salt, tokens_to_words(history.tokens))
    return Spoken(tuple(one for one in commitments if one is not None), tuple(verdicts.values()), text)


def is_rejected_by_any(spoken: Spoken) -> bool:
    """Whether anybody may want to go to court with it."""
    return any(one.message.opinion == Opinion.REJECT for one in spoken.verdicts)


async def inform(context: SchedulerContext, history: OrderHistory, segment: int, drawn: DrawnSeats) -> None:
    """Tell every verifier that has spoken; who is not reached asks."""
    spoken = spoken_of(history, segment, drawn)
    if not is_rejected_by_any(spoken):
        return
    sent = canonical.encode(spoken)
    if len(sent) > SPOKEN_LIMIT:
        log.error("what the verifiers of segment %d signed is too large to be told: %d bytes", segment, len(sent))
        return
    heard = [one for one in drawn.seats if (segment, one) in history.verdicts]
    await asyncio.gather(*(_tell(context, Inform(history.order_id, segment, len(sent)), one, sent) for one in heard))


async def _tell(context: SchedulerContext, header: Inform, verifier: Address, sent: bytes) -> None:
    try:
        frame = await context.peers.channel(verifier).request(header, sent, SECONDS)
    except (OverlayError, ProtocolError, OSError, TimeoutError) as error:
        log.warning("%s was not told what the verifiers of segment %d signed: %s", verifier, header.segment, error)
        return
    if not isinstance(frame.header, Noted):
        log.warning("%s did not note what the verifiers of segment %d signed", verifier, header.segment)


class Inquiries:
    """Answers verifiers that were not told."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context

    def server(self, operator: Operator) -> ChannelServer:
        """The channel to mount beside that for reports."""
        return ChannelServer(
            operator,
            self.handle,
            self._is_node,
            requests=CHECK_REQUESTS,
            who="registered nodes",
            path=CHECKS_PATH,
        )

    def _is_node(self, sender: Address) -> bool:
        party = self._context.ledger.state.parties.get(sender)
        return party is not None and party.role is Role.NODE

    async def handle(self, sender: Address, header: Inquire, _payload: memoryview) -> tuple[Informed, bytes]:
        """One inquiry; WireError where its sender has no part in such a check."""
        history, segment = self._context.store.get(Hash32(header.order)), header.segment
        if history is None or history.revealed is None or (segment, sender) not in history.verdicts:
            raise WireError("No verdict of yours over this segment is known here", segment, _REMEDY)
        drawn = await asyncio.to_thread(drawn_verifiers, self._context, history)
        return Informed(), canonical.encode(spoken_of(history, segment, drawn[segment]))
