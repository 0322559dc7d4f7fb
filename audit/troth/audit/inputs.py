"""The call behind an event, from the input of the transaction that emitted it."""

from __future__ import annotations

from typing import TypeVar

from troth.audit.evidence import Evidence
from troth.audit.market.inputs import Unavailable
from troth.audit.transactions import Transaction
from troth.protocol.bindings.structs import from_abi
from troth.protocol.calls import DecodedCall, TaskCall, decode_call, read_task_call
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import LogMeta
from troth.protocol.types import Hash32

Struct = TypeVar("Struct")


def direct(evidence: Evidence, place: LogMeta) -> Transaction | Unavailable:
    """The transaction of a log, if it called the contract itself."""
    transaction = evidence.transactions.get(place.transaction)
    if transaction is None:
        return Unavailable("the transaction's input could not be had")
    if transaction.receiver != evidence.contract:
        return Unavailable(f"the call came through another contract, {transaction.receiver}")
    return transaction


def decoded(evidence: Evidence, place: LogMeta, *functions: str) -> DecodedCall | Unavailable:
    """The call behind a log, which must be one of ``functions``."""
    transaction = direct(evidence, place)
    if isinstance(transaction, Unavailable):
        return transaction
    try:
        call = decode_call(transaction.data)
    except (ProtocolError, ValueError) as error:
        return Unavailable(f"its input is no call of the contract: {error}", impossible=True)
    if call.entry.name not in functions:
        return Unavailable(f"{call.entry.name} emits no such event", impossible=True)
    return call


def task_call(evidence: Evidence, place: LogMeta, *kinds: type[TaskCall]) -> TaskCall | Unavailable:
    """The typed call behind a log, which must be of one of ``kinds``."""
    transaction = direct(evidence, place)
    if isinstance(transaction, Unavailable):
        return transaction
    try:
        call = read_task_call(transaction.data)
    except (ProtocolError, ValueError) as error:
        return Unavailable(f"its input is no such call: {error}", impossible=True)
    if not isinstance(call, kinds):
        return Unavailable(f"{type(call).__name__} emits no such event", impossible=True)
    return call


def struct(call: DecodedCall, name: str, kind: type[Struct]) -> Struct:
    """An argument as the dataclass ``kind``; raises InvalidField if it has another form."""
    return from_abi(kind, call.value(name))


def same_task(call: DecodedCall, task_id: Hash32) -> bool:
    """Whether a call with a ``taskId`` names this task."""
    return bytes(call.value("taskId")) == task_id
