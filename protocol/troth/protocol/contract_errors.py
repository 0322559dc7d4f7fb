"""Reverts in words: the contract's custom errors decoded, with a remedy where the sender can do something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from troth.protocol.bindings import (
    COMMITTEE,
    DISPUTES,
    EVIDENCE,
    IMPRINTS,
    ORGANISATIONS,
    REPUTATION,
    STEPS,
    AbiEntry,
    Parameter,
    errors_by_selector,
)
from troth.protocol.bindings.structs import decode_parameters
from troth.protocol.errors import InvalidField

_BESIDE_A_MARKET = (COMMITTEE, REPUTATION, ORGANISATIONS, DISPUTES, STEPS, IMPRINTS, EVIDENCE)
"""And what those that convict are told by Evidence."""
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

_GENERAL_REMEDY = "Compare the call with the contract's state, and build it again."
REMEDIES: Mapping[str, Remedy] = {
    "AlreadyDisputed": "This account has disputed this row before: dispute another row, or from another account.",
    "StateMismatch": "The dispute has moved on: read its events again.",
    "TooLate": lambda error: f"The last block was {error['lastBlock']}.",
    "TooEarly": lambda error: f"Wait for block {error['lastBlock'] + 1}.",
    "NotFloat32": "Rows in bfloat16 are not disputed: no tolerance is proven for them. Bring the answer to the court.",
    "ShapeNotNamed": "The class does not say how its layers compute. Bring the answer to the court.",
    "NothingToLose": lambda error: f"{error['accused']} can no longer be slashed, or may leave before a dispute ends.",
    "BondMismatch": lambda error: f"Send {error['expected']} with the call, not {error['given']}.",
    "NothingWrong": "What is shown is right, or as near as honest machines are: show another place.",
    "NoKey": lambda error: f"Rows of {error['columns']} columns have no key here: show the row itself.",
    "ImprintsNotNamed": "The class names no imprints there: show the row itself.",
    "ProofDoesNotHold": "Prove again, for this account and contract, with the key of this deployment's ceremony.",
    "NotByConvict": "Send it to the deployment's prover, whose `convict` pays whom it is for.",
    "ZeroRecipient": "Name who is paid.",
    "AlreadyProven": "Nothing is left to do: this result was convicted before.",
    "NotCheckable": "The model or the text is too large for one transaction. Bring the answer to the court.",
    "AlreadyMember": "Nothing needs to be done: this operator is a member.",
    "UnknownMember": "Name an operator that is a member.",
    "NotAMember": lambda error: f"Leave out the signature of {error['signer']}, who is no member.",
    "SignersOutOfOrder": "Sort the signatures by their signers' addresses, each once.",
    "TooFewSignatures": lambda error: f"Collect {error['needed']} signatures; there are {error['signatures']}.",
    "InvalidEndpoint": "Give an endpoint that starts with https://.",
    "InvalidCount": "A committee has 1 to 32 members.",
    "ZeroOperator": "Name the member's operator.",
    "ZeroTlsKeyHash": "Pass the hash of the member's TLS key, as `troth committee init` prints it.",
    "InvalidRules": lambda error: f"They break rule {error['rule']} at the end of contracts/reputation/Reputation.sol.",
    "NotAContract": lambda error: f"Nothing stands at {error['place']}; name the Committee and the market's Registry.",
    "NotInCommittee": lambda error: f"The members of the Committee add {error['operator']} first.",
    "AlreadyEnrolled": lambda error: f"{error['operator']} is enrolled, or was expelled; name another member.",
    "OwnerEnrolled": lambda error: f"One owner has one member, here {error['operator']}; bond from another account.",
    "WrongBond": lambda error: f"Send exactly {error['bond']} wei with the call, not {error['paid']}.",
    "InvalidConsent": lambda error: f"Let {error['operator']} sign EnrollRater for this sender, key and contract.",
    "NotEnrolled": lambda error: f"{error['operator']} has no bond here.",
    "NotOwnerOrOperator": lambda error: f"Send this from {error['operator']} or its owner.",
    "AlreadyLeaving": lambda error: f"It left already; withdraw after block {error['exitBlock']}.",
    "StillBonded": lambda error: (
        f"Withdraw after block {error['exitBlock']}; the chain is at {error['blockNumber']}."
        if error["exitBlock"]
        else "Leave first."
    ),
    "WrongEpoch": lambda error: (
        f"It is epoch {error['current']}: an epoch is settled while it lasts, and reports until the next is over."
    ),
    "AlreadySettled": lambda error: f"Wait for epoch {error['epoch'] + 1}.",
    "WrongSeed": "The chain was reorganised below the epoch, or the epoch is too long for this chain: sign again.",
    "ListNotFixed": "Settle the nodes and prompts that the epoch before fixed; none, if it was not settled.",
    "WrongLeader": lambda error: f"{error['drawn']} leads this epoch.",
    "LeaderDidNotSign": lambda error: f"Add the signature of {error['leader']}.",
    "NotARater": lambda error: f"Leave out the signature of {error['signer']}, who does not count in this epoch.",
    "JudgesItself": lambda error: (
        f"Add signatures of members that do not belong to {error['owner']}: {error['others']} of {error['needed']}."
    ),
    "SilentAndScored": lambda error: f"{error['node']} answered: leave its credit or the reports out.",
    "NotTheLast": lambda error: (
        f"Reports are taken for the epoch that was settled last, of which {error['through']} is the next."
    ),
    "AnotherUpdate": "Bring the reports with the update that settled the epoch.",
    "NobodySilent": lambda error: (
        f"Whom more than a third of the members report is rated for epoch {error['epoch']}: send nothing."
    ),
    "NotAReputation": lambda error: f"Nothing stands at {error['place']}; name the market's Reputation.",
    "NotLastEpoch": lambda error: f"It is epoch {error['current']}: an epoch is posted in the one that follows it.",
    "NotInGroup": lambda error: (
        f"{error['node']} had no seats there at block {error['blockNumber']}: who is away for a part earns nothing."
    ),
    "NotRated": lambda error: f"Members rated no answer of {error['node']} in epoch {error['epoch']}: nothing is due.",
    "AbnormalCredit": lambda error: f"{error['node']} was silent or answered badly in epoch {error['epoch']}: wait.",
    "BelowBar": lambda error: f"The score of {error['node']} has to climb first: `troth committee reputation show`.",
    "InvalidDeployment": "Ask for at least one replica and one epoch, and say in 256 bytes where the model is found.",
    "NotEnoughCredits": lambda error: (
        f"It costs {error['cost']} and {error['owner']} has {error['balance']}: fewer replicas, or fewer days."
    ),
    "UnknownDeployment": "List them: `troth org status`.",
    "DeploymentOver": lambda error: f"It ends before epoch {error['end']}; nothing can be changed any more.",
    "DeploymentNotOver": lambda error: f"Wait for epoch {error['end'] + 1}; it is epoch {error['current']}.",
    "DeploymentFull": lambda error: f"It has room for {error['most']} layers; host another deployment.",
    "WrongClass": lambda error: f"{error['node']} serves another class: register a node of the deployed one.",
    "InvalidLayers": lambda error: f"Name layers inside {error['first']}:{error['end']}, as the node hosts them.",
    "StillHosting": lambda error: (
        f"{error['node']} hosts another deployment; take this one after epoch {error['end']}."
    ),
    "NotHosting": lambda error: f"{error['node']} hosts no deployment now.",
}
"""What to do about the errors of the directory's committee, of Reputation, and of Organisations."""


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
    """What revert ``data`` of a contract that stands beside a market says, such as Reputation; never raises."""
    return explained(data, errors_by_selector(_BESIDE_A_MARKET), REMEDIES)


