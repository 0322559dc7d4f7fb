"""M26: disputes over arithmetic, turn by turn, and the number or row by which each conviction was won."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject
from troth.protocol.bindings import DISPUTES, IMPRINTS, functions_by_selector, named
from troth.protocol.bindings.structs import converter, decode_parameters
from troth.protocol.calls import DecodedCall
from troth.protocol.disputes.calls import (
    Defended,
    DisputeEvent,
    DisputeLost,
    DisputeMoot,
    DisputeOpened,
    DisputesDeployed,
    DisputeWon,
    NodeChosen,
    NodesShown,
    RowAsked,
    RowGiven,
    SumAsked,
    SumGiven,
    TensorChosen,
    decode_event,
)
from troth.protocol.disputes.game import Dispute, DisputeTurn, NamedNode, PackedDispute
from troth.protocol.disputes.judging import DisputeJudge, read
from troth.protocol.disputes.layout import NUDGES
from troth.protocol.disputes.life import Life, after
from troth.protocol.disputes.proofs import RowProof, StepProof
from troth.protocol.disputes.sums import unpacked
from troth.protocol.disputes.tree import path_root
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.market.events import FaultProven
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import ZERO_HASH, Hash32

Arguments = Mapping[str, Callable[[DecodedCall], object]]


def _argument(name: str) -> Callable[[DecodedCall], object]:
    return lambda call: call.value(name)


def _index(call: DecodedCall) -> object:
    return converter(NamedNode)(call.value("choice")).index


def _nodes(call: DecodedCall) -> object:
    return converter(tuple[Hash32, ...])(call.value("nodes"))


TURNS: Mapping[type, tuple[Mapping[str, DisputeTurn], Arguments]] = {
    Defended: ({"defend": DisputeTurn.ACCUSED}, {"nudge": _argument("nudge"), "moved": _argument("moved")}),
    NodesShown: ({"show": DisputeTurn.ACCUSED, "defend": DisputeTurn.ACCUSED}, {"nodes": _nodes}),
    NodeChosen: ({"choose": DisputeTurn.ACCUSER}, {"index": _index}),
    TensorChosen: ({"chooseTensor": DisputeTurn.ACCUSER}, {"index": _index}),
    RowAsked: ({"askRow": DisputeTurn.ACCUSER}, {"position": _argument("position")}),
    RowGiven: ({"giveRow": DisputeTurn.ROW}, {}),
    SumAsked: ({"askSum": DisputeTurn.ACCUSER}, {"index": _index, "number": _argument("number")}),
    SumGiven: ({"giveSum": DisputeTurn.SUM}, {"parts": lambda call: bytes(call.value("parts"))}),
}
"""Of each event the calls that it comes from, whose turn they are, and which of its fields they name. Of a tensor's
levels, which hang on the shape, the contract is believed."""


@dataclass(frozen=True, slots=True)
class PlayedDispute:
    """One dispute's events, in the order of the chain."""

    id: Hash32
    events: tuple[DisputeEvent, ...]


def events_of(subject: AuditSubject) -> tuple[DisputeEvent, ...]:
    """What the deployment's prover said, as far as it is a Disputes'."""
    return tuple(event for log in _logs(subject) if (event := decode_event(log)) is not None)


def passes_tokens(subject: AuditSubject) -> bool:
    """Whether the prover weighs wrong tokens as ``Proofs`` does: there is no other, or a Disputes or an Imprints."""
    return all(log.topics and log.topics[0] in _passing() for log in _logs(subject))


def is_won(subject: AuditSubject, proven: FaultProven) -> bool:
    """Whether a conviction is a dispute's that was won in the same transaction."""
    won = (one for one in events_of(subject) if isinstance(one, DisputeWon))
    return any(one.meta.transaction == proven.meta.transaction and one.accused == proven.convict for one in won)


@lru_cache(maxsize=1)
def _passing() -> frozenset[bytes]:
    """Topics of the provers that pass wrong tokens on."""
    return frozenset(event.topic for prover in (DISPUTES, IMPRINTS) for event in named("event", prover).values())


def _logs(subject: AuditSubject) -> Iterator[EventLog]:
    prover = subject.evidence.parameters.prover
    if prover == NO_ADDRESS:
        return iter(())
    return (log for log in subject.evidence.logs if log.address == prover)


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
    life: Life | None = None
    window = subject.evidence.parameters.answer_window
    for event in dispute.events:
        before = life
        try:
            life = after(before, event, window)
            match event:
                case DisputeWon():
                    _require_won(subject, life, event)
                    yield _convicted(event)
                case DisputeLost():
                    _require_lost(life.state, event)
                case DisputesDeployed() | DisputeOpened() | DisputeMoot():
                    pass
                case _ if before is not None:
                    _require_turn(subject, before, event)
        except _Unseen as unseen:
            yield Finding("M26", FindingKind.INCONCLUSIVE, str(unseen), dispute.id, place=event.meta)
        except (_Broken, ProtocolError, ValueError) as broken:
            yield _violation(dispute, event.meta, str(broken))


