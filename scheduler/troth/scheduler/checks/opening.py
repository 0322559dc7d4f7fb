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
from troth.scheduler.orders.desk import OrderSession, SchedulerContext
from troth.scheduler.orders.papers import check_papers
from troth.scheduler.orders.steps import FrozenStep, UnveiledTilesStep
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

SEALED_LIMIT = 1 << 22
"""Bytes of one sealed opening; six tiles with their siblings have ten thousand."""


async def open_tiles(desk: SchedulerContext, work: OrderSession, second_secret: Hash32) -> None:
    """Ask everybody who has not opened yet; whoever is silent is asked again the next time.

    Raises SecretRefused, and NotYet before a segment's verifiers have committed.
    """
    story = work.story
    try:
        lottery.require_tiles_secret(story.order, second_secret)
    except InvalidSecret as error:
        raise SecretRefused(error.what, None, error.remedy) from error
    if story.frozen is None:
        shown = tuple(
            commitment
            for segment in range(story.segments)
            for verifier in _operators(work, segment)
            if (commitment := story.commitments.get((segment, verifier))) is not None
        )
        segments = {one.message.segment for one in shown}
        if len(segments) != story.segments:
            raise NotYet("The check's verifiers have not committed yet", None, "Follow the check's lines first.")
        await desk.store.note(story, FrozenStep(second_secret, shown))
    asked = [
        _opened(desk, work, segment, role, operator)
        for segment, node in enumerate(story.admitted.nodes)
        for role, operator in (("infer", node), *(("check", one) for one in _operators(work, segment)))
        if (segment, role, operator) not in story.unveiled
    ]
    await asyncio.gather(*asked)


def _operators(work: OrderSession, segment: int) -> tuple[Address, ...]:
    check = work.story.check_of(segment)
    return () if check is None else check.operators


async def _opened(desk: SchedulerContext, work: OrderSession, segment: int, role: str, operator: Address) -> None:
    """One party's opening, written down; nothing where it is silent, which is what the client then sees."""
    story = work.story
    assert story.frozen is not None
    shown = tuple(one for one in story.frozen.shown if one.message.segment == segment)
    infers = role == "infer"
    papers = check_papers(work, segment, None) if infers else None
    sent = canonical.encode(Commitments(story.frozen.second_secret, shown, papers))
    header = Unveil(work.order_id, segment, "infer" if infers else "check", len(sent))
    try:
        frame = await desk.peers.channel(operator).request(header, sent, desk.waits.generation.prefill)
    except (OverlayError, ProtocolError) as error:
        log.warning("%s of segment %d opened nothing: %s", operator, segment, error)
        return
    if isinstance(frame.header, Unveiled) and 0 < len(frame.payload) <= SEALED_LIMIT:
        await desk.store.note(story, UnveiledTilesStep(segment, role, operator, bytes(frame.payload)))
