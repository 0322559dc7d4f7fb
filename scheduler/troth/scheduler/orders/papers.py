"""What nodes are shown before they work: papers with the newest voucher, and the request where its text is read."""

from __future__ import annotations

from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import CheckPapers, InferencePapers, Pay
from troth.protocol.market.types import Promise
from troth.protocol.types import Address
from troth.scheduler.orders.desk import OrderSession, SchedulerContext


def reads_text(work: OrderSession, segment: int) -> bool:
    """Whether a segment's parties read prompt or answer: those of the first and the last one."""
    return segment in (0, work.story.segments - 1)


def pay(desk: SchedulerContext, node: Address, promised: Signed[Promise]) -> Pay:
    """A promise with the newest voucher, which authorises it."""
    return Pay(desk.node_tabs.tab(node), promised, desk.node_tabs.voucher(node))


def inference_papers(desk: SchedulerContext, work: OrderSession, segment: int) -> tuple[bytes, bytes]:
    """Papers and request for who infers a segment."""
    admitted, shown = work.story.admitted, reads_text(work, segment)
    papers = InferencePapers(
        order=admitted.order,
        tab=admitted.tab,
        admission=admitted.admission,
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        pay=pay(desk, admitted.nodes[segment], admitted.promises[segment]),
        head_salt=admitted.head_salt,
        salt=work.salt if shown else None,
    )
    return canonical.encode(papers), _request(work) if shown else b""


def check_papers(work: OrderSession, segment: int, paid: Pay | None) -> CheckPapers:
    """Papers for who checks a segment, or for its inferencer before it opens."""
    story = work.story
    admitted, answered, drawn, revealed = story.admitted, story.answered, story.drawn, story.revealed
    assert answered is not None
    assert drawn is not None
    assert revealed is not None
    return CheckPapers(
        order=admitted.order,
        tab=admitted.tab,
        admission=admitted.admission,
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        results=answered.results,
        draw=drawn.draw,
        draw_proof=drawn.proof,
        secret=revealed.secret,
        pay=paid,
        head_salt=admitted.head_salt,
        salt=work.salt if reads_text(work, segment) else None,
    )


def encoded_check(work: OrderSession, segment: int, paid: Pay) -> tuple[bytes, bytes]:
    """Papers and request for a verifier's first message."""
    return canonical.encode(check_papers(work, segment, paid)), _request(work) if reads_text(work, segment) else b""


def _request(work: OrderSession) -> bytes:
    assert work.story.request is not None  # it is kept as long as anybody may be asked
    return work.story.request
