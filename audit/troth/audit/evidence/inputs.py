"""The call behind an event, from the input of the transaction that emitted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from troth.audit.evidence.types import AuditEvidence
from troth.protocol.bindings.structs import converter
from troth.protocol.calls import DecodedCall
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import LogMeta
from troth.protocol.market.calls import read_call
from troth.protocol.market.parts import Part

Made = TypeVar("Made")


def call_behind(evidence: AuditEvidence, place: LogMeta, part: Part, *functions: str) -> DecodedCall | Unavailable:
    """The call of a part behind a log, which must be one of ``functions``."""
    transaction = evidence.transactions.get(place.transaction)
    if transaction is None:
        return Unavailable("the transaction's input could not be had")
    if transaction.receiver != part.of(evidence.place.contracts):
        return Unavailable(f"the call came through another contract, {transaction.receiver}")
    try:
        call = read_call(part, transaction.data)
    except (ProtocolError, ValueError) as error:
        return Unavailable(f"its input is no call of the {part.value}: {error}", impossible=True)
    if call.entry.name not in functions:
        return Unavailable(f"{call.entry.name} emits no such event", impossible=True)
    return call


def value(call: DecodedCall, name: str, kind: type[Made]) -> Made:
    """One argument as its type; raises InvalidField if it has another form."""
    made: Made = converter(kind)(call.value(name))  # type: ignore[arg-type]
    return made


def values(call: DecodedCall, name: str, kind: type[Made]) -> tuple[Made, ...]:
    """One argument that is a list, each as its type."""
    read: Any = converter(kind)  # type: ignore[arg-type]
    return tuple(read(one) for one in call.value(name))


@dataclass(frozen=True, slots=True)
class Unavailable:
    """No call can be read: ``impossible`` if this transaction cannot have emitted the event at all."""

    reason: str
    impossible: bool = False
