"""M26: disputes over arithmetic, turn by turn, and the number or row by which each conviction was won."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject
from troth.protocol.bindings import DISPUTES, functions_by_selector
from troth.protocol.bindings.structs import converter, decode_parameters
from troth.protocol.calls import DecodedCall
from troth.protocol.disputes import game
from troth.protocol.disputes.calls import (
    DisputeEvent,
    DisputeLost,
    DisputeMoot,
    DisputeMoved,
    DisputeOpened,
    DisputesDeployed,
    DisputeWon,
    NodesShown,
    RowGiven,
    SumGiven,
    decode_event,
)
from troth.protocol.disputes.game import Dispute, DisputeTurn, NamedNode
from troth.protocol.disputes.judging import DisputeJudge, read
from troth.protocol.disputes.layout import NUDGES
from troth.protocol.disputes.proofs import RowProof, StepProof
from troth.protocol.disputes.sums import unpacked
from troth.protocol.disputes.tree import path_root, root_over
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.logs import LogMeta
from troth.protocol.market.events import FaultProven
from troth.protocol.market.messages import state_hash
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import ZERO_HASH, Hash32

TURNS = {
    "show": (DisputeTurn.ACCUSED, DisputeTurn.ACCUSER),
    "defend": (DisputeTurn.ACCUSED, DisputeTurn.ACCUSER),
    "choose": (DisputeTurn.ACCUSER, DisputeTurn.ACCUSED),
    "chooseTensor": (DisputeTurn.ACCUSER, DisputeTurn.ACCUSED),
    "askRow": (DisputeTurn.ACCUSER, DisputeTurn.ROW),
    "giveRow": (DisputeTurn.ROW, DisputeTurn.ACCUSER),
    "askSum": (DisputeTurn.ACCUSER, DisputeTurn.SUM),
    "giveSum": (DisputeTurn.SUM, DisputeTurn.ACCUSER),
}
"""Whose turn each call is, and whose it is after it."""


@dataclass(frozen=True, slots=True)
class PlayedDispute:
    """One dispute's events, in the order of the chain."""

    id: Hash32
    events: tuple[DisputeEvent, ...]

    @property
    def opened(self) -> DisputeOpened | None:
        """Its first event; None where that is missing."""
        return next((one for one in self.events if isinstance(one, DisputeOpened)), None)


def events_of(subject: AuditSubject) -> tuple[DisputeEvent, ...]:
    """What the deployment's prover said, as far as it is a Disputes'."""
    prover = subject.evidence.parameters.prover
    logs = (log for log in subject.evidence.logs if log.address == prover and prover != NO_ADDRESS)
    return tuple(event for log in logs if (event := decode_event(log)) is not None)


def passes_tokens(subject: AuditSubject) -> bool:
    """Whether the prover weighs wrong tokens as ``Proofs`` does: there is no other, or it is a Disputes."""
    return subject.evidence.parameters.prover == NO_ADDRESS or bool(events_of(subject)) or not _said(subject)


def is_won(subject: AuditSubject, proven: FaultProven) -> bool:
    """Whether a conviction is a dispute's that was won in the same transaction."""
    won = (one for one in events_of(subject) if isinstance(one, DisputeWon))
    return any(one.meta.transaction == proven.meta.transaction and one.accused == proven.convict for one in won)


def _said(subject: AuditSubject) -> bool:
    prover = subject.evidence.parameters.prover
    return any(log.address == prover for log in subject.evidence.logs)


def _disputes(subject: AuditSubject) -> Iterator[CheckResult]:
    played: dict[Hash32, list[DisputeEvent]] = defaultdict(list)
    for event in events_of(subject):
        if not isinstance(event, DisputesDeployed):
            played[event.dispute].append(event)
    for identity, events in played.items():
        dispute = PlayedDispute(identity, tuple(events))
        yield CheckResult(identity, tuple(_replayed(subject, dispute)))


