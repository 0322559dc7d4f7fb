"""The rules of service that a dishonest node breaks: what it signs, what it says, what it opens, what it brings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adversaries.deceits import DECEITS, HONEST, Deceit
from adversaries.notes import INFERENCER, Notes, verifier
from adversaries.rules import set_rule
from troth.node.court import bringing
from troth.node.errors import NodeBusy
from troth.node.orders import checking, concluding, unveiling
from troth.node.orders.concluding import committed_trace
from troth.node.orders.context import NodeContext
from troth.node.orders.seat import drawn_check
from troth.node.orders.service import Answer, OrderService
from troth.node.orders.session import INFERS, SegmentSession
from troth.protocol.market import canonical, messages
from troth.protocol.market.checks import Opened
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import CheckPapers
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Address, Hash32, address_to_bytes
from troth.protocol.wire import OrderRequest
from troth.protocol.wire_market import Advance, Conclude, Unveil

_parts: dict[tuple[bytes, int, Address], str] = {}
"""What a verifier of this process is in an order: "verifier 0", …"""
_copied: dict[tuple[bytes, int, Address], Hash32] = {}
"""Roots of traces that copying verifiers of this process were shown."""


class Conspiracy:
    """What the notes say of one node of this process."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def deceit(self, order: bytes, segment: int, me: Address, *, infers: bool) -> Deceit:
        """How a node cheats in its part of an order."""
        part = _part(segment) if infers else _parts.get((bytes(order), segment, me), "")
        cheat = self.notes.cheat(order, part)
        return HONEST if cheat is None else DECEITS[cheat]

    def of(self, context: NodeContext, session: SegmentSession) -> Deceit:
        """The same for a session."""
        seat = session.seat
        return self.deceit(seat.order_id, seat.index, context.me, infers=seat.infers)


def _part(segment: int) -> str:
    return INFERENCER if segment == 0 else f"{INFERENCER} {segment}"


class ConspiringService(OrderService):
    """Answers as the shipped service does, but for what its notes say; `conspiracy` is set once for the process."""

    conspiracy: Conspiracy

    async def handle(self, sender: Address, header: OrderRequest, payload: memoryview) -> Answer:
        if isinstance(header, Advance) and header.role == "check" and header.papers_size:
            self._note_part(sender, header, payload)
        deceit = HONEST
        if isinstance(header, Unveil | Conclude):
            infers = isinstance(header, Conclude) or header.role == "infer"
            deceit = self.conspiracy.deceit(header.order, header.segment, self._context.me, infers=infers)
        if isinstance(header, Unveil) and deceit.opening == "silent":
            raise NodeBusy("this node opens nothing", None, "Ask for ever.")
        if isinstance(header, Conclude) and deceit.result == "withheld":
            raise NodeBusy("this node signs nothing", None, "Ask for ever.")
        return await super().handle(sender, header, payload)

    async def _hear(self, sender: Address, payload: memoryview) -> Answer:
        try:
            return await super()._hear(sender, payload)
        except InvalidVoucher:
            self.conspiracy.notes.tell(address_to_bytes(self._context.me), what="refused a voucher")
            raise

    def _note_part(self, sender: Address, header: Advance, payload: memoryview) -> None:
        """Which of the drawn verifiers this node is: that is how notes name it."""
        if not self.conspiracy.notes.cheats(header.order):
            return
        papers = canonical.decode(CheckPapers, payload[: header.papers_size], len(payload))
        drawn = drawn_check(papers, self._post(sender)).seats[header.segment]
        for number, node in enumerate(drawn.seats):
            if node == self._context.me:  # who was not drawn is refused by the shipped service, as a friend is
                _parts[bytes(header.order), header.segment, node] = verifier(number)


def break_rules(conspiracy: Conspiracy) -> None:
    """Replace the rules of every node of this process by ones that ask the notes first."""
    ConspiringService.conspiracy = conspiracy
    _sign_as_told(conspiracy)
    _open_as_told(conspiracy)
    _conclude_as_told(conspiracy)
    _bring_as_told(conspiracy)


