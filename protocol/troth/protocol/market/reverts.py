"""Reverts of the market in words: the contracts' custom errors with values, and what the sender can do about each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from troth.protocol.bindings import MARKET, errors_by_selector
from troth.protocol.contract_errors import ContractError, Remedy, explained


def decode_error(data: bytes) -> ContractError:
    """What revert ``data`` of any contract of a deployment, or of its factory, says; never raises."""
    return explained(data, errors_by_selector(MARKET), REMEDIES)


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
}