def _replayed(subject: AuditSubject, dispute: PlayedDispute) -> Iterator[Finding]:
    """Each turn as the contract takes it; what cannot follow is a violation, an end that convicts a finding."""
    opened = dispute.opened
    if opened is None:
        yield _violation(dispute, dispute.events[0].meta, "A dispute moved that was never opened")
        return
    state: Dispute | None = None
    shown: tuple[Hash32, ...] | None = None
    for event in dispute.events:
        try:
            match event:
                case NodesShown():
                    shown = event.nodes
                case DisputeMoved():
                    _require_move(subject, opened, state, event, shown)
                    state, shown = event.state, None
                case DisputeWon():
                    _require_won(subject, opened, state, event)
                    yield _convicted(event)
                case DisputeLost():
                    _require_lost(state, event)
                case DisputeOpened() | DisputeMoot() | RowGiven() | SumGiven():
                    pass
        except _Unseen as unseen:
            yield Finding("M26", FindingKind.INCONCLUSIVE, str(unseen), dispute.id, place=event.meta)
        except (_Broken, ProtocolError, ValueError) as broken:
            yield _violation(dispute, event.meta, str(broken))


class _Broken(Exception):
    """A turn that no Disputes takes."""


class _Unseen(Exception):
    """A transaction's input that could not be had, or that came through another contract."""


def _require_move(
    subject: AuditSubject,
    opened: DisputeOpened,
    before: Dispute | None,
    moved: DisputeMoved,
    shown: tuple[Hash32, ...] | None,
) -> None:
    after, window = moved.state, subject.evidence.parameters.answer_window
    if after.deadline != moved.meta.block + window:
        raise _Broken(f"A turn has {window} blocks, and not {after.deadline - moved.meta.block}")
    if before is None:
        if after.matter != state_hash(opened.matter) or after.turn != DisputeTurn.ACCUSED or after.root != ZERO_HASH:
            raise _Broken("The dispute was opened about something else")
        return
    if moved.meta.block > before.deadline:
        raise _Broken("A turn was taken after its end")
    call = _call(subject, moved.meta)
    turn = TURNS.get(call.entry.name)
    if turn != (before.turn, after.turn):
        raise _Broken(f"{call.entry.name} was no turn of this dispute")
    if call.entry.name == "giveSum":
        judge, number = DisputeJudge(opened.matter, opened.shape, before.claim), before.number - 1
        if not judge.concludes(before.tensor, before.place, before.node, number, bytes(call.value("parts"))):
            raise _Broken("The parts that the accused gave do not make the number")
    if after != replace(_after(call, before, after, shown), deadline=after.deadline, turn=after.turn):
        raise _Broken(f"{call.entry.name} leaves another state")


def _after(call: DecodedCall, before: Dispute, after: Dispute, shown: tuple[Hash32, ...] | None) -> Dispute:
    """What a call makes of a state; of the levels of a tensor, which hang on the shape, the contract is believed."""
    match call.entry.name:
        case "show" | "defend":
            if call.entry.name == "defend":
                before = _defended(before, call)
            root = root_over(shown or ())
            if before.root != ZERO_HASH and root != before.node:
                raise _Broken("The accused showed other nodes than those it committed to")
            first = before.root == ZERO_HASH
            return replace(before, root=root if first else before.root, node=root, shown=game.stride(before.left))
        case "choose" | "chooseTensor":
            choice: NamedNode = converter(NamedNode)(call.value("choice"))
            chosen = _descended(before, choice)
            if call.entry.name == "choose":
                return chosen
            return replace(chosen, in_tensor=True, tensor=chosen.place, place=0, left=after.left)
        case "askSum":
            chosen = _descended(before, converter(NamedNode)(call.value("choice")))
            return replace(chosen, number=int(call.value("number")) + 1)
        case "giveSum":
            return replace(before, parts=Hash32(keccak256(bytes(call.value("parts")))))
        case "askRow":
            return replace(before, asked=int(call.value("position")) + 1)
        case _:
            return before


