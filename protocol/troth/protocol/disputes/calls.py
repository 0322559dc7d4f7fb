"""Calls and reads of contracts/disputes/Disputes.sol, and its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from troth.protocol.bindings import DISPUTES, named
from troth.protocol.bindings.structs import converter
from troth.protocol.calls import Call, View, calldata
from troth.protocol.disputes.game import Dispute, Matter, NamedNode
from troth.protocol.logs import EventDecoder, EventLog, LogMeta, decoder
from troth.protocol.market.signed import Result, SignedOrder
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.market.types import Bytes, ExecutionClass
from troth.protocol.types import Address, Hash32, ModelDescriptor, Uint16, Uint32


@dataclass(frozen=True, slots=True)
class Accusation:
    """What a dispute is opened with; ``mark``: where in the class' name "/layers:" begins."""

    order: SignedOrder
    execution_class: ExecutionClass
    model: ModelDescriptor
    result: Result
    signature: Bytes
    shape: Bytes
    mark: Uint16
    position: Uint32


@dataclass(frozen=True, slots=True)
class DisputesDeployed:
    """The contract stands, for the deployment with this Evidence; a turn lasts so many blocks."""

    evidence: Address
    steps: Address
    window: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class DisputeOpened:
    """Somebody names a row that a node signed, and what it follows from; ``left``: levels over all tensors."""

    dispute: Hash32
    accused: Address
    accuser: Address
    matter: Matter
    shape: bytes
    result: Hash32
    offence_block: int
    bond: int
    left: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Defended:
    """The accused names a nudge; what it shows is told next."""

    dispute: Hash32
    nudge: int
    moved: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class NodesShown:
    """The nodes that the accused showed."""

    dispute: Hash32
    nodes: tuple[Hash32, ...]
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class NodeChosen:
    """The accuser named one of the nodes that were shown."""

    dispute: Hash32
    index: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TensorChosen:
    """The accuser named a tensor; ``left``: levels above its words."""

    dispute: Hash32
    index: int
    left: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class RowAsked:
    """The accuser asked for a signed row."""

    dispute: Hash32
    position: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class RowGiven:
    """The accused gave the signed row that was asked for."""

    dispute: Hash32
    row: ShownRow
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SumAsked:
    """The accuser named a word, and asked for the parts of one of its numbers."""

    dispute: Hash32
    index: int
    number: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class SumGiven:
    """The accused gave the parts of the sum that was asked for; none, where the number is no long sum."""

    dispute: Hash32
    parts: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class DisputeWon:
    """The accused was convicted; ``paid`` went to the accuser's credit."""

    dispute: Hash32
    accused: Address
    accuser: Address
    paid: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class DisputeLost:
    """The accuser was silent; its bond went to the accused's credit."""

    dispute: Hash32
    accused: Address
    accuser: Address
    paid: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class DisputeMoot:
    """Nothing could come of it any more; the bond went back."""

    dispute: Hash32
    accused: Address
    accuser: Address
    paid: int
    meta: LogMeta


DisputeEvent = (
    DisputesDeployed
    | DisputeOpened
    | Defended
    | NodesShown
    | NodeChosen
    | TensorChosen
    | RowAsked
    | RowGiven
    | SumAsked
    | SumGiven
    | DisputeWon
    | DisputeLost
    | DisputeMoot
)


def decode_event(log: EventLog) -> DisputeEvent | None:
    """The event of a log of the contract; None for one that it does not have. Raises InvalidField for a broken one."""
    found = _decoders().get(log.topics[0]) if log.topics else None
    return None if found is None else found.event(log)


def open_dispute(accusation: Accusation, value: int) -> Call:
    """Open one; ``value`` in wei is the bond in a deployment in the coin, else 0."""
    return Call("open", _data("open", accusation), value)


def show(dispute: Hash32, state: Dispute, nodes: tuple[Hash32, ...]) -> Call:
    """The accused's turn."""
    return Call("show", _data("show", dispute, state, nodes))


def defend(dispute: Hash32, state: Dispute, nudge: int, moved: int, nodes: tuple[Hash32, ...]) -> Call:
    """The accused's first turn where a nudge moves its row: ``nodes`` are of the tree over both traces."""
    return Call("defend", _data("defend", dispute, state, nudge, moved, nodes))