def _sign_as_told(conspiracy: Conspiracy) -> None:
    honest_sign, honest_judge = checking._sign, checking.judge_rows  # type: ignore[attr-defined]
    honest_commitment = checking.own_commitment

    async def judge(engine: Any, session: Any, claimed: Any, *, root_matches: bool) -> Any:
        """Here ``session`` is a verifier's session."""
        judgement = await honest_judge(engine, session, claimed, root_matches=root_matches)
        seat, tokens = session.seat, judgement.tokens
        said = {"states": judgement.states.score, "state_cut": judgement.states.cut, "root": root_matches}
        if tokens is not None:
            said |= {"tokens": tokens.score, "token_cut": tokens.cut, "end": tokens.end_ok}
        part = _parts.get((bytes(seat.order_id), seat.index, seat.me), "verifier")
        cheats = part in conspiracy.notes.cheats(seat.order_id)
        if conspiracy.deceit(seat.order_id, seat.index, seat.me, infers=False).copies:
            _copied[bytes(seat.order_id), seat.index, seat.me] = Hash32(committed_trace(session, claimed).root)
        conspiracy.notes.tell(seat.order_id, what="judged", by=seat.me, segment=seat.index, cheats=cheats, **said)
        return judgement

    def sign(context: NodeContext, session: SegmentSession, opinion: Opinion, shown: Any, *, keeps: bool) -> bytes:
        told = conspiracy.of(context, session).opinion
        said = opinion if told is None else told
        return honest_sign(context, session, said, shown, keeps=keeps and said is Opinion.REJECT)

    def commitment(context: NodeContext, session: SegmentSession) -> Hash32:
        """Once a copying verifier was shown the rows, it names them in place of its own."""
        seat, trace = session.seat, session.trace
        root = _copied.get((bytes(seat.order_id), seat.index, context.me))
        if root is None or trace is None:
            return honest_commitment(context, session)
        return messages.verifier_commitment(seat.order_id, seat.index, context.me, root=root, salt=Hash32(trace.salt))

    set_rule(checking, "judge_rows", judge)
    set_rule(checking, "_sign", sign)
    set_rule(checking, "own_commitment", commitment)


def _open_as_told(conspiracy: Conspiracy) -> None:
    honest = unveiling._opened

    async def opened(context: NodeContext, trace: Any, drawn: Any, picked: Any) -> Opened:
        own = await honest(context, trace, drawn, picked)
        infers = trace.attempt == INFERS
        deceit = conspiracy.deceit(trace.order_id, trace.segment, context.me, infers=infers)
        if deceit.opening == "leaked":
            conspiracy.notes.share(trace.order_id, canonical.encode(own))
        if deceit.opening != "copied":
            return own
        leaked = conspiracy.notes.shared(trace.order_id)
        if leaked is None:
            raise NodeBusy("nothing was leaked yet", None, "Ask again.")
        return canonical.decode(Opened, leaked, len(leaked))

    set_rule(unveiling, "_opened", opened)


def _conclude_as_told(conspiracy: Conspiracy) -> None:
    honest = concluding._sign

    def sign(context: NodeContext, session: SegmentSession, result: Any) -> bytes:
        deceit = conspiracy.of(context, session)
        if deceit.result == "other trace":
            salt = Hash32(session.trace.salt)  # type: ignore[union-attr]
            result = replace(result, trace_commitment=messages.trace_commitment(Hash32(b"\x66" * 32), salt))
        word = honest(context, session, result)
        if deceit.result == "twice":
            other = replace(result, trace_commitment=Hash32(b"\x67" * 32))
            signed = Signed(other, context.operator.sign(other))
            conspiracy.notes.share(result.order, canonical.encode(signed))
        return word

    set_rule(concluding, "_sign", sign)


def _bring_as_told(conspiracy: Conspiracy) -> None:
    honest = bringing.Bringer.rejected

    async def rejected(self: Any, rejection: Any) -> bool:
        deceit = conspiracy.deceit(rejection.order, rejection.segment, self.context.me, infers=False)
        return True if not deceit.brings else await honest(self, rejection)

    set_rule(bringing.Bringer, "rejected", rejected)


__all__ = ["Conspiracy", "ConspiringService", "break_rules"]