def _defended(before: Dispute, call: DecodedCall) -> Dispute:
    nudge, moved = int(call.value("nudge")), int(call.value("moved"))
    if not 1 <= nudge <= NUDGES or before.root != ZERO_HASH:
        raise _Broken("The accused named a nudge that there is not, or after its first turn")
    return replace(before, nudge=nudge, moved=moved, left=before.left + 1)


def _descended(before: Dispute, choice: NamedNode) -> Dispute:
    if path_root(choice.node, choice.index, choice.siblings) != before.node:
        raise _Broken("The accuser chose a node that was not shown")
    place = before.place << before.shown | choice.index
    return replace(before, place=place, node=choice.node, left=before.left - before.shown, shown=0)


def _require_lost(state: Dispute | None, lost: DisputeLost) -> None:
    if state is None or state.turn != DisputeTurn.ACCUSER or lost.meta.block <= state.deadline:
        raise _Broken("The accuser lost while it was not its turn, or before that was over")


def _require_won(subject: AuditSubject, opened: DisputeOpened, state: Dispute | None, won: DisputeWon) -> None:
    """The end convicts: by the clock, by one number, or by the row, each computed again."""
    if state is None:
        raise _Broken("A dispute was won that never began")
    subject_hash = Hash32(abi_keccak(["uint8", "bytes32"], [int(Fault.BY_PROOF), state.result]))
    proven = (one for one, _ in subject.history.of(FaultProven) if one.subject == subject_hash)
    if not any(one.meta.transaction == won.meta.transaction and one.convict == won.accused for one in proven):
        raise _Broken("The dispute was won, and nobody was convicted")
    call = _call(subject, won.meta)
    match call.entry.name:
        case "silent":
            if state.turn == DisputeTurn.ACCUSER or won.meta.block <= state.deadline:
                raise _Broken("The accused was convicted for silence within its turn")
        case "wrongStep":
            chosen = _descended(state, converter(NamedNode)(call.value("choice")))
            judge = DisputeJudge(opened.matter, opened.shape, state.claim)
            proof = read(StepProof, call.value("step"))
            if not judge.is_wrong(chosen.tensor, chosen.place, chosen.node, proof):
                raise _Broken("The number by which it was won is the one that follows")
        case "wrongPart":
            parts, index = bytes(call.value("parts")), int(call.value("index"))
            judge, number = DisputeJudge(opened.matter, opened.shape, state.claim), state.number - 1
            given = unpacked(parts)[index]
            proof = read(StepProof, call.value("step"))
            if keccak256(parts) != state.parts or not judge.is_wrong_part(
                state.tensor, state.place, number, index, given, proof
            ):
                raise _Broken("The part by which it was won is the one that follows")
        case "wrongRow":
            if not DisputeJudge(opened.matter, opened.shape, state.claim).is_far(read(RowProof, call.value("opening"))):
                raise _Broken("The row by which it was won is as near as honest rows are")
        case other:
            raise _Broken(f"{other} wins no dispute")


def _call(subject: AuditSubject, place: LogMeta) -> DecodedCall:
    transaction = subject.evidence.transactions.get(place.transaction)
    if transaction is None:
        raise _Unseen("The transaction's input could not be had")
    if transaction.receiver != subject.evidence.parameters.prover:
        raise _Unseen(f"The call came through another contract, {transaction.receiver}")
    entry = functions_by_selector(DISPUTES).get(transaction.data[:4])
    if entry is None:
        raise _Broken("Its input is no call of a Disputes")
    return DecodedCall(entry, decode_parameters(entry.inputs, transaction.data[4:]))


def _convicted(won: DisputeWon) -> Finding:
    return Finding(
        "M26",
        FindingKind.CHEATED,
        f"a dispute over its arithmetic was won by {won.accuser}",
        won.dispute,
        party=won.accused,
        role="convict",
        place=won.meta,
        action="none: Disputes has convicted",
    )


def _violation(dispute: PlayedDispute, place: LogMeta, what: str) -> Finding:
    return Finding("M26", FindingKind.MISMATCH, what, dispute.id, place=place)


CHECKS = (AuditCheck("M26", "Disputes, turn by turn", _disputes),)