class _Broken(Exception):
    """A turn that no Disputes takes."""


class _Unseen(Exception):
    """A transaction's input that could not be had, or that came through another contract."""


def _require_turn(subject: AuditSubject, before: Life, turn: DisputeEvent) -> None:
    """The event is what its transaction asked for, in time, from the state that all turns before it made."""
    state, call = before.state, _call(subject, turn.meta)
    expected, arguments = TURNS[type(turn)]
    if call.entry.name not in expected or state.turn != expected[call.entry.name]:
        raise _Broken(f"{call.entry.name} was no turn of this dispute")
    if turn.meta.block > state.deadline:
        raise _Broken("A turn was taken after its end")
    # What a defence shows comes behind the nudge that it names.
    if (call.entry.name, type(turn)) != ("defend", NodesShown):
        _require_state(state, call)
    if any(getattr(turn, name) != value(call) for name, value in arguments.items()):
        raise _Broken(f"{call.entry.name} leaves another state")
    match turn:
        case Defended() if not 1 <= turn.nudge <= NUDGES or state.root != ZERO_HASH:
            raise _Broken("The accused named a nudge that there is not, or after its first turn")
        case NodeChosen() | TensorChosen() | SumAsked():
            _descended(state, converter(NamedNode)(call.value("choice")))


def _require_state(state: Dispute, call: DecodedCall) -> None:
    """The contract takes a call over the state alone whose hash it keeps."""
    if converter(PackedDispute)(call.value("state")) != state.packed:
        raise _Broken(f"{call.entry.name} was called over another state than the turns before it make")


def _descended(before: Dispute, choice: NamedNode) -> Dispute:
    """The word that was chosen at the end, or what any choice leads to."""
    if path_root(choice.node, choice.index, choice.siblings) != before.node:
        raise _Broken("The accuser chose a node that was not shown")
    place = before.place << before.shown | choice.index
    return replace(before, place=place, node=choice.node, left=before.left - before.shown, shown=0)


def _require_lost(state: Dispute, lost: DisputeLost) -> None:
    if state.turn != DisputeTurn.ACCUSER or lost.meta.block <= state.deadline:
        raise _Broken("The accuser lost while it was not its turn, or before that was over")


def _require_won(subject: AuditSubject, life: Life, won: DisputeWon) -> None:
    """The end convicts: by the clock, by one number, or by the row, each computed again."""
    state = life.state
    subject_hash = Hash32(abi_keccak(["uint8", "bytes32"], [int(Fault.BY_PROOF), state.result]))
    proven = (one for one, _ in subject.history.of(FaultProven) if one.subject == subject_hash)
    if not any(one.meta.transaction == won.meta.transaction and one.convict == won.accused for one in proven):
        raise _Broken("The dispute was won, and nobody was convicted")
    call = _call(subject, won.meta)
    _require_state(state, call)
    match call.entry.name:
        case "silent":
            if state.turn == DisputeTurn.ACCUSER or won.meta.block <= state.deadline:
                raise _Broken("The accused was convicted for silence within its turn")
        case "wrongStep":
            chosen = _descended(state, converter(NamedNode)(call.value("choice")))
            judge = DisputeJudge(life.matter, life.shape, state.claim)
            proof = read(StepProof, call.value("step"))
            if not judge.is_wrong(chosen.tensor, chosen.place, chosen.node, proof):
                raise _Broken("The number by which it was won is the one that follows")
        case "wrongPart":
            parts, index = bytes(call.value("parts")), int(call.value("index"))
            judge, number = DisputeJudge(life.matter, life.shape, state.claim), state.number - 1
            given = unpacked(parts)[index]
            proof = read(StepProof, call.value("step"))
            if keccak256(parts) != state.parts or not judge.is_wrong_part(
                state.tensor, state.place, number, index, given, proof
            ):
                raise _Broken("The part by which it was won is the one that follows")
        case "wrongSum":
            parts, number = bytes(call.value("parts")), state.number - 1
            judge = DisputeJudge(life.matter, life.shape, state.claim)
            if keccak256(parts) != state.parts or judge.concludes(state.tensor, state.place, state.node, number, parts):
                raise _Broken("The parts by which it was won make the number")
        case "wrongRow":
            if not DisputeJudge(life.matter, life.shape, state.claim).is_far(read(RowProof, call.value("opening"))):
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
