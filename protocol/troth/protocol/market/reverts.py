"""Reverts of the market in words: the contracts' custom errors with values, and what the sender can do about each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from troth.protocol.bindings import DISPUTES, IMPRINTS, MARKET, STEPS, errors_by_selector
from troth.protocol.contract_errors import REMEDIES as BESIDE
from troth.protocol.contract_errors import ContractError, Remedy, explained

GENERAL = "Fold the newest events, compare the arguments with them, and build the call again."


def decode_error(data: bytes) -> ContractError:
    """What revert ``data`` of any contract of a deployment, its factory, Imprints or Disputes says; never raises."""
    known = errors_by_selector((*MARKET, IMPRINTS))
    if data[:4] in known:
        return explained(data, known, REMEDIES, GENERAL)
    return explained(data, errors_by_selector((DISPUTES, STEPS)), BESIDE, GENERAL)


def _wait(since: str) -> Remedy:
    """Wait until the block that an argument names."""

    def remedy(error: Mapping[str, Any]) -> str:
        return f"Send this from block {error[since]} on; the chain is at block {error['blockNumber']}."

    return remedy


REMEDIES: Mapping[str, Remedy] = {
    "NotAuthorised": "Only contracts of the same deployment call this.",
    "InsufficientPot": lambda error: (
        f"The pot holds {error['balance']} and not {error['amount']}; add the difference of "
        f"{error['amount'] - error['balance']} first."
    ),
    "WrongValue": lambda error: f"Send exactly {error['expected']} wei with the call, not {error['value']}.",
    "AmountTooLarge": "Amounts have 96 bits; pass a smaller one.",
    "ZeroAmount": "Pass an amount above zero.",
    "NothingToWithdraw": lambda error: f"{error['account']} has no credit; redeem a voucher first.",
    "UnknownTab": "Open the tab first, or correct payer, payee and key.",
    "InvalidTabConsent": lambda error: f"Let {error['key']} sign TabConsent(payer, payee) for this Bank.",
    "TabAlreadyOpen": "Top the tab up instead of opening it.",
    "TabIsClosing": lambda error: f"The tab closes at block {error['closesAt']}; open it again after that.",
    "TabNotClosing": "Close the tab first.",
    "TabStillClosing": _wait("closesAt"),
    "NotPayer": "Send this from the tab's payer.",
    "ForeignVoucher": "The voucher names another tab; pass it with its own.",
    "InvalidVoucher": lambda error: f"Let {error['key']} sign the voucher for this Bank.",
    "SpentAboveAuthorised": lambda error: (
        f"A voucher spends at most what it authorises: {error['spent']} is above {error['authorised']}."
    ),
    "NothingToRedeem": lambda error: (
        f"The voucher shows {error['owed']} and {error['redeemed']} are redeemed; wait for a newer one."
    ),
    "ClaimUnderWay": "Settle or strike the tab's claim first.",
    "ClaimMismatch": "The claim has moved on; fold its newest events and build the call again.",
    "InvalidClaim": "Claim a range of numbers that the voucher does not acknowledge, with their total.",
    "ClaimAboveAuthorised": lambda error: (
        f"Claim less: {error['owed']} would be owed, and the payer authorised {error['authorised']}."
    ),
    "NotClaimed": lambda error: f"Number {error['sequence']} is not in the claim; name one that is.",
    "AlreadyObjected": "Nothing needs to be done: that leaf was asked for.",
    "NoObjection": "Nobody asked for that leaf, or it was shown already.",
    "TooLateToObject": lambda error: f"Objections end an answer window before block {error['settlesAt']}.",
    "AnswerStillPossible": _wait("deadline"),
    "AnswerTooLate": lambda error: f"The leaf was due by block {error['deadline']}; claim again without it.",
    "ObjectionsOpen": lambda error: f"Answer the {error['objections']} open objections first.",
    "ClaimNotDue": _wait("settlesAt"),
    "NotScheduler": lambda error: f"{error['caller']} is no registered scheduler; send this from its operator.",
    "WrongNumber": lambda error: f"Post entry number {error['expected']}.",
    "InvalidParameters": lambda error: f"The parameters break rule {error['rule']} of contracts/market/Deployment.sol.",
    "ConstantBeacon": "This chain's RANDAO does not change: nothing can be drawn on it. Deploy on another chain.",
    "PrecompileMissing": lambda error: f"This chain lacks {error['precompile']}; deploy on one with Osaka's rules.",
    "WrongCode": lambda error: f"Part {error['index']} is not the shipped bytecode; pass that of these bindings.",
    "InvalidPot": "Name an account's pot by the account, and a bond by its case or summons.",
    "LeafWorthLess": "Show a leaf that is worth what the tree says, or claim again without it.",
    "LengthsDiffer": "Pass as many vouchers and signatures as tabs.",
    "NotPayee": "Send this from the tab's payee or its owner.",
    "SafeERC20FailedOperation": "Approve the Bank for the amount, and check the token's balance.",
    "TooManyObjections": "Wait until some of the open objections are answered or struck.",
    "TransferFailed": "The receiver refuses money; set another payout address.",
    "WrongDepth": "Pass one sibling and one sum for each level of the tree.",
    "WrongPath": "Pass the path of exactly this number in the claimed tree.",
    "ZeroAddress": "Pass an address that is not zero.",
    "AlreadyExiting": "The party is leaving; withdraw its stake after the exit block.",
    "BlockNotPast": "Draw at a block that has passed.",
    "DrawExhausted": "Wait for more stake in this group, or pay what its nodes ask.",
    "EndpointNotHttps": "Give an endpoint that starts with https://.",
    "GroupEmpty": "Wait for nodes, or choose another layer split.",
    "InvalidConsent": "Let the operator's key sign Consent(owner, operator) for this Bank.",
    "InvalidSegmentCount": "Name one or two segments, each with its ask.",
    "InvalidSlice": "Choose layers inside the model.",
    "InvalidVrfKey": "Register a point of P-256.",
    "NotExiting": "Deregister first; the stake is free after the unbonding time.",
    "NotInSegment": "Name a segment that the node is in.",
    "NotOwner": "Send this from the operator's owner.",
    "NotOwnerOrOperator": "Send this from the operator or its owner.",
    "NothingToEvict": "Nothing needs to be done: the stake covers all seats.",
    "OperatorKnown": "Create a new operator key: an address registers once in its life.",
    "SegmentOutsideSlice": "Choose a segment inside the layers that the node hosts.",
    "SegmentTwice": "Name each segment once.",
    "SliceChangedLately": "Wait until earlier orders' reference blocks are too old.",
    "StakeLocked": "Wait for the end of the cases that lock this stake.",
    "StakeTooLow": "Add stake for a seat; a node below its penalty takes none: register another key.",
    "StillUnbonding": "Wait for the exit block.",
    "UnknownClass": "Register the execution class first, or name one that is registered.",
    "UnknownModel": "Register the model first.",
    "UnknownOperator": "Register this operator first, or correct the address.",
    "WrongHint": "Ask the Lens for the draw's hints again.",
    "CaseClosed": "Nothing needs to be done: the case was decided for good.",
    "CaseUnderWay": "Join the case that is under way.",
    "NotReviewer": "Only a drawn reviewer of this round calls this.",
    "StateMismatch": "The case has moved on; fold its newest events and build the call again.",
    "TooFewCommitments": "Collect commitments of more than half of the seats, or expire the case.",
    "WrongPhase": "The case is in another phase; fold its newest events.",
    "WrongHeader": "Pass the header of exactly the block that is due.",
    "NotClient": "Send this from the client or its tab key, or bring a rejection.",
    "RevealMissing": "Wait for the missing reveal, or until the window is over.",
    "CommitmentMismatch": "Show exactly what was committed.",
    "TraceMismatch": "Show the root and salt of the trace that was signed.",
    "NotHit": "This secret did not hit: nothing was to be checked.",
    "SecretMisses": "This secret did not hit: there is nothing to summon.",
    "AlreadySummoned": "Nothing needs to be done: this was summoned.",
    "SummonsMismatch": "The summons has moved on; fold its newest events and build the call again.",
    "VerdictMissing": "Show the verdicts of all drawn verifiers, or pass the summons on to the silent one.",
    "WrongDeposit": "Send the deposit that the Summons asks for now.",
    "AlreadyProven": "Nothing needs to be done: this subject has convicted.",
    "NoContradiction": "These words do not contradict each other: they convict nobody.",
    "NothingShort": "The tab owes nothing to a settled claim.",
    "AlreadyRegistered": "Nothing needs to be done: the same content is there under this id.",
    "PenaltyTooLow": "Raise the penalty until cheating cannot pay (market.economy.least_penalty).",
    "SeatTooLow": "Raise the stake of a seat (market.economy.least_seat).",
    "CallTooLarge": "Take fewer reviewers or tiles: a case's largest call must fit a transaction.",
    "InvalidCommittee": "Take odd numbers of verifiers and reviewers, more reviewers than verifiers.",
    "AlreadyBegun": "Go on with create: this deployment was begun.",
    "AlreadyCreated": "Nothing needs to be done: this part stands.",
    "NotBegun": "Call begin with the same parameters first.",
    "UnknownHeader": "Pass headers of two of the last 256 blocks.",
    "UnknownPart": "Parts are numbered as in Contracts.",
}
