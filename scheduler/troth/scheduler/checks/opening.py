"""The second secret: everybody opens the tiles that it picks, sealed for the client, who alone compares."""

from __future__ import annotations

import asyncio
import logging

from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical, lottery
from troth.protocol.market.errors import InvalidSecret
from troth.protocol.market.papers import Commitments
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Unveil, Unveiled
from troth.scheduler.errors import NotYet, SecretRefused
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.papers import check_papers
from troth.scheduler.orders.steps import FrozenStep, UnveiledTilesStep
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

SEALED_LIMIT = 1 << 22
"""Bytes of one sealed opening; six tiles with their siblings have ten thousand."""


async def open_tiles(context: SchedulerContext, session: OrderSession, second_secret: Hash32) -> None:
    """Ask everybody who has not opened yet; whoever is silent is asked again the next time.

    Raises SecretRefused, and NotYet before a segment's verifiers have committed.
    """
    history = session.history
    try:
        lottery.require_tiles_secret(history.order, second_secret)
    except InvalidSecret as error:
        raise SecretRefused(error.what, None, error.remedy) from error
    if history.frozen is None:
        shown = tuple(
            commitment
            for segment in range(history.segments)
            for verifier in _operators(session, segment)
            if (commitment := history.commitments.get((segment, verifier))) is not None
        )
        segments = {one.message.segment for one in shown}
        if len(segments) != history.segments:
            raise NotYet("The check's verifiers have not committed yet", None, "Follow the check's lines first.")
        await context.store.note(history, FrozenStep(second_secret, shown))
    asked = [
        _opened(context, session, segment, role, operator)
        for segment, node in enumerate(history.admitted.nodes)
        for role, operator in (("infer", node), *(("check", one) for one in _operators(session, segment)))
        if (segment, role, operator) not in history.unveiled
    ]
    await asyncio.gather(*asked)


def _operators(session: OrderSession, segment: int) -> tuple[Address, ...]:
    check = session.history.check_of(segment)
    return () if check is None else check.operators


async def _opened(context: SchedulerContext, session: OrderSession, segment: int, role: str, operator: Address) -> None:
    """One party's opening, written down; nothing where it is silent, which is what the client then sees."""
    history = session.history
    assert history.frozen is not None
    shown = tuple(one for one in history.frozen.shown if one.message.segment == segment)
    infers = role == "infer"
    papers = check_papers(session, segment, None) if infers else None
    sent = canonical.encode(Commitments(history.frozen.second_secret, shown, papers))
    header = Unveil(session.order_id, segment, "infer" if infers else "check", len(sent))
    try:
        frame = await context.peers.channel(operator).request(header, sent, context.waits.generation.prefill)
    except (OverlayError, ProtocolError) as error:
        log.warning("%s of segment %d opened nothing: %s", operator, segment, error)
        return
    if isinstance(frame.header, Unveiled) and 0 < len(frame.payload) <= SEALED_LIMIT:
        await context.store.note(history, UnveiledTilesStep(segment, role, operator, bytes(frame.payload)))
