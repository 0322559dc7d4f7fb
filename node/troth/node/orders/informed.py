"""Inform: a verifier hears what all verifiers of its segment signed, and keeps it beside its own rejection.

Nothing of it is believed: commitments and verdicts count where drawn verifiers signed them over this very result, and
the text where order and result name its hashes.
"""

from __future__ import annotations

import asyncio

from troth.node.errors import BadInput, NotAssigned, OutOfOrder
from troth.node.orders.context import NodeContext
from troth.node.orders.seat import Post, drawn_check
from troth.protocol import typed_data
from troth.protocol.errors import InvalidRequest, InvalidSignature
from troth.protocol.market import canonical
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import PAPERS_LIMIT, CheckPapers, CourtText, Spoken
from troth.protocol.market.signed import TraceCommitment, Verdict
from troth.protocol.request import from_canonical_bytes, output_hash, request_hash, tokens_in_words
from troth.protocol.tensors import TOKEN_BYTES
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import SPOKEN_LIMIT, Inform, Noted

ITEMS = 256
"""Signatures of one kind: more than any check draws seats."""


async def told(context: NodeContext, post: Post, header: Inform, payload: memoryview) -> tuple[Noted, bytes]:
    """Answer an Inform.

    Raises:
        OutOfOrder: this node checks no such segment.
        NotAssigned: it checks it for another scheduler.
        BadInput: more than any check has, or another text than was ordered and answered.
    """
    if len(payload) != header.size:
        raise BadInput("the payload is not as long as the header says", len(payload), "Send what was signed alone.")
    begun = await context.write(lambda: context.stores.words.begun(header.order, header.segment, "check"))
    if begun is None:
        raise OutOfOrder("this node checks no such segment", header.segment, "Tell those that were drawn.")
    if begun.scheduler != post.sender:
        raise NotAssigned("this is another scheduler's order", post.sender, "Send your own orders.")
    papers = canonical.decode(CheckPapers, begun.papers, PAPERS_LIMIT)
    await keep(context, post, papers, header.segment, payload)
    return Noted(), b""


async def keep(context: NodeContext, post: Post, papers: CheckPapers, segment: int, data: bytes | memoryview) -> Spoken:
    """Check what was told of a segment, and keep it; raises BadInput or what papers raise."""
    spoken = canonical.decode(Spoken, data, SPOKEN_LIMIT)
    checked, order = await asyncio.to_thread(_checked, spoken, papers, segment, post)
    await context.write(lambda: context.stores.rejections.tell(order, segment, checked))
    return checked


def _checked(spoken: Spoken, papers: CheckPapers, segment: int, post: Post) -> tuple[Spoken, Hash32]:
    if max(len(spoken.commitments), len(spoken.verdicts)) > ITEMS:
        raise BadInput("no check has so many verifiers", len(spoken.verdicts), "Send one word of each.")
    if spoken.text is not None:
        _require_text(spoken.text, papers)
    drawn = drawn_check(papers, post)
    seats, domain, judged = drawn.seats[segment], drawn.view.domain, typed_data.struct_hash(drawn.results[segment])

    def fits(message: TraceCommitment | Verdict) -> bool:
        return (message.order, message.segment, message.result) == (drawn.order_id, segment, judged)

    # Who was drawn when a silent verifier was replaced may differ for a moment; what does not count is left out.
    commitments = tuple(one for one in spoken.commitments if fits(one.message) and signer_in(seats, one, domain))
    verdicts = {signer_in(seats, one, domain): one for one in spoken.verdicts if fits(one.message)}
    kept = tuple(one for signer, one in verdicts.items() if signer is not None)
    return Spoken(commitments, kept, spoken.text), drawn.order_id


def signer_in(seats: DrawnSeats, signed: Signed[TraceCommitment] | Signed[Verdict], domain: Domain) -> Address | None:
    """Which drawn verifier signed a word; None for anybody else's."""
    try:
        signer = typed_data.recover(signed.message, domain, signed.signature)
    except InvalidSignature:
        return None
    return signer if signer in seats.seats else None


def _require_text(text: CourtText, papers: CheckPapers) -> None:
    """Raise BadInput unless it is the order's request and its answer, in the very bytes that a court takes."""
    if len(text.answer) % TOKEN_BYTES:
        raise BadInput("an answer is made of whole words", len(text.answer), "Send four bytes for each token.")
    try:
        ordered = request_hash(from_canonical_bytes(text.request), text.salt)
        answered = output_hash(text.salt, tokens_in_words(text.answer))
    except InvalidRequest as error:
        raise BadInput("this is no request", len(text.request), "Send the client's request.") from error
    if (ordered, answered) != (papers.order.message.request_hash, papers.results[-1].message.output_hash):
        what = "this is not the text that was ordered and answered"
        raise BadInput(what, len(text.answer) // TOKEN_BYTES, "Send the order's own text.")


def post_of(context: NodeContext, sender: Address) -> Post:
    """What papers of a scheduler are checked against now."""
    ground = context.ground
    return Post(
        me=context.me,
        sender=sender,
        execution_class=context.execution_class,
        position_limit=context.limits.positions,
        state=ground.state,
        chain_id=ground.chain_id,
        block=ground.block,
        now=int(context.clock()),
        key_check=ground.key_check,
        first=context.first,
    )