def _of_token(name: str, who: str, has: str) -> AbiEntry:
    fields = ((who, "address"), (has, "uint256"), ("needed", "uint256"))
    return AbiEntry("error", name, tuple(Parameter(one, kind, False, ()) for one, kind in fields), ())


_OF_TOKENS = {
    entry.selector: entry
    for entry in (
        _of_token("ERC20InsufficientBalance", "sender", "balance"),
        _of_token("ERC20InsufficientAllowance", "spender", "allowance"),
    )
}
"""What the asset's own token says where it pays nothing (ERC-6093): a contract of a deployment passes it on."""
_TOKEN_REMEDIES: Mapping[str, Remedy] = {
    "ERC20InsufficientBalance": lambda error: (
        f"{error['sender']} has {error['balance']} units of the token, and {error['needed']} are needed: send it more."
    ),
    "ERC20InsufficientAllowance": lambda error: (
        f"{error['spender']} may take {error['allowance']} units of the token, and {error['needed']} are needed: "
        "approve that first."
    ),
}


def explained(
    data: bytes, known: Mapping[bytes, AbiEntry], remedies: Mapping[str, Remedy], general: str = _GENERAL_REMEDY
) -> ContractError:
    """What revert ``data`` says, if it is one of the ``known`` errors or the compiler's own.

    Never raises: data that nobody knows is named ``Unknown`` and carried along.
    """
    if not data:
        return ContractError("Reverted", {}, "The contract gave no reason; check address, calldata and value.")
    selector, body = data[:4], data[4:]
    if selector in (_REVERT_STRING, _PANIC):
        return _builtin(selector, body)
    if selector in _OF_TOKENS and selector not in known:
        return _custom(_OF_TOKENS[selector], data, _TOKEN_REMEDIES, general)
    entry = known.get(selector)
    return _unknown(data) if entry is None else _custom(entry, data, remedies, general)


def _custom(entry: AbiEntry, data: bytes, remedies: Mapping[str, Remedy], general: str) -> ContractError:
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
