"""Unveil: open the tiles that the client's second secret picks, for the client alone.

An inferencer opens only in a check that the client's first secret drew, and anybody only for commitments of verifiers
that were drawn: a scheduler that could make a node open at places of its choice could show them to a copying friend.
Asking again for the same gives the same bytes, after a restart too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from troth.node.errors import BadInput, NotAssigned, OutOfOrder
from troth.node.orders.context import NodeContext
from troth.node.orders.seat import DrawnCheck, Post, drawn_check
from troth.node.orders.session import CHECKS, INFERS
from troth.node.orders.traces import StoredTrace
from troth.node.orders.words import COMMITMENT, RESULT
from troth.protocol import typed_data
from troth.protocol.errors import InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.market import canonical, checks, lottery
from troth.protocol.market.bodies import opening_context
from troth.protocol.market.checks import Opened
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import PAPERS_LIMIT, CheckPapers, Commitments
from troth.protocol.market.signed import Order, TraceCommitment
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileLayout, TileOpening
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Unveil, Unveiled
from troth.transport.sealing import seal


async def unveil(context: NodeContext, post: Post, header: Unveil, payload: memoryview) -> tuple[Unveiled, bytes]:
    """Answer an Unveil from what is on disk, so that a restarted node can do it.

    Raises:
        OutOfOrder: this node signed nothing in this check.
        AlreadySigned: the trace was opened for other commitments often enough.
        MarketError, InvalidSignature, NotAssigned: the check is none, or the commitments are not its verifiers'.
    """
    if len(payload) != header.papers_size:
        raise BadInput("the payload is not as long as its papers", len(payload), "Send the papers alone.")
    shown = canonical.decode(Commitments, payload, PAPERS_LIMIT)
    order, segment = Hash32(header.order), header.segment
    papers = await _papers(context, header, shown)
    drawn = await asyncio.to_thread(drawn_check, papers, post)
    if post.sender != papers.tab.payee or drawn.order_id != order or segment >= len(drawn.seats):
        raise NotAssigned("these papers are of another order or scheduler", order, "Send those of your own order.")
    subject = Hash32(keccak256(bytes(payload)))
    known = await context.write(lambda: context.stores.words.opening(order, segment, subject))
    if known is not None:
        return Unveiled(), known
    await context.write(lambda: context.stores.words.require_openable(order, segment))
    trace = await _trace(context, header, papers, drawn)
    committed = _committed(context, header, shown.commitments, drawn)
    lottery.require_tiles_secret(papers.order.message, shown.second_secret)
    opened = await _opened(context, trace, drawn, (shown.second_secret, committed))
    sealed = sealed_opening(opened, papers.order.message, order, segment, context.me)
    kept = await context.write(lambda: context.stores.words.keep_opening((order, segment), subject, sealed))
    return Unveiled(), kept


async def _papers(context: NodeContext, header: Unveil, shown: Commitments) -> CheckPapers:
    """The check's papers: sent to an inferencer, kept by a verifier."""
    if header.role == "infer":
        if shown.check is None:
            raise BadInput("an inferencer is shown the check that it opens for", None, "Send its papers.")
        return shown.check
    begun = await context.write(lambda: context.stores.words.begun(header.order, header.segment, "check"))
    if begun is None:
        raise OutOfOrder("this node checks no such segment", header.segment, "Send the check with Advance first.")
    return canonical.decode(CheckPapers, begun.papers, PAPERS_LIMIT)


async def _trace(context: NodeContext, header: Unveil, papers: CheckPapers, drawn: DrawnCheck) -> StoredTrace:
    """The own trace of the check, once its result or commitment was signed here."""
    order, segment, infers = header.order, header.segment, header.role == "infer"
    kind, attempt = (RESULT, INFERS) if infers else (COMMITMENT, CHECKS)
    word = await context.write(lambda: context.stores.words.find(order, segment, kind))
    trace = await context.write(lambda: context.stores.traces.find(order, segment, attempt))
    if word is None or trace is None:
        raise OutOfOrder("this node signed nothing about this segment", segment, "Conclude or recommit first.")
    if infers and word != canonical.encode(papers.results[segment]):
        raise NotAssigned("the check is about another result than this node's", segment, "Check what was signed.")
    if not infers and context.me not in drawn.seats[segment].seats:
        raise NotAssigned("this node is not drawn any more", segment, "Ask the nodes that are.")
    return trace


def _committed(
    context: NodeContext, header: Unveil, commitments: Sequence[Signed[TraceCommitment]], drawn: DrawnCheck
) -> tuple[Hash32, ...]:
    """What drawn verifiers committed to, in the order of their first seats; a silent one may be left out."""
    wanted = (header.order, header.segment, typed_data.struct_hash(drawn.results[header.segment]))
    waiting = iter(drawn.seats[header.segment].seats)
    found: dict[Address, Hash32] = {}
    for signed in commitments:
        signer = next((node for node in waiting if _is_by(signed, node, context)), None)
        message = signed.message
        if signer is None or (message.order, message.segment, message.result) != wanted:
            what = "a commitment is not of a drawn verifier, or not in the order of their seats"
            raise NotAssigned(what, message.commitment, "Send those of this check in the order of their first seats.")
        found[signer] = message.commitment
    if not found or (header.role == "check" and context.me not in found):
        raise NotAssigned("this verifier's own commitment is missing", len(found), "Send all commitments.")
    _require_majority(found, drawn.seats[header.segment])
    return tuple(found.values())


def _require_majority(found: dict[Address, Hash32], seats: DrawnSeats) -> None:
    """Fewer seats than decide would let a scheduler open before most verifiers have committed."""
    committed = sum(count for node, count in seats.seats.items() if node in found)
    if 2 * committed <= len(seats.operators):
        raise OutOfOrder("most seats have not committed yet", committed, "Open after the verifiers have committed.")


def _is_by(signed: Signed[TraceCommitment], node: Address, context: NodeContext) -> bool:
    try:
        signed.require(context.operator.domain, node)
    except InvalidSignature:
        return False
    return True


async def _opened(
    context: NodeContext, trace: StoredTrace, drawn: DrawnCheck, picked: tuple[Hash32, tuple[Hash32, ...]]
) -> Opened:
    root, salt, result = Hash32(trace.root), Hash32(trace.salt), drawn.results[trace.segment]
    if drawn.view.rules.exact:
        return Opened(root, salt)
    indices = checks.check_tiles(*picked, result, drawn.view.rules)
    rows = await context.write(lambda: context.stores.traces.rows(trace))
    model = context.ground.state.classes[context.execution_class].model

    def tiles() -> TileOpening:
        layout = TileLayout(trace.order_id, model, trace.positions, trace.columns, Dtype(trace.dtype))
        return layout.commit(rows).open(indices)

    return Opened(root, salt, await asyncio.to_thread(tiles))


def sealed_opening(opened: Opened, order: Order, order_id: Hash32, segment: int, operator: Address) -> bytes:
    """An opening that only the holder of the order's reply key reads."""
    return seal(canonical.encode(opened), order.reply_key, opening_context(order_id, segment, operator))