def choose(dispute: Hash32, state: Dispute, choice: NamedNode) -> Call:
    """The accuser's turn, where levels are left below the choice."""
    return Call("choose", _data("choose", dispute, state, choice))


def choose_tensor(dispute: Hash32, state: Dispute, matter: Matter, shape: bytes, choice: NamedNode) -> Call:
    """The accuser's turn, where the tree over all tensors ends."""
    return Call("chooseTensor", _data("chooseTensor", dispute, state, matter, shape, choice))


def ask_row(dispute: Hash32, state: Dispute, matter: Matter, position: int) -> Call:
    """The accuser's, once: a signed row did not travel."""
    return Call("askRow", _data("askRow", dispute, state, matter, position))


def give_row(dispute: Hash32, state: Dispute, matter: Matter, row: ShownRow) -> Call:
    """The accused's turn where the signed row was asked for."""
    return Call("giveRow", _data("giveRow", dispute, state, matter, row))


def ask_sum(dispute: Hash32, state: Dispute, choice: NamedNode, number: int) -> Call:
    """The accuser's turn at a word, where a number of it is a long sum."""
    return Call("askSum", _data("askSum", dispute, state, choice, number))


def give_sum(dispute: Hash32, state: Dispute, parts: bytes) -> Call:
    """The accused's turn where the parts of a sum were asked for."""
    return Call("giveSum", _data("giveSum", dispute, state, parts))


def wrong_sum(dispute: Hash32, state: Dispute, matter: Matter, shape: bytes, parts: bytes) -> Call:
    """The parts that were given do not make the number."""
    return Call("wrongSum", _data("wrongSum", dispute, state, matter, shape, parts))


def wrong_part(  # noqa: PLR0917
    dispute: Hash32, state: Dispute, matter: Matter, shape: bytes, parts: bytes, index: int, step: bytes
) -> Call:
    """One of the parts is not the sum of its terms."""
    return Call("wrongPart", _data("wrongPart", dispute, state, matter, shape, parts, index, step))


def wrong_step(  # noqa: PLR0917
    dispute: Hash32, state: Dispute, matter: Matter, shape: bytes, choice: NamedNode, step: bytes
) -> Call:
    """A number of the chosen word does not follow."""
    return Call("wrongStep", _data("wrongStep", dispute, state, matter, shape, choice, step))


def wrong_row(dispute: Hash32, state: Dispute, matter: Matter, shape: bytes, opening: bytes) -> Call:
    """The signed row is too far from the trace's."""
    return Call("wrongRow", _data("wrongRow", dispute, state, matter, shape, opening))


def silent(dispute: Hash32, state: Dispute) -> Call:
    """The accused showed nothing in time."""
    return Call("silent", _data("silent", dispute, state))


def close(dispute: Hash32, state: Dispute) -> Call:
    """The accuser was silent, or nothing can come of it."""
    return Call("close", _data("close", dispute, state))


def dispute_of(dispute: Hash32) -> View[Hash32]:
    """Hash of the state under way; zero: none; ``game.ENDED``."""
    return View("disputeOf", _data("disputeOf", dispute), converter(Hash32), DISPUTES)


def bond_for() -> View[int]:
    """What an accuser pays in."""
    return View("bondFor", _data("bondFor"), int, DISPUTES)


def windows() -> View[tuple[int, int]]:
    """Blocks of a turn, and from an order's reference block to the last one in which a dispute over it is opened."""
    return View("windows", _data("windows"), lambda turn, opening: (int(turn), int(opening)), DISPUTES)


_NAMES: dict[type, str] = {NodesShown: "Shown", NodeChosen: "Chosen"}


@lru_cache(maxsize=1)
def _decoders() -> Mapping[bytes, EventDecoder[Any]]:
    events = named("event", DISPUTES)
    names = {kind: _NAMES.get(kind, kind.__name__) for kind in get_args(DisputeEvent)}
    return {events[name].topic: decoder(kind, events[name]) for kind, name in names.items()}


def _data(function: str, *arguments: object) -> bytes:
    packed = (one.packed if isinstance(one, Dispute) else one for one in arguments)
    return calldata(DISPUTES, function, *packed)
