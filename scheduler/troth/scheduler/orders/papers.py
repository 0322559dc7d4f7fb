"""What nodes are shown before they work: papers with the newest voucher, and the request where its text is read."""

from __future__ import annotations

from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import CheckPapers, InferencePapers, Pay
from troth.protocol.market.signed import Promise
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Address
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.veiling import veils


def reads_text(session: OrderSession, segment: int) -> bool:
    """Whether a segment's parties read prompt or answer: those of the first and the last one."""
    return segment in (0, session.history.segments - 1)


def pay(context: SchedulerContext, node: Address, promised: Signed[Promise]) -> Pay:
    """A promise with the newest voucher, which authorises it."""
    return Pay(context.node_tabs.tab(node), promised, context.node_tabs.voucher(node))


def inference_papers(context: SchedulerContext, session: OrderSession, segment: int) -> tuple[bytes, bytes]:
    """Papers and request for who infers a segment."""
    admitted, shown = session.history.admitted, reads_text(session, segment)
    papers = InferencePapers(
        order=admitted.order,
        tab=admitted.tab,
        admission=admitted.admission,
        nodes=_hidden(admitted.nodes, segment) if veils(session) else admitted.nodes,
        infer_proof=admitted.infer_proof,
        pay=pay(context, admitted.nodes[segment], admitted.promises[segment]),
        head_salt=admitted.head_salt,
        salt=session.salt if shown else None,
    )
    return canonical.encode(papers), _request(session) if shown else b""


def _hidden(nodes: tuple[Address, ...], segment: int) -> tuple[Address, ...]:
    """The node of a segment, and nobody in the places of the others."""
    return tuple(node if place == segment else NO_ADDRESS for place, node in enumerate(nodes))


def check_papers(session: OrderSession, segment: int, paid: Pay | None) -> CheckPapers:
    """Papers for who checks a segment, or for its inferencer before it opens."""
    history = session.history
    admitted, answered, drawn, revealed = history.admitted, history.answered, history.drawn, history.revealed
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
        salt=session.salt if reads_text(session, segment) else None,
    )


def encoded_check(session: OrderSession, segment: int, paid: Pay) -> tuple[bytes, bytes]:
    """Papers and request for a verifier's first message."""
    return canonical.encode(check_papers(session, segment, paid)), _request(session) if reads_text(
        session, segment
    ) else b""


def _request(session: OrderSession) -> bytes:
    assert session.history.request is not None  # it is kept as long as anybody may be asked
    return session.history.request
