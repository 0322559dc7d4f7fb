"""Reverts in words: the contract's custom errors decoded, with a remedy where the sender can do something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from troth.protocol.bindings import Entry, errors_by_selector
from troth.protocol.bindings.structs import decode_parameters
from troth.protocol.errors import InvalidField

_REVERT_STRING = bytes.fromhex("08c379a0")
_PANIC = bytes.fromhex("4e487b71")
_PANICS = {
    0x01: "an assertion failed",
    0x11: "arithmetic overflow",
    0x12: "division by zero",
    0x21: "a number is no member of an enum",
    0x32: "an index is out of bounds",
}
Remedy = str | Callable[[Mapping[str, Any]], str]
"""What to do about an error, said outright or from the error's arguments."""

_GENERAL_REMEDY = "Compare the call with the task's current phase and the registry, then build it again."


@dataclass(frozen=True, slots=True)
class ContractError:
    """A revert: ``name`` of the custom error, its ``arguments`` by name, and what to do about it."""

    name: str
    arguments: Mapping[str, Any]
    remedy: str

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self.arguments.items())
        return f"{self.name}({shown})"


def _shown(value: Any) -> str:
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def decode_error(data: bytes) -> ContractError:
    """What revert ``data`` of Troth or of the Committee says; never raises."""
    return explained(data, errors_by_selector(), REMEDIES)


def explained(
    data: bytes, known: Mapping[bytes, Entry], remedies: Mapping[str, Remedy], general: str = _GENERAL_REMEDY
) -> ContractError:
    """What revert ``data`` says, if it is one of the ``known`` errors or the compiler's own.

    Never raises: data that nobody knows is named ``Unknown`` and carried along.
    """
    if not data:
        return ContractError("Reverted", {}, "The contract gave no reason; check address, calldata and value.")
    selector, body = data[:4], data[4:]
    if selector in (_REVERT_STRING, _PANIC):
        return _builtin(selector, body)
    entry = known.get(selector)
    return _unknown(data) if entry is None else _custom(entry, data, remedies, general)


def _custom(entry: Entry, data: bytes, remedies: Mapping[str, Remedy], general: str) -> ContractError:
    try:
        values = decode_parameters(entry.inputs, data[4:])
    except InvalidField:
        return _unknown(data)
    arguments = {parameter.name: value for parameter, value in zip(entry.inputs, values, strict=True)}
    remedy = remedies.get(entry.name, general)
    return ContractError(entry.name, arguments, remedy if isinstance(remedy, str) else remedy(arguments))


def _builtin(selector: bytes, body: bytes) -> ContractError:
    if selector == _PANIC and len(body) == 32:
        code = int.from_bytes(body, "big")
        return ContractError("Panic", {"code": _PANICS.get(code, hex(code))}, _GENERAL_REMEDY)
    length = int.from_bytes(body[32:64], "big")
    text = body[64 : 64 + min(length, 500)].decode("utf-8", errors="replace")
    return ContractError("Error", {"message": text}, _GENERAL_REMEDY)


def _unknown(data: bytes) -> ContractError:
    return ContractError(
        "Unknown", {"data": data[:256]}, "Compare the contract's version with this program's bindings."
    )


def ether(wei: int) -> str:
    """Exact decimal ether, for example "0.05 ETH"."""
    whole, rest = divmod(wei, 10**18)
    fraction = f"{rest:018d}".rstrip("0")
    return f"{whole}.{fraction} ETH" if fraction else f"{whole} ETH"


def _difference(arguments: Mapping[str, Any], needed: str, present: str) -> str:
    return ether(arguments[needed] - arguments[present])


REMEDIES: Mapping[str, Remedy] = {
    "AlreadyRegistered": "Nothing needs to be done: the same model or class is there under this id.",
    "UnknownModel": "Register the model first.",
    "UnknownClass": "Register the execution class first, or choose one that is registered.",
    "MinimumStakeTooLow": lambda error: f"Set the class's minimum stake to {ether(error['required'])} or more.",
    "OperatorKnown": "Create a new operator key: an address registers once in its life.",
    "UnknownOperator": "Register this operator first, or correct the address.",
    "NotOwner": lambda error: f"Send this from the owner of {error['operator']}, not from {error['caller']}.",
    "NotOwnerOrOperator": lambda error: f"Send this from {error['operator']} or from its owner.",
    "InvalidConsent": lambda error: f"Sign the consent with the key of {error['operator']}, for the sending owner.",
    "EndpointNotHttps": "Give an endpoint that starts with https://.",
    "StakeTooLow": lambda error: f"Add at least {_difference(error, 'minimum', 'stake')} of stake.",
    "SchedulerNotBonded": lambda error: (
        f"The scheduler must be registered, not leaving, and hold {ether(error['minimum'])}; "
        f"it holds {ether(error['stake'])}."
    ),
    "ZeroAmount": "Send an amount above zero.",
    "InvalidSlice": lambda error: f"Choose layers [first, end) inside [0, {error['layers']}).",
    "SegmentOutsideSlice": lambda error: f"Choose a segment inside [{error['sliceFirst']}, {error['sliceEnd']}).",
    "InvalidSegmentCount": "Name 1 to 16 segments.",
    "AlreadyEnrolled": "Nothing needs to be done: the node is in this group.",
    "AlreadyExiting": lambda error: f"The operator is leaving; withdraw after block {error['exitBlock']}.",
    "NotExiting": "Deregister first; the stake is free after the unbonding period.",
    "SliceChangedLately": lambda error: f"Send this from block {error['keptUntil']} on.",
    "StillUnbonding": lambda error: f"Wait {error['exitBlock'] - error['currentBlock'] + 1} more blocks.",
    "NothingToClaim": "There is no credit to pay out yet.",
    "InsufficientEscrow": lambda error: (
        f"Deposit at least {_difference(error, 'needed', 'balance')} for {error['client']}."
    ),
    "TextNotPlain": "Use printable ASCII characters only, at most 255 of them.",
    "OrderExpired": "Let the client sign a new order with a later deadline.",
    "InvalidReferenceBlock": "Let the client sign a new order with a reference block among the last 200.",
    "FeeAboveMaximum": lambda error: f"Let the client sign an order with a maximum fee of {ether(error['fee'])}.",
    "TooManyOpenings": lambda error: (
        f"All {error['openings']} parties must be able to reveal within {error['revealWindow']} blocks and in one "
        "transaction; let the client sign an order with fewer segments, or use a class with fewer tiles."
    ),
    "TaskKnown": "The order was used already; let the client sign a new one with another nonce.",
    "StateMismatch": "The task has moved on; fold its newest events and build the call again.",
    "GroupTooSmall": lambda error: (
        f"The group has {error['members']} members where {error['needed']} are needed; wait for nodes, or choose "
        "another layer split."
    ),
    "TooEarly": lambda error: f"Send this from block {error['firstBlock']} on.",
    "TooLate": lambda error: f"The deadline was block {error['lastBlock']}; close or settle the task.",
    "OpeningMissing": lambda error: f"Collect the opening, or settle after block {error['lastBlock']}.",
    "TransferFailed": lambda error: f"{error['to']} refuses ETH; set another payout address.",
}
